"""Conversations of a corpus are those of `pack_dataset`, with their tools, whatever the file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire.corpus.job import shard_seed
from quire.corpus.options import CorpusOptions
from quire.errors import InvalidDocument, InvalidOption
from tests.commands import run
from tests.corpus.corpora import hashes, jsonl, pack, rows
from tests.dataset.test_chat_tools import ADD, DEAF, SINE, TALK
from tests.tokenizer_files import folder_of, load, parameters

SINE_CALL = {"type": "function", "function": {"name": "sine", "arguments": {"x": 0.5}}}
OTHER = [TALK[0], {**TALK[1], "tool_calls": [SINE_CALL]}, *TALK[2:]]
RECORDS = [
    {"messages": TALK, "tools": [ADD]},
    {"messages": OTHER, "tools": [SINE]},
    {"messages": TALK, "tools": None},
]


def write(folder, kind, records):
    path = folder / f"a.{kind}"
    if kind == "jsonl":
        return jsonl(path, records)
    table = pa.Table.from_pylist(records)
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


def packed(path, out, tokenizer="small-qwen3", **options):
    options = {"max_length": 2048, "messages_column": "messages", **options}
    return pack(path, out, folder_of(tokenizer), **options)


@pytest.mark.parametrize("name", parameters("qwen3"))
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_conversations_and_their_tools_are_those_of_pack_dataset(tmp_path, kind, name):
    """Also in tables, where all tools and calls have the same keys."""
    packed(write(tmp_path, kind, RECORDS), tmp_path / "out", name)
    options = {"messages_column": "messages", "max_length": 2048, "keep_sources": True}
    expected = quire.pack_dataset(RECORDS, load(name), seed=shard_seed(42, 0, 0), **options)
    assert rows(tmp_path / "out").to_pylist() == expected.to_pylist()
    text = load(name).decode(rows(tmp_path / "out")["input_ids"][0].as_py())
    assert '"name": "add", "parameters"' in text and "null" not in text


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_tools_may_be_left_out_or_have_another_column(tmp_path, kind):
    renamed = [{"messages": one["messages"], "functions": one["tools"]} for one in RECORDS]
    path = write(tmp_path, kind, renamed)
    packed(path, tmp_path / "named", tools_column="functions")
    packed(path, tmp_path / "none")
    (tmp_path / "tools").mkdir()
    usual = write(tmp_path / "tools", kind, RECORDS)
    packed(usual, tmp_path / "usual")
    packed(usual, tmp_path / "without", tools_column=None)
    assert rows(tmp_path / "named").equals(rows(tmp_path / "usual"))
    assert rows(tmp_path / "none").equals(rows(tmp_path / "without"))
    assert not rows(tmp_path / "none").equals(rows(tmp_path / "usual"))


@pytest.mark.parametrize(
    ("kind", "error", "problem"),
    [
        ("jsonl", InvalidDocument, "has no 'function'"),
        ("parquet", InvalidOption, "unknown column of .*'function'; did you mean 'functions'"),
    ],
)
def test_a_tools_column_that_no_record_has_is_an_error(tmp_path, kind, error, problem):
    path = write(tmp_path, kind, [{"messages": TALK, "functions": [ADD]}])
    with pytest.raises(error, match=problem):
        packed(path, tmp_path / "out", tools_column="function")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_tools_that_the_template_does_not_write_out_are_bad_records(tmp_path, kind):
    tokenizer = load("small-qwen3").__class__.from_pretrained(folder_of("small-qwen3"))
    tokenizer.chat_template = DEAF
    path = write(tmp_path, kind, RECORDS)
    options = {"max_length": 2048, "messages_column": "messages"}
    with pytest.raises(InvalidDocument, match="has tools, which the chat template does not render"):
        pack(path, tmp_path / "out", tokenizer, **options)
    result = pack(path, tmp_path / "fewer", tokenizer, max_bad_records=2, **options)
    assert result.ledger.documents.dropped == {"bad_record": 2}


def test_tools_column_is_only_for_conversations():
    texts = CorpusOptions(max_length=8)
    assert "tools_column" not in texts.to_dict()
    talks = CorpusOptions(max_length=8, messages_column="messages")
    assert talks.to_dict()["tools_column"] == "tools"
    with pytest.raises(InvalidOption, match=r"tools_column=.* is only for conversations"):
        CorpusOptions(max_length=8, record_kind="text", tools_column="functions")
    with pytest.raises(InvalidOption, match=r"tools_column is \[.* but must be a string"):
        CorpusOptions(max_length=8, messages_column="messages", tools_column=[ADD])


@pytest.mark.parametrize(
    ("arguments", "options"), [((), {}), (("--tools-column", ""), {"tools_column": None})]
)
def test_the_command_writes_what_the_function_writes(tmp_path, arguments, options):
    path = write(tmp_path, "jsonl", RECORDS)
    packed(path, tmp_path / "called", **options)
    said = run(
        *("pack", path, "--out", tmp_path / "said", "--tokenizer", folder_of("small-qwen3")),
        *("--max-length", 2048, "--messages-column", "messages", *arguments),
    )
    assert said.returncode == 0, said.stderr
    assert hashes(tmp_path / "said") == hashes(tmp_path / "called")
