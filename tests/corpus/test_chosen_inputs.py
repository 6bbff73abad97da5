"""Which files of a folder are read, and which column of each: in packs, plans, streams, verify."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire.corpus import pack_corpus
from quire.errors import InvalidOption
from quire.packed.manifest import read_manifest
from quire.stream import open_stream
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.commands import run as command

PACK = {"tokenizer": "byte", "max_length": 64}
STREAM = {"max_length": 16, "batch_size": 1, "repeat": False, "shuffle": False, "add_bos": False}


@pytest.fixture
def folder(tmp_path):
    """Code and notes in folders, and a file that nobody asked for."""
    for name, text in {
        "a.py": "one",
        "deep/b.py": "two",
        "c.rs": "three",
        "data.jsonl": json.dumps({"text": "four"}),
        ".hidden.py": "five",
        "d.rs.gz": "six",
    }.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    return tmp_path / "in"


def texts_of(out):
    decode = quire.text.as_tokenizer("byte").decode
    rows = quire.PackedDataset(out)
    found = []
    for row in (rows[number] for number in range(len(rows))):
        edges = [*row["document_starts"].tolist(), len(row["input_ids"])]
        ids = row["input_ids"].tolist()
        found += [decode(ids[a:b]) for a, b in pairwise(edges)]
    return sorted(found)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py", "deep/b.py"]),
        ("deep/*", ["deep/b.py"]),
        ("*.rs", ["c.rs"]),
        ("*", None),
    ],
)
def test_a_pattern_selects_files_of_folders(folder, tmp_path, pattern, names):
    if names is None:  # a compressed file of unknown content is still refused
        with pytest.raises(InvalidOption, match=r"d\.rs\.gz has a suffix of no known format"):
            pack_corpus([folder], tmp_path / "out", **PACK, pattern=pattern)
        return
    pack_corpus([folder], tmp_path / "out", **PACK, pattern=pattern)
    manifest = read_manifest(tmp_path / "out")
    assert [entry["name"] for entry in manifest["inputs"]] == names
    assert "pattern" not in manifest["options"]
    texts = {"a.py": "one", "deep/b.py": "two", "c.rs": "three"}
    assert texts_of(tmp_path / "out") == sorted(texts[name] for name in names)
    report = verify_inputs(verify_output(tmp_path / "out"), [folder], "byte")
    assert report.ok and report.compared == len(names)
    with open_stream(files=[str(folder)], tokenizer="byte", pattern=pattern, **STREAM) as stream:
        list(stream)
        assert stream.ledger.documents.emitted == len(names)


def test_a_pattern_that_selects_nothing_is_an_error(folder, tmp_path):
    with pytest.raises(InvalidOption, match=r"none matches pattern='\*\.java'; correct the pat"):
        pack_corpus([folder], tmp_path / "out", **PACK, pattern="*.java")
    with pytest.raises(InvalidOption, match=r"name their folder and pattern='\*\.rs'"):
        pack_corpus([folder / "c.rs"], tmp_path / "out", **PACK)


@pytest.fixture
def columns(tmp_path):
    """Inputs that call their text differently."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.jsonl").write_text(
        json.dumps({"text": "one", "body": "wrong"}) + "\n"
    )
    (tmp_path / "tables" / "b.jsonl").write_text(
        json.dumps({"text": "wrong", "body": "two"}) + "\n"
    )
    pq.write_table(pa.table({"content": ["three"]}), tmp_path / "tables" / "c.parquet")
    names = ("a.jsonl", "b.jsonl:body", "*.parquet:content")
    return [str(tmp_path / "tables" / name) for name in names]


def test_an_input_may_name_its_own_column(columns, tmp_path):
    result = pack_corpus(columns, tmp_path / "out", **PACK)
    assert texts_of(tmp_path / "out") == ["one", "three", "two"]
    named = [entry.get("text_column") for entry in result.manifest["inputs"]]
    assert named == [None, "body", "content"]
    for given in (columns, [one.rpartition("/")[0] for one in columns[:1]]):
        report = verify_inputs(verify_output(tmp_path / "out"), given, "byte")
        assert report.ok and report.compared == 3
    again = pack_corpus(columns, tmp_path / "out", **PACK, resume=True)
    assert again.was_complete
    with open_stream(files=columns, tokenizer="byte", **STREAM) as stream:
        (batch,) = stream
    decode = quire.text.as_tokenizer("byte").decode
    ids = batch.input_ids[0, 0][batch.attention_mask[0, 0]].tolist()
    assert decode(ids) == "onetwothree"


def test_a_column_that_does_not_fit_is_an_error(columns, tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InvalidOption, match=r"notes\.txt is text without columns"):
        pack_corpus([f"{tmp_path}/notes.txt:body"], tmp_path / "out", **PACK)
    with pytest.raises(InvalidOption, match=r"by its column of text 'body', but the records hold"):
        pack_corpus(columns[1:2], tmp_path / "out", **PACK, record_kind="instruction")
    with pytest.raises(quire.errors.QuireError, match="'bodies'"):
        pack_corpus([f"{columns[2].partition(':')[0]}:bodies"], tmp_path / "out", **PACK)


def test_a_colon_in_the_name_of_a_file_does_not_name_a_column(tmp_path):
    (tmp_path / "a:body").mkdir()
    (tmp_path / "a:body" / "x.txt").write_text("one")
    pack_corpus([str(tmp_path / "a:body")], tmp_path / "out", **PACK)
    assert texts_of(tmp_path / "out") == ["one"]


def test_commands_take_both(folder, columns, tmp_path):
    common = ["--tokenizer", "byte", "--max-length", "64"]
    done = command(
        "pack", folder, columns[2], "--pattern", "*.py", "--out", tmp_path / "out", *common
    )
    assert done.returncode == 0, done.stderr
    assert texts_of(tmp_path / "out") == ["one", "three", "two"]
    done = command(
        "verify",
        tmp_path / "out",
        "--inputs",
        folder,
        "--inputs",
        columns[2],
        "--tokenizer",
        "byte",
    )
    assert done.returncode == 0, done.stderr + done.stdout
    done = command("plan", folder, "--pattern", "*.py", *common, "--no-cache", "--json")
    assert json.loads(done.stdout)["documents"] == 2
