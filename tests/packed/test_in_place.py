"""A plan over files of another system: rows are gathered from them, and nothing is copied."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.corpus import pack_corpus, replan
from quire.errors import (
    CorruptFile,
    InvalidDocument,
    InvalidOption,
    OutputError,
    OversizedDocument,
    SourceChanged,
)
from quire.formats import open_corpus
from quire.packed import PackedDataset
from quire.plan import Plan
from quire.verify.output import verify_output
from tests import commands
from tests.formats.foreign_documents import DOCUMENTS, FOLDER

NUM_TOKENS = sum(map(len, DOCUMENTS))


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for suffix in (".idx", ".bin"):
        shutil.copy(FOLDER / "megatron" / f"uint16{suffix}", tmp_path / f"corpus{suffix}")
    return tmp_path / "corpus"


@pytest.fixture
def planned(tmp_path: Path, prefix: Path) -> Path:
    pack_corpus([prefix], tmp_path / "out", max_length=16, index_only=True)
    return tmp_path / "out"


def rows_of(path: Path, **options: object) -> list[dict[str, list[int]]]:
    return [{k: v.tolist() for k, v in row.items()} for row in PackedDataset(path, **options)]


def test_rows_are_those_of_a_plain_output_with_one_partition(planned, prefix, tmp_path):
    pack_corpus([f"{prefix}.idx"], tmp_path / "plain", max_length=16)
    for columns in (None, ["document_ids", "document_offsets"]):
        mine = rows_of(planned, columns=columns)
        assert mine == rows_of(tmp_path / "plain", columns=columns)
    first, plain = PackedDataset(planned)[0], PackedDataset(tmp_path / "plain")[0]
    assert {k: v.dtype for k, v in first.items()} == {k: v.dtype for k, v in plain.items()}
    assert not first["input_ids"].flags.writeable


def test_no_token_is_copied_and_every_token_is_in_one_row(planned):
    assert sorted(path.name for path in planned.iterdir()) == ["manifest.json", "plans"]
    rows = rows_of(planned, columns=["input_ids", "document_ids", "document_offsets"])
    plan = Plan.load(planned / "plans" / "exact_fit-16.arrow")
    for row, fragments in zip(rows, plan, strict=True):
        assert row["input_ids"] == [t for d, a, b in fragments for t in DOCUMENTS[d][a:b]]
    assert sum(len(row["input_ids"]) for row in rows) == NUM_TOKENS
    report = verify_output(planned)
    assert (report.problems, report.notes, report.tokens) == ([], [], NUM_TOKENS)


@given(st.lists(st.integers(-6, 5), max_size=12))
def test_rows_read_together_equal_rows_read_one_by_one(numbers):
    dataset = _shared()
    together = dataset.__getitems__(numbers)
    for number, row in zip(numbers, together, strict=True):
        alone = dataset[number]
        assert list(row) == list(alone)
        for name, values in alone.items():
            assert values.dtype == row[name].dtype
            assert np.array_equal(values, row[name])
            assert not row[name].flags.writeable


_KEPT: list[PackedDataset] = []


def _shared() -> PackedDataset:
    if not _KEPT:
        out = Path(tempfile.mkdtemp()) / "out"
        two = [FOLDER / "megatron" / "uint16.idx", FOLDER / "megatron" / "modes_zero.idx"]
        pack_corpus(two, out, max_length=32, index_only=True)
        columns = ["input_ids", "document_starts", "document_ids", "document_offsets"]
        _KEPT.append(PackedDataset(out, columns=columns))
        assert len(_KEPT[0]) == 6
    return _KEPT[0]


def test_a_row_that_is_not_there_is_an_index_error(planned):
    dataset = PackedDataset(planned)
    with pytest.raises(IndexError, match=f"has no row 99: it has {len(dataset)} rows"):
        dataset.__getitems__([0, 99])


@pytest.mark.parametrize("bad", [-1, -(2**31)])
def test_no_row_with_a_wrong_id_is_given_out_alone_or_with_many_others(bad, tmp_path):
    tokens = np.arange(40 * 500, dtype="<i4")
    tokens[7 * 500 + 3] = bad
    (tmp_path / "a.bin").write_bytes(tokens.tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 4, 40, 41)
    arrays = (np.full(40, 500, "<i4"), np.arange(40) * 2000, np.arange(41))
    (tmp_path / "a.idx").write_bytes(header + b"".join(array.tobytes() for array in arrays))
    pack_corpus([tmp_path / "a.idx"], tmp_path / "out", max_length=1000, index_only=True)
    dataset = PackedDataset(tmp_path / "out", columns=["input_ids", "document_ids"])
    message = rf"a\.bin: token 3 of document 7 is {bad}, but ids are from 0"
    with pytest.raises(InvalidDocument, match=message):
        dataset.__getitems__(range(len(dataset)))
    with pytest.raises(InvalidDocument, match=message):
        [dataset[row] for row in range(len(dataset))]


def test_another_plan_is_made_without_a_token(planned):
    again = replan(planned, max_length=64, strategy="wrapped", min_length=30)
    assert again.plan == "wrapped-64"
    assert len(PackedDataset(planned, plan="wrapped-64")) == again.num_rows == 1
    assert again.ledger.tokens.dropped == {"row_too_short": NUM_TOKENS - 64}
    assert verify_output(planned).ok
    assert (
        PackedDataset(planned).fingerprint != PackedDataset(planned, plan="wrapped-64").fingerprint
    )


def test_workers_receive_it_by_its_path(planned):
    dataset = PackedDataset(planned)
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
    assert [row["input_ids"].tolist() for row in again] == [
        row["input_ids"].tolist() for row in dataset
    ]
    loader = dataset.loader(2, seed=3)
    batches = [[row["input_ids"].tolist() for row in batch] for batch in loader]
    assert sum(map(len, batches)) == len(dataset) // 2 * 2


def test_the_output_and_its_corpus_may_move_together(planned, tmp_path, prefix):
    before = rows_of(planned)
    (tmp_path / "elsewhere").mkdir()
    for name in ("corpus.idx", "corpus.bin", "out"):
        shutil.move(tmp_path / name, tmp_path / "elsewhere" / name)
    assert rows_of(tmp_path / "elsewhere" / "out") == before
    assert verify_output(tmp_path / "elsewhere" / "out").ok


@pytest.mark.parametrize("suffix", [".idx", ".bin"])
def test_a_file_that_changed_under_the_plan_is_refused(planned, prefix, suffix):
    file = prefix.with_suffix(suffix)
    whole = file.read_bytes()
    for data, why in ((whole[:-2], "now has"), (whole[:-1] + b"\7", "its bytes differ")):
        file.write_bytes(data)
        for use in (PackedDataset, lambda path: replan(path, max_length=8)):
            with pytest.raises(SourceChanged, match=f"corpus{suffix} changed after .*{why}"):
                use(planned)
        assert not verify_output(planned).ok
    file.unlink()
    with pytest.raises(SourceChanged, match="cannot be read: No such file"):
        PackedDataset(planned)
    assert verify_output(planned).problems == [
        f"{file} is missing, and the plans are for its documents"
    ]


def test_a_manifest_that_lies_is_found(planned):
    file = planned / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["checksum"]
    for place, value in (("count", 9), ("tokens", NUM_TOKENS + 1)):
        about = manifest["documents"] | {place: value}
        file.write_text(json.dumps(manifest | {"documents": about}))
        assert any(place in problem for problem in verify_output(planned).problems)
    for record in ({"named": [2]}, {"named": [-1]}, {"files": "x"}, {"format": 3}):
        file.write_text(json.dumps(manifest | {"corpus": manifest["corpus"] | record}))
        with pytest.raises(CorruptFile):
            PackedDataset(planned)


def test_a_finished_output_is_left_and_an_unfinished_one_continued(planned, prefix):
    manifest = (planned / "manifest.json").read_bytes()
    again = pack_corpus([prefix], planned, max_length=16, index_only=True, resume=True)
    assert again.was_complete
    plan = (planned / "plans" / "exact_fit-16.arrow").read_bytes()
    (planned / "manifest.json").unlink()  # as if killed before the manifest
    (planned / ".quire").mkdir()
    pack_corpus([prefix], planned, max_length=16, index_only=True, resume=True)
    assert (planned / "manifest.json").read_bytes() == manifest
    assert (planned / "plans" / "exact_fit-16.arrow").read_bytes() == plan
    with pytest.raises(OutputError, match="max_length"):
        pack_corpus([prefix], planned, max_length=8, index_only=True, resume=True)


def test_options_that_change_documents_are_refused(prefix, tmp_path):
    for option, value in (("drop_longer_than", 5), ("add_bos", True), ("truncate_at", "x")):
        with pytest.raises(InvalidOption, match=option):
            pack_corpus([prefix], tmp_path / "o", max_length=8, index_only=True, **{option: value})
    with pytest.raises(InvalidOption, match="no tokenizer is needed"):
        pack_corpus([prefix], tmp_path / "o", "byte", max_length=8, index_only=True)
    with pytest.raises(InvalidOption, match="inside the input"):
        pack_corpus([tmp_path], tmp_path / "o", max_length=8, index_only=True)
    assert not (tmp_path / "o").exists()


def test_too_long_documents_are_an_error_that_names_one(prefix, tmp_path):
    with pytest.raises(OversizedDocument, match=r"document 4 of .*corpus.bin has 30 tokens"):
        pack_corpus([prefix], tmp_path / "o", max_length=16, index_only=True, overlong="error")


def test_the_commands_read_it_in_place(prefix, tmp_path):
    out = tmp_path / "out"
    packed = commands.run("pack", f"{prefix}.idx", "--out", out, "--index-only", "--max-length", 16)
    assert packed.returncode == 0
    assert "exact_fit-16" in packed.stdout
    shown = commands.run("inspect", out, "-n", 2, "--tokenized")
    assert str(DOCUMENTS[4][0]) in commands.run("inspect", out, "-n", 99, "--tokenized").stdout
    assert shown.returncode == 0
    assert commands.run("verify", out).stdout.startswith(
        "whole: 0 shards, 1 plan, 6 rows, 87 tokens"
    )
    page = tmp_path / "report.html"
    assert commands.run("report", out, "-o", page).returncode == 0
    assert "corpus.bin" in page.read_text()
    tables = commands.run("plan", prefix, "--max-length", 16)
    refused = commands.run("plan", prefix, "--max-length", 16, "--max-images", 2)
    assert refused.returncode == 2
    assert "--max-images" in refused.stderr
    assert tables.returncode == 0
    assert "10 documents, 87 tokens" in tables.stdout


@pytest.mark.parametrize("name", ["uint16", "int32", "int64"])
def test_many_fragments_are_gathered_like_few(name, tmp_path):
    out = tmp_path / "out"
    pack_corpus([FOLDER / "megatron" / f"{name}.idx"], out, max_length=3, index_only=True)
    dataset = PackedDataset(out)
    together = dataset.__getitems__(range(len(dataset)))
    assert len(together) > 25
    for row, number in zip(together, range(len(dataset)), strict=True):
        alone = dataset[number]
        assert row["input_ids"].dtype == alone["input_ids"].dtype == np.int32
        assert row["input_ids"].tolist() == alone["input_ids"].tolist()


def test_empty_documents_anywhere_do_not_lead_outside_of_the_file(tmp_path):
    """Pointers of empty documents are not checked, since nothing is there to be read."""
    for folder in ("one.idx", "one.bin"):
        shutil.copy(FOLDER / "megatron" / f"uint16{folder[3:]}", tmp_path / folder)
    index = bytearray((tmp_path / "one.idx").read_bytes())
    (count,) = struct.unpack_from("<q", index, 18)
    for document in range(count):
        for pointer in (10**15, -(10**15)):
            changed = index[:]
            struct.pack_into("<i", changed, 34 + 4 * document, 0)
            struct.pack_into("<q", changed, 34 + 4 * count + 8 * document, pointer)
            (tmp_path / "one.idx").write_bytes(changed)
            corpus = open_corpus(tmp_path / "one.idx", "megatron:unit=sequences")
            assert corpus.tokens(document).tolist() == []
            many = np.array([document] * 40)
            assert corpus.gather("input_ids", many, many * 0, many * 0).tolist() == []
