"""Train a small Qwen3-VL on packs of real pictures, mixed from two datasets, with Trainer."""

from __future__ import annotations

import argparse
import logging
import tempfile

import numpy as np
import torch
from skimage import data
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    TrainingArguments,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from quire.verify import IsolationOptions, check_isolation
from quire.vision import FusionDataset, VisionPackingOptions, configure_training

argparse.ArgumentParser(description=__doc__).parse_args()
torch.set_num_threads(1)  # the model is too small to be shared out
logging.basicConfig(format="%(message)s")
logging.getLogger("quire.vision").setLevel(logging.INFO)

SPECIALS = (
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|im_start|>",
)
END, OPEN, CLOSE, IMAGE, VIDEO, START = range(256, 262)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes and Qwen's own special tokens; a real model has its own tokenizer."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    return PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>")


def make_model() -> Qwen3VLForConditionalGeneration:
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    text = {"vocab_size": 262, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 8}
    text |= {"rope_parameters": rope, "bos_token_id": None, "eos_token_id": END}
    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2}
    vision |= {"out_hidden_size": 32, "num_position_embeddings": 64}
    vision |= {"deepstack_visual_indexes": [0]}
    ids = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": OPEN}
    config = Qwen3VLConfig(text_config=sizes | text, vision_config=vision, **ids)
    return Qwen3VLForConditionalGeneration(config)


tokenizer = make_tokenizer()
images = Qwen2VLImageProcessorPil(
    patch_size=16, size={"shortest_edge": 32 * 32, "longest_edge": 12 * 32 * 32}
)


def turn(role: str, content: list[int]) -> list[int]:
    """A turn in the layout of Qwen's chat template."""
    return [
        START,
        *tokenizer(f"{role}\n")["input_ids"],
        *content,
        END,
        *tokenizer("\n")["input_ids"],
    ]


def encode(caption: str, picture: np.ndarray) -> dict[str, object]:
    """A sample: a question about one picture, and its caption, which is all that is trained.

    This is what Qwen2.5-VL's chat template makes of a user's turn with an image and an assistant's
    turn, without the system's; the assistant's words and the end of its turn get labels.
    """
    pixels = images(images=[picture], return_tensors="np")
    placeholders = [IMAGE] * int(pixels["image_grid_thw"].prod() // 4)
    question = tokenizer("What is this?")["input_ids"]
    prompt = turn("user", [OPEN, *placeholders, CLOSE, *question])
    answer = turn("assistant", tokenizer(caption)["input_ids"])
    opening = 1 + len(tokenizer("assistant\n")["input_ids"])  # what the template writes itself
    trained = answer[opening:-1]  # with <|im_end|>, without the line end after it
    ids = prompt + answer
    labels = [-100] * (len(prompt) + opening) + trained + [-100]
    return {"input_ids": ids, "labels": labels, "length": len(ids), **pixels}


def pieces(caption: str, picture: np.ndarray) -> list[dict[str, object]]:
    """Six parts of a picture, each a separate sample."""
    halves = [half for side in np.array_split(picture, 2) for half in np.array_split(side, 3, 1)]
    return [encode(f"{caption}, part {number}", half) for number, half in enumerate(halves)]


photos = [
    s for name in ("astronaut", "chelsea", "coffee") for s in pieces(name, getattr(data, name)())
]
scans = pieces("cells in a tissue", data.immunohistochemistry()) + pieces("a retina", data.retina())
fused = FusionDataset({"photos": photos[2:], "scans": scans}, {"photos": 1.0, "scans": 0.5})
model = make_model()

with tempfile.TemporaryDirectory() as folder:
    training = configure_training(
        TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=2,  # becomes 1, and two packs are gathered for a step
            num_train_epochs=3,
            learning_rate=1e-2,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=True,
        ),
        VisionPackingOptions(packing=True, packing_length=320, packing_buffer=32),
        train_dataset=fused,
        eval_dataset=photos[:2],
        model=model,
        tokenizer=tokenizer,
    )
    trainer = training.make_trainer(model=model)

    # The batch as the Trainer itself makes it; what is no argument of the model is left out.
    batch = dict(next(iter(trainer.get_train_dataloader())))
    batch.pop("length")
    keep = IsolationOptions(keep_token_ids=(IMAGE, VIDEO))
    report = check_isolation(model, batch, options=keep)
    print(f"{report.num_documents} samples in the first pack: {report.verdict}")

    trainer.train()
    for telemetry in training.callbacks[0].history:
        print(f"epoch {telemetry.epoch}: fill ratio {telemetry.fill_mean:.3f}")
