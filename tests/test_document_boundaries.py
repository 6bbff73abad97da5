"""Explicit document boundaries, from stored starts to a model's input."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from quire import block_tokenize_fn
from quire.boundaries import position_ids, starts_from_lengths
from quire.collate import DataCollatorForCausalLM, get_pos_ids_for_packed_sequence
from tests.text.literal_tokenizer import LiteralTokenizer

PAD_IS_EOS = SimpleNamespace(pad_token_id=2, eos_token_id=2, bos_token_id=None)
WITHOUT_SPECIALS = SimpleNamespace(pad_token_id=None, eos_token_id=None, bos_token_id=None)
ROW = {"input_ids": [11, 12, 13, 14, 21, 22, 23, 24], "document_starts": [0, 4]}

# Starts and positions


def test_documents_of_50_30_and_20_tokens_start_at_0_50_and_80():
    starts = starts_from_lengths([50, 30, 20])
    assert starts.tolist() == [0, 50, 80]
    assert position_ids(starts, 100).tolist() == [*range(50), *range(30), *range(20)]


def test_starts_give_positions_without_any_special_token():
    positions = get_pos_ids_for_packed_sequence(
        torch.tensor([ROW["input_ids"]]), document_starts=[ROW["document_starts"]]
    )
    assert positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]


def test_tokens_give_positions_where_old_data_has_no_starts():
    x = torch.tensor([[5, 6, 2, 7, 8, 2]])
    assert get_pos_ids_for_packed_sequence(x, 2).tolist() == [[0, 1, 2, 0, 1, 2]]
    assert get_pos_ids_for_packed_sequence(x, 2, eos=False).tolist() == [[0, 1, 0, 1, 2, 0]]


def test_if_found_only_from_tokens_every_padding_token_would_be_a_document():
    """The trap that explicit boundaries close: PAD has the id of EOS."""
    padded = torch.tensor([[5, 6, 2, 2, 2, 2]])
    assert get_pos_ids_for_packed_sequence(padded, 2).tolist() == [[0, 1, 2, 0, 0, 0]]
    batch = DataCollatorForCausalLM(PAD_IS_EOS, padding="max_length", max_length=6)(
        [{"input_ids": [5, 6, 2], "document_starts": [0]}]
    )
    assert batch["input_ids"].tolist() == padded.tolist()
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]


# The collator detects packed rows by their starts


@pytest.mark.parametrize(
    ("packed_sequences", "has_starts", "has_positions"),
    [
        (None, True, True),
        (None, False, False),
        (True, True, True),
        (True, False, True),
        (False, True, False),
        (False, False, False),
    ],
)
def test_position_ids_are_returned_when_they_should_be(packed_sequences, has_starts, has_positions):
    row = ROW if has_starts else {"input_ids": ROW["input_ids"]}
    collator = DataCollatorForCausalLM(PAD_IS_EOS, packed_sequences=packed_sequences)
    batch = collator([row])
    assert ("position_ids" in batch) is has_positions
    assert {"input_ids", "labels"} <= set(batch)


def test_a_tokenizer_without_special_tokens_is_enough():
    batch = DataCollatorForCausalLM(WITHOUT_SPECIALS)([ROW, {**ROW, "input_ids": range(8)}])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3] * 2] * 2


def test_end_of_message_tokens_do_not_cut_a_conversation():
    conversation = [7, 2, 8, 2, 9, 2]
    row = {"input_ids": conversation, "document_starts": [0]}
    batch = DataCollatorForCausalLM(PAD_IS_EOS)([row])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]


def test_a_data_loader_gives_batches_of_packed_rows():
    collator = DataCollatorForCausalLM(tokenizer=PAD_IS_EOS, padding="longest", return_tensors="pt")
    short = {"input_ids": [31, 32], "document_starts": [0]}
    batches = list(DataLoader([ROW, short, ROW], batch_size=2, collate_fn=collator))
    assert [batch["input_ids"].shape for batch in batches] == [(2, 8), (1, 8)]
    assert batches[0]["labels"][0].tolist() == [-100, 12, 13, 14, -100, 22, 23, 24]
    assert batches[0]["labels"][1].tolist() == [-100, 32, *[-100] * 6]


# What block_tokenize_fn stores


@pytest.fixture(autouse=True)
def _warned_already(monkeypatch):
    monkeypatch.setattr("quire.blocks._warn_of_drops", lambda *_: None)


def pack(texts: list[str], bos: int | None = 1, eos: int | None = 2, **options):
    tokenizer = LiteralTokenizer(bos_token_id=bos, eos_token_id=eos)
    return block_tokenize_fn({"text": texts}, tokenizer, "text", **options)


STRATEGIES = pytest.mark.parametrize("strategy", ["greedy", "first_fit", "best_fit"])


@STRATEGIES
def test_starts_are_stored_with_and_without_special_tokens(strategy):
    texts = ["11 12 13", "21 22", "31"]
    options = {"packed": True, "packing_strategy": strategy, "max_length": 16}
    assert pack(texts, None, None, **options)["document_starts"] == [[0, 3, 5]]
    assert pack(texts, None, 2, **options)["document_starts"] == [[0, 4, 7]]
    assert pack(texts, 1, 2, **options)["document_starts"] == [[0, 5, 9]]


def test_a_row_that_is_one_document_starts_at_zero():
    rows = pack(["11 12", "21"], packed=False)
    assert rows["document_starts"] == [[0], [0]]


@STRATEGIES
@pytest.mark.parametrize("overflow", [True, False])
def test_starts_increase_from_zero_and_stay_inside_their_row(strategy, overflow):
    texts = [" ".join(["7"] * (n % 13)) for n in range(60)]
    rows = pack(texts, packed=True, packing_strategy=strategy, overflow=overflow, max_length=9)
    for ids, starts in zip(rows["input_ids"], rows["document_starts"], strict=True):
        assert starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < len(ids) <= 9
        assert [at for at, token in enumerate(ids) if token == 1] == starts, "BOS opens each"


def test_a_continuation_is_a_fragment_with_a_start_of_its_own():
    rows = pack(["11 12 13 14 15", "21 22"], None, None, packed=True, max_length=4)
    assert rows["input_ids"] == [[11, 12, 13, 14], [15, 21, 22]]
    assert rows["document_starts"] == [[0], [0, 1]]
    batch = DataCollatorForCausalLM(WITHOUT_SPECIALS)(features_of(rows))
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3], [0, 0, 1, 0]]
    assert batch["labels"].tolist() == [[-100, 12, 13, 14], [-100, -100, 22, -100]]


def test_stored_starts_take_precedence_over_tokens():
    """Texts that hold EOS inside, under a tokenizer whose PAD is that EOS."""
    rows = pack(["11 2 12 2", "21 2 22"], None, 2, packed=True, max_length=12)
    assert rows["input_ids"] == [[11, 2, 12, 2, 2, 21, 2, 22, 2]]
    (row,) = features_of(rows)
    batch = DataCollatorForCausalLM(PAD_IS_EOS, padding="max_length", max_length=12)([row])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 2]]
    old = DataCollatorForCausalLM(PAD_IS_EOS, packed_sequences=True)(
        [{"input_ids": row["input_ids"]}]
    )
    assert old["position_ids"].tolist() == [[0, 1, 0, 1, 0, 0, 1, 0, 1]], "the trap, as a control"


def features_of(rows) -> list[dict[str, list[int]]]:
    pairs = zip(rows["input_ids"], rows["document_starts"], strict=True)
    return [{"input_ids": ids, "document_starts": starts} for ids, starts in pairs]
