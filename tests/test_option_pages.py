"""The page of options has every option of streams and vision, with its meaning."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from tools.option_pages import MARK, on_page_markdown, options_of, table

from quire.stream import StreamConfig, StreamOptions
from quire.vision import VisionConfig

PAGE = (Path(__file__).resolve().parents[1] / "docs/reference/options.md").read_text("utf-8")


def option_groups(kind: object) -> set[type]:
    """The dataclasses that are options of this one, at any depth."""
    found = {kind} if is_dataclass(kind) else set()
    inner = get_type_hints(kind).values() if found else get_args(kind)
    return found.union(*(option_groups(one) for one in inner))


GROUPS = sorted(
    set.union(*(option_groups(one) for one in (StreamConfig, StreamOptions, VisionConfig)))
    - {StreamConfig, VisionConfig},  # each has only sections
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", GROUPS, ids=lambda kind: kind.__name__)
def test_every_group_of_options_is_on_the_page(kind):
    assert kind.__name__ in {name for _, name in MARK.findall(PAGE)}


def test_sections_of_configs_are_found():
    names = {kind.__name__ for kind in GROUPS}
    assert {"DataOptions", "TrainOptions", "ModelOptions", "VisionPackingOptions"} <= names


@pytest.mark.parametrize("kind", GROUPS, ids=lambda kind: kind.__name__)
def test_every_option_has_a_line_with_its_meaning(kind):
    lines = table(kind).splitlines()[2:]
    shown = {
        cells[1].strip(" `"): cells[-2].strip() for cells in (line.split("|") for line in lines)
    }
    assert list(shown) == [option.name for option in options_of(kind)]
    assert all(shown.values()), [name for name, meaning in shown.items() if not meaning]


def test_marks_become_tables():
    made = on_page_markdown(PAGE)
    assert "<!-- options" not in made
    assert re.search(r"^\| `packing_min_fill_ratio` \| float \| `0.65` \|", made, re.MULTILINE)
