"""What fuzzing found in the readers of packed datasets."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from quire.errors import CorruptFile, InvalidState
from quire.packed import PackedDataset
from tests.corpus.corpora import jsonl, pack, texts
from tests.fuzz.test_found import rewrite_shard


@pytest.fixture
def out(tmp_path):
    pack(jsonl(tmp_path / "a.jsonl", texts(20)), tmp_path / "out")
    return tmp_path / "out"


def test_true_is_not_a_version_of_a_loader_state(out):
    loader = PackedDataset(out).loader(2)
    state = loader.state_dict() | {"version": True}
    with pytest.raises(InvalidState, match="has version True but a version is an integer"):
        loader.load_state_dict(state)
    old = {name: value for name, value in state.items() if name not in ("format", "checksum")}
    with pytest.raises(InvalidState, match=r"its format is None, not 'quire\.loader'"):
        loader.load_state_dict(old)
    loader.load_state_dict(old | {"version": 1})


@pytest.mark.parametrize("tokens", [[5, 6], [[1, None], [2]]])
def test_a_shard_with_other_columns_and_a_matching_checksum_is_a_typed_error(out, tokens):
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["checksum"]  # of what the shard was
    rewrite_shard(out, manifest, pa.table({"input_ids": tokens, "document_starts": [[0], [0]]}))
    with pytest.raises(CorruptFile, match="where lists of numbers are needed"):
        PackedDataset(out)[0]
