"""Defects that fuzzing found, each with the input that revealed it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from tokenizers import models

from quire.config import load_options, read_yaml
from quire.corpus.inputs import find_inputs
from quire.dataset import pack_dataset
from quire.errors import CorruptFile, InvalidDocument, InvalidOption, InvalidState
from quire.plan import Plan, make_plan
from quire.stream import StreamConfig, open_stream
from quire.text.tokenizer_file import load_tokenizer_file
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from quire.view.sources import open_rows
from tests.corpus.corpora import jsonl, pack, texts
from tests.fuzz.targets.states import resealed
from tests.stream.inputs import ListSource, Numbers, config, take

SHARDS = [[[10, 11, 12], [13, 14]]]


def stream(**data):
    return open_stream(config(seq_len=3, **data), source=ListSource(SHARDS), tokenizer=Numbers())


# ---- states


@pytest.mark.parametrize("repeat", [True, False])
def test_a_state_that_ends_the_stream_too_early_is_refused(repeat):
    """Fault 28: without a check, it ended the epoch without an error."""
    with stream(repeat=repeat, shuffle=False, batch_size=1) as one:
        next(one)
        state = one.get_state()
        state["streams"]["0"]["over"] = True
        with pytest.raises(InvalidState, match="ended, but its source continues"):
            one.set_state(resealed(state))
        assert take(one, 1), "the stream goes on where it stood"


def test_a_state_after_the_last_batch_is_accepted():
    with stream(repeat=False) as one:
        take(one)
        state = json.loads(json.dumps(one.get_state()))
    assert state["streams"]["0"]["over"]
    with stream(repeat=False) as other:
        other.set_state(state)
        assert take(other) == []


@pytest.mark.parametrize("state", [None, 5, "state", b"state"])
def test_an_invalid_state_does_not_restart_a_loader(state):
    from quire.stream.torch_adapter import TorchBatches

    batches = TorchBatches(config(), source=ListSource(SHARDS), tokenizer=Numbers())
    with pytest.raises(InvalidState, match=f"is a dict, not a {type(state).__name__}"):
        batches.load_state_dict(state)


@pytest.mark.parametrize("state", [None, 5, "state"])
def test_an_invalid_state_is_refused_by_worker_batches(state):
    from quire.stream.workers import WorkerBatches

    with pytest.raises(InvalidState, match="must be a dict"):
        WorkerBatches(stream).load_state_dict(state)


# ---- tables

HOSTILE_ARROW = """
import sys
import pyarrow as pa
from quire.corpus import pack_corpus
from quire.errors import QuireError
from quire.view.sources import open_rows
from pathlib import Path
for read in (lambda f: pack_corpus([f], f.parent / "out", "byte", max_length=8),
             lambda f: list(open_rows(f).rows)):
    try:
        read(Path(sys.argv[1]))
    except QuireError as error:
        print(type(error).__name__, error)
