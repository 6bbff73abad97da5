"""Tiny random models of many architectures: the smallest configs with the features of each.

Windows are shorter than the longest document, so that they matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

VOCABULARY = 64
WINDOW = {"sliding_window": 4}
MIXED = WINDOW | {"layer_types": ["sliding_attention", "full_attention"]}
SPECIALS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
PLAIN = SPECIALS | {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = PLAIN | {"num_key_value_heads": 2}
EXPERTS = GROUPED | {"num_experts_per_tok": 2}
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GPT |= {"bos_token_id": 1, "eos_token_id": 2}
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
STATE = SMALL | {"state_size": 8}
LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 8,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}

SETTINGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bamba": (
        "BambaConfig",
        GROUPED
        | {"attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1}
        | {"mamba_d_state": 8, "mamba_chunk_size": 8},
    ),
    "biogpt": ("BioGptConfig", PLAIN),
    "bloom": ("BloomConfig", SMALL | {"n_head": 4}),
    "codegen": ("CodeGenConfig", GPT | {"rotary_dim": 4}),
    "cohere": ("CohereConfig", GROUPED),
    "cohere2": ("Cohere2Config", GROUPED | MIXED),
    "deepseek_v2": ("DeepseekV2Config", EXPERTS | LATENT),
    "deepseek_v3": ("DeepseekV3Config", EXPERTS | LATENT),
    "ernie4_5": ("Ernie4_5Config", GROUPED | {"head_dim": 8}),
    "exaone4": ("Exaone4Config", GROUPED | MIXED),
    "falcon": ("FalconConfig", SMALL | {"num_attention_heads": 4}),
    "falcon (alibi)": ("FalconConfig", SMALL | {"num_attention_heads": 4, "alibi": True}),
    "falcon_mamba": ("FalconMambaConfig", STATE),
    "gemma": ("GemmaConfig", GROUPED | {"head_dim": 8}),
    "gemma2": ("Gemma2Config", GROUPED | WINDOW | {"head_dim": 8, "query_pre_attn_scalar": 8}),
    "gemma3_text": ("Gemma3TextConfig", GROUPED | MIXED | {"head_dim": 8}),
    "glm": ("GlmConfig", GROUPED | {"head_dim": 8}),
    "glm4": ("Glm4Config", GROUPED | {"head_dim": 8}),
    "gpt2": ("GPT2Config", GPT),
    "gpt_bigcode": ("GPTBigCodeConfig", GPT),
    "gpt_neo": (
        "GPTNeoConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
        | {"attention_types": [[["global", "local"], 1]], "window_size": 4}
        | {"max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "gpt_neox": ("GPTNeoXConfig", PLAIN),
    "gpt_oss": ("GptOssConfig", EXPERTS | WINDOW | {"head_dim": 8, "num_local_experts": 4}),
    "gptj": ("GPTJConfig", GPT | {"rotary_dim": 4}),
    "granite": ("GraniteConfig", GROUPED),
    "granitemoe": ("GraniteMoeConfig", EXPERTS | {"num_local_experts": 4}),
    "helium": ("HeliumConfig", GROUPED | {"head_dim": 8}),
    "jamba": (
        "JambaConfig",
        EXPERTS
        | {"num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False}
        | {"attn_layer_offset": 1, "attn_layer_period": 2},
    ),
    "lfm2": ("Lfm2Config", GROUPED | {"layer_types": ["conv", "full_attention"]}),
    "llama": ("LlamaConfig", GROUPED),
    "mamba": ("MambaConfig", STATE),
    "mamba2": (
        "Mamba2Config",
        STATE | {"num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8},
    ),
    "mistral": ("MistralConfig", GROUPED | WINDOW),
    "mixtral": ("MixtralConfig", EXPERTS | {"num_local_experts": 4}),
    "mpt": (
        "MptConfig",
        {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
    ),
    "nemotron": ("NemotronConfig", GROUPED),
    "olmo2": ("Olmo2Config", GROUPED),
    "olmo3": ("Olmo3Config", GROUPED | MIXED),
    "olmoe": ("OlmoeConfig", EXPERTS | {"num_experts": 4}),
    "opt": (
        "OPTConfig",
        SMALL
        | SPECIALS
        | {"ffn_dim": 64, "num_attention_heads": 4, "max_position_embeddings": 64}
        | {"word_embed_proj_dim": 32},
    ),
    "phi": ("PhiConfig", GROUPED),
    "phi3": ("Phi3Config", GROUPED | WINDOW),
    "qwen2": ("Qwen2Config", GROUPED),
    "qwen2 (windows)": (
        "Qwen2Config",
        GROUPED | WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        EXPERTS
        | {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
    ),
    "qwen3": ("Qwen3Config", GROUPED | {"head_dim": 8}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        EXPERTS | {"head_dim": 8, "num_experts": 4, "moe_intermediate_size": 32},
    ),
    "recurrent_gemma": (
        "RecurrentGemmaConfig",
        GROUPED
        | {"head_dim": 8, "attention_window_size": 4, "lru_width": 32}
        | {"block_types": ["recurrent", "attention"]},
    ),
    "smollm3": ("SmolLM3Config", GROUPED),
    "stablelm": ("StableLmConfig", GROUPED),
    "starcoder2": ("Starcoder2Config", GROUPED | WINDOW),
}
"""Class of the config and its arguments, by the name that transformers has for the architecture."""


def build(
    name: str, backend: str, dtype: torch.dtype, **settings: object
) -> transformers.PreTrainedModel | None:
    """The model in evaluation mode, always with the same weights; None if it lacks the backend."""
    kind, arguments = SETTINGS[name]
    make: Callable[..., Any] = getattr(transformers, kind)
    torch.manual_seed(0)
    try:
        model = transformers.AutoModelForCausalLM.from_config(
            make(**arguments, **settings), attn_implementation=backend, dtype=dtype
        )
    except ValueError as error:
        if "does not support an attention implementation" in str(error):
            return None
        raise
    return model.eval()
