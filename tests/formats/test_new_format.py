"""A new format takes one module and one line: the example in the docstring of `quire.formats`."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

import quire
from quire import formats
from quire.errors import CorruptFile, InvalidDocument, InvalidState
from quire.formats.fields import Fields
from quire.formats.files import find_files
from quire.formats.format import Format, Span
from quire.stream import open_stream
from quire.verify.output import verify_output
from tests.corpus.corpora import contents, pack

EXAMPLE = textwrap.dedent(formats.__doc__.partition("CSV files::\n")[2].partition("\n`format")[0])
TEXTS = [f"text {n}, " + "a" * (n % 9) for n in range(40)]
STREAM = {"tokenizer": "byte", "max_length": 16, "batch_size": 2, "repeat": False}


@pytest.fixture
def registered(monkeypatch):
    """The example as a module of the package, with one line in `FORMATS`."""
    module = types.ModuleType("quire.formats.csv_of_a_test")
    exec(EXAMPLE, module.__dict__)  # noqa: S102 - our own docstring
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(formats.FORMATS, ".csv", "csv_of_a_test")


@pytest.fixture
def csv_file(registered, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,n\none,1\ntwo,2,3\ndrei,4\n")
    return file


def write_csv(path, texts):
    path.write_text("n,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    return path


def read(path, span=None, **fields):
    """(number, text or what is wrong) of every record."""
    (found,) = find_files([path])
    return [
        (number, getattr(value, "reason", value))
        for batch in found.read(span or Span(), Fields(**fields))
        for number, _, value in batch.in_order()
    ]


def test_the_example_is_short():
    assert len(EXAMPLE.strip().splitlines()) <= 25


def test_records_have_their_numbers_and_bad_ones_their_problems(csv_file):
    problem = "has more values than names"
    assert read(csv_file) == [(0, "one"), (1, problem), (2, "drei")]
    assert read(csv_file, batch_bytes=1) == read(csv_file)
    assert read(csv_file, text_column="text", max_record_bytes=25)[0] == (0, "one")
    assert read(csv_file, max_record_bytes=10)[0] == (0, "has 25 bytes, over 10")


def test_a_file_is_read_from_any_record(csv_file):
    for start in range(4):
        assert read(csv_file, Span(start=start)) == read(csv_file)[start:]
    assert read(csv_file, Span(start=1, stop=2)) == read(csv_file)[1:2]
    with pytest.raises(InvalidState, match="has 3 records, but 4 were read from it"):
        read(csv_file, Span(start=4))


def test_a_bad_record_is_counted_or_an_error_with_its_position(csv_file, tmp_path):
    result = pack(csv_file, tmp_path / "out", max_bad_records=1)
    assert result.ledger.check().documents.emitted == 2
    with pytest.raises(InvalidDocument, match=r"a\.csv: record 1.* has more values than names"):
        pack(csv_file, tmp_path / "other")
    with (
        pytest.raises(InvalidDocument, match=r"a\.csv: record 1 has more values than names"),
        open_stream(files=[str(csv_file)], **STREAM) as stream,
    ):
        list(stream)


def test_an_error_of_the_parser_names_the_record(registered, tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b"text\n" + b"one\n" * 5000 + b"\xff\n")
    with pytest.raises(CorruptFile, match=r"a\.csv: record \d+ cannot be read: .* repair the file"):
        read(file)


def test_compressed_files_are_read_as_well(registered, tmp_path):
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(b"text\none\n"))
    assert read(file) == [(0, "one")]


def test_a_stream_continues_from_the_bytes_of_its_state(registered, tmp_path):
    options = {"files": [str(write_csv(tmp_path / "a.csv", TEXTS))], **STREAM}
    with open_stream(**options) as stream:
        whole = [batch.input_ids.tolist() for batch in stream]
    for taken in (1, 3, len(whole) - 1):
        with open_stream(**options) as stream:
            for _ in range(taken):
                next(stream)
            saved = json.dumps(stream.state_dict())
        with open_stream(**options) as stream:
            stream.load_state_dict(json.loads(saved))
            assert [batch.input_ids.tolist() for batch in stream] == whole[taken:]


def test_a_format_without_a_parser_says_what_to_define(csv_file, monkeypatch):
    monkeypatch.setattr(sys.modules["quire.formats.csv_of_a_test"], "FORMAT", Format())
    formats._load.cache_clear()
    with pytest.raises(NotImplementedError, match="Format must define parse, records or read"):
        read(csv_file)
    formats._load.cache_clear()


@pytest.fixture
def package_with_csv(tmp_path):
    """A copy of the package with one new file and one new line."""
    copy = tmp_path / "package"
    source = Path(quire.__file__).parent
    shutil.copytree(source, copy / "quire", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "quire/formats/csv.py").write_text(EXAMPLE)
    table = copy / "quire/formats/__init__.py"
    line = '    ".text": "text",\n'
    text = table.read_text()
    assert text.count(line) == 1
    table.write_text(text.replace(line, line + '    ".csv": "csv",\n'))
    return copy


@pytest.mark.slow
def test_quire_pack_reads_a_new_format_in_two_workers(package_with_csv, tmp_path):
    files = [write_csv(tmp_path / f"{n}.csv", TEXTS[n * 20 :][:20]) for n in range(2)]
    out = tmp_path / "out"
    command = [sys.executable, "-m", "quire", "pack", *map(str, files), "--out", str(out)]
    command += ["--tokenizer", "byte", "--max-length", "32", "--workers", "2"]
    subprocess.run(
        [*command, "--partition-size", "100"],
        env={**os.environ, "PYTHONPATH": str(package_with_csv)},
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    assert verify_output(out).ok
    partitions = {path.name[:11] for path in out.glob("data/*.parquet")}
    assert partitions == {"shard-00000", "shard-00001"}
    found = ["".join(chr(token - 3) for token in ids[:-1]) for ids in contents(out).values()]
    assert found == TEXTS