"""


def hostile_lists() -> pa.Array:
    """Lists of which the second starts far outside the values."""
    offsets = pa.array([0, 100_000, 3], pa.int32()).buffers()[1]
    values = pa.array([1, 2, 3], pa.int32())
    return pa.Array.from_buffers(pa.list_(pa.int32()), 2, [None, offsets], children=[values])


def test_an_arrow_file_with_wrong_offsets_is_a_typed_error_and_does_not_crash_the_process(tmp_path):
    """Fault 20: Arrow itself aborts, so that a child must read it."""
    file = tmp_path / "a.arrow"
    offsets = pa.array([0, 100_000, 3], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    table = pa.table({"text": text, "input_ids": hostile_lists()})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    command = [sys.executable, "-c", HOSTILE_ARROW, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.count("CorruptFile") == 2, done.stdout + done.stderr[-500:]


def test_a_table_with_wrong_offsets_is_refused():
    with pytest.raises(InvalidDocument, match="the table is damaged"):
        pack_dataset(pa.table({"input_ids": hostile_lists()}), max_length=4)


def test_text_that_is_not_utf_8_makes_only_its_record_bad(tmp_path):
    """Fault 3: the offsets are checked, and the text is left to its reader."""
    offsets = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab\xff\xfe")])
    with pytest.raises(InvalidDocument, match="record 1 has a text that is not UTF-8"):
        pack_dataset(pa.table({"text": text}), tokenizer="byte", max_length=4)


def write_arrow(table, file):
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(("kind", "write"), [("parquet", pq.write_table), ("arrow", write_arrow)])
def test_a_column_whose_name_is_not_utf_8_is_a_typed_error(tmp_path, kind, write):
    """Fault 20: of the same size, so that nothing else is wrong with the file."""
    file = tmp_path / f"a.{kind}"
    write(pa.table({"quite_a_name": [1]}), file)
    file.write_bytes(file.read_bytes().replace(b"quite_a_name", b"quite\xff\xfe_name"))
    (found,) = find_inputs([file])
    with pytest.raises(CorruptFile, match=f"cannot be read as {kind}: .*can't decode byte"):
        found.format.schema(found)


def test_a_damaged_page_is_a_typed_error_when_rows_are_shown(tmp_path):
    """Fault 20."""
    file = tmp_path / "a.parquet"
    rows = pa.table({"input_ids": [[5, 6, 7, 8]], "document_starts": [[0, 2]]})
    pq.write_table(rows, file, compression="zstd")
    whole = bytearray(file.read_bytes())
    start = pq.read_metadata(file).row_group(0).column(0).data_page_offset
    whole[start : start + 12] = b"\xff" * 12
    file.write_bytes(whole)
    with pytest.raises(CorruptFile, match="is damaged"):
        list(open_rows(file).views())


# ---- tokenizers


def tokenizer_file(tmp_path, **model):
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    plain = json.loads(backend.to_str())
    plain["model"].update(model)
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain))
    return tmp_path


def test_a_panic_inside_the_tokenizer_is_a_typed_error(tmp_path):
    """It is not an Exception, so no ``except`` caught it."""
    folder = tokenizer_file(tmp_path, continuing_subword_prefix="longer than any token")
    with pytest.raises(CorruptFile, match=r"is not a tokenizer.*fetch its tokenizer.json again"):
        load_tokenizer_file(folder)


def test_a_tokenizer_without_its_own_unknown_token_is_a_typed_error(tmp_path):
    tokenizer = load_tokenizer_file(tokenizer_file(tmp_path, unk_token="none"))  # noqa: S106
    assert tokenizer.encode_batch(["ab"]).tokens.tolist() == [2]
    with pytest.raises(CorruptFile, match="cannot encode these texts"):
        tokenizer.encode_batch(["z"])


def test_a_token_id_too_large_for_an_array_is_a_typed_error(tmp_path):
    vocabulary = {"a": 2**31, "b": 1, "ab": 2}
    tokenizer = load_tokenizer_file(tokenizer_file(tmp_path, vocab=vocabulary))
    with pytest.raises(CorruptFile, match="cannot encode these texts"):
        tokenizer.encode_batch(["a"])


@pytest.mark.parametrize("token", ["\ud800", 5, ["a"], {"content": 5}])
def test_a_special_token_that_is_not_a_string_is_a_typed_error(tmp_path, token):
    folder = tokenizer_file(tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": token}))
    with pytest.raises(CorruptFile, match=r"eos_token is .* has no such token"):
        load_tokenizer_file(folder)


def test_a_tokenizer_config_that_is_nested_too_deeply_is_a_typed_error(tmp_path):
    folder = tokenizer_file(tmp_path)
    (folder / "tokenizer_config.json").write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(CorruptFile, match="is not JSON"):
        load_tokenizer_file(folder)


# ---- configs


def test_a_deeply_nested_config_is_refused_at_once(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("data: " + "[" * 5000)  # for which PyYAML alone takes seconds
    with pytest.raises(InvalidOption, match="nested more than 100 deep"):
        read_yaml(file)


def test_a_merge_says_what_to_write_instead(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("base: &base {seq_len: 8}\ntrain:\n  <<: *base\n  batch_size: 2\n")
    with pytest.raises(InvalidOption, match=r"merging with <<.*write the values out"):
        load_options(StreamConfig, file)


# ---- manifests


@pytest.fixture
def out(tmp_path):
    pack(jsonl(tmp_path / "a.jsonl", texts(20)), tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("options", "truncate_at"), 5),
        (("options", "truncate_at"), "(" * 40),
        (("options", "text_column"), ["text"]),
        (("columns",), 7),
        (("inputs", 0), {}),
        (("inputs", 0, "kind"), "jsonl.gz"),
    ],
)
def test_a_changed_manifest_is_a_typed_error_also_when_inputs_are_compared(out, path, value):
    report = verify_output(out)
    manifest = json.loads((out / "manifest.json").read_text())
    part = manifest
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptFile, match="cannot be compared with its inputs"):
        verify_inputs(report, [out.parent / "a.jsonl"], "byte")


def test_true_is_not_a_version_of_a_manifest(out):
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["format"]["version"] = True
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptFile, match="reads the versions"):
        verify_output(out)


def test_true_is_not_a_version_of_a_plan(tmp_path):
    file = tmp_path / "plan.arrow"
    make_plan([3, 4], 8).save(file)
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
    about = {**json.loads(table.schema.metadata[b"quire.plan"]), "version": True}
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    forged = pa.table(columns, metadata={"quire.plan": json.dumps(about)})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, forged.schema) as writer:
        writer.write_table(forged)
    with pytest.raises(CorruptFile, match="has version True but a version is an integer"):
        Plan.load(file)


def rewrite_shard(out, manifest, table):
    """Put another table in place of the first shard, with its checksum in the manifest."""
    shard = manifest["shards"][0]
    pq.write_table(table, out / shard["file"])
    data = (out / shard["file"]).read_bytes()
    shard.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    (out / "manifest.json").write_text(json.dumps(manifest))


def test_document_starts_that_are_not_integers_are_a_problem_of_the_shard(out):
    """NaN cast to an integer is an arbitrary integer, with a warning."""
    manifest = json.loads((out / "manifest.json").read_text())
    shard = manifest["shards"][0]
    table = pq.read_table(out / shard["file"])
    place = table.column_names.index("document_starts")
    floats = [[float("nan") for _ in row] for row in table["document_starts"].to_pylist()]
    changed = table.set_column(place, "document_starts", pa.array(floats))
    rewrite_shard(out, manifest, changed)
    problems = verify_output(out).problems
    assert any("which are not integers" in problem for problem in problems), problems
