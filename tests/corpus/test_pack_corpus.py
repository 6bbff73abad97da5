"""A corpus on disk becomes a packed dataset on disk."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.corpus.job import shard_seed
from quire.errors import CorruptFile, InvalidDocument, InvalidOption, OutputError, OversizedDocument
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.corpus.corpora import contents, hashes, jsonl, pack, rows, texts
from tests.corpus.pickled_tokenizer import PickledTokenizer
from tests.tokenizer_files import folder_of, parameters


def encoded(values: list[str]) -> dict[int, list[int]]:
    return {i: [b + 3 for b in v.encode()] + [2] for i, v in enumerate(values) if v}


def test_two_documents_in_one_row(tmp_path):
    result = pack(jsonl(tmp_path / "a.jsonl", ["abc", "", "de"]), tmp_path / "out", max_length=10)
    assert rows(tmp_path / "out").to_pylist() == [
        {
            "input_ids": [1, 100, 101, 102, 2, 1, 103, 104, 2],
            "document_starts": [0, 5],
            "document_ids": [0, 2],
            "document_offsets": [0, 0],
        }
    ]
    assert result.ledger.documents.dropped == {"empty": 1}
    assert result.utilization == 0.7
    assert sorted(hashes(tmp_path / "out")) == ["data/shard-00000-000.parquet", "manifest.json"]


def test_a_partition_is_packed_as_pack_dataset_would(tmp_path):
    values = [t for t in texts(80) if t]
    pack(jsonl(tmp_path / "a.jsonl", values), tmp_path / "out")
    expected = quire.pack_dataset(
        [{"text": t} for t in values],
        "byte",
        max_length=16,
        keep_sources=True,
        seed=shard_seed(0, 0, 0),
    )
    assert rows(tmp_path / "out").to_pylist() == expected.to_pylist()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.text(max_size=40), min_size=1, max_size=20),
    st.sampled_from([120, 10_000]),
    st.sampled_from(["best_fit", "wrapped", "first_fit"]),
    st.booleans(),
)
def test_every_token_is_there_once(values, size, strategy, add_bos):
    with TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = jsonl(Path(name) / "a.jsonl", values)
        out, terms = Path(name) / "out", {"strategy": strategy, "add_bos": add_bos}
        result = pack(path, out, partition_size=size, **terms)
        assert contents(out) == encoded(values)
    without_eos = [ids[:-1] for ids in encoded(values).values()]
    assert result.ledger.check().tokens.emitted == sum(map(len, without_eos))


def test_every_kind_of_file_gives_the_same_documents(tmp_path):
    values = texts(30)
    path = jsonl(tmp_path / "a.jsonl", values)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pa.output_stream(str(tmp_path / "c.jsonl.zst"), compression="zstd") as stream:
        stream.write(path.read_bytes())
    pq.write_table(pa.table({"text": values}), tmp_path / "d.parquet")
    table = pa.table({"text": pa.array(values, pa.large_string())})
    with pa.ipc.new_file(tmp_path / "e.arrow", table.schema) as writer:
        writer.write_table(table)
    for number, kind in enumerate(sorted(tmp_path.iterdir())):
        pack(kind, tmp_path / "out" / str(number), partition_size=400)
        assert contents(tmp_path / "out" / str(number)) == encoded(values), kind.name


def test_a_text_file_is_one_document_and_ids_name_file_and_record(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\x00\n")
    jsonl(tmp_path / "b.jsonl", ["", "three"])
    pack(tmp_path, tmp_path.parent / "out", max_length=32)
    found = contents(tmp_path.parent / "out")
    assert found == {
        0: [b + 3 for b in b"one\r\ntwo\x00\n"] + [2],
        (1 << 40) + 1: [b + 3 for b in b"three"] + [2],
    }


def test_concatenated_compressed_files_are_read_to_their_end(tmp_path):
    one = b'{"text": "a"}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(one) + gzip.compress(one))
    codec = pa.Codec("zstd")
    with pa.output_stream(str(tmp_path / "one.zst"), compression="zstd") as stream:
        stream.write(one)
    (tmp_path / "b.jsonl.zst").write_bytes((tmp_path / "one.zst").read_bytes() * 2)
    assert codec.name == "zstd"
    for name in ("a.jsonl.gz", "b.jsonl.zst"):
        pack(tmp_path / name, tmp_path / name.replace(".", "-"))
        assert len(contents(tmp_path / name.replace(".", "-"))) == 2


def test_a_compressed_file_is_cut_into_shards_while_it_is_read(tmp_path):
    values = texts(100)
    path = jsonl(tmp_path / "a.jsonl", values)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    result = pack(tmp_path / "a.jsonl.gz", tmp_path / "out", partition_size=1000)
    assert len(result.manifest["shards"]) > 3
    assert {shard["partition"] for shard in result.manifest["shards"]} == {0}
    assert contents(tmp_path / "out") == encoded(values)


def test_worker_counts_give_the_same_bytes(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(100))
    for workers in (1, 2):
        pack(path, tmp_path / str(workers), partition_size=600, workers=workers)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")
    assert len(hashes(tmp_path / "1")) > 5


def test_tokens_and_their_columns_are_packed_unchanged(tmp_path):
    records = [
        {"input_ids": [5, 6, 7], "labels": [-100, 6, 7], "meta": [1]},
        {"input_ids": [8, 9], "labels": [8, 9]},
    ]
    table = pa.table({name: [r[name] for r in records] for name in ("input_ids", "labels")})
    pq.write_table(table, tmp_path / "a.parquet")
    jsonl(tmp_path / "b.jsonl", records)
    for name in ("a.parquet", "b.jsonl"):
        out = tmp_path / name.partition(".")[0]
        pack(tmp_path / name, out, None, max_length=8, pretokenized=True)
        (row,) = rows(out).to_pylist()
        assert row["input_ids"] == [5, 6, 7, 8, 9]
        assert row["labels"] == [-100, 6, 7, 8, 9]
        assert row["document_starts"] == [0, 3]


def test_a_fragment_without_a_trained_label_is_left_out(tmp_path):
    records = [{"input_ids": [5, 6], "labels": [-100, -100]}, {"input_ids": [8], "labels": [8]}]
    path = jsonl(tmp_path / "a.jsonl", records)
    result = pack(path, tmp_path / "out", None, pretokenized=True)
    assert result.ledger.tokens.dropped == {"unsupervised": 2}
    assert rows(tmp_path / "out")["input_ids"].to_pylist() == [[8]]


@pytest.mark.parametrize("name", parameters("qwen3"))
def test_only_what_the_assistant_says_is_trained(tmp_path, name):
    messages = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    path = jsonl(tmp_path / "a.jsonl", [{"messages": messages}, {"messages": []}])
    result = pack(
        path,
        tmp_path / "out",
        folder_of(name),
        max_length=64,
        messages_column="messages",
        max_bad_records=1,
    )
    (row,) = rows(tmp_path / "out").to_pylist()
    trained = [t for t, label in zip(row["input_ids"], row["labels"], strict=True) if label == t]
    assert 0 < len(trained) < len(row["input_ids"])
    assert result.ledger.documents.dropped == {"bad_record": 1}


@pytest.mark.parametrize("name", parameters("gpt2"))
def test_the_file_of_a_tokenizer_gives_the_tokens_of_pack_dataset(tmp_path, name):
    folder = folder_of(name)
    values = [t for t in texts(40) if t]
    pack(jsonl(tmp_path / "a.jsonl", values), tmp_path / "out", str(folder), workers=2)
    expected = quire.pack_dataset(
        [{"text": t} for t in values], str(folder), max_length=16, seed=shard_seed(0, 0, 0)
    )
    assert rows(tmp_path / "out")["input_ids"].to_pylist() == expected["input_ids"].to_pylist()


def test_a_complete_output_is_unchanged_by_resume_and_refused_without(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(20))
    pack(path, tmp_path / "out")
    before = hashes(tmp_path / "out")
    again = pack(path, tmp_path / "out", resume=True)
    assert again.was_complete
    with pytest.raises(OutputError, match="already holds a packed dataset"):
        pack(path, tmp_path / "out")
    assert hashes(tmp_path / "out") == before


@pytest.mark.parametrize("index_only", [False, True])
@pytest.mark.parametrize("change", ["is missing", r"has \d+ bytes"])
def test_a_complete_output_that_lost_a_file_is_an_error(tmp_path, index_only, change):
    path, out = jsonl(tmp_path / "a.jsonl", texts(20)), tmp_path / "out"
    pack(path, out, index_only=index_only)
    for file in (p for p in out.rglob("*") if p.suffix in (".parquet", ".arrow")):
        data = file.read_bytes()
        if change == "is missing":
            file.unlink()
        else:
            file.write_bytes(data[:-1])
        with pytest.raises(OutputError, match=f"was complete, but .*{file.name} {change} and the"):
            pack(path, out, index_only=index_only, resume=True)
        file.write_bytes(data)
    assert pack(path, out, index_only=index_only, resume=True).was_complete


def test_28_a_complete_output_whose_manifest_was_changed_is_an_error(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", texts(20)), tmp_path / "out"
    pack(path, out)
    said = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(said.replace('"rows": ', '"rows": 1', 1))
    with pytest.raises(CorruptFile, match="was damaged or changed"):
        pack(path, out, resume=True)


def test_resume_starts_a_run_if_there_is_none(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(20))
    pack(path, tmp_path / "one")
    pack(path, tmp_path / "two", resume=True)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 1}, "a row of max_length=1 has no room for a token after BOS"),
        ({"stride": 15}, "stride=15 leaves no room for 1 new token"),
        ({"text_column": "story"}, r"a\.jsonl: record 0 \(byte 0\) has no 'story'"),
    ],
)
@pytest.mark.parametrize("index_only", [False, True])
def test_a_run_that_ends_before_its_first_shard_leaves_nothing(
    tmp_path, options, message, index_only
):
    path = jsonl(tmp_path / "a.jsonl", texts(20))
    with pytest.raises((InvalidOption, InvalidDocument), match=message):
        pack(path, tmp_path / "out", index_only=index_only, **options)
    assert not (tmp_path / "out").exists()
    assert pack(path, tmp_path / "out", index_only=index_only).num_rows


def test_the_warning_for_an_output_without_rows_says_why(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["", "abc", "defg"])
    with pytest.warns(UserWarning, match="3 read, 1 dropped as empty, 2 dropped as"):
        pack(path, tmp_path / "out", drop_longer_than=2)
    (tmp_path / "b.jsonl").write_text("")
    with pytest.warns(UserWarning, match="has no rows; documents: 0 read"):
        pack(tmp_path / "b.jsonl", tmp_path / "two")


def test_options_that_cannot_work_are_refused_before_a_document_is_read(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [{"text": None}])
    with pytest.raises(InvalidOption, match="no room for a token after BOS"):
        pack(path, tmp_path / "out", max_length=1)


def _begun(path: Path, out: Path, **options) -> None:
    """Pack until the third shard is committed."""
    heard = []

    def stop(progress) -> None:
        heard.extend([progress.commit] * (progress.commit is not None))
        if len(heard) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(path, out, partition_size=300, on_progress=stop, **options)


def test_a_shard_of_another_run_is_packed_again_with_the_options_of_this_one(tmp_path):
    """With its commit, as after copying folders."""
    path = jsonl(tmp_path / "a.jsonl", texts(40))
    pack(path, tmp_path / "whole", partition_size=300, seed=1, shuffle=True)
    _begun(path, tmp_path / "own", seed=1, shuffle=True)
    _begun(path, tmp_path / "other", seed=2, shuffle=True)
    for name in ("data/shard-00001-000.parquet", ".quire/shard-00001-000.parquet.json"):
        assert (tmp_path / "own" / name).exists()
        (tmp_path / "own" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    pack(path, tmp_path / "own", partition_size=300, seed=1, shuffle=True, resume=True)
    assert hashes(tmp_path / "own") == hashes(tmp_path / "whole")


def test_shards_without_a_record_of_their_run_are_not_resumed(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(40))
    _begun(path, tmp_path / "out")
    (tmp_path / "out" / ".quire" / "run.json").unlink()
    before = hashes(tmp_path / "out")
    with pytest.raises(OutputError, match=r"shard-00000-000.*run\.json.* is missing; choose a new"):
        pack(path, tmp_path / "out", partition_size=900, resume=True)
    assert hashes(tmp_path / "out") == before


def test_resume_refuses_a_folder_of_other_files(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("dear to somebody")
    with pytest.raises(OutputError, match=r"thesis.tex.*no run of quire to resume"):
        pack(jsonl(tmp_path / "a.jsonl", ["a"]), tmp_path / "out", resume=True)
    assert sorted(hashes(tmp_path / "out")) == ["thesis.tex"]


def test_an_output_inside_its_input_is_refused(tmp_path):
    jsonl(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(InvalidOption, match="is inside the input"):
        pack(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_lenght": 8}, "unknown option 'max_lenght'; did you mean 'max_length'"),
        ({"strategy": "bestfit"}, "did you mean 'best_fit'"),
        (
            {"pretokenized": True, "messages_column": "m"},
            "pretokenized or messages_column",
        ),
        ({"columns": ["labels"]}, r"columns=.* is only for tokens \(pretokenized\)"),
        ({"workers": 0}, "workers is 0"),
        ({"max_bad_records": -1}, "max_bad_records is -1"),
        ({"partition_size": 0}, "partition_size is 0"),
        ({"tokenizer": None}, "text needs a tokenizer"),
        ({"max_length": 0}, "max_length is 0 but must be"),
        ({"min_length": 17}, "lower min_length or raise max_length"),
        ({"keep_sources": "no"}, "keep_sources is 'no' but must be True or False"),
        ({"resume": "no"}, "resume is 'no' but must be True or False"),
        ({"partition_size": 8e3}, r"partition_size is 8000\.0 but must be"),
        ({"columns": "labels"}, "columns is 'labels' but must be a list"),
        ({"stride": 16}, r"in a row of 16; lower stride or raise max_length"),
    ],
)
def test_mistakes_are_errors_before_anything_is_written(tmp_path, options, message):
    path = jsonl(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(InvalidOption, match=message):
        pack(path, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("index_only", [False, True])
def test_errors_of_the_planner_use_the_names_of_the_options(tmp_path, index_only):
    path = jsonl(tmp_path / "a.jsonl", ["", "abc", "x" * 99])
    with pytest.raises(InvalidOption, match=r"after BOS .*raise max_length or leave BOS"):
        pack(path, tmp_path / "out", max_length=1, index_only=index_only)
    oversized = r"a\.jsonl: record 2 has 100 tokens .*raise max_length$"
    with pytest.raises(OversizedDocument, match=oversized):
        pack(path, tmp_path / "two", overlong="error", index_only=index_only)


def test_the_manifest_records_what_determined_the_bytes_and_nothing_else(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(20))
    pack(path, tmp_path / "out", partition_size=300)
    text = (tmp_path / "out" / "manifest.json").read_text()
    manifest = json.loads(text)
    assert set(manifest) == {
        *("format", "options", "tokenizer", "columns", "fingerprint", "inputs"),
        *("rows", "tokens", "content", "ledger", "bad_records", "shards", "checksum"),
    }
    assert str(tmp_path) not in text
    assert "workers" not in text
    assert manifest["rows"] == rows(tmp_path / "out").num_rows
    whole = sum((quire.Ledger.from_dict(s["ledger"]) for s in manifest["shards"]), quire.Ledger())
    assert whole == quire.Ledger.from_dict(manifest["ledger"])
    for shard in manifest["shards"]:
        data = (tmp_path / "out" / shard["file"]).read_bytes()
        assert len(data) == shard["bytes"]
        assert hashes(tmp_path / "out")[shard["file"]] == shard["sha256"]


def test_the_same_corpus_elsewhere_gives_the_same_bytes(tmp_path):
    jsonl(tmp_path / "a.jsonl", texts(20))
    pack(tmp_path / "a.jsonl", tmp_path / "one")
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "elsewhere")
    pack(tmp_path / "elsewhere" / "a.jsonl", tmp_path / "two")
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")


def test_every_shard_is_shuffled_with_its_own_seed(tmp_path):
    seeds = {shard_seed(0, partition, piece) for partition in range(20) for piece in range(3)}
    assert len(seeds) == 60
    path = jsonl(tmp_path / "a.jsonl", texts(40))
    for name, options in {"1": {}, "2": {"seed": 7}, "3": {"shuffle": False}}.items():
        pack(path, tmp_path / name, **options)
    orders = [rows(tmp_path / name)["document_ids"].to_pylist() for name in "123"]
    assert orders[0] != orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])


def test_the_corpus_module_needs_no_optional_package():
    code = (
        "import sys, quire.corpus;"
        "print([n for n in ('torch','transformers','datasets','ray','jax') if n in sys.modules])"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_glob_around_the_output_can_be_resumed(tmp_path):
    for name in ("a", "b"):
        pq.write_table(pa.table({"text": texts(9)}), tmp_path / f"{name}.parquet")
    inputs, out = [f"{tmp_path}/**/*.parquet"], tmp_path / "packed"
    first = pack(inputs, out)
    assert pack(inputs, out, resume=True).was_complete
    assert first.ledger.documents.emitted == 18
    assert verify_inputs(verify_output(out), inputs, "byte").problems == []


def test_inputs_may_be_what_a_glob_yields(tmp_path):
    jsonl(tmp_path / "a.jsonl", texts(3))
    assert pack(tmp_path.glob("*.jsonl"), tmp_path / "out").ledger.documents.emitted == 3


def test_a_tokenizer_that_cannot_be_pickled_is_refused(tmp_path):
    class Local(PickledTokenizer):
        pass

    path = jsonl(tmp_path / "a.jsonl", texts(20))
    with pytest.raises(InvalidOption, match=r"cannot be sent .*Local.*; use workers=1"):
        pack(path, tmp_path / "out", Local(), workers=2, partition_size=200)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("index_only", [False, True])
def test_an_overlong_document_stops_the_run_before_its_shard_is_committed(tmp_path, index_only):
    path, out = jsonl(tmp_path / "a.jsonl", ["short", "x" * 30]), tmp_path / "out"
    with pytest.raises(
        OversizedDocument, match=r"a\.jsonl: record 1 has 31 tokens but a row holds"
    ):
        pack(path, out, index_only=index_only, overlong="error")
    assert pack(path, out, index_only=index_only, overlong="split").num_rows == 3


@pytest.mark.parametrize("columns", ["labels", 5, [1], {"labels"}])
def test_columns_that_are_not_a_list_of_names_are_refused(tmp_path, columns):
    path = jsonl(tmp_path / "a.jsonl", [{"input_ids": [1]}])
    with pytest.raises(InvalidOption, match=r"columns(\[0\])? is .* but must be a (list|string)"):
        pack(path, tmp_path / "out", None, pretokenized=True, columns=columns)


@pytest.mark.parametrize("name", ["text_column", "messages_column", "tools_column"])
@pytest.mark.parametrize("wrong", [5, ["text"]])
def test_the_name_of_a_column_must_be_a_string(tmp_path, name, wrong):
    path = jsonl(tmp_path / "a.jsonl", texts(2))
    with pytest.raises(InvalidOption, match=f"{name} is .* but must be a string"):
        pack(path, tmp_path / "out", **{name: wrong})
