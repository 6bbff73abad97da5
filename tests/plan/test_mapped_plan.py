"""Rows of a plan file are checked when they are read, a few thousand at a time."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire.errors import CorruptFile, PlanError
from quire.plan import plan_file
from quire.plan.mapped_plan import checksum_of_rows
from quire.plan.plan_file import open_plan

LENGTHS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A plan with a checksum for every three rows."""
    monkeypatch.setattr(plan_file, "_ROWS", 3)
    path = tmp_path / "a.plan"
    quire.make_plan(LENGTHS, 10).save(path)
    return path


def changed(path, **about):
    """The same file with other metadata."""
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    plain = json.loads(table.schema.metadata[b"quire.plan"])
    plain = {key: value for key, value in {**plain, **about}.items() if value is not None}
    table = table.replace_schema_metadata({b"quire.plan": json.dumps(plain)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def test_its_rows_are_those_of_the_plan(saved):
    plan, mapped = quire.Plan.load(saved), open_plan(saved, LENGTHS)
    assert mapped.num_rows == plan.num_rows > 6
    for name in ("row_offsets", "documents", "starts", "stops"):
        assert np.array_equal(getattr(mapped, name), getattr(plan, name))
    for row in range(mapped.num_rows):
        mapped.check(row)


def test_it_is_not_copied(saved):
    mapped = open_plan(saved, LENGTHS)
    for name in ("row_offsets", "documents", "starts", "stops"):
        array = getattr(mapped, name)
        assert not array.flags.owndata
        assert not array.flags.writeable


def test_damage_is_found_where_it_is_read_and_nowhere_else(saved):
    whole = open_plan(saved, LENGTHS)
    place = saved.read_bytes().rindex(whole.documents[-2:].tobytes())
    data = bytearray(saved.read_bytes())
    data[place] ^= 1
    saved.write_bytes(data)
    mapped = open_plan(saved, LENGTHS)
    mapped.check(0)
    last = mapped.num_rows - 1
    for check in (lambda: mapped.check(last), lambda: mapped.check_all([0, last])):
        with pytest.raises(CorruptFile, match=f"to {last} do not match their checksum"):
            check()


def test_other_lengths_are_refused(saved):
    with pytest.raises(PlanError, match="the plan was made for 16 documents"):
        open_plan(saved, [*LENGTHS[:-1], 4])


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("documents", 0, 16),
        ("documents", 0, -1),
        ("starts", 0, -1),
        ("starts", 0, 2**31 - 1),
        ("stops", 0, 11),
        ("row_offsets", 1, 0),
        ("row_offsets", 1, 2**31 - 1),
        ("row_offsets", 0, -1),
    ],
)
def test_a_plan_with_matching_checksums_leads_to_no_token_outside_of_documents(
    name, at, value, saved
):
    mapped = open_plan(saved, LENGTHS)
    values = getattr(mapped, name).copy()
    values[at] = value
    hostile = dataclasses.replace(mapped, **{name: values})
    first = checksum_of_rows(hostile, 0, 3)
    hostile = dataclasses.replace(hostile, checksums=np.array([first, 0, 0, 0]))
    with pytest.raises(CorruptFile, match="rows 0 to 2 name tokens that no document has"):
        hostile.check(0)


@pytest.mark.parametrize(
    "about",
    [{"crc32": "00"}, {"crc32": "zz"}, {"crc32": 5}, {"rows_at_a_time": 0}, {"options": {}}],
)
def test_metadata_that_lie_are_refused(about, saved):
    changed(saved, **about)
    with pytest.raises(CorruptFile):
        open_plan(saved, LENGTHS)


def test_a_plan_without_these_checksums_is_checked_as_a_whole(saved):
    plan = quire.Plan.load(saved)
    with pa.OSFile(str(saved)) as source:
        about = json.loads(pa.ipc.open_file(source).schema.metadata[b"quire.plan"])
    del about["crc32"], about["rows_at_a_time"]
    sha256 = plan_file._checksum(about, *plan._arrays())
    changed(saved, crc32=None, rows_at_a_time=None, sha256=sha256)
    mapped = open_plan(saved, LENGTHS)
    mapped.check(mapped.num_rows - 1)
    changed(saved, sha256="0" * 64)
    with pytest.raises(CorruptFile, match="does not match its checksum"):
        open_plan(saved, LENGTHS)
