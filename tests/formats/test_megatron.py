"""Megatron's files, as its own builder wrote them, and as nobody should have."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from quire.errors import CorruptFile, InvalidDocument, InvalidOption, QuireError
from quire.formats import open_corpus
from tests.formats.foreign_documents import DOCUMENTS, FOLDER, SENTENCES

HERE = FOLDER / "megatron"
HEADER = struct.Struct("<9sQBQQ")


def all_tokens(corpus) -> list[list[int]]:
    return [tokens.tolist() for _, tokens in corpus.iterate()]


def write(folder: Path, documents=((1, 2, 3), (4,), (5, 6)), **changes) -> Path:
    """An index with some of its parts replaced."""
    lengths = [len(document) for document in documents]
    parts = {
        "magic": b"MMIDIDX\0\0", "version": 1, "code": 8,
        "num_sequences": len(lengths), "num_ends": len(lengths) + 1, "lengths": lengths,
        "pointers": [2 * sum(lengths[:n]) for n in range(len(lengths))],
        "ends": list(range(len(lengths) + 1)), "modes": [],
        "bin": np.concatenate([np.array(d, "<u2") for d in documents]).tobytes(),
    } | changes  # fmt: skip
    head = [parts[name] for name in ("magic", "version", "code", "num_sequences", "num_ends")]
    arrays = [("lengths", "<i4"), ("pointers", "<i8"), ("ends", "<i8"), ("modes", "i1")]
    body = b"".join(np.array(parts[name], kind).tobytes() for name, kind in arrays)
    (folder / "c.idx").write_bytes(HEADER.pack(*head) + body)
    (folder / "c.bin").write_bytes(parts["bin"])
    return folder / "c.idx"


@pytest.mark.parametrize("name", ["uint16", "int32", "int64", "modes_zero"])
def test_every_document_of_every_type_is_read(name):
    corpus = open_corpus(HERE / f"{name}.idx")
    assert all_tokens(corpus) == DOCUMENTS
    assert corpus.lengths().tolist() == [len(document) for document in DOCUMENTS]
    assert {tokens.dtype for _, tokens in corpus.iterate()} == {np.dtype("int32")}
    assert [number for number, _ in corpus.iterate(7)] == [7, 8, 9]


def test_an_index_its_tokens_a_prefix_and_a_folder_name_the_same_corpus(tmp_path):
    for suffix in (".idx", ".bin"):
        shutil.copy(HERE / f"uint16{suffix}", tmp_path / f"part.0{suffix}")
    for named in (tmp_path / "part.0.idx", tmp_path / "part.0.bin", tmp_path / "part.0", tmp_path):
        assert all_tokens(open_corpus(named)) == DOCUMENTS
    assert open_corpus(str(tmp_path)).fingerprint() == open_corpus(tmp_path).fingerprint()


def test_several_prefixes_are_one_corpus_in_the_order_given():
    two = open_corpus([HERE / "uint16", HERE / "modes_zero.idx"])
    assert all_tokens(two) == DOCUMENTS + DOCUMENTS
    spans = (np.array(values) for values in ([12, 2, 14], [3, 1, 29], [12, 4, 30]))
    expected = DOCUMENTS[2][3:12] + DOCUMENTS[2][1:4] + DOCUMENTS[4][29:30]
    assert two.gather("input_ids", *spans).tolist() == expected
    assert two.document_ids(np.array([0, 10, 13])).tolist() == [0, 1 << 40, (1 << 40) + 3]


def test_any_span_of_a_document_is_read_like_a_slice():
    corpus = open_corpus(HERE / "uint16")
    document = DOCUMENTS[4]
    for start, stop in [(0, None), (3, 9), (29, 30), (5, 5), (9, 3), (-4, None), (0, 99)]:
        assert corpus.tokens(4, start, stop).tolist() == document[start:stop]
    with pytest.raises(IndexError, match="there is no document 10: there are 10"):
        corpus.tokens(10)


def test_sentences_are_sequences_or_documents_as_the_user_chooses():
    with pytest.raises(InvalidOption, match=r"10 sequences in 4 documents, so the choice is ambig"):
        open_corpus(HERE / "sentences.idx")
    assert all_tokens(open_corpus(HERE / "sentences.idx", "megatron:unit=sequences")) == DOCUMENTS
    joined = [[token for one in document for token in one] for document in SENTENCES]
    assert all_tokens(open_corpus(HERE / "sentences", "megatron:unit=documents")) == joined


def test_sequences_that_are_not_text_are_refused():
    with pytest.raises(InvalidOption, match=r"sequence 0 has mode 1 at byte 242"):
        open_corpus(HERE / "modes_one.idx")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": b"MMIDIDY"}, "hold.* corpus of a known format"),
        ({"version": 2}, "has version 2 at byte 9"),
        ({"version": 1 << 56}, "it is big-endian"),
        ({"code": 9}, "type code 9 at byte 17; known are 1"),
        ({"code": 6, "bin": bytes(48)}, "values of type float64, but token ids are integers"),
        ({"num_sequences": 2**62}, "4611686018427387904 sequences and 4 document ends"),
        ({"num_sequences": 2}, "counts at bytes 18 and 26"),
        ({"num_ends": 2**60}, "it was cut off or damaged"),
        ({"lengths": [3, 1, 3]}, "document 2 is 3 values of 2 bytes at byte 8"),
        ({"lengths": [3, -1, 2]}, "document 1 is -1 values"),
        ({"lengths": [3, 1, 2**31 - 1]}, "has 12 bytes, but its index says that document 2"),
        ({"pointers": [0, 6, -2]}, "at byte -2"),
        ({"pointers": [0, 6, 2**63 - 2]}, "at byte 9223372036854775806"),
        ({"pointers": [0, 4, 8]}, "document 1 starts at byte 4, inside document 0.* byte 6"),
        ({"pointers": [6, 0, 4]}, "document 0 starts at byte 6, inside document 2"),
        ({"pointers": [0, 7, 9], "bin": bytes(14)}, "at byte 54 .* 1 starts at byte 7, inside a"),
        ({"ends": [0, 1, 2, 2]}, "do not rise from 0 to its 3 sequences"),
        ({"ends": [0, 2, 1, 3]}, "do not rise"),
        ({"bin": b"\1\0\2\0\3\0\4\0\5\0\6"}, "has 11 bytes"),
        ({"bin": b""}, "has 0 bytes"),
    ],
)
def test_a_damaged_index_is_refused_with_the_place(tmp_path, changes, message):
    with pytest.raises(QuireError, match=message) as caught:
        open_corpus(write(tmp_path, **changes))
    assert str(tmp_path) in str(caught.value)
    assert isinstance(caught.value, CorruptFile | InvalidDocument | InvalidOption)


def test_a_truncated_index_is_refused_at_every_length(tmp_path):
    whole = write(tmp_path).read_bytes()
    for size in range(len(whole)):
        (tmp_path / "c.idx").write_bytes(whole[:size])
        with pytest.raises(QuireError):
            open_corpus(tmp_path / "c.idx", "megatron")


def test_ids_that_no_tokenizer_has_are_refused_when_they_are_read(tmp_path):
    for code, kind, value in ((4, "<i4", -1), (5, "<i8", 2**31), (5, "<i8", -(2**40))):
        ids = np.array([7, 8, 9, 10, 11, value], kind)
        pointers = [0, 3 * ids.itemsize, 4 * ids.itemsize]
        corpus = open_corpus(write(tmp_path, code=code, bin=ids.tobytes(), pointers=pointers))
        assert corpus.tokens(2, 0, 1).tolist() == [11]
        with pytest.raises(InvalidDocument, match=f"token 1 of document 2 is {value}, but ids are"):
            corpus.tokens(2)


def test_files_of_two_tokenizers_are_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(InvalidOption, match=r"input_ids of type int32, .* come from one tokenizer"):
        open_corpus([tmp_path, HERE / "int32"])
    (tmp_path / "other").mkdir()
    for suffix in (".idx", ".bin"):
        (tmp_path / "other" / f"link{suffix}").symlink_to(tmp_path / f"c{suffix}")
    again = (
        tmp_path / "c.idx",
        tmp_path / "other" / ".." / "c.bin",
        tmp_path / "other" / "link.idx",
    )
    for other in again:
        with pytest.raises(InvalidOption, match="are the same file; name it once"):
            open_corpus([tmp_path / "c.idx", other])


def test_documents_may_be_empty_or_in_another_order(tmp_path):
    path = write(tmp_path, lengths=[0, 2, 4, 0], pointers=[99, 8, 0, -5], num_sequences=4,
                 num_ends=5, ends=[0, 1, 2, 3, 4])  # fmt: skip
    assert all_tokens(open_corpus(path)) == [[], [5, 6], [1, 2, 3, 4], []]


def test_sequences_of_a_document_that_are_apart_cannot_be_joined(tmp_path):
    path = write(tmp_path, pointers=[0, 10, 6], ends=[0, 1, 3], num_ends=3, lengths=[3, 1, 2])
    with pytest.raises(CorruptFile, match="sequence 2 does not follow the one before it"):
        open_corpus(path, "megatron:unit=documents")
    assert all_tokens(open_corpus(path, "megatron:unit=sequences")) == [[1, 2, 3], [6], [4, 5]]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("megatrn", "unknown format 'megatrn'; did you mean 'megatron'"),
        ("megatron:units=documents", "did you mean 'unit'"),
        ("megatron:unit=words", "unit must be sequences or documents"),
        (7, "format is 7"),
    ],
)
def test_a_format_that_does_not_exist_is_refused(form, message):
    with pytest.raises(InvalidOption, match=message):
        open_corpus(HERE / "uint16.idx", form)


def test_a_path_without_a_corpus_is_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    for path in (tmp_path, tmp_path / "a.bin"):
        with pytest.raises(InvalidOption, match=r"holds no corpus of a known format \(megatron"):
            open_corpus(path)
    with pytest.raises(InvalidOption, match="does not exist"):
        open_corpus(tmp_path / "b")
    shutil.copy(HERE / "uint16.idx", tmp_path)
    with pytest.raises(CorruptFile, match=r"uint16.bin cannot be read: No such file"):
        open_corpus(tmp_path / "uint16.idx")


@pytest.mark.parametrize("name", ["uint16", "int32", "int64", "sentences"])
def test_megatron_reads_the_same_tokens(name):
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    theirs = indexed.IndexedDataset(str(HERE / name))
    mine = open_corpus(HERE / name, "megatron:unit=sequences")
    assert len(mine) == len(theirs)
    for number in range(len(theirs)):
        assert mine.tokens(number).tolist() == theirs[number].tolist()
        assert mine.tokens(number, 1).tolist() == theirs.get(number, offset=1).tolist()
