"""Corpora of other systems, as their writers wrote them (see `make_foreign`): no token is lost."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.corpus import pack_corpus, replan
from quire.errors import CorruptFile, InvalidDocument, InvalidOption, QuireError, SourceChanged
from quire.formats import open_corpus, token_scan
from quire.formats.token_corpus import TokenCorpus
from quire.packed import PackedDataset
from quire.plan import Plan
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.formats.foreign_documents import DOCUMENTS, EOS, FOLDER, SENTENCES, loss_of

ENDED = [[*document, EOS] for document in DOCUMENTS]
BEGUN = [[EOS, *document] for document in DOCUMENTS]
JOINED = [[token for one in document for token in one] for document in SENTENCES]
CASES = {
    "megatron/uint16": (None, DOCUMENTS),
    "megatron/sentences": ("megatron:unit=documents", JOINED),
    "datatrove/short.ds": (None, ENDED),
    "datatrove/long.ds": (None, ENDED),
    "datatrove/plain.ds": (None, ENDED),
    "datatrove/no_index.ds": (f"datatrove:eos={EOS}", ENDED),
    "olmo/short.npy": (None, ENDED),
    "olmo/long.npy": (None, ENDED),
    "olmo/no_metadata.npy": (f"olmo:dtype=uint16,eos={EOS}", ENDED),
    "mds/ndarray_typed": (None, DOCUMENTS),
    "mds/ndarray": (None, DOCUMENTS),
    "mds/bytes": ("mds:dtype=int64", DOCUMENTS),
    "mds/zstd": (None, DOCUMENTS),
    "mds/fixed": (None, [[n, n + 1, n + 2, n + 3] for n in range(0, 60, 10)]),
    "litdata/int32": (None, DOCUMENTS),
    "litdata/uint16": (None, DOCUMENTS),
    "llmc/gpt2.bin": (f"llmc:eos={EOS},at=start", BEGUN),
    "llmc/llama3.bin": (f"llmc:eos={EOS},at=start", BEGUN),
    "llmc/nanogpt.bin": (f"llmc:dtype=uint16,eos={EOS},at=end", ENDED),
    "nemo": (None, DOCUMENTS),
    **{f"hub/{kind}": ("arrow", DOCUMENTS) for kind in ("uint16", "uint32", "int32", "int64")},
    **{f"hub/{kind}.parquet": ("parquet", DOCUMENTS) for kind in ("uint16", "int32", "int64")},
    "hub/uint32.parquet": ("parquet:column=input_ids", DOCUMENTS),
}


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path_factory.mktemp("cache")))


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the same bytes at any time


def all_tokens(corpus) -> list[list[int]]:
    return [tokens.tolist() for _, tokens in corpus.iterate()]


@pytest.mark.parametrize("name", CASES)
def test_every_document_is_read(name):
    form, documents = CASES[name]
    corpus = open_corpus(FOLDER / name, form)
    assert all_tokens(corpus) == documents
    assert corpus.lengths().tolist() == [len(document) for document in documents]
    assert not corpus.ledger.tokens.num_dropped
    assert corpus.tokens(4 % len(documents), 1, 3).tolist() == documents[4 % len(documents)][1:3]


@pytest.mark.parametrize("name", CASES)
def test_a_plan_over_it_is_whole_and_copies_nothing(name, tmp_path):
    form, documents = CASES[name]
    out = tmp_path / "out"
    packed = pack_corpus([FOLDER / name], out, max_length=20, index_only=True, format=form)
    (rows,) = out.glob("plans/*")
    dataset = PackedDataset(out)
    for row, fragments in zip(
        dataset.__getitems__(range(len(dataset))), Plan.load(rows), strict=True
    ):
        assert row["input_ids"].tolist() == [t for d, a, b in fragments for t in documents[d][a:b]]
    assert packed.ledger.tokens.emitted == sum(map(len, documents))
    replan(out, max_length=8, strategy="wrapped")
    report = verify_output(out)
    assert (report.problems, report.plans) == ([], 2)
    assert not report.notes  # a reader of its own


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_from_a_store(name, tmp_path):
    store = fsspec.filesystem("memory")
    for path in (path for path in FOLDER.rglob("*") if path.is_file()):
        store.pipe(f"/foreign/{path.relative_to(FOLDER).as_posix()}", path.read_bytes())
    form, documents = CASES[name]
    uri = f"memory://foreign/{name}"
    assert all_tokens(open_corpus(uri, form)) == documents
    pack_corpus([uri], tmp_path / "out", max_length=20, index_only=True, format=form)
    dataset = PackedDataset(tmp_path / "out")
    rows = dataset.__getitems__(range(len(dataset)))
    assert sum(len(row["input_ids"]) for row in rows) == sum(map(len, documents))
    assert verify_output(tmp_path / "out").ok


@pytest.mark.parametrize("name", ["datatrove/long.ds", "nemo", "hub/int32", "hub/int32.parquet"])
def test_what_is_trained_comes_along(name, tmp_path):
    form, documents = CASES[name]
    masks = [loss_of(document[:30]) for document in documents]
    if name.startswith("datatrove"):
        masks = [[*loss_of(document), True] for document in DOCUMENTS]
    pack_corpus([FOLDER / name], tmp_path / "o", max_length=40, index_only=True, format=form)
    dataset = PackedDataset(tmp_path / "o")
    assert dataset.columns == ["input_ids", "loss_mask", "document_starts"]
    (rows,) = tmp_path.glob("o/plans/*")
    for row, fragments in zip(dataset, Plan.load(rows), strict=True):
        assert row["loss_mask"].tolist() == [v for d, a, b in fragments for v in masks[d][a:b]]


def test_documents_are_found_once_where_there_is_no_index(tmp_path, monkeypatch):
    out = tmp_path / "out"
    form = CASES["olmo/no_metadata.npy"][0]
    pack_corpus([FOLDER / "olmo/no_metadata.npy"], out, max_length=20, index_only=True, format=form)
    monkeypatch.setattr(token_scan, "_edges", lambda *given: pytest.fail("read again"))
    assert len(PackedDataset(out)) == 5
    edges = (out / "documents.arrow").read_bytes()
    (out / "documents.arrow").write_bytes(edges[:-1] + b"\0")
    with pytest.raises(CorruptFile, match="says where documents are, was changed"):
        PackedDataset(out)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("olmo/no_metadata.npy", r"no metadata \(.csv.gz\).*olmo:dtype=uint32,eos=ID.*chats"),
        ("datatrove/no_index.ds", r"has no .index.*datatrove:dtype=uint16,eos=ID"),
        ("llmc/gpt2.bin", r"has no index.*llmc:eos=50256,at=start \(or at=end\)"),
        ("mds/bytes", r"bytes, which may be of any type; give it, such as mds:dtype=uint16"),
    ],
)
def test_what_the_files_do_not_say_the_user_must(path, message):
    with pytest.raises(InvalidOption, match=message):
        open_corpus(FOLDER / path)


def test_headerless_tokens_are_read_only_if_the_format_is_named():
    with pytest.raises(InvalidOption, match="holds no corpus of a known format"):
        open_corpus(FOLDER / "llmc/nanogpt.bin")
    with pytest.raises(InvalidOption, match=r"no header of llm.c at byte 0"):
        open_corpus(FOLDER / "llmc/nanogpt.bin", f"llmc:eos={EOS},at=end")
    with pytest.raises(InvalidOption, match="holds uint16, which cannot be eos=70000"):
        open_corpus(FOLDER / "llmc/nanogpt.bin", "llmc:dtype=uint16,eos=70000,at=end")


class TestTokensAfterTheLastEnd:
    """open-instruct#1855: documents that are cut to a length lose their end of text, too."""

    @pytest.fixture
    def array(self, tmp_path):
        rng = np.random.default_rng(0)
        documents = [rng.integers(1, 50000, n).tolist() for n in rng.integers(20, 300, 90)]
        documents[-1] = documents[-1] * 20
        capped = [[*document, EOS][:250] for document in documents]
        tokens = np.array([t for document in capped for t in document], "<u2")
        (tmp_path / "part.npy").write_bytes(tokens.tobytes())
        ends = np.cumsum([len(document) for document in capped])
        lines = "".join(f"{e - len(d)},{e}\n" for d, e in zip(capped, ends, strict=True))
        (tmp_path / "full.npy").write_bytes(tokens.tobytes())
        (tmp_path / "full.csv.gz").write_bytes(zipped(lines.encode()))
        self.documents, self.total = capped, len(tokens)
        return tmp_path / "part.npy"

    def theirs(self, array: Path) -> int:
        """The tokens that a scan yields as OLMo-core makes it."""
        marks = np.flatnonzero(np.fromfile(array, "<u2") == EOS)
        return int(marks[-1]) + 1

    def test_a_scan_loses_two_percent_and_the_ledger_names_them(self, array, tmp_path):
        lost = self.total - self.theirs(array)
        assert 0.015 < lost / self.total < 0.025
        form = f"olmo:dtype=uint16,eos={EOS}"
        packed = pack_corpus([array], tmp_path / "o", max_length=512, index_only=True, format=form)
        tokens = packed.ledger.tokens
        assert tokens.dropped == {"unterminated": lost}
        assert tokens.input == self.total == tokens.emitted + lost
        assert verify_output(tmp_path / "o").ok

    def test_they_are_kept_if_the_user_says_so(self, array):
        kept = open_corpus(array, f"olmo:dtype=uint16,eos={EOS},tail=keep")
        assert not kept.ledger.tokens.num_dropped
        assert int(kept.lengths().sum()) == self.total
        assert kept.tokens(len(kept) - 1).tolist()[-5:] == self.documents[-1][-5:]

    def test_the_metadata_finds_every_token_of_every_document(self, array, tmp_path):
        del array
        assert all_tokens(open_corpus(tmp_path / "full.npy")) == self.documents

    def test_a_manifest_cannot_hide_them(self, array, tmp_path):
        form = f"olmo:dtype=uint16,eos={EOS}"
        pack_corpus([array], tmp_path / "o", max_length=512, index_only=True, format=form)
        file = tmp_path / "o" / "manifest.json"
        manifest = json.loads(file.read_text())
        del manifest["checksum"]
        manifest["corpus"]["dropped"] = {}
        file.write_text(json.dumps(manifest))
        assert any("tokens in no document" in one for one in verify_output(tmp_path / "o").problems)


