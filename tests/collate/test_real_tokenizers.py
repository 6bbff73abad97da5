"""Qwen3's and GPT-2's tokenizers through collation."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tokenizer_files import load, parameters

from quire.boundaries import starts_from_lengths
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator

TEXTS = [
    ["A quire is a gathering of sheets.", "Folded.", "Bound together, they make a book."],
    ["One short text.", "Ende."],
]


@pytest.fixture(params=parameters("qwen3", "qwen3-base", "gpt2"))
def tokenizer(request):
    """Qwen3 as shipped, with EOS `<|im_end|>`; its base form, where EOS is PAD; GPT-2."""
    return load(request.param)


def pack(texts: list[str], tokenizer) -> tuple[list[list[int]], dict[str, list[int]]]:
    documents = [
        [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        for text in texts
    ]
    return documents, {
        "input_ids": [token for document in documents for token in document],
        "document_starts": starts_from_lengths([len(ids) for ids in documents]).tolist(),
    }


@pytest.mark.parametrize("packed_sequences", [None, True])
def test_documents_keep_their_positions_and_learn_their_eos(tokenizer, packed_sequences):
    rows = [pack(texts, tokenizer) for texts in TEXTS]
    collator = DataCollatorForCausalLM(
        tokenizer, packed_sequences=packed_sequences, return_tensors="np"
    )
    batch = collator([row for _, row in rows])
    assert len({len(row["input_ids"]) for _, row in rows}) > 1, "no row would be padded"
    for r, (documents, row) in enumerate(rows):
        length = len(row["input_ids"])
        positions, labels = batch["position_ids"][r], batch["labels"][r]
        expected = [place for document in documents for place in range(len(document))]
        assert positions[:length].tolist() == expected
        assert labels[:length].tolist() == [
            token for document in documents for token in [-100, *document[1:]]
        ]
        num_learnt = np.count_nonzero(labels == tokenizer.eos_token_id)
        assert num_learnt == len(documents)
        padding = len(positions) - length
        assert positions[length:].tolist() == list(range(padding)), "nothing resets on padding"
        assert labels[length:].tolist() == [-100] * padding


def test_starts_of_rows_without_them_are_found_by_eos(tokenizer):
    rows = [pack(texts, tokenizer)[1] for texts in TEXTS]
    collator = DataCollatorForCausalLM(tokenizer, packed_sequences=True, return_tensors="np")
    old = collator([{"input_ids": row["input_ids"]} for row in rows])
    new = collator(rows)
    for name in ("input_ids", "labels", "position_ids"):
        assert np.array_equal(old[name], new[name]), name


@pytest.mark.parametrize("name", parameters("qwen3"))
def test_a_conversation_is_one_document_regardless_of_how_its_messages_end(name):
    tokenizer = load(name)
    messages = [{"role": "user", "content": "What is a quire?"}] * 3
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids.count(tokenizer.eos_token_id) == 3
    row = {"input_ids": ids + ids, "document_starts": [0, len(ids)]}
    for collator in (
        DataCollatorForCausalLM(tokenizer, packed_sequences=True, return_tensors="np"),
        PaddingFreeCollator(tokenizer, return_tensors="np"),
    ):
        assert collator([row])["position_ids"].tolist() == [[*range(len(ids))] * 2]


@pytest.mark.parametrize("name", parameters("gpt2"))
def test_gpt2_pads_with_eos_because_it_has_no_pad(name):
    tokenizer = load(name)
    assert tokenizer.pad_token_id is None and tokenizer.bos_token_id == tokenizer.eos_token_id
    batch = DataCollatorForCausalLM(tokenizer, return_tensors="np")(
        [{"input_ids": [5, 6, 7]}, {"input_ids": [5]}]
    )
    assert batch["input_ids"][1].tolist() == [5, tokenizer.eos_token_id, tokenizer.eos_token_id]
    assert batch["labels"][1].tolist() == [-100] * 3


def test_rows_made_by_the_tokenizer_itself_are_accepted(tokenizer):
    rows = [tokenizer(text) for texts in TEXTS for text in texts]
    batch = DataCollatorForCausalLM(tokenizer)(rows)
    assert list(batch) == ["input_ids", "labels"]
    assert batch["input_ids"].shape[0] == len(rows)
