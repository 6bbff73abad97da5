"""Rows in the files of other trainers: read in place again, and by the real readers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from quire.corpus import pack_corpus
from quire.errors import InvalidOption, InvalidRow, OutputError
from quire.formats import open_corpus
from quire.packed import PackedDataset
from quire.packed.exports import EXPORTS, ExportOptions, export, megatron
from quire.verify.output import verify_output
from tests import commands
from tests.formats.foreign_documents import FOLDER

SMALL_GPT2 = Path(__file__).parents[1] / "tokenizer_files" / "small-gpt2"
READ_AS = {
    "megatron": ("megatron:unit=documents", "rows"),
    "nemo": (None, "fragments"),
    "mds": (None, "rows"),
    "trl": ("parquet", "rows"),
    "arrow": ("arrow", "rows"),
    "olmo": (None, "fragments"),
}
"""The format to read an export with, and what its documents are."""


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def packed(tmp_path):
    form, path = "arrow", FOLDER / "hub" / "int32"
    pack_corpus([path], tmp_path / "packed", max_length=20, index_only=True, format=form)
    return tmp_path / "packed"


@pytest.fixture
def tokens_only(tmp_path):
    pack_corpus([FOLDER / "megatron/uint16.idx"], tmp_path / "tokens", max_length=20)
    return tmp_path / "tokens"


def written(packed: Path, out: Path, to: str, **options) -> Path:
    if to in ("megatron", "olmo"):
        options = {"columns": ("input_ids",), **options}
    export(packed, out, to, options=ExportOptions(tokens_per_part=45, **options))
    return out


def documents_of(packed: Path, unit: str) -> list[list[int]]:
    found = []
    for row in PackedDataset(packed):
        ids, starts = row["input_ids"].tolist(), row["document_starts"].tolist()
        ends = [*starts[1:], len(ids)]
        pairs = zip(starts, ends, strict=True) if unit == "fragments" else [(0, len(ids))]
        found += [ids[start:stop] for start, stop in pairs]
    return found


@pytest.mark.parametrize("to", EXPORTS)
def test_an_export_is_read_in_place_again_and_whole(to, packed, tmp_path):
    out = written(packed, tmp_path / "out", to)
    form, unit = READ_AS[to]
    expected = documents_of(packed, unit)
    assert [tokens.tolist() for _, tokens in open_corpus(out, form).iterate()] == expected
    again = tmp_path / "again"
    result = pack_corpus([out], again, max_length=20, index_only=True, format=form)
    assert result.ledger.tokens.emitted == sum(map(len, expected))
    assert verify_output(again).problems == []


@pytest.mark.parametrize("to", EXPORTS)
def test_the_sidecar_has_the_ledger_and_every_file(to, packed, tmp_path):
    out = written(packed, tmp_path / "out", to)
    sidecar = json.loads((out / "quire.json").read_text())
    dataset = PackedDataset(packed)
    assert sidecar["ledger"] == dataset.ledger.to_dict()
    assert (sidecar["rows"], sidecar["source"]["plan"]) == (len(dataset), "exact_fit-20")
    listed = {entry["file"]: entry["bytes"] for entry in sidecar["files"]}
    files = (path for path in out.rglob("*") if path.is_file())
    there = {path.relative_to(out).as_posix(): path.stat().st_size for path in files}
    assert there == {**listed, "quire.json": there["quire.json"]}
    assert sum(name.startswith(("part", "shard", "data/", "data-")) for name in listed) >= 3


@pytest.mark.parametrize("to", EXPORTS)
def test_an_interrupted_export_gives_the_same_bytes(to, packed, tmp_path, monkeypatch):
    whole = written(packed, tmp_path / "whole", to)
    columns = ("input_ids",) if to in ("megatron", "olmo") else None
    options = ExportOptions(tokens_per_part=45, columns=columns)
    reads = [0]
    plain = PackedDataset.__getitems__

    def stop_in_the_second_part(dataset, rows):
        reads[0] += 1
        if reads[0] == 2:
            raise KeyboardInterrupt
        return plain(dataset, rows)

    with monkeypatch.context() as patched:
        patched.setattr(PackedDataset, "__getitems__", stop_in_the_second_part)
        with pytest.raises(KeyboardInterrupt):
            export(packed, tmp_path / "out", to, options=options)
    assert not (tmp_path / "out" / "quire.json").exists()
    with pytest.raises(OutputError, match="continue an unfinished export with resume"):
        export(packed, tmp_path / "out", to, options=options)
    other = ExportOptions(tokens_per_part=99, columns=columns)
    with pytest.raises(OutputError, match="tokens_per_part is 45 there and 99 here"):
        export(packed, tmp_path / "out", to, options=other, resume=True)
    done = export(packed, tmp_path / "out", to, options=options, resume=True)
    assert not done.was_complete
    one, two = (
        {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (whole, tmp_path / "out")
    )
    assert one == two
    assert export(packed, tmp_path / "out", to, options=options, resume=True).was_complete


def test_megatron_keeps_rows_and_fragments_in_one_index(packed, tmp_path):
    out = written(packed, tmp_path / "out", "megatron")
    read = open_corpus(out, "megatron:unit=sequences")
    expected = documents_of(packed, "fragments")
    assert [tokens.tolist() for _, tokens in read.iterate()] == expected


def test_megatron_rows_have_their_boundaries_beside_them(packed, tmp_path):
    out = written(packed, tmp_path / "out", "megatron", unit="rows", dtype="uint16")
    read = open_corpus(out)
    assert [tokens.tolist() for _, tokens in read.iterate()] == documents_of(packed, "rows")
    tables = [pq.read_table(path) for path in sorted(out.glob("*.boundaries.parquet"))]
    starts = [row for table in tables for row in table["document_starts"].to_pylist()]
    assert starts == [row["document_starts"].tolist() for row in PackedDataset(packed)]


def test_labels_are_not_lost_silently(packed, tmp_path):
    for to in ("megatron", "olmo"):
        with pytest.raises(InvalidOption, match=f"loss_mask, which the files of {to} cannot hold"):
            export(packed, tmp_path / "out", to)
    assert not (tmp_path / "out").exists()


def test_a_type_that_is_too_narrow_is_refused(tmp_path):
    ids = {"input_ids": [70000, 1]}
    (tmp_path / "a.jsonl").write_text(json.dumps(ids) + "\n")
    pack_corpus([tmp_path / "a.jsonl"], tmp_path / "packed", max_length=4)
    for to in ("megatron", "olmo"):
        options = ExportOptions(dtype="uint16")
        with pytest.raises(InvalidRow, match="row 0 has the token id 70000, but uint16"):
            export(tmp_path / "packed", tmp_path / to, to, options=options)


@pytest.mark.parametrize(
    ("to", "options", "message"),
    [
        ("megatronn", {}, "unknown format to export to 'megatronn'; did you mean 'megatron'"),
        ("megatron", {"unit": "words"}, "must be one of fragments, rows of an export to megatron"),
        ("trl", {"unit": "rows"}, "is not an option of an export to trl"),
        ("olmo", {"dtype": "int8"}, "must be one of uint32, uint16"),
    ],
)
def test_options_of_other_formats_are_refused(to, options, message, packed, tmp_path):
    with pytest.raises(InvalidOption, match=message):
        export(packed, tmp_path / "out", to, options=ExportOptions(**options))


def test_a_folder_of_other_files_is_left_alone(packed, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    for resume in (False, True):
        with pytest.raises(OutputError, match=r"is not empty|no export of quire"):
            export(packed, tmp_path / "out", "trl", resume=resume)


def test_the_command_exports(tokens_only, tmp_path):
    out = tmp_path / "out"
    done = commands.run("export", tokens_only, "--to", "megatron", "--out", out)
    assert done.returncode == 0
    assert "5 rows with 87 tokens in 2 files" in done.stdout
    again = commands.run(
        "export", tokens_only, "--to", "megatron", "--out", out, "--resume", "--json"
    )
    assert json.loads(again.stdout)["was_complete"]
    refused = commands.run("export", tokens_only, "--to", "csv", "--out", out)
    assert refused.returncode == 2


def test_datasets_opens_arrow_and_trl(packed, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = list(PackedDataset(packed))
    arrow = datasets.load_from_disk(str(written(packed, tmp_path / "arrow", "arrow")))
    assert arrow["input_ids"][:] == [row["input_ids"].tolist() for row in rows]
    assert arrow["loss_mask"][:] == [row["loss_mask"].tolist() for row in rows]
    assert arrow["document_starts"][:] == [row["document_starts"].tolist() for row in rows]
    trl = pq.read_table(written(packed, tmp_path / "trl", "trl") / "data")
    ends = [np.append(row["document_starts"], len(row["input_ids"])) for row in rows]
    assert trl["seq_lengths"].to_pylist() == [np.diff(one).tolist() for one in ends]


@pytest.mark.slow
def test_trl_trains_on_it(tokens_only, tmp_path):
    datasets, trl = (pytest.importorskip(name) for name in ("datasets", "trl"))
    transformers = pytest.importorskip("transformers")
    out = written(tokens_only, tmp_path / "trl", "trl")
    files = [str(path) for path in sorted(out.glob("data/*.parquet"))]
    rows = datasets.load_dataset("parquet", data_files=files, split="train")
    config = transformers.GPT2Config(vocab_size=50257, n_layer=1, n_head=2, n_embd=8)
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMALL_GPT2)
    tokenizer.pad_token = tokenizer.eos_token
    arguments = trl.SFTConfig(
        str(tmp_path / "run"), max_steps=2, padding_free=True, max_length=None, report_to=[],
        use_cpu=True, per_device_train_batch_size=2, dataset_kwargs={"skip_prepare_dataset": True},
    )  # fmt: skip
    trainer = trl.SFTTrainer(
        transformers.GPT2LMHeadModel(config),
        arguments,
        train_dataset=rows,
        processing_class=tokenizer,
    )
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["position_ids"].numel() == batch["input_ids"].numel()
    assert trainer.train().global_step == 2


class TestRealReaders:
    """Where the package can be imported: every token is the same."""

    @pytest.mark.parametrize("unit", megatron.OPTIONS["unit"])
    def test_megatron(self, unit, packed, tmp_path):
        indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
        out = written(packed, tmp_path / "out", "megatron", unit=unit)
        read = []
        for path in sorted(out.glob("*.idx")):
            dataset = indexed.IndexedDataset(str(path.with_suffix("")))
            read += [dataset[number].tolist() for number in range(len(dataset))]
            if unit == "fragments":
                assert dataset.document_indices[-1] == len(dataset)
        assert read == documents_of(packed, unit)

    def test_mosaicml(self, packed, tmp_path):
        reader = pytest.importorskip("streaming.base.format").reader_from_json
        out = written(packed, tmp_path / "out", "mds")
        shards = json.loads((out / "index.json").read_text())["shards"]
        read = [row for shard in shards for row in iter_of(reader(str(out), "", shard))]
        rows = list(PackedDataset(packed))
        assert [row["tokens"].tolist() for row in read] == documents_of(packed, "rows")
        for name in ("document_starts", "loss_mask"):
            assert [one[name].tolist() for one in read] == [row[name].tolist() for row in rows]

    def test_olmo(self, packed, tmp_path):
        utils = pytest.importorskip("olmo_core.data.utils")
        out = written(packed, tmp_path / "out", "olmo")
        read = []
        for path in sorted(out.glob("*.npy")):
            spans = utils.iter_document_indices(path, use_array_if_local=False)
            array = np.fromfile(path, np.uint32)
            read += [array[start:stop].tolist() for start, stop in spans]
        assert read == documents_of(packed, "fragments")


def iter_of(reader):
    return (reader[number] for number in range(len(reader)))
