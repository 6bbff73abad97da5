"""docs/seeds.md says where everything is: every name in it resolves, every test in it exists."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
FEATURES = [row for row in ROWS if row[0] != "| feature"]
NAMES = sorted({name for row in FEATURES for name in re.findall(r"`(quire[\w.]*)`", row[1])})
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))


def test_the_page_covers_all_five_seeds_and_every_row_names_a_test():
    assert re.findall(r"^## Seed (\d+)", PAGE, re.MULTILINE) == ["000", "001", "002", "003", "004"]
    assert len(FEATURES) >= 60
    for row in FEATURES:
        assert len(row) == 3 or row[1].startswith("| "), row
        assert "tests/" in row[-1], row


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_exists(name):
    assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize("named", TESTS)
def test_every_test_on_the_page_exists(named):
    file, _, test = named.partition("::")
    source = (ROOT / file).read_text(encoding="utf-8")
    assert not test or re.search(rf"^def {test}\(", source, re.MULTILINE)


def test_a_name_that_does_not_exist_would_be_noticed():
    with pytest.raises((ImportError, AttributeError)):
        pkgutil.resolve_name("quire.blocks.no_such_name")
