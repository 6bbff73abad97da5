"""`quire pack` as people and scripts use it."""

from __future__ import annotations

import json

import pytest

from tests.commands import run
from tests.corpus.command import command
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.terminal import shown_in_terminal


@pytest.fixture
def corpus(tmp_path):
    return jsonl(tmp_path / "a.jsonl", [*texts(60), {"text": None}])


def arguments(corpus, out, *more):
    return ["pack", corpus, "--out", out, "--tokenizer", "byte", "--max-length", "16", *more]


def test_the_command_writes_what_the_function_writes(tmp_path, corpus):
    options = ["--strategy", "first_fit", "--overlong", "fill", "--stride", "2", "--no-add-bos"]
    options += ["--seed", "7", "--no-shuffle", "--partition-size", "1K", "--max-bad-records", "1"]
    done = run(*arguments(corpus, tmp_path / "one", *options))
    assert done.returncode == 0, done.stderr
    pack(
        corpus,
        tmp_path / "two",
        strategy="first_fit",
        overlong="fill",
        stride=2,
        add_bos=False,
        seed=7,
        shuffle=False,
        partition_size=1024,
        max_bad_records=1,
    )
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert "is complete" in done.stdout
    assert "dropped as bad_record: 1 document" in done.stdout
    assert "documents" in done.stderr
    assert "1 bad record" in done.stderr
    assert "\x1b[" not in done.stdout + done.stderr


def test_json_is_one_object_and_resume_says_that_it_was_complete(tmp_path, corpus):
    options = ["--max-bad-records", "1", "--json"]
    first = run(*arguments(corpus, tmp_path / "out", *options))
    again = run(*arguments(corpus, tmp_path / "out", *options, "--resume"))
    one, two = json.loads(first.stdout), json.loads(again.stdout)
    assert (one.pop("was_complete"), two.pop("was_complete")) == (False, True)
    assert one == two
    assert one["bad_records"] == 1
    assert one["ledger"]["documents"]["input"] == 61


def test_mistakes_are_a_line_and_exit_code_2(tmp_path, corpus):
    bad = run(*arguments(corpus, tmp_path / "out"))
    assert bad.returncode == 2
    assert "record 60" in bad.stderr
    assert "has null under 'text'" in bad.stderr
    assert "Traceback" not in bad.stderr
    typo = run(*arguments(corpus, tmp_path / "other", "--strategy", "bestfit"))
    assert (typo.returncode, "did you mean 'best_fit'" in typo.stderr) == (2, True)
    assert run("pack", corpus, "--out", tmp_path / "x").returncode == 2, "max_length is missing"


def test_an_empty_output_gives_a_warning(tmp_path):
    done = run(*arguments(jsonl(tmp_path / "a.jsonl", [""]), tmp_path / "out"))
    assert done.returncode == 0
    assert "warning" in done.stderr
    assert "has no rows" in done.stderr


def test_56_control_characters_in_names_are_escaped(tmp_path):
    out = tmp_path / "out\x1b[31mred"
    done = run(*arguments(jsonl(tmp_path / "a.jsonl", ["a"]), out))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    empty = run(*arguments(jsonl(tmp_path / "b.jsonl", [""]), tmp_path / "two\x1b[31m"))
    assert "\x1b" not in empty.stdout + empty.stderr
    bad = jsonl(tmp_path / "three\x1b[31m.jsonl", [{"text": None}])
    refused = run(*arguments(bad, tmp_path / "three"))
    assert refused.returncode == 2
    assert "three\\x1b[31m.jsonl: record 0" in refused.stderr
    assert "\x1b" not in refused.stdout + refused.stderr


@pytest.mark.slow
def test_in_a_terminal_there_is_a_live_line(tmp_path, corpus):
    more = ("--partition-size", "300", "--max-bad-records", 1)
    shown = shown_in_terminal(command(*arguments(corpus, tmp_path / "out", *more)), columns=120)
    assert "tokens/s" in shown
    assert "% full" in shown
    assert "is complete" in shown


def test_an_index_is_packed_and_planned_again_on_the_command_line(tmp_path, corpus):
    out = tmp_path / "out"
    more = ["--index-only", "--max-bad-records", "1", "--partition-size", "1K"]
    done = run(*arguments(corpus, out, *more))
    assert done.returncode == 0, done.stderr
    assert "plan 'exact_fit-16' is complete" in done.stdout
    assert "% full" not in done.stderr, "rows are not known before the end"
    again = run("replan", out, "--max-length", 32, "--strategy", "wrapped", "--no-shuffle")
    assert again.returncode == 0, again.stderr
    assert "plan 'wrapped-32' is complete" in again.stdout
    named = run("replan", out, "--stride", 2, "--seed", 3, "--name", "mine", "--json")
    assert json.loads(named.stdout)["plan"] == "mine"
    whole = run("verify", out)
    assert whole.stdout.startswith("whole: "), whole.stdout
    assert " 3 plans," in whole.stdout
    wrong = run("replan", out, "--max-length", 0)
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)


def test_an_output_begun_with_best_fit_is_resumed_with_it_unless_another_strategy_is_named(
    tmp_path, corpus
):
    more = ["--max-bad-records", "1"]
    begun = run(*arguments(corpus, tmp_path / "out", *more, "--strategy", "best_fit"))
    assert begun.returncode == 0, begun.stderr
    again = run(*arguments(corpus, tmp_path / "out", *more, "--resume"))
    assert again.returncode == 0, again.stderr
    named = ["--resume", "--strategy", "exact_fit"]
    other = run(*arguments(corpus, tmp_path / "out", *more, *named))
    assert other.returncode == 2
    assert "strategy" in other.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_too_many_bad_records_tell_how_to_continue_what_is_there(tmp_path, corpus, workers):
    out, more = tmp_path / "out", ["--partition-size", "1K", "--workers", workers]
    stopped = run(*arguments(corpus, out, *more))
    assert stopped.returncode == 2
    advice = f"what is committed stays in {out}: with a higher limit, continue with --resume"
    assert advice in stopped.stderr
    done = run(*arguments(corpus, out, *more, "--max-bad-records", 1, "--resume"))
    assert done.returncode == 0, done.stderr


def test_too_many_bad_records_before_the_first_shard_leave_nothing_to_continue(tmp_path, corpus):
    stopped = run(*arguments(corpus, tmp_path / "out"))
    assert stopped.returncode == 2
    assert "raise --max-bad-records" in stopped.stderr
    assert "--resume" not in stopped.stderr
    done = run(*arguments(corpus, tmp_path / "out", "--max-bad-records", 1))
    assert done.returncode == 0, done.stderr
