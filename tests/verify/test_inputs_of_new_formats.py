"""`verify --inputs` after a format or an option was added: it works and says so, or names it."""

from __future__ import annotations

import csv
import io
import sys
import types
from dataclasses import fields

import pytest
from tests.corpus.corpora import forge, jsonl, pack
from typer.testing import CliRunner

from quire.cli.app import app
from quire.corpus.options import CorpusOptions
from quire.errors import InvalidOption
from quire.formats import FORMATS
from quire.formats.format import Format, Record, batched
from quire.formats.record_kinds import RecordProblem
from quire.options import EncodeOptions, PackOptions, SourceOptions
from quire.verify.inputs import documents, verify_inputs
from quire.verify.inputs.documents import DOCUMENT_OPTIONS
from quire.verify.output import verify_output

SHARED_READER = (
    "1 input of the format csv read with the packer's own reader, so its mistakes would not be "
    "found"
)


class Csv(Format):
    """The example in the docstring of `quire.formats`, with a check of its own."""

    name = "csv"

    def read(self, file, span, fields):
        with file.open() as stream:
            rows = csv.DictReader(io.TextIOWrapper(stream, "utf-8"))
            records = (
                Record(
                    number=number,
                    end=number + 1,
                    size=len(str(row)),
                    value=RecordProblem("has too many values") if None in row else row,
                )
                for number, row in enumerate(rows)
                if number >= span.start
            )
            yield from batched(file, records, fields)


@pytest.fixture
def csv_output(tmp_path, monkeypatch):
    """(output, input) of a format that only `quire.formats` knows; the second record is bad."""
    module = types.ModuleType("quire.formats.csv_of_the_check")
    module.FORMAT = Csv()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMATS, ".csv", "csv_of_the_check")
    file = tmp_path / "a.csv"
    file.write_text("text,n\none,1\ntwo,2,3\ndrei,4\n")
    pack(file, tmp_path / "out", max_bad_records=1)
    return tmp_path / "out", file


def verified(out, file, tokenizer="byte"):
    return verify_inputs(verify_output(out), [file], tokenizer)


def test_a_format_without_a_second_reader_is_verified_and_the_report_says_so(csv_output):
    report = verified(*csv_output)
    assert (report.problems, report.compared, report.notes) == ([], 2, [SHARED_READER])


def test_a_format_with_a_second_reader_needs_no_note(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["one", "two"])
    pack(path, tmp_path / "out")
    assert verified(tmp_path / "out", path).notes == []


def test_the_command_prints_the_note_next_to_the_verdict(csv_output):
    out, file = map(str, csv_output)
    done = CliRunner().invoke(app, ["verify", out, "--inputs", file, "--tokenizer", "byte"])
    assert done.exit_code == 0
    assert "whole: " in done.stdout
    assert f"note: {SHARED_READER}" in " ".join(done.stdout.split())


def test_a_document_that_is_not_in_an_input_of_a_new_format_is_found(csv_output, monkeypatch):
    """Only the reader is shared: what the output holds is still compared with what it reads."""
    out, file = csv_output
    read = Csv.read

    def read_half(self, file, span, fields):
        for batch in read(self, file, span, fields):
            batch.records, batch.values = batch.records[:1], batch.values[:1]
            batch.ends = batch.ends[:2]
            yield batch

    monkeypatch.setattr(Csv, "read", read_half)
    assert "the output holds documents that are not in the inputs" in verified(out, file).problems


def test_a_format_that_is_not_registered_is_an_error_and_not_a_verdict(csv_output, monkeypatch):
    out, file = csv_output
    monkeypatch.delitem(FORMATS, ".csv")
    with pytest.raises(InvalidOption, match=r"a\.csv was packed as 'csv', a format that is not"):
        verified(out, file)


def test_an_option_that_the_check_does_not_know_is_named(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", ["one", "two"]), tmp_path / "out"
    pack(path, out)
    forge(out, lambda manifest: manifest["options"].update(lowercase=True))
    with pytest.raises(InvalidOption, match="packed with lowercase, which quire verify --inputs"):
        verified(out, path)


def test_an_option_that_the_check_does_not_know_is_only_named_if_it_is_set(tmp_path, monkeypatch):
    path, out = jsonl(tmp_path / "a.jsonl", ["one", "two"]), tmp_path / "out"
    pack(path, out)
    monkeypatch.setattr(documents, "DOCUMENT_OPTIONS", DOCUMENT_OPTIONS - {"truncate_at"})
    assert not verified(out, path).problems


def test_every_option_that_decides_what_documents_are_is_known_to_the_check():
    """A new field of a group fails here until `quire.verify.inputs.documents` applies it."""
    of_rows = {field.name for field in fields(PackOptions)}
    of_documents = {field.name for field in fields(CorpusOptions)} - of_rows - {"pattern"}
    groups = {field.name for group in (SourceOptions, EncodeOptions) for field in fields(group)}
    assert groups <= of_documents == DOCUMENT_OPTIONS
