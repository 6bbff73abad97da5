"""Train a small Qwen3-VL on packs of real pictures, with a chat template and labels from it.

    python examples/vision_language.py
    python examples/vision_language.py --tokenizer path/of/qwen3 --report report.html

Without --tokenizer, bytes and Qwen's special tokens are the vocabulary. A tokenizer of Qwen2, 2.5
or 3 has these special tokens, so its conversations look as in the training of a Qwen-VL model.
"""

from __future__ import annotations

import argparse
import logging
import tempfile

import numpy as np
import torch
from skimage import data
from standard_library import curve
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    TrainingArguments,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from quire.report import write_report
from quire.verify import IsolationOptions, check_isolation
from quire.view import show
from quire.vision import FusionDataset, VisionPackingOptions, configure_training

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--tokenizer", help="a folder or name of a Qwen tokenizer; default: bytes")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--max-length", type=int, default=320, help="the most tokens in a pack")
parser.add_argument("--report", help="write a page about the packs to this file")
given = parser.parse_args()

torch.set_num_threads(1)  # the model is too small to be shared out
logging.basicConfig(format="%(message)s")
logging.getLogger("quire.vision").setLevel(logging.INFO)

END, OPEN, CLOSE, IMAGE, VIDEO = (
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TEMPLATE = """\
{% if messages[0].role != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}\
{% for part in message.content %}\
{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% else %}{{ part.text }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""The layout of Qwen2.5-VL's chat template; a real processor brings its own."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes and Qwen's own special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    names = (END, OPEN, CLOSE, IMAGE, VIDEO, "<|im_start|>")
    bytewise.add_special_tokens([AddedToken(name, special=True) for name in names])
    return PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token=END)


tokenizer = AutoTokenizer.from_pretrained(given.tokenizer) if given.tokenizer else make_tokenizer()
IDS = {name: tokenizer.convert_tokens_to_ids(name) for name in (IMAGE, VIDEO, OPEN, END)}
images = Qwen2VLImageProcessorPil(
    patch_size=16, size={"shortest_edge": 32 * 32, "longest_edge": 12 * 32 * 32}
)


def make_model() -> Qwen3VLForConditionalGeneration:
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    text = {"vocab_size": len(tokenizer), "num_hidden_layers": 2, "num_key_value_heads": 2}
    text |= {"head_dim": 8, "rope_parameters": rope, "bos_token_id": None}
    text |= {"eos_token_id": IDS[END]}
    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2}
    vision |= {"out_hidden_size": 32, "num_position_embeddings": 64}
    vision |= {"deepstack_visual_indexes": [0]}
    ids = {"image_token_id": IDS[IMAGE], "video_token_id": IDS[VIDEO]}
    ids |= {"vision_start_token_id": IDS[OPEN]}
    config = Qwen3VLConfig(text_config=sizes | text, vision_config=vision, **ids)
    return Qwen3VLForConditionalGeneration(config)


def render(messages: list[dict], num_placeholders: int, **options: object) -> str:
    """A conversation as text, with a placeholder for every four patches, as a processor does."""
    text = tokenizer.apply_chat_template(
        messages, chat_template=TEMPLATE, tokenize=False, **options
    )
    return text.replace(IMAGE, IMAGE * num_placeholders)


def encode(caption: str, picture: np.ndarray) -> dict[str, object]:
    """A sample: a question about a picture and its caption; only the caption is trained.

    The prompt is the template's text up to the assistant's words. What the whole conversation has
    after it is trained, up to and with <|im_end|>; the line end after it is not.
    """
    pixels = images(images=[picture], return_tensors="np")
    question = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": caption}]
    num_placeholders = int(pixels["image_grid_thw"].prod() // images.merge_size**2)
    prompt = render(messages[:1], num_placeholders, add_generation_prompt=True)
    whole = render(messages, num_placeholders)
    answer = whole.removeprefix(prompt).removesuffix("\n")
    parts = [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, answer, "\n")
    ]
    ids = [token for part in parts for token in part]
    labels = [-100] * len(parts[0]) + parts[1] + [-100] * len(parts[2])
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
            num_train_epochs=given.epochs,
            learning_rate=1e-2,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=True,
        ),
        VisionPackingOptions(packing=True, packing_length=given.max_length, packing_buffer=32),
        train_dataset=fused,
        eval_dataset=photos[:2],
        model=model,
        tokenizer=tokenizer,
    )
    trainer = training.make_trainer(model=model)

    # The batch as the Trainer itself makes it; what is no argument of the model is left out.
    batch = dict(next(iter(trainer.get_train_dataloader())))
    batch.pop("length")
    print(show(batch, tokenizer, num_rows=1))  # trained tokens are in brackets
    if given.report:
        write_report(training.train_dataset.packed, given.report)
        print(f"report: {given.report}")
    report = check_isolation(
        model, batch, options=IsolationOptions(keep_token_ids=(IDS[IMAGE], IDS[VIDEO]))
    )
    print(f"{report.num_documents} samples in the first pack: {report.verdict}")

    trainer.train()
    for telemetry in training.callbacks[0].history:
        print(f"epoch {telemetry.epoch}: fill ratio {telemetry.fill_mean:.3f}")
    print(f"curve {curve([float(e['loss']) for e in trainer.state.log_history if 'loss' in e])}")
