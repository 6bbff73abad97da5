"""`quire plan` predicts exactly what `quire pack` does."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quire
from quire.corpus.lengths import corpus_lengths
from quire.corpus.options import CorpusOptions
from quire.plan import quick_strategy_names
from quire.plan.comparison import compare
from quire.plan.strategies import BUILT_IN
from quire.report import write_report
from tests import commands


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan") / "corpus"
    folder.mkdir()
    chance = random.Random(3)
    texts = ["x" * int(chance.lognormvariate(3.5, 1)) for _ in range(1200)]
    for part in range(3):
        lines = [json.dumps({"text": text}) for text in texts[part::3]]
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(cache: Path, *arguments: object) -> CompletedProcess[str]:
    return commands.run("plan", *arguments, QUIRE_CACHE=str(cache))


@pytest.fixture(scope="module")
def figures(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    cache = tmp_path_factory.mktemp("cache")
    several = [f"--overlong={name}" for name in ("split", "truncate", "drop")]
    several += [f"--strategy={name}" for name in BUILT_IN]
    done = run(cache, corpus, "--tokenizer", "byte", "--max-length=64,128", *several, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("overlong", ["split", "truncate", "drop"])
@pytest.mark.parametrize("strategy", BUILT_IN)
def test_every_figure_is_that_of_the_packed_parquet(corpus, figures, strategy, overlong, tmp_path):
    said = next(
        one
        for one in figures["candidates"]
        if (one["max_length"], one["strategy"], one["overlong"]) == (128, strategy, overlong)
    )
    result = quire.pack_corpus(
        [corpus], tmp_path / "out", "byte", max_length=128, strategy=strategy, overlong=overlong
    )
    rows = [
        row
        for shard in result.manifest["shards"]
        for row in polars.read_parquet(tmp_path / "out" / shard["file"]).to_dicts()
    ]
    pieces: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    pairs = tokens = 0
    for row in rows:
        stops = [*row["document_starts"][1:], len(row["input_ids"])]
        for document, start, stop in zip(
            row["document_ids"], row["document_starts"], stops, strict=True
        ):
            length = stop - start
            pieces[document] += 1
            lengths[document] += length - 1  # BOS
            pairs += length * (length + 1) // 2
            tokens += length
    content = sum(lengths.values())
    given = {
        (part << 40) + number: len(json.loads(line)["text"]) + 1
        for part in range(3)
        for number, line in enumerate((corpus / f"{part}.jsonl").read_text().splitlines())
        if json.loads(line)["text"]
    }
    expected = {
        "rows": len(rows),
        "utilization": content / (len(rows) * 128),
        "documents": len(given),
        "documents_cut": sum(count > 1 for count in pieces.values()),
        "documents_truncated": sum(lengths[d] < given[d] for d in lengths),
        "documents_dropped": len(given) - len(lengths),
        "tokens_lost": sum(given.values()) - content,
        "steps": -(-len(rows) // 64),
    }
    assert {name: said[name] for name in expected} == expected
    assert said["attention"] == pytest.approx(pairs / tokens)
    assert -(-tokens // 128) <= said["bound"] <= len(rows)


def test_the_table_and_the_advice_are_printed_in_full_in_a_pipe(corpus, tmp_path):
    done = run(tmp_path, corpus, "--tokenizer", "byte", "--max-length", "64,128")
    assert done.returncode == 0, done.stderr
    assert "128 split" in done.stdout
    assert "…" not in done.stdout
    assert "\x1b[" not in done.stdout
    assert "take --max-length" in done.stdout
    for strategy in quick_strategy_names():
        assert strategy in done.stdout


def planned(cache: Path, *arguments: object) -> dict:
    done = run(cache, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tight_is_suggested_with_its_saving_and_tried_only_on_request(tmp_path):
    lengths = [3, 3, 2, 2, 2, 2]  # of 7: best-fit needs three rows, tight two
    lines = [json.dumps({"input_ids": [1] * length}) for length in lengths]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    words = (tmp_path / "a.jsonl", "--pretokenized", "--max-length", 7)
    offer = "tight could save at most 1 row (33.33%): --strategy tight"
    said = planned(tmp_path, *words, "--strategy", "best_fit")
    assert said["recommended"]["rows"] == 3
    assert offer in said["reasons"]
    usual = planned(tmp_path, *words)
    assert {one["strategy"] for one in usual["candidates"]} == set(quick_strategy_names())
    assert (usual["recommended"]["strategy"], usual["recommended"]["rows"]) == ("exact_fit", 2)
    assert not any("tight" in reason for reason in usual["reasons"])
    tried = planned(tmp_path, *words, "--strategy", "best_fit", "--strategy", "tight")
    assert tried["recommended"]["rows"] == 2
    assert offer not in tried["reasons"]
    (tmp_path / "b.jsonl").write_text("\n".join([*lines[:2], '{"input_ids": [1]}']))
    full = planned(tmp_path, tmp_path / "b.jsonl", "--pretokenized", "--max-length", 7)
    assert not any("tight" in reason for reason in full["reasons"])


def test_lengths_kept_from_a_call_that_allowed_bad_records_do_not_allow_them(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "hello"}\n{bad\n')
    words = (tmp_path / "a.jsonl", "--tokenizer", "byte", "--max-length", 16)
    allowed = run(tmp_path, *words, "--max-bad-records", 1)
    refused = run(tmp_path, *words)
    again = run(tmp_path, *words, "--max-bad-records", 1)
    assert (allowed.returncode, refused.returncode, again.returncode) == (0, 2, 0)
    assert "record 1 (byte 18)" in refused.stderr
    assert "kept from before" in again.stdout


def test_documents_without_a_trained_token_are_in_no_planned_row(tmp_path):
    labels = [[1] * 10 if number % 2 else [-100] * 10 for number in range(20)]
    lines = [json.dumps({"input_ids": [1] * 10, "labels": one}) for one in labels]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    words = (tmp_path / "t.jsonl", "--pretokenized", "--max-length", 20, "--strategy", "best_fit")
    first, kept = planned(tmp_path, *words), planned(tmp_path, *words)
    assert first == kept
    (one,) = first["candidates"]
    assert (one["rows"], one["tokens_lost"]) == (5, 100)
    assert one["ledger"]["documents"]["dropped"] == {"unsupervised": 10}


def test_plan_pack_verify_and_report_give_the_same_counts(tmp_path):
    texts = ["a" * length for length in (3, 9, 20, 0, 5, 1, 14)]
    lines = [json.dumps({"text": text}) for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "{bad"]))
    words = ("--tokenizer", "byte", "--max-length", 8, "--min-length", 8, "--max-bad-records", 1)
    words += ("--max-documents-per-row", 2, "--add-bos")
    corpus, out = tmp_path / "a.jsonl", tmp_path / "out"
    plan = (corpus, *words, "--strategy", "best_fit")
    one = planned(tmp_path, *plan)["recommended"]
    drops = [
        "bad_record: 1 document, 0",
        "empty: 1 document, 0",
        "row_too_short: 1 document, 14",
    ]
    for shown in (
        run(tmp_path, *plan),
        commands.run("pack", corpus, "--out", out, *words),
        commands.run("verify", out, "--inputs", corpus, "--tokenizer", "byte"),
    ):
        assert shown.returncode == 0, shown.stderr
        assert [f"dropped as {drop} tokens" in shown.stdout for drop in drops] == [True] * 3
    verified = json.loads(commands.run("verify", out, "--json").stdout)
    manifest = json.loads((out / "manifest.json").read_text())
    assert one["ledger"] == verified["ledger"] == manifest["ledger"]
    assert one["rows"] == verified["rows"] == manifest["rows"]
    assert verified["documents"] == one["ledger"]["documents"]["emitted"] == 5
    told = write_report(out, tmp_path / "report.html")["headline"]
    same = {"rows": "rows", "rows_bound": "bound", "utilization": "utilization"}
    same |= {"documents_cut": "documents_cut", "max_length": "max_length"}
    assert {name: told[name] for name in same} == {name: one[other] for name, other in same.items()}
    assert told["dropped_documents"] == 3


_DOCUMENT = st.integers(0, 12).flatmap(
    lambda length: st.tuples(
        st.lists(st.integers(1, 9), min_size=length, max_size=length),
        st.lists(st.sampled_from([-100, 5]), min_size=length, max_size=length),
    )
)
_TEXT = st.text("ab", max_size=12)


@given(
    documents=st.one_of(
        st.lists(_DOCUMENT, min_size=1, max_size=8), st.lists(_TEXT, min_size=1, max_size=8)
    ),
    strategy=st.sampled_from(BUILT_IN),
    overlong=st.sampled_from(["split", "fill", "truncate", "truncate_left", "drop"]),
    max_length=st.integers(4, 9),
    stride=st.integers(0, 1),
    min_length=st.integers(1, 4),
    specials=st.tuples(st.booleans(), st.booleans()),
    num_bad=st.integers(0, 1),
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_rows_and_ledger_of_the_plan_are_those_of_the_packed_output(
    tmp_path_factory,
    documents,
    strategy,
    overlong,
    max_length,
    stride,
    min_length,
    specials,
    num_bad,
):
    folder = tmp_path_factory.mktemp("both")
    is_text = isinstance(documents[0], str)
    records = [
        {"text": one} if is_text else {"input_ids": one[0], "labels": one[1]} for one in documents
    ]
    lines = [json.dumps(record) for record in records] + ["{bad"] * num_bad
    (folder / "a.jsonl").write_text("\n".join(lines))
    options = {
        "max_length": max_length,
        "strategy": strategy,
        "overlong": overlong,
        "stride": stride if overlong == "split" else 0,
        "min_length": min_length,
        "pretokenized": not is_text,
    }
    if is_text:
        options |= dict(zip(("add_bos", "add_eos"), specials, strict=True))
    tokenizer = "byte" if is_text else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing but empty documents
        packed = quire.pack_corpus(
            [folder / "a.jsonl"], folder / "out", tokenizer, max_bad_records=1, **options
        )
    corpus_options = CorpusOptions(**options)
    for _ in range(2):  # counted, then read from the cache
        corpus = corpus_lengths(
            [folder / "a.jsonl"],
            tokenizer,
            corpus_options,
            cache_dir=folder / "cache",
            max_bad_records=1,
        )
        terms = corpus.plan_options(corpus_options)
        (one,) = compare(corpus.lengths, [terms], supervised=corpus.supervised())
        assert one.rows == packed.num_rows
        # Lengths do not say which tokens are trained; only rows do.
        tokens = replace(packed.ledger.tokens, trained=None)
        assert corpus.ledger + one.ledger == replace(packed.ledger, tokens=tokens)


def test_a_narrow_terminal_loses_no_figure(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    done = run(tmp_path, corpus, "--tokenizer", "byte", "--max-length", "64")
    assert done.returncode == 0, done.stderr
    assert "best_fit" in done.stdout
    assert "…" not in done.stdout


def test_dropped_documents_are_counted_with_their_tokens(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n{"text": "abcdefghij"}\n{"text": ""}\n')
    options = (
        tmp_path / "a.jsonl",
        "--tokenizer",
        "byte",
        "--max-length",
        16,
        "--drop-longer-than",
        6,
    )
    done = run(tmp_path, *options)
    assert "dropped as too_long: 1 document, 10 tokens" in done.stdout
    assert "dropped as empty: 1 document, 0 tokens" in done.stdout
    said = json.loads(run(tmp_path, *options, "--json").stdout)
    assert said["tokens_dropped_before"] == {"too_long": 10}


def test_the_second_call_reads_the_lengths_that_the_first_one_kept(corpus, tmp_path):
    first = run(tmp_path, corpus, "--tokenizer", "byte", "--strategy", "greedy")
    again = run(tmp_path, corpus, "--tokenizer", "byte", "--strategy", "greedy")
    assert "kept from before" not in first.stdout
    assert "kept from before" in again.stdout
    assert first.stdout == again.stdout.replace(", lengths kept from before", "")


def test_other_options_or_inputs_are_counted_again(corpus, tmp_path):
    run(tmp_path, corpus, "--tokenizer", "byte", "--strategy", "greedy")
    other = run(tmp_path, corpus, "--tokenizer", "byte", "--strategy", "greedy", "--no-add-eos")
    fewer = run(tmp_path, corpus / "0.jsonl", "--tokenizer", "byte", "--strategy", "greedy")
    assert "kept from before" not in other.stdout + fewer.stdout


def test_a_broken_cache_is_replaced(corpus, tmp_path):
    first = run(tmp_path, corpus, "--tokenizer", "byte", "--strategy", "greedy")
    (kept,) = (tmp_path / "lengths").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert (
        run(tmp_path, corpus, "--tokenizer", "byte", "--strategy", "greedy").stdout == first.stdout
    )


def test_without_a_cache_nothing_is_written(corpus, tmp_path):
    run(tmp_path, corpus, "--tokenizer", "byte", "--strategy", "greedy", "--no-cache")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-length", "12,x"], "some with commas"),
        (["--max-length", "0"], "is 0 but must be"),
        (["--strategy", "best-fit"], "best_fit"),
        (["--overlong", "cut"], "overlong"),
        (["--text-column", "txt"], "txt"),
    ],
)
def test_a_mistake_is_two_lines_with_the_remedy(corpus, tmp_path, arguments, message):
    done = run(tmp_path, corpus, "--tokenizer", "byte", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_corpus_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    done = run(tmp_path, tmp_path / "a.jsonl", "--tokenizer", "byte")
    assert done.returncode == 2
    assert "the corpus has no tokens" in done.stderr


def test_rows_that_lack_a_token_are_not_shown_as_full(tmp_path):
    lines = [json.dumps({"input_ids": [1] * length}) for length in (100_000, 99_998)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    words = ("--pretokenized", "--max-length", 100_000, "--strategy", "exact_fit")
    done = run(tmp_path, tmp_path / "a.jsonl", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("99.99%") == 2  # in the table, and in the reason
    assert "100.00%" not in done.stdout
