from __future__ import annotations

import contextlib
import json

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire.errors import CorruptFile, PlanError
from quire.ledger import Ledger, Tally, TokenTally
from quire.plan import PlanOptions
from quire.plan.plan_file import _KEY, _checksum, _flat, save_plan

LENGTHS = [6, 3, 5, 0, 21]


@pytest.fixture
def plan() -> quire.Plan:
    return quire.make_plan(LENGTHS, 8, stride=1)


def rebuilt(plan: quire.Plan, **changed) -> quire.Plan:
    names = ("row_offsets", "documents", "starts", "stops", "options", "ledger", "fingerprint")
    return quire.Plan(**{**{name: getattr(plan, name) for name in names}, **changed})


def test_a_plan_is_flat_arrays_and_a_sequence_of_rows(plan):
    assert plan.num_rows == len(plan) == len(list(plan)) == 5
    assert plan.num_fragments == sum(len(row) for row in plan) == 6
    assert plan[-1] == list(plan)[-1]
    assert plan.row_lengths.tolist() == [sum(f.stop - f.start for f in row) for row in plan]
    assert plan.capacity == 8
    assert "5 rows of 8" in repr(plan)
    with pytest.raises(IndexError):
        plan[5]


def test_the_arrays_are_read_only(plan):
    for array in (plan.row_offsets, plan.documents, plan.starts, plan.stops):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_row_lengths_count_the_prefix_and_utilization_does_not():
    plan = quire.make_plan([3, 3], 8, prefix=1)
    assert plan.row_lengths.tolist() == [8]
    assert plan.utilization == 6 / 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"row_offsets": np.array([0, 1, 1, 6])}, "row 1: a row has 0 fragments"),
        ({"row_offsets": np.array([1, 6])}, "row_offsets must run from 0"),
        ({"row_offsets": np.array([0, 5])}, "row_offsets must run from 0"),
        ({"row_offsets": np.array([0, 6])}, "row 0: fragments take up 37 places but a row has 8"),
        ({"documents": np.array([0, 1, 2, 4, 4, 9])}, "fragment 5: document 9 is not one of 5"),
        ({"documents": np.array([-1, 1, 2, 4, 4, 4])}, "fragment 0: document -1"),
        ({"starts": np.array([-1, 0, 0, 0, 0, 0])}, "fragment 0: start -1"),
        ({"starts": np.array([0, 99, 0, 0, 0, 0])}, "fragment 1: start 99 is negative or not"),
        ({"options": PlanOptions(capacity=8, max_documents_per_row=1)}, "may have 1"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(plan, changed, message):
    with pytest.raises(PlanError, match=message):
        rebuilt(plan, **changed)


def test_other_lengths_are_refused(plan):
    plan.check_lengths(np.array(LENGTHS, np.int8))
    for other in ([6, 3, 5, 0, 20], [3, 6, 5, 0, 21], LENGTHS[:-1], []):
        with pytest.raises(PlanError, match="the plan was made for 5 documents with 35 tokens"):
            plan.check_lengths(other)


@pytest.mark.parametrize("other", [[65_537], [1, 1, 0], [1 << 16, 0]])
def test_lengths_of_another_width_have_another_fingerprint(other):
    with pytest.raises(PlanError, match="2 documents with 2 tokens"):
        quire.make_plan([1, 1], 8).check_lengths(other)


def test_a_token_that_was_lost_or_repeated_shows_in_the_sums(plan):
    shorter = plan.stops - (np.arange(plan.num_fragments) == 0)
    with pytest.raises(PlanError, match="hold 36 tokens but the ledger tells of 35 emitted and 2"):
        rebuilt(plan, stops=shorter)
    with pytest.raises(PlanError, match="hold 0 tokens but the ledger tells of 35"):
        nothing = plan.documents[:0]
        rebuilt(
            plan, row_offsets=np.zeros(1, int), documents=nothing, starts=nothing, stops=nothing
        )


def test_a_fragment_beyond_its_document_is_refused():
    plan = quire.make_plan([5, 3], 8)
    swapped = rebuilt(plan, documents=np.array([1, 0]))
    with pytest.raises(PlanError, match="fragment 0: stop 5 is beyond its document"):
        swapped.check_lengths([5, 3])


def test_a_plan_becomes_an_arrow_table_of_rows(plan):
    table = plan.to_arrow()
    assert table.column_names == ["documents", "starts", "stops"]
    assert table["documents"].to_pylist() == [[f.document for f in row] for row in plan]


@pytest.mark.parametrize("lengths", [LENGTHS, []])
def test_a_saved_plan_comes_back_equal(tmp_path, lengths):
    plan = quire.make_plan(lengths, 8, "first_fit", overlong="fill", shuffle=True, seed=None)
    plan.save(tmp_path / "a.plan")
    loaded = quire.Plan.load(tmp_path / "a.plan", lengths)
    assert loaded == plan
    assert loaded.ledger == plan.ledger
    assert loaded.options == plan.options
    assert [path.name for path in tmp_path.iterdir()] == ["a.plan"]


def test_saving_twice_gives_the_same_bytes(tmp_path, plan):
    plan.save(tmp_path / "a")
    quire.make_plan(LENGTHS, 8, stride=1).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_any_arrow_reader_opens_the_file(tmp_path, plan):
    plan.save(tmp_path / "a.plan")
    with pa.OSFile(str(tmp_path / "a.plan")) as source:
        assert pa.ipc.open_file(source).read_all().num_rows == plan.num_rows


def test_a_file_for_other_lengths_is_refused(tmp_path, plan):
    plan.save(tmp_path / "a.plan")
    with pytest.raises(PlanError, match="plan again"):
        quire.Plan.load(tmp_path / "a.plan", [1, 2, 3])


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path, plan):
    path = tmp_path / "a.plan"
    plan.save(path)
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xD5]) + good[position + 1 :])
        with contextlib.suppress(CorruptFile):
            assert quire.Plan.load(path) == plan


