"""Qwen3's tokenizer, and GPT-2's, from text to a model that keeps documents apart."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from quire import block_tokenize_fn
from quire.blocks import BlockOptions, pack_texts
from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation
from tests.tokenizer_files import folder_of, load, parameters

MESSAGES = [
    {"role": "system", "content": "You bind books."},
    {"role": "user", "content": "What is a quire?"},
    {"role": "assistant", "content": "A gathering of sheets."},
    {"role": "user", "content": "How many?"},
    {"role": "assistant", "content": "Twenty-four, or twenty-five."},
    {"role": "user", "content": "Thanks!"},
    {"role": "assistant", "content": "You are welcome."},
]
TEXTS = ["A quire is a gathering of sheets.", "Folded.", "Bound together, they make a book."]


@pytest.fixture(params=parameters("qwen3", "qwen3-base", "gpt2"))
def tokenizer(request):
    """Qwen3 as shipped, EOS `<|im_end|>`; its base where EOS is PAD; GPT-2, BOS == EOS."""
    return load(request.param)


@pytest.fixture(params=parameters("qwen3"))
def qwen3(request) -> str:
    """The name of a tokenizer of Qwen3's."""
    return request.param


def conversation(count: int = len(MESSAGES)) -> str:
    return load("small-qwen3").apply_chat_template(MESSAGES[:count], tokenize=False)


