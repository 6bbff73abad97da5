"""A chat template that asks for the date gets one date per run, which the manifest records."""

from __future__ import annotations

import datetime
import json

import pytest

import quire
from quire.errors import InvalidOption, OutputError
from tests.commands import run
from tests.corpus.corpora import hashes, jsonl, pack, rows
from tests.text.word_tokenizer import CHAT, word_tokenizer

FIRST, LATER = datetime.date(2024, 7, 6), datetime.date(2026, 11, 18)
ASKING = "{{ strftime_now('%d_%b_%Y_%H:%M') }} " + CHAT
DATES = ["06_Jul_2024_00:00", "18_Nov_2026_00:00"]
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
OPTIONS = {"max_length": 8, "messages_column": "messages", "partition_size": 10}


def tokenizer(template: str = ASKING):
    made = word_tokenizer(template)
    made.add_tokens(DATES)
    return made


def set_today(monkeypatch, date: datetime.date) -> None:
    monkeypatch.setattr("quire.text.chat.date._clock", lambda: date)


@pytest.fixture
def corpus(tmp_path):
    """Two files and a tokenizer's folder; each file is one partition."""
    tokenizer().save_pretrained(tmp_path / "tokenizer")
    tokenizer(CHAT).save_pretrained(tmp_path / "undated")
    return [jsonl(tmp_path / f"{number}.jsonl", [{"messages": TALK}]) for number in range(2)]


def options_of(out) -> dict:
    return json.loads((out / "manifest.json").read_text())["options"]


def shards(out) -> dict[str, str]:
    return {name: sha for name, sha in hashes(out).items() if name.startswith("data")}


@pytest.mark.parametrize("assistant_only", [True, False])
def test_pack_dataset_renders_the_date_that_is_given_or_today(monkeypatch, assistant_only):
    set_today(monkeypatch, LATER)
    words = tokenizer()
    given = {"max_length": 8, "messages_column": "messages", "assistant_only": assistant_only}
    for date, shown in ((None, 1), ("2024-07-06", 0), (FIRST, 0)):
        (row,) = quire.pack_dataset(
            [{"messages": TALK}], words, chat_date=date, **given
        ).to_pylist()
        assert words.decode(row["input_ids"]) == f"{DATES[shown]} user a </s> assistant b </s>"


def test_a_template_that_marks_its_turns_also_gets_the_date(monkeypatch):
    marked = CHAT.replace(
        "{{ m.content }} </s> ", "{% generation %}{{ m.content }} </s> {% endgeneration %}"
    )
    words = tokenizer(ASKING.replace(CHAT, marked))
    given = {"max_length": 8, "messages_column": "messages", "chat_date": FIRST}
    (row,) = quire.pack_dataset([{"messages": TALK}], words, **given).to_pylist()
    assert words.decode(row["input_ids"]).startswith("06_Jul_2024_00:00 user")


def test_the_manifest_records_the_date_and_a_run_of_the_same_date_has_the_same_bytes(
    tmp_path, corpus, monkeypatch
):
    set_today(monkeypatch, FIRST)
    pack(corpus, tmp_path / "out", tmp_path / "tokenizer", **OPTIONS)
    assert options_of(tmp_path / "out")["chat_date"] == "2024-07-06"
    set_today(monkeypatch, LATER)
    pack(corpus, tmp_path / "same", tmp_path / "tokenizer", chat_date="2024-07-06", **OPTIONS)
    assert hashes(tmp_path / "same") == hashes(tmp_path / "out")
    pack(corpus, tmp_path / "later", tmp_path / "tokenizer", **OPTIONS)
    assert shards(tmp_path / "later") != shards(tmp_path / "out")
    first = rows(tmp_path / "out")["input_ids"][0].as_py()
    assert tokenizer().decode(first) == "06_Jul_2024_00:00 user a </s> assistant b </s>"


def test_a_run_that_is_resumed_days_later_keeps_the_date_on_which_it_began(
    tmp_path, corpus, monkeypatch
):
    class Interrupted(Exception):
        pass

    def interrupt(progress):
        if progress.commit is not None:
            raise Interrupted

    set_today(monkeypatch, FIRST)
    pack(corpus, tmp_path / "whole", tmp_path / "tokenizer", **OPTIONS)
    given = (corpus, tmp_path / "out", tmp_path / "tokenizer")
    with pytest.raises(Interrupted):
        pack(*given, on_progress=interrupt, **OPTIONS)
    set_today(monkeypatch, LATER)
    assert not pack(*given, resume=True, **OPTIONS).was_complete
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")
    assert pack(*given, resume=True, **OPTIONS).was_complete


def test_a_resumed_run_refuses_another_date(tmp_path, corpus, monkeypatch):
    set_today(monkeypatch, FIRST)
    given = (corpus, tmp_path / "out", tmp_path / "tokenizer")
    pack(*given, **OPTIONS)
    with pytest.raises(OutputError, match=r"chat_date is '2024-07-06' there and '2020-01-01'"):
        pack(*given, resume=True, chat_date="2020-01-01", **OPTIONS)


def test_no_date_is_recorded_if_no_template_asks_for_one(tmp_path, corpus, monkeypatch):
    for name, date in (("a", FIRST), ("b", LATER)):
        set_today(monkeypatch, date)
        pack(corpus, tmp_path / name, tmp_path / "undated", **OPTIONS)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert options_of(tmp_path / "a")["chat_date"] is None
    pack(jsonl(tmp_path / "text.jsonl", ["a"]), tmp_path / "text")
    assert "chat_date" not in options_of(tmp_path / "text")


def test_the_command_sets_the_date(tmp_path, corpus):
    given = ["--tokenizer", str(tmp_path / "tokenizer"), "--max-length", "8"]
    given += ["--messages-column", "messages", "--chat-date", "2024-07-06"]
    assert run("pack", *corpus, "--out", tmp_path / "out", *given).returncode == 0
    assert options_of(tmp_path / "out")["chat_date"] == "2024-07-06"


@pytest.mark.slow
def test_worker_processes_use_the_date_of_the_run(tmp_path, corpus, monkeypatch):
    set_today(monkeypatch, FIRST)  # which a new process does not know
    pack(corpus, tmp_path / "one", tmp_path / "tokenizer", **OPTIONS)
    pack(corpus, tmp_path / "two", tmp_path / "tokenizer", workers=2, **OPTIONS)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"chat_date": "18.11.2026"}, "'18.11.2026' but must be an ISO date such as '2026-11-18'"),
        ({"chat_date": 20261118}, "20261118 but must be an ISO date"),
        (
            {"chat_date": FIRST, "messages_column": None, "record_kind": "text"},
            "chat_date=.* is only for conversations",
        ),
    ],
)
def test_an_invalid_or_unused_date_is_refused(tmp_path, corpus, options, problem):
    with pytest.raises(InvalidOption, match=problem):
        pack(corpus, tmp_path / "out", tmp_path / "tokenizer", **{**OPTIONS, **options})


def test_pack_dataset_takes_a_date_only_with_messages():
    with pytest.raises(InvalidOption, match="chat_date='2024-07-06' is only for conversations"):
        quire.pack_dataset([{"text": "a"}], "byte", max_length=8, chat_date=FIRST)