@pytest.mark.parametrize("kept", [0, 10, 300])
def test_a_truncated_file_is_refused(tmp_path, plan, kept):
    path = tmp_path / "a.plan"
    plan.save(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptFile, match=r"a\.plan"):
        quire.Plan.load(path)


def rewrite(path, change) -> None:
    """Save the file again with its metadata changed and a checksum that fits."""
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    about = json.loads(table.schema.metadata[_KEY])
    change(about)
    offsets, arrays = _flat(path, table)
    about["sha256"] = _checksum(about, offsets, *arrays)
    table = table.replace_schema_metadata({_KEY: json.dumps(about)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.update(version=2), "plan format 2 but this quire reads 1; upgrade"),
        (lambda about: about.pop("ledger"), "lacks ledger"),
        (lambda about: about["options"].update(capacity=4), "holds no valid plan: row"),
        (lambda about: about["options"].update(colour=4), "holds no valid plan"),
        (lambda about: about["options"].update(align="x"), "holds no valid plan: align"),
        (lambda about: about["ledger"]["tokens"].update(input=1), "1 came in but 35"),
        (lambda about: about.update(ledger=[]), "holds no valid plan"),
        (lambda about: about["options"].update(strategy=[1]), "unknown strategy"),
        (
            lambda about: about["ledger"].update(tokens={"input": 1, "emitted": 1}),
            "the fragments hold 37 tokens but the ledger tells of 1 emitted and 0 repeated",
        ),
    ],
)
def test_tampered_metadata_is_refused(tmp_path, plan, change, message):
    path = tmp_path / "a.plan"
    plan.save(path)
    rewrite(path, change)
    with pytest.raises(CorruptFile, match=message):
        quire.Plan.load(path)


def test_another_arrow_file_is_not_a_plan(tmp_path):
    table = pa.table({"x": [1]})
    with pa.OSFile(str(tmp_path / "x"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    with pytest.raises(CorruptFile, match="not a plan of quire's"):
        quire.Plan.load(tmp_path / "x")


def test_a_missing_file_is_a_missing_file(tmp_path):
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


def test_the_ledger_of_a_plan_adds_up_by_hand(plan):
    assert plan.ledger == Ledger(
        documents=Tally(input=5, emitted=4, dropped={"empty": 1}),
        tokens=TokenTally(input=35, emitted=35, overlap=2, padding=3),
    )
