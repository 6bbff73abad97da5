"""A packed dataset is read back row by row, from mapped memory."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from quire.errors import CorruptFile, InvalidOption, OutputError
from quire.packed import PackedDataset
from quire.verify.output import verify_output
from tests.corpus.corpora import hashes, jsonl, pack, rows, texts


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    pack(jsonl(tmp_path / "a.jsonl", texts(120)), tmp_path / "out", partition_size=800)
    return tmp_path / "out"


def plain(row) -> dict:
    return {name: values.tolist() for name, values in row.items()}


def test_rows_are_those_of_the_shards_in_order(packed):
    dataset = PackedDataset(packed)
    expected = rows(packed).select(["input_ids", "document_starts"]).to_pylist()
    assert [plain(row) for row in dataset] == expected
    assert len(dataset) == len(expected)
    assert plain(dataset[-1]) == expected[-1]
    assert [plain(row) for row in dataset.__getitems__([3, 1])] == [expected[3], expected[1]]
    assert dataset[0]["input_ids"].dtype == np.int32
    assert not dataset[0]["input_ids"].flags.writeable, "it is a view of the file"
    assert [plain(row) for row in dataset[3:1:-1]] == expected[3:1:-1]
    count = len(dataset)
    with pytest.raises(IndexError, match=f"has no row {count}: it has {count} rows"):
        dataset[count]


def test_columns_can_be_chosen(packed):
    dataset = PackedDataset(packed, columns=["document_ids"])
    assert [plain(row) for row in dataset] == rows(packed).select(["document_ids"]).to_pylist()
    with pytest.raises(InvalidOption, match="unknown column 'labels'"):
        PackedDataset(packed, columns=["labels"])


@pytest.mark.parametrize("wrong", ["input_ids", 5, b"input_ids"])
def test_columns_that_are_not_a_list_are_refused(packed, wrong):
    with pytest.raises(InvalidOption) as caught:
        PackedDataset(packed, columns=wrong)
    message = f"columns is {wrong!r} but must be a list of names, such as ['input_ids']"
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", [tuple, dict.fromkeys, iter])
def test_columns_may_be_any_collection(packed, kind):
    names = ["document_starts", "input_ids"]
    dataset = PackedDataset(packed, columns=kind(names))
    assert list(dataset[0]) == dataset.columns == names
    assert pickle.loads(pickle.dumps(dataset)).columns == names  # noqa: S301 - its own


def test_a_row_may_have_no_columns(packed):
    assert PackedDataset(packed, columns=[])[0] == {}


@pytest.mark.parametrize("wrong", [5, b"cache", ["cache"]])
def test_a_cache_dir_that_is_not_a_path_is_refused(packed, wrong):
    with pytest.raises(InvalidOption) as caught:
        PackedDataset(packed, cache_dir=wrong)
    assert str(caught.value) == f"cache_dir is {wrong!r} but must be a string or a Path"


def test_shards_of_several_row_groups_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("quire.corpus.shards._GROUP_TOKENS", 64)
    pack(jsonl(tmp_path / "a.jsonl", texts(60)), tmp_path / "out")
    expected = rows(tmp_path / "out")["input_ids"].to_pylist()
    assert [row["input_ids"].tolist() for row in PackedDataset(tmp_path / "out")] == expected


def test_the_dataset_knows_what_was_packed(packed):
    dataset = PackedDataset(packed)
    assert dataset.max_length == 16
    assert dataset.ledger.documents.input == 120
    assert repr(dataset) == f"PackedDataset({str(packed)!r}, {len(dataset)} rows of 16)"


def test_the_mapped_form_is_made_once_and_other_readers_ignore_it(packed):
    before = hashes(packed)
    PackedDataset(packed)
    folder = packed / ".mapped"
    made = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    PackedDataset(packed)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == made
    assert {name: h for name, h in hashes(packed).items() if ".mapped" not in name} == before
    assert verify_output(packed).ok
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(
        str(packed), split="train", cache_dir=str(packed.parent / "cache")
    )
    assert len(loaded) == len(PackedDataset(packed))


@pytest.mark.parametrize("what", ["cut", "gone", "index", "other"])
def test_an_incomplete_or_outdated_mapped_form_is_made_again(packed, tmp_path, what):
    expected = [plain(row) for row in PackedDataset(packed)]
    folder = packed / ".mapped"
    first = folder / "shard-00000-000.arrow"
    if what == "cut":
        first.write_bytes(first.read_bytes()[:-100])
    elif what == "gone":
        first.unlink()
    elif what == "index":
        (folder / "index.json").write_text("{")
    else:
        index = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps(index | {"sha256": []}))
        first.write_bytes(b"")
    assert [plain(row) for row in PackedDataset(packed)] == expected


@pytest.mark.parametrize("place", [-3, -20, -200])
def test_a_damaged_mapped_form_is_an_error_with_its_remedy(packed, place):
    PackedDataset(packed)
    path = min((packed / ".mapped").glob("*.arrow"))
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"arrow is damaged: .*; remove its folder"):
        PackedDataset(packed)


def flip(path, value):
    """Change a byte of an array inside a file."""
    data = bytearray(path.read_bytes())
    data[data.index(value.tobytes())] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("column", ["input_ids", "document_starts"])
def test_a_flipped_byte_of_the_mapped_form_is_never_served(packed, column):
    """Its size and structure are intact, so that only a checksum detects it."""
    dataset = PackedDataset(packed)
    first = next(row[column] for row in dataset if len(row[column]) > 2).copy()
    files = (packed / ".mapped").glob("*.arrow")
    flip(next(file for file in files if first.tobytes() in file.read_bytes()), first)
    with pytest.raises(CorruptFile, match=f"arrow is damaged: column {column} has another check"):
        list(PackedDataset(packed))
    others = [name for name in dataset.columns if name != column]
    assert len(list(PackedDataset(packed, columns=others))) == len(dataset)
    shutil.rmtree(packed / ".mapped")
    assert len(list(PackedDataset(packed))) == len(dataset)


def test_a_damaged_shard_is_detected_when_the_mapped_form_is_made(packed):
    shard = packed / "data/shard-00001-000.parquet"
    data = bytearray(shard.read_bytes())
    data[50] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptFile, match="has other bytes than were written"):
        PackedDataset(packed)
    shard.unlink()
    with pytest.raises(CorruptFile, match="is missing; the manifest names it"):
        PackedDataset(packed)


def test_a_read_only_folder_needs_a_cache_folder(packed, tmp_path, monkeypatch):
    real = os.open

    def refuse(path, *arguments, **keywords):
        if str(path).startswith(str(packed)):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OutputError, match=r"Permission denied; name a folder .* cache_dir="):
        PackedDataset(packed)
    dataset = PackedDataset(packed, cache_dir=tmp_path / "cache")
    assert len(dataset) == rows(packed).num_rows


def test_many_ranks_may_open_it_at_once(packed):
    found, errors = [], []

    def work():
        try:
            found.append(len(PackedDataset(packed)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert found == [rows(packed).num_rows] * 6
    assert not list((packed / ".mapped").glob("*.tmp"))


def test_workers_receive_the_dataset_by_its_path(packed):
    dataset = PackedDataset(packed)
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    assert [plain(row) for row in pickle.loads(data)] == [plain(row) for row in dataset]  # noqa: S301


@pytest.mark.parametrize("name", ["../x.parquet", "/etc/passwd", None])
def test_52_a_manifest_may_not_name_files_outside_its_folder(packed, name):
    manifest = json.loads((packed / "manifest.json").read_text())
    manifest["shards"][0]["file"] = name
    (packed / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptFile, match="is not a shard of its folder"):
        PackedDataset(packed)


def test_28_a_manifest_that_was_changed_is_refused(packed):
    manifest = json.loads((packed / "manifest.json").read_text())
    manifest["options"]["max_length"] += 1
    (packed / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptFile, match=r"but its content has '[0-9a-f]{64}': it was damaged"):
        PackedDataset(packed)
    del manifest["checksum"]  # as an earlier quire wrote them
    (packed / "manifest.json").write_text(json.dumps(manifest))
    assert PackedDataset(packed).max_length == manifest["options"]["max_length"]


def test_a_folder_that_is_not_a_packed_dataset_is_an_error(tmp_path):
    with pytest.raises(InvalidOption, match=r"has no manifest\.json"):
        PackedDataset(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(CorruptFile, match="holds a list, not an object"):
        PackedDataset(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": {"version": 9}, "shards": []}')
    with pytest.raises(CorruptFile, match="upgrade"):
        PackedDataset(tmp_path)


def test_reading_needs_no_torch(packed):
    code = (
        "import sys; from quire.packed import PackedDataset;"
        f"next(iter(PackedDataset({str(packed)!r}).loader(4)));"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_rows_are_tensors_for_torch(packed):
    torch = pytest.importorskip("torch")
    view = PackedDataset(packed).torch()
    assert torch.equal(view[2]["input_ids"], torch.tensor(PackedDataset(packed)[2]["input_ids"]))
    assert len(view) == len(PackedDataset(packed))


def test_grain_accepts_it_as_a_source(packed):
    grain = pytest.importorskip("grain")
    source = PackedDataset(packed)
    read = list(grain.MapDataset.source(source).map(lambda row: len(row["input_ids"])))
    assert read == [len(row["input_ids"]) for row in source]
