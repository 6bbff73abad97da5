"""Padded and packed batches of the same documents, side by side."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quire import make_plan
from quire.plan.padding import compare_with_padding
from tests import commands


def test_literal_figures_of_four_documents_in_one_batch():
    found = compare_with_padding(make_plan([4, 1, 2, 1], 4), batch_size=4)
    assert (found.padded_rows, found.padded_tokens, found.padded_pairs) == (4, 16, 40)
    assert (found.packed_rows, found.packed_tokens) == (2, 8)
    assert found.packed_pairs == 10 + 1 + 3 + 1
    assert (found.tokens_saved, found.pairs_saved) == (0.5, 1 - 15 / 40)


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 9))
def test_padding_is_between_the_tokens_and_rows_of_the_full_length(lengths, batch_size):
    plan = make_plan(lengths, 16)
    found = compare_with_padding(plan, batch_size)
    sizes = (plan.stops - plan.starts).astype(np.int64)
    assert sizes.sum() <= found.padded_tokens <= found.padded_tokens_to_max_length
    assert found.packed_pairs <= found.padded_pairs
    single = compare_with_padding(plan, 1)
    assert single.padded_tokens == sizes.sum()  # a batch of one row has no padding
    assert single.padded_pairs == single.packed_pairs


def test_the_command_answers_what_packing_saves(tmp_path):
    lines = [json.dumps({"text": "word " * n}) + "\n" for n in range(1, 40)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    options = ("--tokenizer", "byte", "--max-length", 256, "--no-cache")
    done = commands.run("plan", tmp_path / "a.jsonl", *options)
    assert "padded: 39 rows, " in done.stdout, done.stderr
    found = json.loads(commands.run("plan", tmp_path / "a.jsonl", *options, "--json").stdout)
    padding = found["recommended"]["padding"]
    assert f"packed: {padding['packed_rows']} rows, " in done.stdout
    assert padding["padded_tokens"] > padding["packed_tokens"] >= found["tokens"]
