"""Tiny random vision-language models, and real images through their real processors."""

from __future__ import annotations

import functools

import numpy as np
import torch
import transformers
from skimage import data
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

torch.set_num_threads(1)  # the models are too small to be shared out

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16, "qwen3_vl_moe": 16}
FAMILIES = tuple(PATCH)
PICTURES = ("astronaut", "chelsea", "coffee", "rocket", "page", "coins")


@functools.cache
def tokenizer():
    """A byte-level tokenizer with Qwen's vision tokens: 256 bytes and eight specials."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    bytewise.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytewise, eos_token=SPECIALS[2], pad_token=SPECIALS[0]
    )


def token_id(name: str) -> int:
    return tokenizer().convert_tokens_to_ids(f"<|{name}|>")


@functools.cache
def processor(family: str):
    """The family's own processor; without torchvision it has no part for videos."""
    base = {
        "qwen2_vl": transformers.Qwen2VLProcessor,
        "qwen2_5_vl": transformers.Qwen2_5_VLProcessor,
        "qwen3_vl": transformers.Qwen3VLProcessor,
        "qwen3_vl_moe": transformers.Qwen3VLProcessor,
    }[family]

    class WithoutVideos(base):
        def check_argument_for_proper_class(self, name, argument):
            return argument and super().check_argument_for_proper_class(name, argument)

    patch = PATCH[family]
    size = {"shortest_edge": (2 * patch) ** 2, "longest_edge": 12 * (2 * patch) ** 2}
    return WithoutVideos(Qwen2VLImageProcessorPil(patch_size=patch, size=size), tokenizer())


@functools.cache
def model(family: str, attention: str = "sdpa"):
    """Two layers of text, two of vision, float32, in evaluation mode."""
    config = _config(family)
    torch.manual_seed(0)
    name = {
        "qwen2_vl": "Qwen2VL",
        "qwen2_5_vl": "Qwen2_5_VL",
        "qwen3_vl": "Qwen3VL",
        "qwen3_vl_moe": "Qwen3VLMoe",
    }[family]
    made = getattr(transformers, f"{name}ForConditionalGeneration")._from_config(
        config, attn_implementation=attention
    )
    return made.eval()


def _config(family: str):
    text = {
        "vocab_size": 256 + len(SPECIALS),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": token_id("im_end"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [2, 1, 1],
        },
    }
    vision = {"depth": 2, "num_heads": 2, "patch_size": PATCH[family], "spatial_merge_size": 2}
    vision |= {
        "qwen2_vl": {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2},
        "qwen2_5_vl": {
            "hidden_size": 16,
            "intermediate_size": 24,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
            "window_size": 4 * PATCH[family],
            "tokens_per_second": 2,
        },
        "qwen3_vl": {
            "hidden_size": 16,
            "intermediate_size": 24,
            "out_hidden_size": 32,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
    }[family.removesuffix("_moe")]
    if family.endswith("_moe"):
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        text |= {"experts_implementation": "batched_mm"}  # grouped ones round by the batch
    placeholders = {
        "image_token_id": token_id("image_pad"),
        "video_token_id": token_id("video_pad"),
        "vision_start_token_id": token_id("vision_start"),
        "vision_end_token_id": token_id("vision_end"),
    }
    made = {
        "qwen2_vl": transformers.Qwen2VLConfig,
        "qwen2_5_vl": transformers.Qwen2_5_VLConfig,
        "qwen3_vl": transformers.Qwen3VLConfig,
        "qwen3_vl_moe": transformers.Qwen3VLMoeConfig,
    }[family]
    return made(text_config=text, vision_config=vision, **placeholders)


def encode(family: str, text: str, *pictures: str) -> dict[str, object]:
    """One encoded sample: as many of scikit-image's pictures as named, then text."""
    images = [np.atleast_3d(getattr(data, name)()) for name in pictures]
    images = [image if image.shape[2] == 3 else image.repeat(3, axis=2) for image in images]
    slot = "<|vision_start|><|image_pad|><|vision_end|>"
    given = {"images": images} if images else {}
    encoded = processor(family)(text=[slot * len(images) + text], return_tensors="np", **given)
    flat = ("input_ids", "attention_mask", "mm_token_type_ids")
    return {name: value[0] if name in flat else value for name, value in encoded.items()}


def encode_video(family: str, text: str, *pictures: str, seconds: float = 1.5) -> dict[str, object]:
    """One encoded sample of a video whose pairs of equal frames are real pictures of one shape."""
    frames = [encode(family, "", picture) for picture in pictures]
    grid = frames[0]["image_grid_thw"][0]
    assert all((frame["image_grid_thw"][0] == grid).all() for frame in frames)
    per_frame = "<|video_pad|>" * int(grid.prod() // 4)
    if family.startswith("qwen3"):
        body = "".join(
            f"<{i * seconds:.1f} seconds><|vision_start|>{per_frame}<|vision_end|>"
            for i in range(len(frames))
        )
    else:
        body = f"<|vision_start|>{per_frame * len(frames)}<|vision_end|>"
    ids = np.array(tokenizer()(body + text)["input_ids"])
    sample = {
        "input_ids": ids,
        "mm_token_type_ids": np.where(ids == token_id("video_pad"), 2, 0),
        "pixel_values_videos": np.concatenate([frame["pixel_values"] for frame in frames]),
        "video_grid_thw": np.array([[len(frames), *grid[1:]]]),
    }
    if family == "qwen2_5_vl":
        sample["second_per_grid_ts"] = [seconds]
    return sample


@functools.cache
def samples(family: str) -> tuple[dict[str, object], ...]:
    """Only text, one image, two images and a video, of different lengths."""
    return (
        encode(family, "A cat, and what it sees.", "chelsea"),
        encode(family, "No picture here.<|im_end|>"),
        encode(family, "Two: a rocket and a cup.<|im_end|>", "rocket", "coffee"),
        encode_video(family, "It moves.<|im_end|>", "coffee", "coffee", "coffee"),
        encode(family, "Ada was here<|im_end|>", "astronaut"),
    )
