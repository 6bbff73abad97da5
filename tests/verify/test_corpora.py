"""The second readers of other systems' files agree with the packer's, or notice its mistakes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.foreign_documents import FOLDER

from quire.corpus import pack_corpus
from quire.formats import open_corpus
from quire.formats.corpora import CORPORA
from quire.formats.token_corpus import TokenCorpus
from quire.verify.output import corpora, verify_output
from quire.verify.output.corpora import READERS

CASES = {
    "megatron": ("megatron/uint16.idx", "megatron:unit=sequences"),
    "datatrove": ("datatrove/long.ds", "datatrove"),
    "olmo": ("olmo/short.npy", "olmo"),
    "llmc": ("llmc/gpt2.bin", "llmc:eos=50256,at=start"),
    "mds": ("mds/zstd", "mds"),
    "litdata": ("litdata/int32", "litdata"),
    "nemo": ("nemo", "nemo"),
    "arrow": ("hub/int32", "arrow"),
    "parquet": ("hub/int32.parquet", "parquet"),
}


def test_every_format_has_a_second_reader():
    assert set(READERS) == set(CORPORA) == set(CASES)


def test_they_share_nothing_with_the_formats():
    text = Path(corpora.__file__).read_text(encoding="utf-8")
    assert "import quire.formats" not in text
    assert "from quire.formats" not in text


@given(
    tokens=st.lists(st.integers(0, 3), max_size=30),
    at=st.sampled_from(["start", "end"]),
    tail=st.sampled_from(["drop", "keep"]),
)
def test_a_scan_finds_the_same_documents(tokens, at, tail, tmp_path_factory):
    path = tmp_path_factory.mktemp("scan") / "a.bin"
    path.write_bytes(np.array(tokens, "<u2").tobytes())
    corpus = open_corpus(path, f"llmc:dtype=uint16,eos=1,at={at},tail={tail}")
    options = {"dtype": "uint16", "eos": "1", "at": at, "tail": tail}
    lengths, total = READERS["llmc"](path, options)
    assert lengths.tolist() == corpus.lengths().tolist()
    assert total - lengths.sum() == corpus.ledger.tokens.num_dropped


@pytest.mark.parametrize("name", CASES)
def test_a_document_that_the_packer_read_wrong_is_noticed(name, tmp_path, monkeypatch):
    """The packer's reader is broken: it takes a token from one document and gives it to another."""
    path, form = CASES[name]
    before = TokenCorpus.lengths

    def moved(self):
        lengths = np.array(before(self))
        long = np.flatnonzero(lengths > 1)
        lengths[long[0]] -= 1
        lengths[long[1]] += 1
        return lengths

    monkeypatch.setattr(TokenCorpus, "lengths", moved)
    pack_corpus([FOLDER / path], tmp_path / "out", max_length=64, index_only=True, format=form)
    report = verify_output(tmp_path / "out")
    assert report.problems
    assert not report.notes


def test_the_marks_of_a_scan_may_be_in_any_block(tmp_path, monkeypatch):
    monkeypatch.setattr("quire.verify.output.corpora._AT_A_TIME", 3)
    path = tmp_path / "a.bin"
    for tokens in itertools.product((0, 1), repeat=7):
        path.write_bytes(np.array(tokens, "<u2").tobytes())
        for at in ("start", "end"):
            lengths, _ = READERS["llmc"](path, {"dtype": "uint16", "eos": "1", "at": at})
            corpus = open_corpus(path, f"llmc:dtype=uint16,eos=1,at={at}")
            assert lengths.tolist() == corpus.lengths().tolist()
