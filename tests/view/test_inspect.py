"""`quire inspect`: rows of every kind, as users see them."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import commands
from tests.terminal import shown_in_terminal

import quire
from quire.errors import InvalidBoundaries, InvalidOption
from quire.report.page import report_figures
from quire.view import open_rows

TEXTS = ["alpha", "be\x1b[31mta", "<b>gamma</b> [bold]x[/]", "delta " * 40]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    quire.pack_corpus([folder / "a.jsonl"], folder / "packed", "byte", max_length=64, seed=0)
    return folder / "packed"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return commands.run("inspect", *arguments)


def in_terminal(*arguments: object) -> str:
    return shown_in_terminal([sys.executable, "-m", "quire", "inspect", *arguments])


def test_the_header_has_the_form_of_forgathers(tmp_path):
    file = tmp_path / "rows.parquet"
    rows = [{"input_ids": list(range(512)), "document_starts": [0, 100, 300]}]
    pq.write_table(pa.Table.from_pylist(rows), file)
    out = run(file).stdout
    assert (
        "------------- 0 Tokens: 512, Documents: 3, Features: input_ids, document_starts "
        "-------------"
    ) in out
    assert "├─ 1 · starts at 100 · 200 tokens" in out
    assert "name the --tokenizer to see text" in out


def test_a_pipe_shows_boundaries_without_colors(packed):
    out = run(packed).stdout
    assert "\x1b" not in out
    assert out.count("├─") == sum(len(row.starts) for row in open_rows(packed).views())
    assert "alpha" in out


@pytest.mark.slow
def test_a_terminal_shows_every_document_in_its_own_color(packed):
    row = next(row for row in open_rows(packed).views() if len(row.starts) > 1)
    seen = in_terminal(packed, "--start", row.number, "-n", 1)
    styles = re.findall(r"tokens\x1b\[0m\r\n(\x1b\[\d+m)", seen)
    assert len(styles) == len(row.starts)
    assert len(set(styles)) == len(styles)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--full",)])
def test_fault_56_control_characters_and_markup_stay_text(packed, more):
    seen = in_terminal(packed, *more)
    assert "\x1b[31mta" not in seen
    assert "be\\x1b[31mta" in seen
    assert "<b>gamma</b> [bold]x[/]" in seen


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--histogram",)])
def test_a_terminal_without_utf_8_shows_rows_with_escaped_characters(packed, more):
    done = subprocess.run(
        [sys.executable, "-m", "quire", "inspect", str(packed), *more],
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert (b"\\u2588" if more else b"\\u251c\\u2500 0 \\xb7 starts at 0") in done.stdout


def test_examples_and_start_select_the_rows(packed):
    out = run(packed, "-n", 1, "--start", 2).stdout
    assert re.findall(r"------------- (\d+) Tokens", out) == ["2"]
    assert "1 of" in out


def test_tokens_and_positions_on_request(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"input_ids": [7, 8, 9], "document_starts": [0, 2]}) + "\n")
    out = run(file, "--tokenized", "--positions").stdout.splitlines()
    assert out[1:7] == [
        "├─ 0 · starts at 0 · 2 tokens",
        "7 8",
        "   positions 0 1",
        "├─ 1 · starts at 2 · 1 token",
        "9",
        "   positions 0",
    ]


def test_labels_mark_trained_tokens_and_name_the_source_of_every_fragment(tmp_path):
    (tmp_path / "chats.jsonl").write_text(
        json.dumps({"input_ids": [*range(100, 110)], "labels": [-100] * 8 + [108, 109]}) + "\n"
    )
    quire.pack_corpus([tmp_path / "chats.jsonl"], tmp_path / "out", max_length=6)
    out = run(tmp_path / "out", "--labels", "--tokenizer", "byte").stdout
    assert "Tokens: 4, Trained: 2, Documents: 1" in out
    assert "4 tokens · 2 trained · chats.jsonl, record 0, from token 6 (continued)" in out
    assert "\ngh⟦ij⟧\n" in out


def test_json_holds_fragments_labels_and_sources(packed):
    found = json.loads(run(packed, "--json", "-n", 99).stdout)
    assert (found["kind"], found["num_rows"]) == ("packed dataset", len(found["rows"]))
    fragments = [one for row in found["rows"] for one in row["fragments"]]
    alpha = next(one for one in fragments if one["text"] == "alpha")
    assert alpha["tokens"] == 7  # with BOS and EOS
    assert alpha["trained"] == 6
    where = {name: alpha[name] for name in ("file", "record", "offset", "continued")}
    assert where == {"file": "a.jsonl", "record": 0, "offset": 0, "continued": False}
    assert sum(one["continued"] for one in fragments) > 0
    for row in found["rows"]:
        learnt = sum(label != -100 for label in row["labels"])
        assert row["trained"] == learnt == sum(one["trained"] for one in row["fragments"])


def test_rows_of_trl_are_shown_by_their_lengths(tmp_path):
    file = tmp_path / "trl.jsonl"
    file.write_text(json.dumps({"input_ids": [1, 2, 3], "seq_lengths": [2, 1]}) + "\n")
    assert "Tokens: 3, Documents: 2" in run(file).stdout
    file.write_text(json.dumps({"input_ids": [1, 2, 3], "position_ids": [0, 1, 0]}) + "\n")
    assert "Tokens: 3, Documents: 2" in run(file).stdout


def test_long_documents_are_cut_unless_full_is_given(packed):
    assert "delta " * 9 in run(packed, "--full").stdout
    file = packed.parent / "long.jsonl"
    file.write_text(json.dumps({"input_ids": [100] * 5000, "document_starts": [0]}) + "\n")
    assert len(run(file, "--tokenizer", "byte").stdout) < 700
    assert "a" * 5000 in run(file, "--tokenizer", "byte", "--full").stdout


def test_a_row_without_starts_says_so(tmp_path):
    file = tmp_path / "old.jsonl"
    file.write_text(json.dumps({"input_ids": [1, 2, 3]}) + "\n")
    out = run(file).stdout
    assert "Documents: ? (no document_starts)" in out
    assert "packed_sequences=True" in out


def test_the_histogram_counts_every_row_and_fragment(packed):
    out = run(packed, "--histogram").stdout
    table = pa.concat_tables([pq.read_table(file) for file in sorted(packed.rglob("*.parquet"))])
    rows = table.to_pylist()
    fragments = [
        stop - start
        for row in rows
        for start, stop in zip(
            row["document_starts"],
            [*row["document_starts"][1:], len(row["input_ids"])],
            strict=True,
        )
    ]
    tokens = sum(len(row["input_ids"]) for row in rows)
    assert f"fragments: {len(fragments)}, {tokens} tokens" in out
    assert f"rows: {len(rows)}, {tokens} tokens" in out
    assert f"fill: {tokens / (64 * len(rows)):.3%} of rows of 64, special tokens included" in out
    shown = Counter()
    for low, high, count in re.findall(r"(\d+) - (\d+)\s+(\d+) █", out.split("rows:")[0]):
        shown[int(low), int(high)] = int(count)
    for (low, high), count in shown.items():
        assert count == sum(low <= length <= high for length in fragments)
    assert sum(shown.values()) == len(fragments)


def test_a_saved_dataset_is_shown(tmp_path):
    from datasets import Dataset

    packed = Dataset.from_dict({"text": ["one", "two", "three"]}).map(
        quire.block_tokenize_fn,
        batched=True,
        remove_columns=["text"],
        fn_kwargs={"tokenizer": "byte", "feature": "text", "max_length": 64, "packed": True},
    )
    packed.save_to_disk(tmp_path / "saved")
    out = run(tmp_path / "saved", "--tokenizer", "byte").stdout
    assert "Tokens: 17, Documents: 3, Features: " in out
    assert "three" in out
    assert "1 of 1 row of this saved dataset" in out


def test_an_arrow_file_is_shown(tmp_path):
    table = pa.Table.from_pylist([{"input_ids": [4, 5], "document_starts": [0]}])
    for name, opener in (("f.arrow", pa.ipc.new_file), ("s.arrow", pa.ipc.new_stream)):
        with opener(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
        assert "Tokens: 2, Documents: 1" in run(tmp_path / name).stdout


def test_a_stream_is_shown_by_its_config(tmp_path):
    (tmp_path / "stream.yaml").write_text(
        "data: {backend: local_text, local_text: 'hello', repeat: false, tokenizer: {kind: byte}}\n"
        "train: {seq_len: 16, batch_size: 2}\n"
    )
    out = run(tmp_path / "stream.yaml").stdout
    assert "Tokens: 6, Documents: 1, Features: input_ids, labels" in out
    assert "hello" in out
    assert "1 row of this stream" in out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "a,b", "is not a file of rows"),
        ("rows.jsonl", "{not json}\n", "line 1 is not JSON"),
        ("rows.jsonl", "[1]\n", "line 1 is a list"),
        ("rows.jsonl", '{"text": "abc"}\n', "no input_ids"),
        ("rows.jsonl", '{"input_ids": [1], "document_starts": [1]}\n', "document_starts"),
        ("rows.parquet", "PAR1", "is not a parquet file"),
        ("rows.arrow", "ARROW", "is not an Arrow file"),
    ],
)
def test_a_file_without_rows_is_a_one_line_error(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    done = run(tmp_path / name)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("dataset", "message"),
    [("7", "is a int"), ("null", "is a NoneType"), ("[1]", "row 0 is a int"), ("abc", "is a str")],
)
def test_a_recipe_whose_train_dataset_holds_no_rows_is_an_error(tmp_path, dataset, message):
    (tmp_path / "recipe.yaml").write_text(f"train_dataset: {dataset}\n")
    with pytest.raises(InvalidOption, match=message):
        list(open_rows(tmp_path / "recipe.yaml").views())


@pytest.mark.parametrize(
    "tokens",
    [
        *("null", "7", '"abc"', '["a"]', "{}", "[1, null]", "[1.5]", "[NaN]", "[true]"),
        *("[1, [2]]", "[[1]]", f"[{10**30}]"),
    ],
)
def test_tokens_that_are_not_integers_are_an_error_that_names_the_row(tmp_path, tokens):
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"input_ids": [1]}}\n{{"input_ids": {tokens}}}\n')
    with pytest.raises(InvalidOption, match=r"row 1: input_ids are .* must be a list of integers"):
        list(open_rows(file).views())


def test_wrong_starts_are_an_error_that_names_the_row(tmp_path):
    file = tmp_path / "rows.jsonl"
    good, bad = ({"input_ids": [1, 2], "document_starts": starts} for starts in ([0], [0, 5]))
    file.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    with pytest.raises(InvalidBoundaries, match=r"row 1: document_starts\[1\] is 5"):
        list(open_rows(file).views())


def test_huge_row_numbers_are_refused_without_a_traceback(packed):
    for option in ("-n", "--start"):
        done = run(packed, option, 10**30)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_missing_paths_and_other_folders_are_errors(tmp_path):
    with pytest.raises(InvalidOption, match="does not exist"):
        open_rows(tmp_path / "absent")
    with pytest.raises(InvalidOption, match="neither a manifest"):
        open_rows(tmp_path)


def test_an_empty_packed_dataset_has_no_rows_and_no_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    with pytest.warns(UserWarning, match="no row"):
        quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=8)
    done = run(tmp_path / "out")
    assert (done.returncode, done.stdout.strip()) == (0, "0 of 0 rows of this packed dataset")
    assert run(tmp_path / "out", "--histogram").returncode == 0


RECIPE = """
[map_function]
.define: &map_function !partial:forgather.ml.datasets:block_tokenize_fn
    max_length: !var { name: "length", default: 256 }
    packed: True
