"""Tiny random models of many architectures, and one packed batch for all of them."""

from __future__ import annotations

import functools

import numpy as np
import torch
import transformers
from tools.architectures import EXPERTS, GROUPED, PLAIN, STATE, VOCABULARY

from quire.boundaries import Boundaries
from quire.collate import DataCollatorForCausalLM

torch.set_num_threads(1)  # the models are too small to be shared out

CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED, head_dim=8),
    # The window is shorter than the longest document, so that it matters.
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=4),
    "gemma": lambda: transformers.GemmaConfig(**GROUPED, head_dim=8),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **GROUPED,
        head_dim=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**PLAIN),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64
    ),
    "mixtral": lambda: transformers.MixtralConfig(
        **EXPERTS, num_local_experts=4, experts_implementation="batched_mm"
    ),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **EXPERTS,
        head_dim=8,
        num_experts=4,
        moe_intermediate_size=32,
        experts_implementation="batched_mm",
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **EXPERTS, head_dim=8, num_local_experts=4, sliding_window=4
    ),
    "mamba2": lambda: transformers.Mamba2Config(
        **STATE, num_heads=4, head_dim=16, n_groups=1, chunk_size=8
    ),
    "mamba": lambda: transformers.MambaConfig(**STATE),
}
ATTENTION_MODELS = [name for name in CONFIGS if "mamba" not in name and name != "gpt_oss"]
"""Those that the default batch keeps isolated; gpt-oss does not look at position_ids."""


@functools.cache
def model(name: str, backend: str = "sdpa", dtype: torch.dtype = torch.float32):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(
        CONFIGS[name](), attn_implementation=backend, dtype=dtype
    ).eval()


LENGTHS = [[7, 5, 1, 6], [9, 8]]
"""Documents of two rows; the second row ends in two places of padding."""


def boundaries(rows: int = 2) -> Boundaries:
    starts = [np.cumsum([0, *lengths[:-1]]) for lengths in LENGTHS[:rows]]
    return Boundaries.of_rows(starts, [sum(lengths) for lengths in LENGTHS[:rows]])


def rows(count: int = 2) -> list[dict]:
    generator = np.random.default_rng(0)
    return [
        {
            "input_ids": generator.integers(3, VOCABULARY, sum(lengths)).tolist(),
            "document_starts": np.cumsum([0, *lengths[:-1]]).tolist(),
        }
        for lengths in LENGTHS[:count]
    ]


class Tokenizer:
    """The special tokens that a collator needs."""

    bos_token_id, eos_token_id, pad_token_id = 1, 2, 0


def collate(packed: list[dict], **options) -> dict:
    return dict(DataCollatorForCausalLM(Tokenizer(), **options)(packed))


def segment_batch(**extra) -> dict:
    batch = collate(rows(), attention="segments")
    return {"input_ids": batch["input_ids"], "segment_ids": batch["segment_ids"], **extra}


def without_use_cache(batch: dict) -> dict:
    """What a loop that passes the three keys by name makes of a batch."""
    return {name: value for name, value in batch.items() if name != "use_cache"}


@functools.cache
def vision_model():
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]}
    config = transformers.Qwen2VLConfig(
        text_config=GROUPED | {"rope_parameters": rope},
        vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2},
        image_token_id=60,
        video_token_id=61,
        vision_start_token_id=58,
        vision_end_token_id=59,
    )
    torch.manual_seed(0)
    return transformers.Qwen2VLForConditionalGeneration(config).eval()
