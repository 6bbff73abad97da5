"""Streams over tokenized corpora of other systems: every token once, resumed, refused."""

from __future__ import annotations

import json
import shutil
import struct
import warnings
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from quire.cli.app import app
from quire.errors import CorruptFile, InvalidDocument, InvalidOption, InvalidState, SourceChanged
from quire.formats import nemo
from quire.formats.token_corpus import TokenCorpus
from quire.stream import open_stream
from tests.formats.foreign_documents import DOCUMENTS, EOS, FOLDER, loss_of
from tests.formats.test_foreign import CASES

PLAIN = {"max_length": 7, "batch_size": 2, "shuffle": False, "repeat": False}
MEGATRON = str(FOLDER / "megatron" / "uint16.idx")


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path_factory.mktemp("cache")))


def fragments(stream) -> list[list[int]]:
    """The fragments of all rows, in order; the last token of a window is a label only."""
    found = []
    for batch in stream:
        for ids, segments in zip(batch.input_ids[0], batch.segment_ids[0], strict=True):
            found += [ids[segments == number].tolist() for number in range(1, segments.max() + 1)]
    return found


def bytes_of(batch) -> bytes:
    return b"".join(array.tobytes() for array in batch.to_dict().values())


@pytest.mark.parametrize("name", CASES)
def test_every_document_is_in_a_batch(name):
    form, documents = CASES[name]
    options = {**PLAIN, "max_length": 60, "strategy": "first_fit", "buffer_size": 1}
    with open_stream(files=[str(FOLDER / name)], format=form, **options) as stream:
        assert fragments(stream) == documents
        tokens = stream.ledger.check().tokens
    assert (tokens.emitted, tokens.special) == (sum(map(len, documents)), 0)
    assert stream.options.record_kind == "tokens"


