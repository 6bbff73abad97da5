"""The options of a packed corpus: any kind of integer is accepted, and stored as a Python int."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

from quire.corpus.options import CorpusOptions
from quire.errors import InvalidOption
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.option_fields import integer_fields

NUMBERS = {
    "max_length": 16,
    "stride": 1,
    "min_length": 2,
    "drop_longer_than": 40,
    "min_fragment": 1,
    "max_documents_per_row": 4,
    "seed": 3,
    "align": 2,
    "truncate_to": 30,
    "partition_size": 500,
    "max_record_bytes": 200,
}

OF_IMAGES = {
    "max_images": 4,
    "max_patches": 400,
    "max_image_pixels": 10_000,
    "image_token_id": 7,
    "merge_size": 2,
}
OPTIONAL = {"drop_longer_than", "truncate_to", "max_documents_per_row", "partition_size"}


def test_these_tests_cover_every_integer_option():
    assert sorted(integer_fields(CorpusOptions)) == sorted(NUMBERS | OF_IMAGES)


@pytest.mark.parametrize("kind", [np.int64, np.uint16])
@pytest.mark.parametrize("index_only", [False, True])
def test_numpy_integers_give_the_same_bytes_as_python_ones(tmp_path, kind, index_only):
    corpus = jsonl(tmp_path / "a.jsonl", texts(40))
    pack(corpus, tmp_path / "plain", index_only=index_only, **NUMBERS)
    given = {name: kind(number) for name, number in NUMBERS.items()}
    pack(corpus, tmp_path / "numpy", index_only=index_only, **given)
    assert hashes(tmp_path / "numpy") == hashes(tmp_path / "plain")


def test_numpy_integers_become_python_ones():
    options = CorpusOptions(**{name: np.int64(number) for name, number in NUMBERS.items()})
    assert json.dumps(options.to_dict()) == json.dumps(CorpusOptions(**NUMBERS).to_dict())


@pytest.mark.parametrize("name", sorted(NUMBERS | OF_IMAGES))
@pytest.mark.parametrize("wrong", [-1, 1.5, [8], True])
def test_a_value_that_is_not_an_integer_is_refused_by_the_name_of_its_option(name, wrong):
    with pytest.raises(InvalidOption) as refused:
        CorpusOptions(**NUMBERS | {name: wrong})
    assert str(refused.value).startswith(f"{name} is {wrong!r} but must be an integer >= ")


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - OPTIONAL))
def test_a_number_that_is_not_optional_cannot_be_none(name):
    with pytest.raises(InvalidOption, match=f"^{name} is None but must be an integer >= "):
        CorpusOptions(**NUMBERS | {name: None})


@dataclass(frozen=True, kw_only=True)
class Later(CorpusOptions):
    lowercase: bool = False


def test_an_option_that_is_added_is_recorded_only_if_it_is_set():
    assert Later(max_length=8).to_dict() == CorpusOptions(max_length=8).to_dict()
    assert Later(max_length=8, lowercase=True).to_dict()["lowercase"] is True
