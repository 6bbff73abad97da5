"""The same documents have the same ledger on every path: BOS and EOS are `special`, not `input`."""

from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.blocks import BlockOptions, pack_texts
from quire.corpus.lengths import corpus_lengths
from quire.corpus.options import CorpusOptions
from quire.plan import plan_documents
from quire.stream import open_stream
from tests.corpus.corpora import jsonl

TEXTS = ["abc", "", "de", "fghij"]
LENGTH = 18
"""Places in a row: all documents with their BOS and EOS take 16."""
EXPECTED = {
    "documents": (4, 3, {"empty": 1}),
    "tokens": (10, 10, 0, 6, LENGTH - 16),
}
"""Input, emitted, dropped; input, emitted, overlap, special, padding: 10 bytes, 3 BOS and 3 EOS."""


def numbers(ledger: quire.Ledger) -> dict:
    documents, tokens = ledger.check().documents, ledger.tokens
    return {
        "documents": (documents.input, documents.emitted, dict(documents.dropped)),
        "tokens": (tokens.input, tokens.emitted, tokens.overlap, tokens.special, tokens.padding),
    }


def records() -> list[dict]:
    return [{"text": text} for text in TEXTS]


def of_blocks(folder, add_bos):
    options = BlockOptions(max_length=LENGTH, packed=True, add_bos=add_bos)
    return pack_texts(TEXTS, "byte", options).ledger


def of_pack_dataset(folder, add_bos):
    options = {"max_length": LENGTH, "add_bos": add_bos, "return_ledger": True}
    return quire.pack_dataset(records(), "byte", **options)[1]


def of_pack_corpus(folder, add_bos, **options):
    source = jsonl(folder / "a.jsonl", records())
    options = {"max_length": LENGTH, "add_bos": add_bos, **options}
    return quire.pack_corpus([source], folder / "out", "byte", **options).ledger


def of_index_only(folder, add_bos):
    return of_pack_corpus(folder, add_bos, index_only=True)


def of_plan(folder, add_bos):
    """As counted by `quire plan`."""
    options = CorpusOptions(max_length=LENGTH, add_bos=add_bos)
    found = corpus_lengths([jsonl(folder / "a.jsonl", records())], "byte", options)
    plan = plan_documents(found.lengths, found.plan_options(options))
    return found.ledger + plan.ledger


def of_stream(mode):
    def ledger(folder, add_bos):
        config = {
            "data": {
                **{"files": [str(jsonl(folder / "a.jsonl", records()))], "packing_mode": mode},
                **{"repeat": False, "shuffle": False},
                "tokenizer": {"kind": "byte", "add_bos": add_bos},
            },
            "train": {"seq_len": LENGTH - 1, "batch_size": 1},
        }
        with open_stream(config) as stream:
            assert sum(1 for _ in stream) == 1
            return stream.ledger

    return ledger


PATHS = {
    "blocks": of_blocks,
    "pack_dataset": of_pack_dataset,
    "pack_corpus": of_pack_corpus,
    "index only": of_index_only,
    "plan": of_plan,
    **{f"stream, {mode}": of_stream(mode) for mode in ("sequential", "bin", "online")},
}


@pytest.mark.parametrize("path", PATHS)
def test_every_path_has_the_same_counts_for_the_same_documents(path, tmp_path):
    assert numbers(PATHS[path](tmp_path, True)) == EXPECTED


@pytest.mark.parametrize("path", PATHS)
def test_leaving_bos_out_changes_only_special_and_padding(path, tmp_path):
    found = numbers(PATHS[path](tmp_path, False))
    assert found["documents"] == EXPECTED["documents"]
    assert found["tokens"] == (10, 10, 0, 3, LENGTH - 13)


def num_specials(batch) -> int:
    """BOS and EOS in a batch of one window, whose last token is only a label."""
    ids, labels = batch.input_ids[batch.attention_mask], batch.labels[0, 0, -1:]
    return int(np.isin([*ids, *labels], [1, 2]).sum())


@pytest.mark.parametrize("mode", ["sequential", "bin", "online"])
def test_a_stream_with_specials_balances_at_every_step_and_after_a_restart(mode, tmp_path):
    """Documents longer than a window, so that some wait half delivered."""
    texts = [{"text": "x" * length} for length in (3, 20, 1, 9, 33, 2)]
    config = {
        "data": {
            **{"files": [str(jsonl(tmp_path / "a.jsonl", texts))], "packing_mode": mode},
            **{"repeat": False, "shuffle": False, "packing_buffer_docs": 2},
            **{"mask_boundary_loss": False, "tokenizer": {"kind": "byte", "add_bos": True}},
        },
        "train": {"seq_len": 7, "batch_size": 1},
    }
    found = 0
    with open_stream(config) as stream:
        for batch in stream:
            ledger = stream.ledger.check()
            found += num_specials(batch)
            assert ledger.tokens.special == found
            with open_stream(config) as again:
                again.set_state(stream.get_state())
                assert again.ledger == ledger
        assert (ledger.tokens.input, ledger.tokens.special) == (68, 12)
