"""Engines are chosen by name; what cannot run says so before anything is written."""

from __future__ import annotations

import re

import pytest

from quire.cli.pack import engine_of
from quire.corpus.engines import choose_engine
from quire.corpus.engines.failures import Failure, failure_of, positions
from quire.corpus.engines.local import LocalEngine
from quire.corpus.engines.ray import RayEngine
from quire.corpus.inputs import find_inputs
from quire.corpus.partitions import Partition
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.format import Span
from tests.corpus.command import run
from tests.corpus.corpora import jsonl, pack, texts


def test_engines_are_chosen_by_name():
    assert choose_engine(None, None) == choose_engine("local", None) == LocalEngine(workers=1)
    assert choose_engine("local", 3) == LocalEngine(workers=3)
    assert choose_engine("ray", None) == RayEngine()
    assert choose_engine("ray", 3) == RayEngine(workers=3)
    assert choose_engine(RayEngine(cpus=2), None) == RayEngine(cpus=2)


def test_an_unknown_engine_is_an_error_before_anything_is_written(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(3))
    with pytest.raises(InvalidOption, match="unknown engine 'rya'; did you mean 'ray'"):
        pack(path, tmp_path / "out", engine="rya")
    with pytest.raises(InvalidOption, match="workers=2 was given together with RayEngine"):
        pack(path, tmp_path / "out", engine=RayEngine(), workers=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [{"workers": 0}, {"memory": 0}, {"cpus": 0}, {"cpus": float("nan")}, {"patience": -1}],
)
def test_options_of_the_engine_are_checked(options):
    with pytest.raises(InvalidOption, match=next(iter(options))):
        RayEngine(**options)


def test_options_of_the_command_make_an_engine():
    assert engine_of("ray", 4, "host:6379", 2.0, "1K") == RayEngine(
        address="host:6379", workers=4, cpus=2.0, memory=1024
    )
    assert engine_of("local", None, None, None, None) == LocalEngine(fork=True)


@pytest.mark.parametrize(
    ("place", "name"), [(0, "ray-address"), (1, "task-cpus"), (2, "task-memory")]
)
def test_an_option_of_ray_is_an_error_for_another_engine(place, name):
    given = [None, None, None]
    given[place] = "1"
    with pytest.raises(InvalidOption, match=f"--{name} is for Ray, but the engine is 'local'"):
        engine_of("local", None, *given)


def test_without_ray_the_error_names_the_extra_and_nothing_is_written(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(3))
    words = ["pack", path, "--out", tmp_path / "out", "--tokenizer", "byte", "--max-length", 64]
    done = run(*words, "--engine", "ray", before="sys.modules['ray'] = None")
    assert done.returncode == 2
    assert "the engine 'ray' needs ray, which is not installed" in done.stderr
    assert "pip install 'quire-pack[ray]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert run(*words, before="sys.modules['ray'] = None").returncode == 0, "local needs no Ray"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:10001", "127.0.0.1:99999"])
def test_no_cluster_at_the_address_is_an_error_of_two_lines_and_nothing_is_written(
    address, tmp_path
):
    path = jsonl(tmp_path / "a.jsonl", texts(3))
    words = ["pack", path, "--out", tmp_path / "out", "--tokenizer", "byte", "--max-length", 64]
    done = run(*words, "--engine", "ray", "--ray-address", address)
    assert done.returncode == 2
    said = done.stderr.strip().splitlines()
    assert len(said) == 2, done.stderr
    assert address in said[0]
    assert re.search("start one with 'ray start --head'|run this on a node", said[1])
    assert not (tmp_path / "out").exists()


def test_positions_name_files_records_and_bytes(tmp_path):
    files = find_inputs([jsonl(tmp_path / "a.jsonl", ["abc"] * 100)])
    size = files[0].size

    def partition(start, stop, first):
        span = Span(file=0, start=start, stop=stop, first_record=first, size=0)
        return Partition(number=7, spans=(span,))

    assert positions(partition(0, size, 0), files) == f"all of {tmp_path / 'a.jsonl'}"
    assert positions(partition(17, 34, 1), files) == (
        f"{tmp_path / 'a.jsonl'} from record 1, byte 17 to byte 34"
    )
    many = Partition(number=7, spans=partition(0, size, 0).spans * 9)
    assert positions(many, files).endswith("and 4 more")


def test_the_first_failure_in_input_order_is_the_error_and_keeps_its_type(tmp_path):
    files = find_inputs([jsonl(tmp_path / "a.jsonl", ["abc"])])
    span = Span(file=0, start=0, stop=None, first_record=0, size=0)
    failures = [
        Failure(partition=Partition(number=n, spans=(span,)), error=InvalidDocument(f"bad {n}"))
        for n in (9, 3, *range(10, 16))
    ]
    error = failure_of(failures, files)
    assert type(error) is InvalidDocument
    assert str(error) == (
        f"bad 3\npartition 3 (all of {tmp_path / 'a.jsonl'}) failed; so did 7 more "
        "(9, 10, 11, 12, 13, …). Committed shards are kept: fix the cause, then resume"
    )
