"""A readable Arrow file that holds no plan, or not the plan it declares, is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire.errors import CorruptFile
from quire.plan.plan_file import _KEY, _checksum, _flat


@pytest.fixture
def plan() -> quire.Plan:
    return quire.make_plan([6, 3, 5, 0, 21], 8, stride=1)


def write(path, table: pa.Table, about: dict) -> None:
    table = table.replace_schema_metadata({_KEY: json.dumps(about)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read(path) -> tuple[pa.Table, dict]:
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    return table, json.loads(table.schema.metadata[_KEY])


def rewrite(path, change) -> None:
    """Save the file again with changed metadata and a matching checksum."""
    table, about = read(path)
    change(about)
    offsets, arrays = _flat(path, table)
    about["sha256"] = _checksum(about, offsets, *arrays)
    write(path, table, about)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda about: about.update(version=4),
            "has version 4 but this quire reads up to 3; upgrade quire",
        ),
        (
            lambda about: about.update(version=True),
            "has version True but a version is an integer >= 1",
        ),
        (lambda about: about.pop("version"), "is an Arrow file but not a plan written by quire"),
        (lambda about: about.pop("ledger"), "lacks ledger; save the plan again"),
        (
            lambda about: (about.pop("lengths_sha256"), about.pop("options")),
            "lacks lengths_sha256, options; save the plan again",
        ),
        (
            lambda about: about["options"].update(max_length=4),
            "does not hold a valid plan: row 0: fragments take up 8 tokens but a row holds 4; "
            "plan again",
        ),
        (
            lambda about: about["options"].update(align="x"),
            "does not hold a valid plan: align is 'x' but must be an integer >= 1",
        ),
        (
            lambda about: about["options"].update(strategy=[1]),
            "does not hold a valid plan: strategy is [1] but must be a string",
        ),
        (
            lambda about: about["ledger"].update(tokens={"input": 1, "emitted": 1}),
            "does not hold a valid plan: the fragments hold 37 tokens but the ledger counts 1 "
            "emitted, 0 repeated and 0 EOS; plan again",
        ),
    ],
)
def test_tampered_metadata_is_rejected(tmp_path, plan, change, message):
    path = tmp_path / "a.plan"
    plan.save(path)
    rewrite(path, change)
    with pytest.raises(CorruptFile) as caught:
        quire.Plan.load(path)
    assert str(caught.value) == f"{path} {message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about["options"].update(colour=4), "unexpected keyword argument 'colour'"),
        (lambda about: about["ledger"]["tokens"].update(input=1), "1 came in but 35"),
        (lambda about: about.update(ledger=[]), "Ledger is a list but must be a mapping"),
    ],
)
def test_metadata_that_no_plan_has_is_rejected_with_the_reason(tmp_path, plan, change, message):
    path = tmp_path / "a.plan"
    plan.save(path)
    rewrite(path, change)
    with pytest.raises(CorruptFile, match=rf"a\.plan does not hold a valid plan: .*{message}"):
        quire.Plan.load(path)


LISTS = [[4], [4], [4], [0], [2, 1]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"documents": LISTS, "starts": LISTS},
            " has columns ['documents', 'starts'], not ['documents', 'starts', 'stops']",
        ),
        (
            {"documents": [4, 4, 4, 0, 2], "starts": LISTS, "stops": LISTS},
            ": column documents has type int64, not lists of integers",
        ),
        (
            {"documents": LISTS, "starts": [[0.5], *LISTS[1:]], "stops": LISTS},
            ": column starts has type list<item: double>, not lists of integers",
        ),
        (
            {"documents": [None, *LISTS[1:]], "starts": LISTS, "stops": LISTS},
            ": column documents holds nulls",
        ),
        (
            {"documents": LISTS, "starts": [[None], *LISTS[1:]], "stops": LISTS},
            ": column starts holds nulls",
        ),
        (
            {"documents": LISTS, "starts": LISTS, "stops": [[4, 4], *LISTS[2:], [1]]},
            ": the rows of stops are not as long as those of documents",
        ),
        (
            {"documents": LISTS, "starts": LISTS, "stops": LISTS},
            " does not match its checksum; save the plan again",
        ),
    ],
)
def test_columns_that_are_not_a_plan_are_rejected(tmp_path, plan, columns, message):
    path = tmp_path / "a.plan"
    plan.save(path)
    write(path, pa.table(columns), read(path)[1])
    with pytest.raises(CorruptFile) as caught:
        quire.Plan.load(path)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize("metadata", [None, {"quire.plan": "[]"}, {"quire.plan": "{"}])
def test_another_arrow_file_is_not_a_plan(tmp_path, metadata):
    path, table = tmp_path / "x", pa.table({"x": [1]}).replace_schema_metadata(metadata)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    with pytest.raises(CorruptFile) as caught:
        quire.Plan.load(path)
    assert str(caught.value) == f"{path} is an Arrow file but not a plan written by quire"


def test_lists_of_64_bits_hold_the_same_plan(tmp_path, plan):
    plan.save(tmp_path / "a.plan")
    table, about = read(tmp_path / "a.plan")
    write(
        tmp_path / "b.plan",
        table.cast(pa.schema([(name, pa.large_list(pa.int64())) for name in table.column_names])),
        about,
    )
    assert quire.Plan.load(tmp_path / "b.plan") == plan


def test_lists_that_point_beyond_their_values_are_rejected(tmp_path, plan):
    plan.save(tmp_path / "a.plan")
    table, about = read(tmp_path / "a.plan")
    turned = pa.py_buffer(np.array([0, 1, 2, 4, 3, 6], np.int32).tobytes())
    column = pa.Array.from_buffers(
        pa.list_(pa.int32()), 5, [None, turned], children=[pa.array(plan.stops)]
    )
    write(tmp_path / "a.plan", table.set_column(2, "stops", column), about)
    with pytest.raises(
        CorruptFile, match=r"a\.plan is not a readable Arrow file: .*; save it again$"
    ):
        quire.Plan.load(tmp_path / "a.plan")


def test_a_file_of_version_1_calls_max_length_capacity(tmp_path, plan):
    plan.save(tmp_path / "a.plan")

    def as_version_1(about):
        options = about["options"]
        about["version"] = 1
        about["options"] = {"capacity": options.pop("max_length"), **options}

    rewrite(tmp_path / "a.plan", as_version_1)
    assert '"capacity": 8' in json.dumps(read(tmp_path / "a.plan")[1])
    assert quire.Plan.load(tmp_path / "a.plan") == plan