def encoded(tokenizer, text: str) -> list[int]:
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [*bos, *tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def pack(texts: list[str], tokenizer, **options) -> dict[str, list[list[int]]]:
    return block_tokenize_fn({"text": texts}, tokenizer, "text", packed=True, **options)


# Packing


def test_rows_are_the_documents_end_to_end_with_the_tokenizers_specials(tokenizer):
    rows = pack(TEXTS, tokenizer)
    documents = [encoded(tokenizer, text) for text in TEXTS]
    assert rows["input_ids"] == [[token for ids in documents for token in ids]]
    ends = [len(ids) for ids in documents]
    assert rows["document_starts"] == [[0, ends[0], ends[0] + ends[1]]]


def test_a_missing_bos_is_left_out_without_a_gap(qwen3):
    rows = pack(TEXTS, load(qwen3), add_bos=True)
    assert rows == pack(TEXTS, load(qwen3), add_bos=False)
    assert None not in rows["input_ids"][0]


@pytest.mark.parametrize("strategy", ["greedy", "best_fit", "first_fit"])
@pytest.mark.parametrize("overflow", [True, False])
def test_every_document_can_be_found_in_the_rows(tokenizer, strategy, overflow):
    texts = [text * n for n, text in enumerate(TEXTS * 4, start=1)]
    options = {"max_length": 256, "overflow": overflow, "packing_strategy": strategy}
    rows = pack(texts, tokenizer, **options)
    fragments = []
    for row, starts in zip(rows["input_ids"], rows["document_starts"], strict=True):
        assert len(row) <= 256
        fragments += [tokenizer.decode(row[a:b]) for a, b in pairwise([*starts, len(row)])]
    expected = [tokenizer.decode(encoded(tokenizer, text)) for text in texts]
    if strategy == "greedy" and overflow:
        bos = tokenizer.bos_token or ""
        joined = "".join(fragment.removeprefix(bos) for fragment in fragments)
        assert joined == "".join(text.removeprefix(bos) for text in expected)
    else:
        assert sorted(fragments) == sorted(expected)


def test_a_conversation_of_many_messages_is_one_document(qwen3):
    shipped = load(qwen3)
    text = conversation()
    rows = pack([text, conversation(3)], shipped)
    ids = shipped(text, add_special_tokens=False)["input_ids"]
    assert ids.count(shipped.eos_token_id) == len(MESSAGES), "every message ends in EOS"
    assert rows["input_ids"][0][: len(ids) + 1] == [*ids, shipped.eos_token_id]
    assert rows["document_starts"] == [[0, len(ids) + 1]]


def test_a_conversation_is_cut_only_where_a_row_ends(qwen3):
    shipped = load(qwen3)
    ids = shipped(conversation(), add_special_tokens=False)["input_ids"]
    rows = pack([conversation()], shipped, max_length=32)
    assert rows["document_starts"] == [[0]] * len(rows["input_ids"])
    assert [token for row in rows["input_ids"] for token in row] == [*ids, shipped.eos_token_id]


def test_a_literal_end_of_text_in_a_document_is_not_a_boundary(tokenizer):
    text = "before <|endoftext|> after"
    rows = pack([text, "next"], tokenizer)
    first = encoded(tokenizer, text)
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") in first[1:-1]
    assert rows["document_starts"] == [[0, len(first)]]


@pytest.mark.parametrize("name", parameters("gpt2"))
def test_no_gpt2_document_starts_with_two_end_of_texts(name):
    gpt2 = load(name)
    rows = pack(["<|endoftext|>Hello", "Hello"], gpt2)
    hello = encoded(gpt2, "Hello")
    assert rows["input_ids"] == [hello + hello]


@pytest.mark.parametrize("name", parameters("qwen3", "gpt2"))
def test_a_path_gives_the_same_rows_as_the_object(name):
    texts = [*TEXTS, conversation()]
    assert pack(texts, folder_of(name)) == pack(texts, load(name))


def test_no_token_of_a_corpus_is_lost(tokenizer):
    texts = [text * 9 for text in TEXTS]
    options = BlockOptions(max_length=32, packed=True, stride=4)
    rows = pack_texts(texts, tokenizer, options)
    ledger = rows.ledger.check()
    assert not ledger.tokens.dropped and ledger.documents.emitted == len(texts)
    content = sum(len(tokenizer(t, add_special_tokens=False)["input_ids"]) for t in texts)
    assert ledger.tokens.emitted == content


# Collation


def test_positions_restart_only_with_documents_and_padding(tokenizer):
    conversations = [conversation(), conversation(3)]
    rows = pack([*conversations, "Ende."], tokenizer, max_length=80)
    features = as_features(rows)
    assert len({len(feature["input_ids"]) for feature in features}) > 1, "nothing is padded"
    batch = DataCollatorForCausalLM(tokenizer)(features)
    for positions, feature in zip(batch["position_ids"].tolist(), features, strict=True):
        resets = [at for at, position in enumerate(positions) if position == 0]
        padding = len(feature["input_ids"])
        expected = feature["document_starts"] + [padding] * (padding < len(positions))
        assert resets == expected


def test_the_real_eos_is_trained_if_it_is_also_the_padding(qwen3):
    base = load(f"{qwen3}-base")
    features = as_features(pack(TEXTS, base, max_length=14))
    batch = DataCollatorForCausalLM(base)(features)
    assert (batch["input_ids"] == base.eos_token_id).sum() > len(TEXTS), "some of them are padding"
    assert (batch["labels"] == base.eos_token_id).sum() == len(TEXTS)


def as_features(rows) -> list[dict[str, list[int]]]:
    pairs = zip(rows["input_ids"], rows["document_starts"], strict=True)
    return [{"input_ids": ids, "document_starts": starts} for ids, starts in pairs]


# A model


@cache
def model_of(vocab_size: int) -> Qwen3ForCausalLM:
    """Two tiny layers of random weights under the vocabulary of a tokenizer."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=512,
        attn_implementation="sdpa",
    )
    return Qwen3ForCausalLM(config).eval()


def test_packed_documents_do_not_attend_to_each_other(tokenizer):
    texts = [conversation(2), "Folded.", "Bound."]
    features = as_features(pack(texts, tokenizer, max_length=64))
    assert any(len(feature["document_starts"]) > 1 for feature in features)
    batch = DataCollatorForCausalLM(tokenizer)(features)
    report = check_isolation(model_of(len(tokenizer)), batch)
    assert report.verdict == "isolated", report.diagnosis
    assert not report.skipped


def test_documents_without_starts_attend_to_each_other(qwen3):
    """The control: the same row without its boundaries leaks, and the check says so."""
    tokenizer = load(qwen3)
    (feature,) = as_features(pack(["Folded.", "Bound."], tokenizer))
    whole = {"input_ids": feature["input_ids"], "document_starts": [0]}
    batch = DataCollatorForCausalLM(tokenizer)([whole])
    starts = [feature["document_starts"]]
    report = check_isolation(model_of(len(tokenizer)), batch, document_starts=starts)
    assert report.verdict == "leak"
