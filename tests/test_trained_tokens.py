"""Ledgers count the tokens that a model is trained on, on every path that has labels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.collate import DataCollatorForCausalLM
from quire.ledger import TokenTally
from quire.verify.output import verify_output
from tests import commands
from tests.corpus.corpora import forge

TOKENIZER = quire.ByteTokenizer()


def trained_by(rows) -> int:
    """What the collator's own labels train."""
    if not len(rows):
        return 0
    collate = DataCollatorForCausalLM(TOKENIZER, return_tensors="np")
    return int((np.asarray(collate(list(rows))["labels"]) != -100).sum())


def records(documents, *, mask=False):
    plain = [
        {"input_ids": [10] * len(flags), "labels": [10 if f else -100 for f in flags]}
        for flags in documents
    ]
    if mask:
        plain = [{**one, "loss_mask": [1, *[0] * (len(one["labels"]) - 1)]} for one in plain]
    return plain


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=9),
    st.sampled_from(["greedy", "wrapped", "best_fit"]),
    st.booleans(),
)
def test_the_ledger_counts_what_the_collator_trains(documents, strategy, mask):
    rows, ledger = quire.pack_dataset(
        records([[True] * 3, *documents], mask=mask),
        max_length=12,
        strategy=strategy,
        return_ledger=True,
    )
    assert ledger.tokens.trained == trained_by(rows.to_pylist())


@pytest.mark.parametrize("options", [{}, {"strategy": "wrapped"}, {"overlong": "truncate"}])
def test_a_corpus_and_a_plan_of_it_count_the_same(tmp_path, options):
    chance = np.random.default_rng(0)
    flags = [(chance.random(n) < 0.6).tolist() for n in chance.integers(1, 90, 60)]
    lines = [json.dumps(one) + "\n" for one in records(flags)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    given = {"max_length": 64, **options}
    packed = quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "rows", **given)
    index = quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "index", index_only=True, **given)
    rows = quire.PackedDataset(tmp_path / "rows")
    assert packed.ledger.tokens.trained == trained_by(rows) > 0
    assert index.ledger == packed.ledger
    again = quire.replan(tmp_path / "index", max_length=32)
    replanned = quire.PackedDataset(tmp_path / "index", plan=again.plan)
    assert again.ledger.tokens.trained == trained_by(replanned)
    for out in ("rows", "index"):
        assert verify_output(tmp_path / out).problems == []


@pytest.mark.parametrize("index_only", [False, True])
def test_verify_finds_a_wrong_count_of_trained_tokens(tmp_path, index_only):
    (tmp_path / "a.jsonl").write_text(json.dumps(records([[True] * 9])[0]) + "\n")
    out = tmp_path / "out"
    quire.pack_corpus([tmp_path / "a.jsonl"], out, max_length=16, index_only=index_only)

    def lie(manifest):
        ledgers = [entry["ledger"] for entry in manifest["plans" if index_only else "shards"]]
        for ledger in (manifest["ledger"], *ledgers):
            ledger["tokens"]["trained"] = 9

    forge(out, lie)
    (problem,) = verify_output(out).problems
    assert problem.endswith("has 8 trained tokens but its ledger counts 9")


def test_without_labels_nothing_is_counted_as_trained():
    _, ledger = quire.pack_dataset([{"text": "abc"}], "byte", max_length=8, return_ledger=True)
    assert ledger.tokens.trained is None
    assert "trained" not in ledger.to_json()
    assert ledger.trained_lines() == []


def test_parts_with_and_without_labels_add_up():
    some, none = TokenTally(trained=3), TokenTally()
    assert (some + none).trained == (none + some).trained == 3
    assert (some + some).trained == 6
    assert (none + none).trained is None


def test_the_summary_says_how_much_is_trained(tmp_path):

    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in records([[True] * 4, [False, True]]))
    )
    done = commands.run("pack", tmp_path / "a.jsonl", "--out", tmp_path / "out", "--max-length", 8)
    assert "trained: 4 of 6 tokens (66.7%)" in done.stdout, done.stderr