"""


def test_a_recipe_is_shown_with_its_variables(tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    given = [f"--var=dataset={tmp_path / 'texts.jsonl'}", "--var=tokenizer=byte"]
    done = run(tmp_path / "recipe.yaml", *given)
    assert "Tokens: 10, Documents: 2" in done.stdout, done.stderr
    assert "two" in done.stdout
    shorter = run(tmp_path / "recipe.yaml", *given, "--var=length=5").stdout
    assert shorter.count("Tokens: 5, Documents: 1") == 2


def test_an_unknown_recipe_variable_is_refused_with_the_known_ones(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    done = run(tmp_path / "recipe.yaml", "--var=lenght=5")
    assert done.returncode == 2
    assert "unknown variable 'lenght'; did you mean 'length'? known: dataset, " in done.stderr


@pytest.mark.parametrize("given", ["seed", "=1", "seed: 1"])
def test_a_variable_without_a_value_is_refused(tmp_path, given):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    done = run(tmp_path / "recipe.yaml", "--var", given)
    assert done.returncode == 2
    assert "name=value" in done.stderr


def test_an_index_only_output_is_shown_by_plan(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    quire.pack_corpus(
        [tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=64, index_only=True
    )
    quire.replan(tmp_path / "out", max_length=5)
    assert "Tokens: 10, Documents: 2" in run(tmp_path / "out").stdout
    assert "Tokens: 5, Documents: 1" in run(tmp_path / "out", "--plan", "exact_fit-5").stdout
    assert "exact_fit-5" in run(tmp_path / "out", "--plan", "exact_fit-6").stderr


@pytest.mark.parametrize("token", [-5, 999_999])
def test_15_a_token_outside_the_vocabulary_is_an_error(tmp_path, token):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"input_ids": [100, token], "document_starts": [0]}) + "\n")
    found = run(rows, "--tokenizer", "byte")
    assert found.returncode == 2
    assert f"token id {token} is not in the vocabulary of the tokenizer 'byte'" in found.stderr
    assert f"100 {token}" in run(rows, "--tokenized").stdout


@pytest.mark.parametrize("command", ["inspect", "report"])
def test_a_dataset_on_a_read_only_disk_needs_a_cache_folder(tmp_path, monkeypatch, command):
    (tmp_path / "a.jsonl").write_text('{"text": "alpha"}\n{"text": "beta"}\n')
    out = tmp_path / "packed"
    options = {"max_length": 64, "index_only": True}
    quire.pack_corpus([tmp_path / "a.jsonl"], out, "byte", **options)
    real = os.open

    def refuse(path, flags, *more, **keywords):
        if str(path).startswith(str(out)) and flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *more, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    words = [command, out, *(["--out", tmp_path / "page.html"] if command == "report" else [])]
    done = commands.run(*words)
    assert done.returncode == 2
    assert "Read-only file system; name a folder for the mapped form with" in done.stderr
    assert "--cache-dir" in done.stderr
    done = commands.run(*words, "--cache-dir", tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / "page.html").read_text() if command == "report" else done.stdout
    assert "alpha" in shown


def test_answers_of_a_pair_name_the_record_they_are_of(tmp_path):
    pairs = [{"prompt": f"{n}?", "chosen": " yes", "rejected": " no"} for n in range(3)]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (tmp_path / "pairs.jsonl").write_text(lines)
    quire.pack_corpus([tmp_path / "pairs.jsonl"], tmp_path / "out", "byte", max_length=64)
    found = json.loads(run(tmp_path / "out", "--labels", "--json").stdout)["rows"][0]["fragments"]
    named = {one["text"].strip("\0"): (one["record"], one["answer"]) for one in found}
    assert set(named.values()) == {(n, of) for n in range(3) for of in ("chosen", "rejected")}
    for text, (record, answer) in named.items():
        assert f"{record}? {'yes' if answer == 'chosen' else 'no'}" in text
    assert "pairs.jsonl, record 2 (rejected)" in run(tmp_path / "out", "--labels").stdout
    (row,) = report_figures(tmp_path / "out")["rows"]
    assert {(one["record"], one["answer"]) for one in row} == set(named.values())
