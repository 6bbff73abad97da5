"""Datasets of the hub: errors of opening name the problem and the remedy."""

from __future__ import annotations

import json

import datasets
import pytest

from quire.errors import InvalidOption, MissingDependency, SourceError
from quire.stream.options import StreamSource
from quire.stream.sources import open_source


@pytest.fixture
def folder(tmp_path):
    """A dataset as a folder: one file, whose split is train."""
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
    return str(tmp_path)


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """`datasets` is asked at once, and never a hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def opened(**options):
    return open_source(StreamSource(backend="hf", **options))


def test_a_dataset_that_is_a_folder_is_opened(folder):
    shard = opened(hf_dataset=folder).open(0, None)
    assert shard.next() == "a"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hf_split": "validation"}, "Available splits: ['train']"),
        ({"hf_split": "train[:10%]"}, "Bad split: train[:10%]"),
        ({"hf_name": "en"}, "Available: ['default']"),
        ({"hf_data_files": ["none.jsonl"]}, "none.jsonl"),
    ],
)
def test_a_name_or_split_that_a_dataset_lacks_is_an_invalid_option(folder, options, said):
    with pytest.raises(InvalidOption) as caught:
        opened(hf_dataset=folder, **options)
    message = str(caught.value)
    assert message.startswith(f"hf_dataset is {folder!r}")
    for name, value in options.items():
        assert f"{name} {value!r}" in message
    assert said in message
    assert "; set hf_dataset, hf_name, hf_split and hf_data_files to what exists" in message


def test_a_missing_file_of_a_loader_is_an_invalid_option(folder):
    with pytest.raises(InvalidOption, match=r"hf_data_files .*gone\.jsonl"):
        opened(hf_dataset="json", hf_data_files=[f"{folder}/gone.jsonl"])


def test_an_empty_dataset_name_is_an_invalid_option():
    with pytest.raises(InvalidOption, match=r"hf_dataset is '' but"):
        opened(hf_dataset="")


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (datasets.exceptions.DatasetNotFoundError("no 'a/b'"), InvalidOption, "; set hf_d"),
        (RuntimeError("scripts are no longer supported"), InvalidOption, "; set hf_dataset"),
        (ConnectionError("no way to the hub"), SourceError, "network"),
        (TimeoutError("too slow"), SourceError, "network"),
        (PermissionError("cache"), SourceError, "network"),
        (ImportError("needs aiohttp"), MissingDependency, "needs aiohttp; install"),
    ],
)
def test_any_error_of_datasets_becomes_a_typed_error_with_a_remedy(
    monkeypatch, raised, kind, message
):
    def fails(*_, **__):
        raise raised

    monkeypatch.setattr(datasets, "load_dataset", fails)
    with pytest.raises(kind, match=message) as caught:
        opened(hf_dataset="a/b")
    assert "hf_dataset is 'a/b'" in str(caught.value)
    assert str(raised) in str(caught.value)
    assert caught.value.__cause__ is raised


def test_an_interrupt_is_not_an_error_of_the_dataset(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "load_dataset", interrupted)
    with pytest.raises(KeyboardInterrupt):
        opened(hf_dataset="a/b")