def test_what_is_before_the_first_mark_is_counted_or_kept(tmp_path):
    (tmp_path / "a.bin").write_bytes(np.array([7, 8, 1, 5, 1, 1, 6], "<u2").tobytes())
    for tail, documents, lost in (("drop", [[1, 5], [1], [1, 6]], 2),
                                  ("keep", [[7, 8], [1, 5], [1], [1, 6]], 0)):  # fmt: skip
        corpus = open_corpus(tmp_path / "a.bin", f"llmc:dtype=uint16,eos=1,at=start,tail={tail}")
        assert all_tokens(corpus) == documents
        assert corpus.ledger.tokens.dropped == ({"unterminated": lost} if lost else {})


def copied(name: str, folder: Path) -> Path:
    """A copy of a fixture, with what is beside it."""
    source = FOLDER / name
    if source.is_dir():
        return Path(shutil.copytree(source, folder / "copy"))
    for file in source.parent.glob(f"{source.name.partition('.')[0]}*"):
        if file.is_file():
            shutil.copy(file, folder)
    return folder / source.name


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("megatron")])
def test_a_file_that_is_cut_off_anywhere_is_refused_or_read_right(name, tmp_path):
    form, documents = CASES[name]
    path = copied(name, tmp_path)
    found = sorted(file for file in (path.rglob("*") if path.is_dir() else tmp_path.iterdir()))
    for file in (one for one in found if one.is_file() and one.name != "dataset_info.json"):
        whole = file.read_bytes()
        for size in sorted({*range(0, len(whole), max(1, len(whole) // 12)), len(whole) - 1}):
            file.write_bytes(whole[:size])
            try:
                corpus = open_corpus(path, form)
                read = all_tokens(corpus)
            except QuireError as error:
                assert str(tmp_path) in str(error)
                continue
            held = sum(map(len, read)) + corpus.ledger.tokens.num_dropped
            assert read == documents[: len(read)] or held < sum(map(len, documents))
            is_index = file.name.endswith((".index", ".metadata", ".json"))
            assert is_index or corpus.ledger.tokens.num_dropped or form is not None
        file.write_bytes(whole)


@pytest.mark.parametrize(
    ("name", "file", "data", "message"),
    [
        ("datatrove/plain.ds", "plain.ds.index", struct.pack("<2Q", 9, 5),
         r"document 1 ends at token 5 \(byte 8\), before the one before it|neither 2 nor 4"),
        ("datatrove/short.ds", "short.ds.index", struct.pack("<2Q", 9, 99), "document 1 ends at"),
        ("datatrove/short.ds", "short.ds.metadata", b"gpt2|3\n", "does not end with .2 or .4"),
        ("datatrove/long.ds", "long.ds.loss", b"\1" * 5, "one for each of 97 tokens"),
        ("olmo/short.npy", "short.csv.gz", zipped(b"0,6\n4,97\n"), "inside document 0"),
        ("olmo/short.npy", "short.csv.gz", zipped(b"6,0\n"), "line 1 is a document"),
        ("olmo/short.npy", "short.csv.gz", zipped(b"a,b\n"), "start,end"),
        ("olmo/short.npy", "short.csv.gz", zipped(b"0,90\n"), "neither 2 nor 4 bytes"),
        ("olmo/short.npy", "short.npy", b"\x93NUMPY", "holds no corpus|numpy's header"),
        ("llmc/gpt2.bin", "gpt2.bin", struct.pack("<256i", 20240520, 1, 5, *[0] * 253),
         "5 tokens, which it counts at byte 8, take up 1034"),
        ("llmc/gpt2.bin", "gpt2.bin", struct.pack("<256i", 20240520, 3, 0, *[0] * 253),
         "version 3 at byte 4"),
        ("mds/ndarray", "index.json", b"[]", "holds no corpus"),
        ("mds/ndarray", "shard.00000.mds", b"\xff\xff\xff\xff" + b"\0" * 8, "12 bytes, but index"),
        ("litdata/int32", "index.json", b'{"chunks": [], "config": {}}', "lists no chunks"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_the_place(name, file, data, message, tmp_path):
    path = copied(name, tmp_path)
    (path / file if path.is_dir() else path.parent / file).write_bytes(data)
    with pytest.raises(QuireError, match=message) as caught:
        open_corpus(path, CASES[name][0])
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "index", "file", "form"),
    [
        ("mds/ndarray", "index.json", "shard.00000.mds", None),
        ("litdata/int32", "index.json", "chunk-0-0.bin", None),
        ("hub/int32", "state.json", "data-00000-of-00002.arrow", "arrow"),
    ],
)
def test_an_index_cannot_name_a_file_elsewhere(name, index, file, form, tmp_path):
    path = copied(name, tmp_path)
    text = (path / index).read_text()
    for changed in (f"../{file}", "..", f"/etc/{file}", "a" * 300, "\\u0000", "\\ud800", ""):
        (path / index).write_text(text.replace(file, changed))
        with pytest.raises(CorruptFile, match="which is not a file beside it"):
            open_corpus(path, form)


def test_a_shard_that_is_missing_is_named(tmp_path):
    path = copied("mds/zstd", tmp_path)
    for shard in path.glob("shard.00001.*"):
        shard.unlink()
    with pytest.raises(CorruptFile, match="names a shard that is not beside it"):
        open_corpus(path)


def test_compressed_or_nested_arrow_is_read_and_hostile_arrow_is_not(tmp_path):
    table = pa.table({"input_ids": pa.array(DOCUMENTS, pa.large_list(pa.int64()))})
    for compression in ("lz4", "zstd"):
        with pa.ipc.new_file(
            str(tmp_path / "a.arrow"), table.schema,
            options=pa.ipc.IpcWriteOptions(compression=compression),
        ) as writer:  # fmt: skip
            writer.write_table(table, max_chunksize=3)
        assert all_tokens(open_corpus(tmp_path / "a.arrow", "arrow")) == DOCUMENTS
    for bad in (pa.array([[1], None]), pa.array([[1, None]]), pa.array([[1.5]]), pa.array([1])):
        pq.write_table(pa.table({"input_ids": bad}), tmp_path / "b.parquet")
        with pytest.raises((InvalidDocument, InvalidOption)):
            all_tokens(open_corpus(tmp_path / "b.parquet", "parquet"))


def test_a_saved_dataset_that_lists_no_files_is_refused(tmp_path):
    path = copied("hub/int32", tmp_path)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "_data_files": []}))
    with pytest.raises(CorruptFile, match="lists no file of tokens; restore its index"):
        open_corpus(path, "arrow")


@pytest.mark.parametrize("starts", [[[0, None], [0]], [None, [0]], [[0.0, 1.5], [0.0]]])
def test_starts_of_nemo_are_whole_numbers(starts, tmp_path):
    rows = {"input_ids": [[1, 2, 3], [4]], "loss_mask": [[1, 1, 1], [1]], "seq_start_id": starts}
    pq.write_table(pa.table(rows), tmp_path / "a.idx.parquet")
    with pytest.raises(CorruptFile, match="seq_start_id has nulls or is not integers"):
        open_corpus(tmp_path / "a.idx.parquet")


def test_packed_rows_of_nemo_must_be_covered_by_their_sequences(tmp_path):
    for starts in ([[1, 2]], [[0, 5]], [[]], [[2, 0]]):
        rows = {"input_ids": [[4, 5, 6]], "loss_mask": [[1, 1, 1]], "seq_start_id": starts}
        kinds = pa.schema({name: pa.list_(pa.int32()) for name in rows})
        pq.write_table(pa.table(rows, kinds), tmp_path / "a.parquet")
        with pytest.raises(CorruptFile, match="seq_start_id of row 0 does not rise from 0"):
            open_corpus(tmp_path / "a.parquet", "nemo")


@pytest.mark.parametrize("name", ["mds/zstd", "hub/int32.parquet", "olmo/short.npy"])
def test_a_change_under_the_plan_is_refused(name, tmp_path):
    path = copied(name, tmp_path)
    out = tmp_path / "planned"
    pack_corpus([path], out, max_length=20, index_only=True, format=CASES[name][0])
    files = path.rglob("*") if path.is_dir() else [path]
    for file in (one for one in files if one.is_file()):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(SourceChanged, match="its bytes differ"):
            PackedDataset(out)
        assert not verify_output(out).ok
        file.write_bytes(whole)
    assert len(PackedDataset(out))


class TestRealReaders:
    """Where the package can be imported: its own reader gives the same tokens."""

    def test_olmo(self):
        utils = pytest.importorskip("olmo_core.data.utils")
        for name, dtype in (("short", np.uint16), ("long", np.uint32)):
            path = FOLDER / "olmo" / f"{name}.npy"
            array = np.fromfile(path, dtype)
            spans = utils.iter_document_indices(path, eos_token_id=EOS, dtype=dtype)
            assert all_tokens(open_corpus(path)) == [array[a:b].tolist() for a, b in spans]

    def test_datatrove(self):
        dataset = pytest.importorskip("datatrove.utils.dataset")
        for name, size in (("short", 2), ("long", 4)):
            path = FOLDER / "datatrove" / f"{name}.ds"
            theirs = dataset.DatatroveFileDataset(str(path), seq_len=96, token_size=size)
            mine = [token for tokens in all_tokens(open_corpus(path)) for token in tokens]
            assert theirs[0]["input_ids"].tolist() == mine

    @pytest.mark.parametrize("name", ["ndarray_typed", "ndarray", "bytes", "zstd", "fixed"])
    def test_mosaicml(self, name, tmp_path):
        mds = pytest.importorskip("streaming.base.format").reader_from_json
        folder = shutil.copytree(FOLDER / "mds" / name, tmp_path / "copy")
        shards = json.loads((folder / "index.json").read_text())["shards"]
        theirs = []
        for shard in shards:
            reader = mds(str(folder), "", shard)
            reader.init_shard = None
            if name == "zstd":
                (file,) = [shard["zip_data"]["basename"]]
                source = pa.input_stream(str(folder / file), compression="zstd")
                (folder / shard["raw_data"]["basename"]).write_bytes(source.read())
            for number in range(len(reader)):
                value = reader[number].get("tokens", reader[number].get("input_ids"))
                theirs.append(np.frombuffer(value, np.int64) if name == "bytes" else value)
        mine = open_corpus(folder, "mds:dtype=int64" if name == "bytes" else None)
        assert all_tokens(mine) == [tokens.tolist() for tokens in theirs]

    @pytest.mark.filterwarnings("ignore:The given buffer is not writable")
    @pytest.mark.parametrize("name", ["int32", "uint16"])
    def test_litdata(self, name):
        streaming = pytest.importorskip("litdata.streaming")
        serializers = pytest.importorskip("litdata.streaming.serializers")._SERIALIZERS
        folder = FOLDER / "litdata" / name
        index = json.loads((folder / "index.json").read_text())
        mine = open_corpus(folder)
        for file, chunk in zip(mine.files, index["chunks"], strict=True):
            loader = streaming.TokensLoader(block_size=chunk["dim"])
            loader.setup(index["config"], [chunk], serializers)
            path = str(folder / chunk["filename"])
            theirs = loader.load_item_from_chunk(0, 0, path, 0, chunk["chunk_bytes"])
            here = TokenCorpus("litdata", [file])
            assert [token for tokens in all_tokens(here) for token in tokens] == theirs.tolist()

    @pytest.mark.parametrize("name", ["uint16", "int32", "int64"])
    def test_datasets(self, name):
        datasets = pytest.importorskip("datasets")
        theirs = datasets.load_from_disk(str(FOLDER / "hub" / name))
        assert all_tokens(open_corpus(FOLDER / "hub" / name, "arrow")) == theirs["input_ids"][:]


@pytest.mark.parametrize("name", CASES)
def test_its_documents_are_copied_without_index_only(name, tmp_path):
    form, documents = CASES[name]
    form = "nemo" if name == "nemo" else form  # by suffix, parquet is a table
    out = tmp_path / "out"
    packed = pack_corpus([FOLDER / name], out, max_length=60, format=form, partition_size=100)
    found = [
        fragment.tolist()
        for row in PackedDataset(out)
        for fragment in np.split(row["input_ids"], row["document_starts"][1:])
    ]
    assert sorted(found) == sorted(documents)
    assert packed.ledger.check().tokens.emitted == sum(map(len, documents))
    inputs = [FOLDER / name if (FOLDER / name).exists() else FOLDER / "megatron"]
    report = verify_inputs(verify_output(out), inputs, None)
    assert report.problems == []
    same = {"format": form, "partition_size": 100, "resume": True}
    assert pack_corpus([FOLDER / name], out, max_length=60, **same).was_complete


@pytest.mark.parametrize("name", ["mds/zstd", "olmo/short.npy", "litdata/int32"])
def test_a_corpus_to_copy_is_recognized(name, tmp_path):
    packed = pack_corpus([FOLDER / name], tmp_path / "out", max_length=20)
    (entry, *_) = packed.manifest["inputs"]
    assert entry["kind"] == name.partition("/")[0]
    assert "loss_mask" not in packed.manifest["columns"]


def test_tokens_that_belong_to_no_document_are_not_copied_silently(tmp_path):
    path = tmp_path / "part.npy"
    np.array([5, 6, 0, 7, 8, 9, 0, 10, 11], "<u2").tofile(path)
    form = "olmo:dtype=uint16,eos=0"
    with pytest.raises(InvalidOption, match=r"part.npy holds 2 tokens that belong to no document"):
        pack_corpus([path], tmp_path / "out", max_length=5, format=form)
    packed = pack_corpus([path], tmp_path / "out", max_length=5, format=f"{form},tail=keep")
    assert packed.ledger.tokens.emitted == 9


def test_rows_of_nemo_are_not_taken_for_documents(tmp_path):
    with pytest.raises(InvalidOption, match=r"packed already: it has 'seq_start_id'.*format nemo"):
        pack_corpus([FOLDER / "nemo"], tmp_path / "out", max_length=20)


@pytest.mark.parametrize("name", ["olmo/long.npy", "olmo/no_metadata.npy"])
def test_a_file_that_was_written_again_is_read_again(name, tmp_path):
    form, documents = CASES[name]
    for file in (FOLDER / name).parent.glob(f"{Path(name).stem}*"):
        shutil.copy(file, tmp_path)
    path = tmp_path / Path(name).name
    options = {"max_length": 60, "format": form}
    pack_corpus([path], tmp_path / "one", **options)
    data = np.fromfile(path, np.uint32 if "long" in name else np.uint16)
    data[0], data[len(documents[0])] = (data[0], 7) if form is None else (EOS, 7)
    data.tofile(path)
    pack_corpus([path], tmp_path / "two", **options)
    rows = PackedDataset(tmp_path / "two")
    found = sorted(t for row in rows for t in row["input_ids"].tolist())
    assert found == sorted(data.tolist())
    if form is not None:  # the first token ends a document now
        starts = sum(len(row["document_starts"]) for row in rows)
        assert starts == len(documents) + 1


@pytest.mark.parametrize("name", ["arrow", "parquet"])
def test_a_format_of_tables_is_not_ignored_for_other_files(name, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    with pytest.raises(InvalidOption, match=f"a.jsonl is not of format='{name}'; leave it out"):
        pack_corpus([tmp_path / "a.jsonl"], tmp_path / "o", "byte", max_length=8, format=name)
