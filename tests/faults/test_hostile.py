"""Endless images, and tokenizers that contain code."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from quire.errors import CorruptFile, InvalidDocument, InvalidOption, QuireError
from quire.vision import PackedVLDataset
from tests.corpus.command import ROOT
from tests.corpus.corpora import jsonl, pack
from tests.vision.inputs import ByNumber, numbers, sample

HUGE = [[1, 1 << 20, 1 << 20]]
"""A grid of 2**40 patches in three numbers."""


def bomb(number: int) -> dict:
    pixels = np.zeros((4, 2), np.float32)
    return sample(number, 3, pixel_values=pixels, image_grid_thw=HUGE)


def test_54_a_huge_grid_of_patches_is_an_error_and_quarantined_within_a_budget():
    """Fault 54: a grid is compared with the pixels that exist; none are created from it."""
    items = [sample(0, 3), bomb(1), sample(2, 3)]
    options = {"packing_length": 20, "packing_drop_last": False, "packing_max_patches": 100}
    with pytest.raises(
        InvalidDocument, match="sample 1 has 4 rows of pixel_values but 1099511627776"
    ):
        list(PackedVLDataset(ByNumber(items), **options))
    dataset = PackedVLDataset(ByNumber(items), max_bad_records=1, **options)
    assert numbers(dataset) == [[0, 2]]


@pytest.mark.parametrize("side", [1 << 20, 1 << 32])
@pytest.mark.parametrize("pixels", [0, 4])
def test_54_a_huge_grid_of_patches_is_refused_by_the_collator_in_little_memory(side, pixels):
    """Fault 54: in a process with limited memory, also if their number overflows 64 bits to 0."""
    script = f"""
        import resource
        import numpy as np
        from quire.collate import MropeOptions, VisionPaddingFreeCollator
        from quire.errors import QuireError
        sample = {{"input_ids": [5, 9, 9, 6], "labels": [5, 9, 9, 6],
                  "pixel_values": np.zeros(({pixels}, 2), np.float32),
                  "image_grid_thw": np.array([[1, {side}, {side}]])}}
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
        try:
            rules = MropeOptions(image_token_id=9, video_token_id=8)
            VisionPaddingFreeCollator(rules, return_tensors="np")([sample])
        except QuireError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "sample 0" in done.stdout, done.stderr


@pytest.fixture
def with_code(tmp_path: Path) -> Path:
    """A tokenizer's folder whose config asks for code in it, which leaves a mark if it runs."""
    from tokenizers import Tokenizer, models

    folder = tmp_path / "tokenizer"
    folder.mkdir()
    Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]")).save(str(folder / "tokenizer.json"))
    said = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own_code.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(said | {"chat_template": "x"}))
    mark = tmp_path / "it was run"
    (folder / "own_code.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\n")
    return folder


@pytest.mark.parametrize("messages", [False, True])
def test_55_a_tokenizer_that_needs_its_own_code_is_refused_and_nothing_is_run(
    tmp_path, with_code, messages
):
    """Fault 55: for text and for conversations, which have another loader."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]
    path = jsonl(tmp_path / "a.jsonl", [{"messages": turns} if messages else "a"])
    options = {"messages_column": "messages"} if messages else {}
    with pytest.raises(InvalidOption, match="requires custom code"):
        pack(path, tmp_path / "out", str(with_code), **options)
    assert not (tmp_path / "it was run").exists()


def test_a_folder_that_is_not_a_tokenizer_is_a_typed_error_also_for_conversations(tmp_path):
    """Related to fault 55: what transformers does with it is not quire's concern."""
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    path = jsonl(tmp_path / "a.jsonl", [{"messages": []}])
    with pytest.raises(CorruptFile, match="cannot be loaded as a tokenizer"):
        pack(path, tmp_path / "out", str(tmp_path / "tokenizer"), messages_column="messages")


def test_55_a_tokenizer_of_a_stream_that_needs_its_own_code_is_refused(tmp_path, with_code):
    """Fault 55."""
    from quire.config import load_options
    from quire.stream import StreamConfig, open_stream

    plain = {
        "data": {
            "backend": "local_text",
            "local_text": "a a a",
            "tokenizer": {"kind": "hf", "hf_name_or_path": str(with_code)},
        },
        "train": {"seq_len": 4, "batch_size": 1},
    }
    (tmp_path / "stream.json").write_text(json.dumps(plain))
    with pytest.raises(QuireError, match="requires custom code"):
        open_stream(load_options(StreamConfig, tmp_path / "stream.json", []))
    assert not (tmp_path / "it was run").exists()
