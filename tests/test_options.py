"""Values are validated against the annotations of option classes, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from quire.errors import InvalidOption
from quire.options import Count, Integer, Number, Positive, Size, parse_size, validate


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    rows: Positive = 1
    stride: Count = 0
    limit: Annotated[int, Integer(1, 9)] | None = None
    ratio: Annotated[float, Number(above=0, most=1)] = 1.0
    delay: Annotated[float, Number(least=0)] = 1.0
    size: Size = 1
    mode: Literal["pad", "drop"] = "pad"
    name: str | None = None
    shuffle: bool | None = None
    whole: int = 0
    columns: tuple[str, ...] | None = None
    either: int | str = 0

    def __post_init__(self) -> None:
        validate(self)


def test_numbers_of_every_kind_become_plain():
    sizes = Sizes(rows=np.int64(3), limit=np.uint8(4), ratio=np.float32(0.5), delay=2, size="2K")
    assert sizes == Sizes(rows=3, limit=4, ratio=0.5, delay=2.0, size=2048)
    kinds = [type(value) for value in (sizes.rows, sizes.limit, sizes.ratio, sizes.delay)]
    assert kinds == [int, int, float, float]


def test_a_list_becomes_a_tuple():
    assert Sizes(columns=["labels"]).columns == ("labels",)


@pytest.mark.parametrize("name", ["limit", "name", "shuffle", "columns"])
def test_none_is_accepted_where_the_annotation_allows_it(name):
    assert getattr(Sizes(**{name: None}), name) is None


def test_a_choice_of_types_is_left_to_the_class():
    assert Sizes(either=[1]).either == [1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": 0}, "rows is 0 but must be an integer >= 1"),
        ({"rows": True}, "rows is True but must be an integer >= 1"),
        ({"rows": None}, "rows is None but must be an integer >= 1"),
        ({"rows": np.float64(2)}, "rows is np.float64(2.0) but must be an integer >= 1"),
        ({"stride": -1}, "stride is -1 but must be an integer >= 0"),
        ({"limit": 10}, "limit is 10 but must be at most 9"),
        ({"limit": np.int64(0)}, "limit is np.int64(0) but must be an integer >= 1"),
        ({"whole": "8"}, "whole is '8' but must be an integer"),
        (
            {"rows": 10**5000},
            "rows is an integer of about 5,001 digits but must have at most 1000; "
            "choose a smaller one",
        ),
        ({"ratio": 0}, "ratio is 0 but must be a finite number > 0 and <= 1"),
        ({"ratio": 1.5}, "ratio is 1.5 but must be a finite number > 0 and <= 1"),
        ({"ratio": True}, "ratio is True but must be a finite number > 0 and <= 1"),
        ({"delay": -1}, "delay is -1 but must be a finite number >= 0"),
        ({"delay": float("nan")}, "delay is nan but must be a finite number >= 0"),
        ({"delay": "1"}, "delay is '1' but must be a finite number >= 0"),
        ({"size": "256X"}, "size is '256X' but must be a size in bytes, such as 64K, 256M or 1G"),
        ({"size": "0"}, "size is 0 but must be an integer >= 1"),
        ({"mode": "pat"}, "mode is 'pat' but must be one of pad, drop; did you mean pad?"),
        ({"mode": None}, "mode is None but must be one of pad, drop"),
        ({"name": 5}, "name is 5 but must be a string"),
        ({"shuffle": "no"}, "shuffle is 'no' but must be True or False"),
        ({"columns": "labels"}, "columns is 'labels' but must be a list"),
        ({"columns": ["labels", 3]}, "columns[1] is 3 but must be a string"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_the_rule(given, message):
    with pytest.raises(InvalidOption) as refused:
        Sizes(**given)
    assert str(refused.value) == message


@pytest.mark.parametrize(("size", "number"), [("7", 7), ("2k", 2048), ("1GiB", 1 << 30), (5, 5)])
def test_sizes_are_numbers_with_a_unit(size, number):
    assert parse_size("size", size) == number
