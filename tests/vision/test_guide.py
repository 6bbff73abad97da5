"""Docs reconciled with packing (seed 004): the guide names every option with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from quire.vision import VisionPackingOptions

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guides" / "vision-language.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| (`packing.*?|`eval.*?|`global.*?|`max_bad.*?|`seed`) \| (.*?) \|", GUIDE, re.MULTILINE
)
DEFAULTS = {name: default for names, default in ROWS for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("option", fields(VisionPackingOptions), ids=lambda option: option.name)
def test_the_guide_lists_every_option_and_its_default(option):
    told = DEFAULTS[option.name]
    if option.default is None:
        assert told in ("none", "the template's `max_length`")
    else:
        assert told == str(option.default).lower()


def test_the_guide_states_the_constraints_of_packing():
    for constraint in (
        "Batch size 1",
        "Only aggregate metrics are recorded",
        "Evaluation is padded and unpacked",
        "The mix after packing",
    ):
        assert constraint in GUIDE


def test_no_page_claims_that_packing_is_missing():
    denial = re.compile(
        r"packing (is|was) (removed|not supported)|padding.only|still to come", re.I
    )
    for page in DOCS.rglob("*.md"):
        assert not denial.search(page.read_text(encoding="utf-8")), page.name


LIMITED = ("formats/images.py", "verify/inputs/images.py")
"""The modules that decode images, each with a limit of pixels: those of packs on disk."""


def test_images_are_opened_only_where_their_pixels_are_limited_fault_54():
    """A pixel limit belongs where images are decoded; `quire.vision` decodes none."""
    source = DOCS.parent / "src" / "quire"
    opening = re.compile(r"^\s*(from|import) (PIL|cv2|imageio|skimage|torchvision)\b", re.MULTILINE)
    found = [path for path in source.rglob("*.py") if opening.search(path.read_text("utf-8"))]
    assert sorted(path.relative_to(source).as_posix() for path in found) == sorted(LIMITED)
    assert "Images are never opened by `quire.vision`" in GUIDE
