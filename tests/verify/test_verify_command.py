"""`quire verify --inputs`: one input per option, and errors that users can follow."""

from __future__ import annotations

import pytest
from tests.commands import run
from tests.corpus.corpora import jsonl

import quire


@pytest.fixture
def corpus(tmp_path):
    """Two files, packed together."""
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file in files:
        jsonl(file, ["one", "two"])
    quire.pack_corpus(files, tmp_path / "out", "byte", max_length=16)
    return tmp_path / "out", *files


def test_several_inputs_are_given_with_the_option_repeated(corpus):
    out, first, second = corpus
    done = run("verify", out, "--inputs", first, "--inputs", second, "--tokenizer", "byte")
    assert done.returncode == 0, done.stderr
    assert "4 compared with the inputs" in done.stdout


def test_several_inputs_after_one_option_are_refused_with_the_remedy(corpus):
    out, first, second = corpus
    done = run("verify", out, "--inputs", first, second, "--tokenizer", "byte")
    assert done.returncode == 2
    assert f"unexpected argument {second}: verify takes one folder" in done.stderr
    assert f"--inputs {first} --inputs {second}" in done.stderr


def test_an_unexpected_argument_is_refused_without_inputs(corpus):
    out, first, _ = corpus
    done = run("verify", out, first)
    assert done.returncode == 2
    assert f"write --inputs {first}" in done.stderr


def test_the_help_says_that_the_option_repeats():
    done = run("verify", "--help")
    assert "may be repeated" in " ".join(done.stdout.split())


def test_a_row_filled_by_bos_is_refused_with_remedies_for_python_and_the_shell(tmp_path):
    jsonl(tmp_path / "a.jsonl", ["one"])
    said = "leave BOS out (--no-add-bos)"
    out, index = tmp_path / "out", tmp_path / "index"
    bare = ("--no-add-bos", "--no-add-eos")
    common = ("pack", tmp_path / "a.jsonl", "--tokenizer", "byte")
    done = run(*common, "--out", out, "--max-length", "1")
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert run(*common, "--out", index, "--max-length", "8", "--index-only").returncode == 0
    done = run("replan", index, "--max-length", "1")
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert run(*common, "--out", out, "--max-length", "1", *bare).returncode == 0
