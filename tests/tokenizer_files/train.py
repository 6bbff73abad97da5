"""Train the small tokenizers of this folder again: ``python -m tests.tokenizer_files.train``.

They are byte-level BPE over sources of Python's standard library, with the pipeline and the special
tokens of Qwen3's and GPT-2's tokenizers. The same Python and the same `tokenizers` give the same
files; the committed ones are from Python 3.11.7 and tokenizers 0.23.3.
"""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, trainers
from tokenizers import decoders as decoding
from tokenizers import pre_tokenizers as splitting
from tokenizers import processors as processing

HERE = Path(__file__).parent
MERGES = {"small-qwen3": 1500, "small-gpt2": 500}
END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# In Qwen3's order; those of TEXT are single tokens, but `decode` keeps them as text.
SPECIAL = [END_OF_TEXT, IM_START, IM_END] + [
    f"<|{name}|>"
    for name in (
        *("object_ref_start", "object_ref_end", "box_start", "box_end", "quad_start", "quad_end"),
        *("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"),
    )
]
TEXT = [
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
]
# Qwen3's split: contractions, words with one character before them, digits one by one,
# punctuation with the line ends that follow, line ends, blanks.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def sources(limit: int = 4_000_000) -> list[str]:
    """The standard library's modules at the top level, by name, up to so many characters."""
    texts, size = [], 0
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = file.read_text(encoding="utf-8")
        if size + len(text) <= limit:
            texts.append(text)
            size += len(text)
    return texts


def trained(tokenizer: Tokenizer, merges: int) -> Tokenizer:
    """The tokenizer with the merges that its own split of the sources gives."""
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges,
        initial_alphabet=splitting.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sources(), trainer)
    return tokenizer


def qwen3() -> tuple[Tokenizer, dict[str, Any]]:
    """Qwen3's pipeline: NFC, its split, bytes; no BOS, EOS `<|im_end|>`, PAD `<|endoftext|>`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    as_bytes = {"add_prefix_space": False, "use_regex": False}
    tokenizer.pre_tokenizer = splitting.Sequence(
        [splitting.Split(Regex(WORDS), "isolated"), splitting.ByteLevel(**as_bytes)]
    )
    tokenizer.post_processor = processing.ByteLevel(trim_offsets=False, **as_bytes)
    tokenizer.decoder = decoding.ByteLevel(**as_bytes)
    trained(tokenizer, MERGES["small-qwen3"])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in TEXT])
    return tokenizer, {
        "add_bos_token": False,
        "add_prefix_space": False,
        "additional_special_tokens": SPECIAL[1:],
        "bos_token": None,
        "chat_template": (HERE / "chatml.jinja").read_text(encoding="utf-8"),
        "clean_up_tokenization_spaces": False,
        "eos_token": IM_END,
        "errors": "replace",
        "model_max_length": 131072,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def gpt2() -> tuple[Tokenizer, dict[str, Any]]:
    """GPT-2's pipeline: bytes by its own split; BOS and EOS `<|endoftext|>`, no PAD."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitting.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processing.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoding.ByteLevel()
    trained(tokenizer, MERGES["small-gpt2"])
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, normalized=False)])
    return tokenizer, {
        "add_prefix_space": False,
        "bos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": True,
        "eos_token": END_OF_TEXT,
        "model_max_length": 1024,
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": END_OF_TEXT,
    }


def main() -> None:
    for name, make in (("small-qwen3", qwen3), ("small-gpt2", gpt2)):
        tokenizer, config = make()
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        (folder / "tokenizer.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")
        written = json.dumps(config, indent=2) + "\n"
        (folder / "tokenizer_config.json").write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
