"""An index-only output is recounted from its files, and every damage is detected."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.corpora import forge, jsonl, pack, texts

from quire.corpus import replan
from quire.errors import CorruptFile
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output

SHARD, PLAN = "data/shard-00001-000.parquet", "plans/exact_fit-16.arrow"


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    records = [*texts(60), {"text": None}, "x" * 100]
    path = jsonl(tmp_path / "a.jsonl", records)
    options = {"stride": 2, "index_only": True, "max_documents_per_row": 3}
    pack(path, tmp_path / "out", partition_size=700, max_bad_records=1, **options)
    replan(tmp_path / "out", max_length=32, overlong="truncate", stride=0, min_length=20)
    return tmp_path / "out"


def agree(out: Path, file: str) -> None:
    """Make checksum and size of a changed file agree with the manifest again."""
    data = (out / file).read_bytes()

    def change(manifest):
        (entry,) = [e for e in [*manifest["shards"], *manifest["plans"]] if e["file"] == file]
        entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))

    forge(out, change)


def rewrite_documents(out: Path, change) -> None:
    records = pq.read_table(out / SHARD).to_pylist()
    change(records)
    pq.write_table(pa.Table.from_pylist(records, schema=pq.read_schema(out / SHARD)), out / SHARD)
    agree(out, SHARD)


def rewrite_plan(out: Path, change) -> None:
    table = pa.ipc.open_file(out / PLAN).read_all()
    rows = table.to_pylist()
    change(rows)
    with pa.ipc.new_file(out / PLAN, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=table.schema))
    agree(out, PLAN)


def problems(out: Path) -> str:
    return " | ".join(verify_output(out).problems)


def test_an_unchanged_index_is_whole_with_all_its_plans(indexed, tmp_path):
    report = verify_output(indexed)
    assert report.problems == []
    assert (report.plans, report.shards > 3) == (2, True)
    assert json.loads(report.to_json())["plans"] == 2
    assert verify_inputs(report, [tmp_path / "a.jsonl"], "byte").problems == []
    assert report.compared == report.documents


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r[0].update(length=99), "does not have the recorded length"),
        (lambda r: r[0].update(input_ids=[], length=0), "has no token"),
        (lambda r: r[0]["input_ids"].__setitem__(0, -7), "has a negative value in input_ids: -7"),
        (
            lambda r: r[0].update(input_ids=None),
            "has nulls, or values that are not lists of numbers, in input_ids",
        ),
        (
            lambda r: r[0].update(length=None),
            "has nulls, or values that are not integers, in length",
        ),
        (lambda r: r.reverse(), "has document ids that do not increase"),
        (lambda r: r.pop(), "documents but the manifest says"),
        (lambda r: r.append(r[-1] | {"document_id": 10**6}), "but its ledger counts"),
        (lambda r: r[0].update(document_id=0), "holds documents that an earlier shard holds"),
    ],
)
def test_wrong_documents_are_reported_even_if_the_checksum_is_right(indexed, change, problem):
    rewrite_documents(indexed, change)
    assert problem in problems(indexed)
    assert SHARD in problems(indexed)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r[0]["documents"].__setitem__(0, 10**6), "which do not exist"),
        (lambda r: r[0]["documents"].__setitem__(0, -1), "which do not exist"),
        (lambda r: r[0]["stops"].__setitem__(0, 10**6), "which do not exist"),
        (lambda r: r[0]["starts"].__setitem__(0, -1), "which do not exist"),
        (lambda r: r[0]["stops"].__setitem__(0, r[0]["starts"][0]), "which do not exist"),
        (lambda r: r.pop(), "but the manifest says"),
        (lambda r: r.append(r[0]), "twice"),
        (lambda r: r[0]["stops"].__setitem__(0, r[0]["stops"][0] - 1), "but its ledger counts"),
        (lambda r: r.append({"documents": [], "starts": [], "stops": []}), "has no fragment"),
        (lambda r: r[0].update({k: v + r[1][k] for k, v in r[0].items()}), "tokens, more than 16"),
        (
            lambda r: [r[0].update({k: r[0][k] + r[n][k] for k in r[0]}) for n in (1, 2, 3)],
            "fragments, more than 3",
        ),
    ],
)
def test_wrong_plans_are_reported_even_if_the_checksum_is_right(indexed, change, problem):
    rewrite_plan(indexed, change)
    assert problem in problems(indexed)
    assert PLAN in problems(indexed)


@pytest.mark.parametrize(("name", "value"), [("prefix", 0), ("max_length", 99)])
def test_a_plan_that_records_other_options_is_reported(indexed, name, value):
    table = pa.ipc.open_file(indexed / PLAN).read_all()
    about = json.loads(table.schema.metadata[b"quire.plan"])
    about["options"][name] = value
    table = table.replace_schema_metadata({b"quire.plan": json.dumps(about)})
    with pa.ipc.new_file(indexed / PLAN, table.schema) as writer:
        writer.write_table(table)
    agree(indexed, PLAN)
    assert f"records {name} {value}, but the manifest requires" in problems(indexed)


def test_a_row_shorter_than_min_length_is_reported(indexed):
    forge(indexed, lambda m: m["plans"][1]["options"].update(min_length=31))
    assert "tokens, fewer than 31" in problems(indexed)


def test_flipped_bits_and_missing_and_unlisted_files_are_reported(indexed):
    data = bytearray((indexed / PLAN).read_bytes())
    data[200] ^= 1
    (indexed / PLAN).write_bytes(data)
    (indexed / SHARD).unlink()
    (indexed / "plans" / "other.arrow").write_bytes(b"")
    (indexed / "data" / "notes.txt").write_bytes(b"")
    found = problems(indexed)
    assert f"{PLAN} has changed since it was written" in found
    assert f"{SHARD} is missing" in found
    assert "plans/other.arrow exists but is not listed in the manifest" in found
    assert "data/notes.txt exists" in found


def test_a_plan_that_is_not_an_arrow_file_or_lacks_a_column_is_reported(indexed):
    (indexed / PLAN).write_bytes(b"ARROW1\0\0" + bytes(100))
    agree(indexed, PLAN)
    assert f"{PLAN} cannot be read" in problems(indexed)
    table = pa.table({"documents": [[0]], "starts": [[0]], "stops": [[1, 2]]})
    with pa.ipc.new_file(indexed / PLAN, table.schema) as writer:
        writer.write_table(table)
    agree(indexed, PLAN)
    assert f"{PLAN} does not have one start and one stop for each fragment" in problems(indexed)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda m: m["documents"].update(count=1), "documents: count is"),
        (lambda m: m["documents"].update(opening=None), "special tokens but its ledger counts"),
        (lambda m: m.update(rows=1), "rows of the manifest are not those of its first plan"),
        (lambda m: m["options"].update(max_length=17), "options of the manifest are not those"),
        (lambda m: m["plans"][1].update(name="exact_fit-16"), "share a name"),
        (lambda m: m["plans"][1].update(rows=1), "rows but the manifest says 1"),
        (
            lambda m: m["plans"][1]["ledger"]["tokens"]["dropped"].update(truncated=1),
            "but accounts for",
        ),
        (
            lambda m: m["plans"][1]["ledger"]["documents"]["dropped"].update(empty=0),
            "does not count the documents that the shards dropped",
        ),
        (
            lambda m: m["shards"][1]["ledger"]["tokens"].update(emitted=1),
            "tokens but its ledger counts 1",
        ),
    ],
)
def test_a_manifest_that_contradicts_the_files_or_itself_is_reported(indexed, change, problem):
    forge(indexed, change)
    assert problem in problems(indexed)


def test_tokens_lost_by_a_plan_must_be_counted_to_the_token(indexed):
    def move(manifest):
        tokens = manifest["plans"][1]["ledger"]["tokens"]
        tokens["dropped"]["truncated"] += 1
        tokens["input"] += 1

    forge(indexed, move)
    assert "but its ledger counts" in problems(indexed)


@pytest.mark.parametrize("name", ["../plans/a.arrow", "/etc/passwd", "plans/../a.arrow", None])
def test_52_a_manifest_may_not_list_a_plan_outside_its_folder(indexed, name):
    forge(indexed, lambda m: m["plans"][0].update(file=name))
    with pytest.raises(CorruptFile, match="is not the name of a plan"):
        verify_output(indexed)


def test_a_damaged_manifest_is_a_corrupt_file(indexed):
    forge(indexed, lambda m: m.pop("documents"))
    with pytest.raises(CorruptFile, match="lacks documents"):
        verify_output(indexed)
    forge(indexed, lambda m: m.update(documents={}, plans=[]))
    with pytest.raises(CorruptFile, match="plans is not a list"):
        verify_output(indexed)


def test_a_token_that_differs_from_the_input_is_reported(indexed, tmp_path):
    rewrite_documents(indexed, lambda r: r[0]["input_ids"].__setitem__(0, 77))
    report = verify_output(indexed)
    assert report.ok, "only the inputs show it"
    report = verify_inputs(report, [tmp_path / "a.jsonl"], "byte")
    assert "differ from the input" in report.problems[0]
