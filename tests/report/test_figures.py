"""Every figure of a report, recounted from the parquet files by a plain loop."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars
import pytest

from quire import lower_bound
from quire.report import ReportOptions, write_report
from quire.report.distributions import even_bins


@pytest.fixture(scope="module")
def figures(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    return write_report(packed, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def rows(packed: Path) -> list[dict]:
    manifest = json.loads((packed / "manifest.json").read_text())
    return [
        row
        for shard in manifest["shards"]
        for row in polars.read_parquet(packed / shard["file"]).to_dicts()
    ]


def fragments(row: dict) -> list[tuple[int, int, int, int]]:
    """(start, length, document, offset) of each fragment."""
    starts = row["document_starts"]
    stops = [*starts[1:], len(row["input_ids"])]
    return [
        (a, b - a, document, offset)
        for a, b, document, offset in zip(
            starts, stops, row["document_ids"], row["document_offsets"], strict=True
        )
    ]


def test_the_corpus_is_large_enough_to_mean_something(figures):
    assert figures["ledger"]["documents"]["input"] >= 1000
    assert figures["headline"]["documents_cut"] > 10
    assert figures["headline"]["dropped_documents"] > 1
    assert len(figures["shards"]) > 1


def test_the_headline_matches_a_recount(figures, rows):
    pieces = [piece for row in rows for piece in fragments(row)]
    documents = Counter(document for _, _, document, _ in pieces)
    tokens = sum(len(row["input_ids"]) for row in rows)
    bos = sum(row["input_ids"][start] == 1 for row in rows for start, *_ in fragments(row))
    expected = {
        "documents": len(documents),
        "documents_cut": sum(count > 1 for count in documents.values()),
        "fragments": len(pieces),
        "tokens": tokens,
        "rows": len(rows),
        "max_length": 256,
        "padding": len(rows) * 256 - tokens,
        "utilization": (tokens - bos) / (len(rows) * 256),
        "rows_bound": lower_bound([length for _, length, _, _ in pieces], 256),
    }
    assert {name: figures["headline"][name] for name in expected} == expected
    assert figures["headline"]["rows_bound"] >= -(-tokens // 256)


def test_lengths_before_and_after_are_counted_in_the_right_bins(figures, rows):
    lengths = figures["lengths"]
    documents: Counter[int] = Counter()
    for row in rows:
        for _, length, document, _ in fragments(row):
            documents[document] += length
    by_bin = {
        "documents": [0] * len(lengths["documents"]),
        "fragments": [0] * len(lengths["fragments"]),
    }
    edges = lengths["edges"]

    def place(length: int) -> int:
        return next(i for i in range(len(edges) - 1) if edges[i] <= length < edges[i + 1])

    for length in documents.values():
        by_bin["documents"][place(length)] += 1
    for row in rows:
        for _, length, _, _ in fragments(row):
            by_bin["fragments"][place(length)] += 1
    assert by_bin == {name: lengths[name] for name in by_bin}
    assert figures["document_lengths"]["max"] == max(documents.values())


def test_fill_and_fragments_per_row_are_counted(figures, rows):
    fill = [0] * 50
    for row in rows:
        fill[min(49, len(row["input_ids"]) * 50 // 256)] += 1
    assert figures["fill"]["counts"] == fill
    assert figures["fill_summary"]["min"] == min(len(row["input_ids"]) for row in rows) / 256
    counted = Counter(len(row["document_starts"]) for row in rows)
    shown = figures["fragments_per_row"]
    width = shown["width"]
    by_bin = [
        sum(n for count, n in counted.items() if first <= count < first + width)
        for first in shown["from"]
    ]
    assert shown["counts"] == by_bin
    assert sum(shown["counts"]) == len(rows)


def test_a_value_on_an_edge_is_in_the_bin_that_begins_there():
    shown = even_bins(np.arange(1, 201), whole=200, num_bins=50)
    assert shown["counts"] == [3, *[4] * 48, 5]
    huge = even_bins(np.array([5, 2**60]), whole=2**126, num_bins=50)
    assert huge["counts"] == [2, *[0] * 49]


def test_attention_pairs_are_the_squares_of_fragments(figures, rows):
    pairs = [sum(length**2 for _, length, _, _ in fragments(row)) for row in rows]
    attention = figures["attention"]
    assert attention["pairs_total"] == sum(pairs)
    assert attention["pairs_without_boundaries"] == sum(len(r["input_ids"]) ** 2 for r in rows)
    bins = [0] * 50
    for n in pairs:
        bins[min(49, n * 50 // 256**2)] += 1
    assert attention["pairs"]["counts"] == bins


def test_the_balance_is_the_slowest_rank_relative_to_the_mean(figures, rows):
    costs = [sum(length + 2e-5 * length**2 for _, length, _, _ in fragments(row)) for row in rows]
    steps = [costs[i : i + 8] for i in range(0, len(costs) - len(costs) % 8, 8)]
    before = sum(max(step) for step in steps) / sum(sum(step) / 8 for step in steps)
    balance = figures["attention"]["balance"]
    assert balance["before"] == pytest.approx(before)
    assert 1 <= balance["after"]["16"] <= balance["after"]["1"] <= balance["before"]


def test_sources_are_counted_by_input_file(figures, rows):
    tokens: Counter[int] = Counter()
    documents: dict[int, set[int]] = {0: set(), 1: set()}
    for row in rows:
        for _, length, document, _ in fragments(row):
            tokens[document // 2**40] += length
            documents[document // 2**40].add(document)
    assert [s["tokens"] for s in figures["sources"]] == [tokens[0], tokens[1]]
    assert [s["documents"] for s in figures["sources"]] == [len(documents[0]), len(documents[1])]
    assert [s["name"] for s in figures["sources"]] == ["<b>a.jsonl", "z.jsonl"]


def test_the_picture_shows_the_first_rows(figures, rows):
    assert len(figures["rows"]) == 48
    for shown, row in zip(figures["rows"], rows, strict=False):
        assert [
            (block["start"], block["length"], int(block["document"]), block["offset"])
            for block in shown
        ] == fragments(row)
        assert [block["record"] for block in shown] == [d % 2**40 for d in row["document_ids"]]


def test_samples_are_the_text_of_the_fragments(figures, rows):
    for texts, row in zip(figures["samples"], rows, strict=False):
        for text, (start, length, *_) in zip(texts, fragments(row), strict=True):
            tokens = row["input_ids"][start : start + length]
            assert text == bytes(t - 3 for t in tokens if t > 2).decode()


def test_bad_records_are_listed_by_position(figures):
    assert figures["bad_records"]["count"] == 1
    assert figures["bad_records"]["first"][0]["record"] == 7


def test_options_select_what_is_shown(packed, tmp_path):
    options = ReportOptions(num_rows=2, num_samples=0, num_ranks=4, rows_per_rank=2)
    figures = write_report(packed, tmp_path / "r.html", options=options)
    assert len(figures["rows"]) == 2
    assert figures["samples"] == []
    assert figures["attention"]["ranks"] == 4


def test_an_index_only_output_has_the_figures_of_its_rows(tmp_path):
    """The plan's rows are those of a plain output in one partition, and so is the report."""
    import quire

    lines = [json.dumps({"text": "word " * (n % 37)}) for n in range(1200)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    reports = {}
    for index_only in (False, True):
        out = tmp_path / f"out-{index_only}"
        quire.pack_corpus(
            [tmp_path / "a.jsonl"], out, "byte", max_length=128, index_only=index_only
        )
        reports[index_only] = write_report(out, tmp_path / "r.html")
    plain, indexed = reports[False], reports[True]
    for name in (
        "headline",
        "ledger",
        "lengths",
        "fill",
        "attention",
        "sources",
        "rows",
        "samples",
    ):
        assert plain[name] == indexed[name], name
    quire.replan(tmp_path / "out-True", max_length=64)
    other = write_report(tmp_path / "out-True", tmp_path / "r.html", plan="exact_fit-64")
    assert other["headline"]["max_length"] == 64
    assert other["headline"]["rows"] > plain["headline"]["rows"]
