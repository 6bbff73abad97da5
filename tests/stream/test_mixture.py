"""Mixtures: shares of tokens, deterministic, resumable."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from quire.errors import InvalidOption
from quire.stream import open_stream
from tests.stream.inputs import Numbers, config, same, take, unique_documents, write_jsonl


@pytest.fixture
def sources(tmp_path):
    """Three sources whose tokens identify them."""
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
def test_every_source_contributes_its_share_of_the_tokens(sources, weights):
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


def test_integer_costs_are_in_exact_inverse_proportion_to_weights():
    from quire.stream.row_stream import _integer_costs

    costs = _integer_costs([0.1, 0.2])
    assert Fraction(costs[0], costs[1]) == 2


@pytest.mark.parametrize("above", [{}, {"backend": "files"}])
def test_a_source_that_names_files_and_no_backend_reads_files(sources, above):
    parts = [{"files": [sources[0]], "weight": 2}, {"local_text": "7 8 9"}]
    with open_stream(config(sources=parts, **above), tokenizer=Numbers()) as stream:
        batches = take(stream, 3)
        assert [part.backend for part in stream.config.data.sources] == ["files", "local_text"]
    parts[0]["backend"], parts[1]["backend"] = "files", "local_text"
    with open_stream(config(sources=parts), tokenizer=Numbers()) as stream:
        assert same(take(stream, 3), batches)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "data.sources[1].hf_dataset is null but backend hf needs the name of a dataset; "),
        ({"backend": "files"}, "data.sources[1].files is empty"),
        ({"backend": "local_text"}, "data.sources[1].local_text is null"),
        ({"files": ["none/*.jsonl"]}, "data.sources[1].files: no file matches 'none/*.jsonl'"),
        ({"hf_dataset": "."}, "data.sources[1].hf_dataset is '.', which cannot be opened"),
    ],
)
def test_an_error_of_a_source_of_a_mixture_names_that_source(
    sources, wrong, message, tmp_path, monkeypatch
):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    parts = [{"files": [sources[0]]}, wrong]
    with pytest.raises(InvalidOption) as caught:
        open_stream(config(sources=parts), tokenizer=Numbers())
    assert str(caught.value).startswith(message)


def test_the_remedy_for_a_mixture_entry_without_a_source_works(sources):
    with pytest.raises(InvalidOption, match="or leave backend out and set files or local_text"):
        open_stream(config(sources=[{"backend": "hf"}]), tokenizer=Numbers())
    with open_stream(config(sources=[{"files": [sources[0]]}]), tokenizer=Numbers()) as stream:
        assert len(take(stream, 2)) == 2


def test_statistics_tell_the_tokens_and_epochs_of_each_source(tmp_path):
    for name, count in (("a", 2), ("b", 40)):
        lines = ['{"text": "' + name * 9 + '"}\n'] * count
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    sources = [{"files": str(tmp_path / f"{name}.jsonl")} for name in "ab"]
    options = {"tokenizer": "byte", "max_length": 8, "batch_size": 1, "add_bos": False}
    with open_stream(sources=sources, num_streams=1, **options) as stream:
        for _ in range(60):
            batch = next(stream)
        first, second = stream.stats()["sources"]
    assert batch.input_ids.shape == (1, 1, 8)
    assert (first["source"], second["source"]) == tuple(one["files"] for one in sources)
    total = first["tokens"] + second["tokens"]
    assert first["tokens"] == pytest.approx(second["tokens"], abs=10)
    assert first["share"] == first["tokens"] / total
    documents = first["tokens"] // 10  # nine letters and EOS; two documents in an epoch
    assert first["epochs"] in (documents // 2, documents // 2 - 1) and second["epochs"] == 0
