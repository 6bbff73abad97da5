"""A plan on disk: what was saved is loaded, and anything else is refused."""

from __future__ import annotations

import contextlib
import json

import pyarrow as pa
import pytest

import quire
from quire.errors import CorruptFile, PlanError
from quire.plan import plan_file
from quire.plan.plan_file import save_plan

LENGTHS = [6, 3, 5, 0, 21]


@pytest.fixture
def plan() -> quire.Plan:
    return quire.make_plan(LENGTHS, 8, stride=1)


def test_a_plan_becomes_an_arrow_table_of_rows(plan):
    table = plan.to_arrow()
    assert table.column_names == ["documents", "starts", "stops"]
    assert table["documents"].to_pylist() == [[f.document for f in row] for row in plan]


@pytest.mark.parametrize("lengths", [LENGTHS, []])
def test_a_loaded_plan_equals_the_saved_one(tmp_path, lengths):
    plan = quire.make_plan(lengths, 8, "first_fit", overlong="fill", shuffle=True, seed=None)
    plan.save(tmp_path / "a.plan")
    loaded = quire.Plan.load(tmp_path / "a.plan", lengths)
    assert loaded == plan
    assert loaded.ledger == plan.ledger
    assert loaded.options == plan.options
    assert [path.name for path in tmp_path.iterdir()] == ["a.plan"]


@pytest.mark.parametrize(
    ("most", "lists"), [(5, pa.large_list(pa.int32())), (6, pa.list_(pa.int32()))]
)
def test_more_fragments_than_32_bits_can_count_make_large_lists(
    tmp_path, plan, monkeypatch, most, lists
):
    monkeypatch.setattr(plan_file, "_MOST_IN_LISTS", most)
    table = plan.to_arrow()
    assert [table.schema.field(name).type for name in table.column_names] == [lists] * 3
    plan.save(tmp_path / "a.plan")
    assert quire.Plan.load(tmp_path / "a.plan") == plan


def test_saving_twice_gives_the_same_bytes(tmp_path, plan):
    plan.save(tmp_path / "a")
    quire.make_plan(LENGTHS, 8, stride=1).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_any_arrow_reader_opens_the_file(tmp_path, plan):
    plan.save(tmp_path / "a.plan")
    with pa.OSFile(str(tmp_path / "a.plan")) as source:
        assert pa.ipc.open_file(source).read_all().num_rows == plan.num_rows


def test_a_file_for_other_lengths_is_rejected(tmp_path, plan):
    plan.save(tmp_path / "a.plan")
    with pytest.raises(PlanError, match="plan again"):
        quire.Plan.load(tmp_path / "a.plan", [1, 2, 3])


def test_every_flipped_byte_is_detected_or_harmless(tmp_path, plan):
    path = tmp_path / "a.plan"
    plan.save(path)
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xD5]) + good[position + 1 :])
        with contextlib.suppress(CorruptFile):
            assert quire.Plan.load(path) == plan


@pytest.mark.parametrize("kept", [0, 10, 300])
def test_a_truncated_file_is_rejected(tmp_path, plan, kept):
    path = tmp_path / "a.plan"
    plan.save(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptFile, match=r"a\.plan"):
        quire.Plan.load(path)


def test_a_file_that_arrow_cannot_read_is_rejected_with_its_reason(tmp_path):
    path = tmp_path / "a.plan"
    path.write_bytes(b"no Arrow file at all")
    with pytest.raises(CorruptFile) as caught:
        quire.Plan.load(path)
    reason = caught.value.__cause__
    assert isinstance(reason, pa.ArrowException)
    assert str(caught.value) == f"{path} is not a readable Arrow file: {reason}; save it again"


def test_the_metadata_of_a_file_is_what_another_program_would_write(tmp_path, plan):
    plan.save(tmp_path / "a.plan")
    with pa.OSFile(str(tmp_path / "a.plan")) as source:
        table = pa.ipc.open_file(source).read_all()
    about = json.loads(table.schema.metadata[b"quire.plan"])
    assert about == {
        "version": 3,
        "options": {
            "max_length": 8,
            "strategy": "exact_fit",
            "overlong": "split",
            "stride": 1,
            "prefix": 0,
            "min_length": 1,
            "min_fragment": 1,
            "min_tail": 1,
            "max_documents_per_row": None,
            "align": 1,
            "shuffle": False,
            "seed": 0,
        },
        "ledger": plan.ledger.to_dict(),
        "lengths_sha256": plan.fingerprint,
        "rows_at_a_time": 8192,
        "crc32": "80d98a4c",
        "sha256": "4333b309beb62fa992741e6920a7738671f99168418f4e8b6f7290aabfa72117",
    }
    assert table.schema.metadata[b"quire.plan"] == json.dumps(about, sort_keys=True).encode()
    assert [table.schema.field(name).type for name in table.column_names] == [
        pa.list_(pa.int32())
    ] * 3


def test_loading_a_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        quire.Plan.load(tmp_path / "none.plan")


def test_a_failed_save_leaves_the_old_file(tmp_path, plan, monkeypatch):
    path = tmp_path / "a.plan"
    plan.save(path)
    before = path.read_bytes()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        save_plan(quire.make_plan([1], 8), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.plan"]