def test_rows_are_these():
    with open_stream(files=MEGATRON, **PLAIN) as stream:
        batch = next(stream)
    flat = [token for document in DOCUMENTS for token in document]
    assert batch.input_ids.tolist() == [[flat[0:7], flat[8:15]]]
    assert batch.labels[0, 0].tolist() == [*flat[1:5], -100, -100, flat[7]]
    assert batch.segment_ids[0, 0].tolist() == [1, 1, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("name", ["datatrove/long.ds", "nemo"])
def test_tokens_without_loss_are_no_targets(name):
    options = {**PLAIN, "max_length": 60, "strategy": "first_fit", "buffer_size": 1}
    with open_stream(files=str(FOLDER / name), **options) as stream:
        batches = list(stream)
    trained = {
        token
        for batch in batches
        for token in batch.labels[batch.labels >= 0].tolist()
        if token != EOS
    }
    expected = {
        token
        for document in DOCUMENTS
        for token, has_loss in zip(document[1:], loss_of(document)[1:], strict=True)
        if has_loss
    }
    assert trained == expected
    assert min(batch.input_ids.min() for batch in batches) >= 0


@pytest.mark.parametrize("num_streams", [1, 2])
@pytest.mark.parametrize("strategy", ["wrapped", "first_fit", "online"])
def test_a_saved_state_continues_with_the_same_batches(strategy, num_streams, tmp_path):
    keywords = {
        "files": str(FOLDER / "datatrove" / "long.ds"),
        "max_length": 9,
        "batch_size": 2,
        "shuffle_buffer_size": 4,
        "buffer_size": 3,
        "strategy": strategy,
        "num_streams": num_streams,
    }
    with open_stream(**keywords) as stream:
        states, batches = [], []
        for _ in range(12):  # several epochs
            states.append(json.dumps(stream.state_dict()))
            batches.append(bytes_of(next(stream)))
    assert len(set(batches)) > 6  # they differ
    for number in range(12):
        with open_stream(**keywords) as again:
            again.load_state_dict(json.loads(states[number]))
            assert [bytes_of(next(again)) for _ in range(12 - number)] == batches[number:]


@pytest.mark.filterwarnings("ignore:of 2 streams, 0 ended before")
def test_large_files_are_several_shards(monkeypatch):
    monkeypatch.setattr("quire.stream.tokens._FEWEST", 3)
    monkeypatch.setattr("quire.stream.tokens._STRETCHES", 4)
    monkeypatch.setattr("quire.stream.tokens._TOKENS_AT_ONCE", 8)
    options = {**PLAIN, "max_length": 60, "strategy": "first_fit", "buffer_size": 1}
    with open_stream(files=MEGATRON, **options) as stream:
        assert fragments(stream) == DOCUMENTS
    parts = []
    for rank in range(2):
        ranks = {**options, "num_streams": 2, "rank": rank, "world_size": 2}
        with open_stream(files=MEGATRON, **ranks) as stream:
            parts += fragments(stream)
    assert sorted(parts) == sorted(DOCUMENTS)


@pytest.mark.parametrize("named", ["", "*.parquet"])
def test_a_folder_of_tables_is_listed_once_and_one_of_them_is_opened(named, tmp_path, monkeypatch):
    for number in range(20):
        pq.write_table(pa.table({"text": ["abc"]}), tmp_path / f"{number}.parquet")
    opened, listed = [], []
    schema_of, rglob = nemo.schema_of, Path.rglob
    monkeypatch.setattr(nemo, "schema_of", lambda path: (opened.append(path), schema_of(path))[1])
    monkeypatch.setattr(Path, "rglob", lambda *given: (listed.append(given), rglob(*given))[1])
    with open_stream(files=str(tmp_path / named), tokenizer="byte", **PLAIN) as stream:
        list(stream)
        assert stream.ledger.documents.emitted == 20
    assert len(opened) == 1
    assert len(listed) <= 2  # to recognize, and to read


def test_hidden_files_are_not_part_of_a_corpus(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    shutil.copytree(FOLDER / "mds" / "ndarray", tmp_path / ".cache")
    (tmp_path / "._part.npy").write_bytes(b"\0\5\26\7")  # as macOS writes on other disks
    with open_stream(files=str(tmp_path), tokenizer="byte", **PLAIN) as stream:
        assert stream.options.record_kind == "text"
    for kind in ("bin", "idx"):
        shutil.copy(FOLDER / "megatron" / f"uint16.{kind}", tmp_path)
    (tmp_path / "a.jsonl").unlink()
    options = {**PLAIN, "max_length": 60, "strategy": "first_fit", "buffer_size": 1}
    with open_stream(files=str(tmp_path), **options) as stream:
        assert fragments(stream) == DOCUMENTS


def test_a_folder_of_text_and_a_corpus_is_ambiguous(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    (tmp_path / "make.py").write_text("abc")
    shutil.copytree(FOLDER / "mds" / "ndarray", tmp_path / "mds")
    text, tokens = {"tokenizer": "byte"}, {"vocab_size": 60_000}
    with pytest.raises(InvalidOption, match=r"a tokenized corpus and 1 file of text \(a.jsonl\)"):
        open_stream(files=str(tmp_path), **PLAIN, **text)
    for given, kind in (
        ({"files": f"{tmp_path}/*.jsonl", **text}, "text"),
        ({"files": str(tmp_path), "pattern": "*.py", **text}, "text"),
        ({"files": str(tmp_path), "record_kind": "tokens", **tokens}, "tokens"),
        ({"files": str(tmp_path), "format": "mds", **tokens}, "tokens"),
    ):
        with open_stream(**PLAIN, **given) as stream:
            list(stream)
            assert stream.options.record_kind == kind
            assert stream.ledger.documents.emitted == (1 if kind == "text" else len(DOCUMENTS))


@pytest.mark.parametrize(
    ("name", "data"), [("index.json", b"{"), ("a.bin", struct.pack("<2i", 20240520, 9))]
)
@pytest.mark.filterwarnings("ignore:.*1 of 2 files left unread")
def test_what_looks_like_a_damaged_corpus_does_not_stop_text_beside_it(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorruptFile, match=name):
        open_stream(files=str(tmp_path), tokenizer="byte", **PLAIN)
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    with open_stream(files=str(tmp_path), tokenizer="byte", **PLAIN) as stream:
        list(stream)
        assert stream.ledger.documents.emitted == 1


def test_streams_share_the_documents_of_a_file_evenly(tmp_path):
    np.arange(1, 66, dtype="<u2").tofile(tmp_path / "a.ds")  # one more than in a stretch
    np.arange(1, 66, dtype="<u8").tofile(tmp_path / "a.ds.index")
    options = {**PLAIN, "max_length": 1, "num_streams": 2}
    with open_stream(files=str(tmp_path / "a.ds"), **options) as stream:
        batches = list(stream)  # windows of two tokens, 16 and 17
        assert stream.ledger.tokens.emitted == 65
    assert len(batches) == 17


def test_a_glob_names_several_files(tmp_path):
    for name in ("b", "a", "c"):
        for kind in ("bin", "idx"):
            shutil.copy(FOLDER / "megatron" / f"uint16.{kind}", tmp_path / f"{name}.{kind}")
    options = {**PLAIN, "max_length": 60, "strategy": "first_fit", "buffer_size": 1}
    with open_stream(files=str(tmp_path / "[ab].idx"), **options) as stream:
        assert fragments(stream) == DOCUMENTS * 2


def test_worker_processes_make_the_same_batches():
    with open_stream(files=MEGATRON, **PLAIN) as stream:
        expected = list(map(bytes_of, stream))
    with open_stream(files=MEGATRON, **PLAIN, num_workers=1) as stream:
        assert list(map(bytes_of, stream)) == expected


def test_a_corpus_in_a_store_is_streamed():
    store = fsspec.filesystem("memory")
    for kind in ("bin", "idx"):
        file = FOLDER / "megatron" / f"uint16.{kind}"
        store.pipe(f"/streamed/uint16.{kind}", file.read_bytes())
    with open_stream(files=MEGATRON, **PLAIN) as stream:
        expected = list(map(bytes_of, stream))
    with open_stream(files="memory://streamed/uint16.idx", **PLAIN) as stream:
        assert list(map(bytes_of, stream)) == expected


def test_a_tokenizer_decides_what_ids_mean():
    options = {**PLAIN, "max_length": 60, "strategy": "first_fit", "buffer_size": 1}
    path = str(FOLDER / "datatrove" / "plain.ds")
    with open_stream(files=path, **options, train_on_eos=False, eos_token_id=EOS) as stream:
        assert all(EOS not in batch.labels for batch in stream)
    with open_stream(files=path, **options) as stream:
        assert any(EOS in batch.labels for batch in stream)
    with (
        open_stream(files=MEGATRON, **PLAIN, tokenizer="byte") as stream,
        pytest.raises(InvalidDocument, match=r"document 1 .*uint16.bin.*has 259 ids"),
    ):
        list(stream)


def test_the_fingerprint_of_a_corpus_is_made_once(monkeypatch):
    made, fingerprint = [], TokenCorpus.fingerprint

    def counted(corpus: TokenCorpus) -> str:
        made.append(corpus)
        return fingerprint(corpus)

    monkeypatch.setattr(TokenCorpus, "fingerprint", counted)
    with open_stream(files=MEGATRON, **PLAIN, vocab_size=2000, max_bad_records=10) as stream:
        list(stream)
        # The message of each names a shard.
        assert stream.ledger.documents.dropped["bad_record"] > 3
    assert len(made) == 1


def test_documents_are_cut_and_dropped_with_a_count():
    options = {**PLAIN, "drop_longer_than": 12, "truncate_to": 4}
    with open_stream(files=MEGATRON, **options) as stream:
        list(stream)
        tokens = stream.ledger.check().tokens
    short = [len(document) for document in DOCUMENTS if len(document) <= 12]
    assert tokens.input == sum(map(len, DOCUMENTS))
    assert tokens.emitted == sum(min(length, 4) for length in short)
    assert tokens.dropped["too_long"] == 30 + 17
    assert tokens.dropped["truncated"] == sum(short) - tokens.emitted


def test_a_mixture_of_tokens_and_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n' * 3)
    sources = [{"files": [MEGATRON]}, {"files": [str(tmp_path / "a.jsonl")]}]
    keywords = {**PLAIN, "sources": sources, "vocab_size": 60_000}
    with pytest.raises(InvalidOption, match=r"sources\[0\] holds tokens"):
        open_stream(**keywords, tokenizer="byte")
    unframed = {"add_bos": False, "add_eos": False}
    with open_stream(**keywords, **unframed, tokenizer="byte") as stream:
        list(stream)
        assert stream.ledger.tokens.emitted == sum(map(len, DOCUMENTS)) + 9
    with pytest.raises(InvalidOption, match="tokenizer is missing"):
        open_stream(**keywords)


def test_tokens_that_belong_to_no_document_are_named(tmp_path):
    path, form = tmp_path / "part.npy", "olmo:dtype=uint16,eos=0"
    np.array([5, 6, 0, 7, 8, 9, 0, 10, 11], "<u2").tofile(path)
    with pytest.warns(UserWarning, match=r"holds 2 tokens that belong to no document.*tail=keep"):
        stream = open_stream(files=str(path), format=form, **PLAIN)
    stream.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_stream(files=str(path), format=f"{form},tail=keep", **PLAIN).close()


def test_tokens_of_bad_records_are_counted():
    with open_stream(files=MEGATRON, **PLAIN, vocab_size=2000, max_bad_records=10) as stream:
        list(stream)
        tokens = stream.ledger.check().tokens
    bad = [document for document in DOCUMENTS if max(document, default=0) >= 2000]
    assert tokens.input == sum(map(len, DOCUMENTS))
    assert tokens.dropped == {"bad_record": sum(map(len, bad))}


def test_a_corpus_without_documents_is_an_empty_source(tmp_path):
    (tmp_path / "empty.ds").touch()
    (tmp_path / "empty.ds.index").touch()
    (tmp_path / "empty.ds.metadata").write_text("tokenizer|2\n0\n")
    files = str(tmp_path / "empty.ds")
    with (
        open_stream(files=files, **PLAIN) as stream,
        pytest.warns(UserWarning, match="ended without a batch: of 0 documents"),
    ):
        assert list(stream) == []
    with (
        open_stream(files=files, **PLAIN | {"repeat": True}) as stream,
        pytest.raises(InvalidOption, match=r"every shard is empty \(empty.ds\[0:0\]"),
    ):
        next(stream)
    sources = [{"files": [files]}, {"files": [MEGATRON]}]
    with open_stream(sources=sources, **PLAIN) as stream:
        list(stream)
        assert stream.ledger.tokens.emitted == sum(map(len, DOCUMENTS))


def test_a_corpus_that_changed_is_refused(tmp_path):
    for kind in ("bin", "idx"):
        shutil.copy(FOLDER / "megatron" / f"uint16.{kind}", tmp_path)
    path = tmp_path / "uint16.idx"
    with open_stream(files=str(path), **PLAIN) as stream:
        next(stream)
        state = stream.state_dict()
    data = bytearray((tmp_path / "uint16.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "uint16.bin").write_bytes(data)
    with open_stream(files=str(path), **PLAIN) as stream, pytest.raises(SourceChanged):
        stream.load_state_dict(state)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_corpus_that_changes_while_it_is_streamed_is_an_error(shuffle, tmp_path):
    for kind in ("bin", "idx"):
        shutil.copy(FOLDER / "megatron" / f"uint16.{kind}", tmp_path)
    path, data = tmp_path / "uint16.idx", tmp_path / "uint16.bin"
    options = {**PLAIN, "repeat": True, "shuffle": shuffle, "batch_size": 1}
    whole = data.read_bytes()
    with open_stream(files=str(path), **options) as stream:
        next(stream)
        data.write_bytes(whole[:10])  # reading what was cut off would end the process
        with pytest.raises(SourceChanged, match=r"uint16.bin changed during the run: it had 174"):
            [next(stream) for _ in range(50)]
        state = stream.state_dict()
        data.unlink()
        with pytest.raises(SourceChanged, match="can no longer be read"):
            next(stream)
    data.write_bytes(whole)
    with open_stream(files=str(path), **options) as stream:
        stream.load_state_dict(state)
        next(stream)


def test_states_of_other_formats_and_tokenizers_are_refused():
    with open_stream(
        files=str(FOLDER / "megatron" / "sentences"), **PLAIN | _unit("documents")
    ) as s:
        next(s)
        state = s.state_dict()
    for other in (
        _unit("sequences"),
        _unit("documents") | {"tokenizer": "byte", "vocab_size": 1 << 17},
    ):
        opened = open_stream(files=str(FOLDER / "megatron" / "sentences"), **PLAIN | other)
        with opened as stream, pytest.raises(InvalidState, match="saved with other options"):
            stream.load_state_dict(state)


def _unit(name: str) -> dict[str, str]:
    return {"format": f"megatron:unit={name}"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"files": str(FOLDER / "megatron" / "sentences")}, "give the format megatron:unit"),
        ({"files": MEGATRON, "truncate_at": "x"}, "truncate_at cuts text"),
        ({"files": MEGATRON, "add_bos": True}, "add_bos=True changes documents"),
        ({"files": MEGATRON, "format": "megatrn"}, "megatron"),
        ({"files": MEGATRON, "format": "mds"}, "holds no corpus of mds; name"),
        ({"files": "nothing.idx", "format": "megatron"}, "nothing.idx does not exist; name"),
        ({"files": "nothing.idx"}, "files: there is no file or folder nothing.idx"),
        ({"sources": [{"files": MEGATRON}, {"files": "no*.idx"}]}, "no file matches 'no"),
        ({"files": MEGATRON, "record_kind": "text"}, "tokenizer is missing"),
        ({"local_text": "abc", "format": "megatron", "tokenizer": "byte"}, "not for these sources"),
        ({"local_text": "abc", "record_kind": "tokens", "tokenizer": "byte"}, "not for these"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(InvalidOption, match=message):
        open_stream(**PLAIN, **options)


def test_the_command_streams_a_corpus():
    words = ["stream", MEGATRON, "--max-length", "7", "--batch-size", "2", "--no-repeat", "--stats"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["ledger"]["tokens"]["emitted"] == sum(map(len, DOCUMENTS))
