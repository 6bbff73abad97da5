"""Qwen3's and GPT-2's tokenizers: by map and as a whole, through the collator, to a model."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise

import pytest
import torch
from datasets import Dataset
from tests.tokenizer_files import folder_of, load, parameters
from transformers import LlamaConfig, LlamaForCausalLM

import quire
from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation

TEXTS = [
    "A quire is a gathering of sheets.",
    "Folded. <|endoftext|> is no end here.",
    "Bound together, they make a book.",
    "Vierundzwanzig oder fünfundzwanzig Bogen.",
    "One more.",
]


@pytest.fixture(params=parameters("qwen3", "qwen3-base", "gpt2"))
def tokenizer(request):
    """Qwen3 as shipped; its base form, where EOS is PAD; GPT-2, where BOS is EOS and no PAD is."""
    return load(request.param)


@cache
def model_of(vocab_size: int) -> LlamaForCausalLM:
    """Two tiny layers of random weights under the vocabulary of a tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=vocab_size,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


def expected(tokenizer, text: str) -> list[int]:
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [*bos, *tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def fragments(rows) -> list[list[int]]:
    found = []
    for row in rows:
        edges = [*row["document_starts"], len(row["input_ids"])]
        found += [row["input_ids"][a:b] for a, b in pairwise(edges)]
    return found


def test_pack_dataset_and_map_hold_the_documents_that_the_tokenizer_gives(tokenizer):
    dataset = Dataset.from_dict({"text": TEXTS})
    whole = quire.pack_dataset(dataset, tokenizer, max_length=32, add_bos=True)
    function = partial(
        quire.block_tokenize_fn, tokenizer=tokenizer, feature="text", max_length=32, packed=True,
        packing_strategy="best_fit",
    )  # fmt: skip
    mapped = dataset.map(function, batched=True, remove_columns=["text"])
    documents = sorted(expected(tokenizer, text) for text in TEXTS)
    assert sorted(fragments(whole)) == sorted(fragments(mapped)) == documents


@pytest.mark.parametrize("name", parameters("qwen3", "gpt2"))
def test_the_file_of_a_tokenizer_gives_the_same_rows_as_the_object(name):
    records = [{"text": text} for text in TEXTS]
    by_path = quire.pack_dataset(records, folder_of(name), max_length=32)
    assert by_path == quire.pack_dataset(records, load(name), max_length=32)


def test_documents_of_a_packed_dataset_are_isolated_in_a_model(tokenizer):
    model = model_of(len(tokenizer))
    dataset = Dataset.from_dict({"text": TEXTS[:3]})
    rows = quire.pack_dataset(dataset, tokenizer, max_length=32)
    batch = DataCollatorForCausalLM(tokenizer)([rows[n] for n in range(len(rows))])
    assert batch["position_ids"].eq(0).sum() >= 3
    assert check_isolation(model, batch).isolated
    assert torch.isfinite(model(**batch).loss)


@pytest.mark.parametrize("name", parameters("qwen3"))
def test_documents_of_the_same_rows_without_boundaries_are_found_to_mix(name):
    """The negative control: the proof above would detect it."""
    tokenizer = load(name)
    rows = quire.pack_dataset(Dataset.from_dict({"text": TEXTS[:3]}), tokenizer, max_length=32)
    batch = DataCollatorForCausalLM(tokenizer)([rows[n] for n in range(len(rows))])
    leaking = {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}
    assert not check_isolation(model_of(len(tokenizer)), leaking).isolated


@pytest.mark.parametrize("name", parameters("qwen3"))
def test_packed_conversations_are_isolated_and_each_trains_its_answer(name):
    tokenizer = load(name)
    talks = [
        [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"It is {n}."}]
        for n in range(4)
    ]
    rows = quire.pack_dataset(
        Dataset.from_list([{"messages": talk} for talk in talks]),
        tokenizer,
        messages_column="messages",
        max_length=64,
    )
    batch = DataCollatorForCausalLM(tokenizer)([rows[n] for n in range(len(rows))])
    assert check_isolation(model_of(len(tokenizer)), batch).isolated
    learnt = tokenizer.decode(batch["labels"][batch["labels"] != -100])
    assert all(f"It is {n}.<|im_end|>" in learnt for n in range(4))
    assert "?" not in learnt
