"""Mixtures: shares of tokens, deterministic, resumable."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from quire.stream import open_stream
from tests.stream.inputs import Numbers, config, same, take, unique_documents, write_jsonl


@pytest.fixture
def sources(tmp_path):
    """Three sources whose tokens tell where they come from."""
    folders = []
    rng = np.random.default_rng(0)
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        documents = unique_documents(rng.integers(1, 40, 60).tolist())
        tokens = [[100_000 * (number + 1) + token for token in d] for d in documents]
        folders.append(write_jsonl(folder, [tokens[:30], tokens[30:]]))
    return folders


def mixed(sources, weights, **options):
    parts = [
        {"backend": "files", "files": [pattern], "weight": weight}
        for pattern, weight in zip(sources, weights, strict=True)
    ]
    plain = config(sources=parts, shuffle_buffer_size=10, **options)
    return open_stream(plain, tokenizer=Numbers())


@pytest.mark.parametrize("weights", [(1, 1, 1), (0.5, 0.3, 0.2), (8, 1, 1)])
def test_every_source_gets_its_share_of_the_tokens(sources, weights):
    with mixed(sources, weights, seq_len=64) as stream:
        tokens = np.concatenate([batch.input_ids.ravel() for batch in take(stream, 200)])
    counts = np.bincount(tokens[tokens > 100] // 100_000, minlength=4)[1:]
    shares = counts / counts.sum()
    expected = np.array(weights) / sum(weights)
    assert np.abs(shares - expected).max() < 0.01


def test_a_mixture_resumes_exactly_at_every_step(sources):
    weights = (0.6, 0.3, 0.1)
    with mixed(sources, weights, packing_mode="online", packing_buffer_docs=8) as stream:
        states, batches = [stream.get_state()], []
        for _ in range(40):
            batches += take(stream, 1)
            states.append(stream.get_state())
    for step in range(35):
        with mixed(sources, weights, packing_mode="online", packing_buffer_docs=8) as stream:
            stream.set_state(json.loads(json.dumps(states[step])))
            assert same(take(stream, 6), batches[step : step + 6])


def test_a_mixture_that_does_not_repeat_ends_with_its_last_source(sources):
    with mixed(sources, (5, 1, 1), repeat=False) as stream:
        take(stream)
        ledger = stream.ledger.check()
    assert ledger.documents.emitted == 180
    assert ledger.documents.pending == 0


def test_the_order_of_a_mixture_follows_the_deficits():
    from quire.stream.mixture import _whole_costs

    costs = _whole_costs([0.1, 0.2])
    assert Fraction(costs[0], costs[1]) == 2
