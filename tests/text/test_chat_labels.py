"""Conversations that the fast engine encodes: ids and labels are those by the offsets of tokens."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataset.test_chat_templates import SHAPES, tokenizer_of
from tests.text.test_turns import plain_talks, tool_talks
from tests.tokenizer_files import folder_of, load
from tokenizers import normalizers, processors

from quire import pack_corpus, pack_dataset
from quire.errors import InvalidDocument, InvalidOption
from quire.text import engine, fast_tokenizer
from quire.text.chat import ConversationEncoder, conversation_encoder, labels
from quire.text.chat.labels import Rendered, label_by_offsets, label_fast
from quire.text.engine import open_chat_engine
from quire.text.fast_tokenizer import TokenizerMismatch
from quire.text.hostile_texts import hostile_texts
from quire.text.token_bytes import TokenBytes

MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}"
    "<|im_end|>{% endif %}\n{% endfor %}"
)


@pytest.fixture(autouse=True)
def _forget_engines():
    engine._recent.clear()


def fast_encoder(tokenizer, assistant_only=True) -> ConversationEncoder:
    opened = open_chat_engine(tokenizer, "fast")
    assert opened.token_bytes is not None
    return conversation_encoder(tokenizer, assistant_only, "2026-11-18", opened)


def require_same_labels(encoder: ConversationEncoder, batch: list[Rendered]) -> None:
    encoded, found = encoder.encode_batch(batch)
    expected = [label_by_offsets(rendered, encoder._encoder) for rendered in batch]
    assert encoded.tokens.tolist() == [token for ids, _ in expected for token in ids]
    assert encoded.lengths.tolist() == [len(ids) for ids, _ in expected]
    assert found.tolist() == [label for _, given in expected for label in given]


def rendered(encoder: ConversationEncoder, talks) -> list[Rendered]:
    batch = []
    for talk in talks:
        try:
            batch.append(encoder.render(talk))
        except InvalidDocument:  # a turn that cannot be found is a bad record in either way
            batch.append(labels.NOTHING)
    return batch


def talks_of(texts: list[str]) -> list[list[dict[str, str]]]:
    """Each text as a question and as an answer, so that it is next to both edges of a turn."""
    roles = ("user", "assistant") * 2
    return [
        [{"role": role, "content": text} for role, text in zip(roles, some, strict=False)]
        for some in zip(*(texts[shift:] for shift in range(4)), strict=False)
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_hostile_content_has_the_same_labels_in_every_shape_of_template(shape):
    tokenizer = tokenizer_of(shape, "small-qwen3")
    texts = [text for text in hostile_texts(tokenizer.get_added_vocab()) if len(text) < 500]
    encoder = fast_encoder(tokenizer)
    require_same_labels(encoder, rendered(encoder, talks_of(texts[::7])))


@pytest.mark.parametrize("name", ["small-qwen3", "small-qwen3-base", "qwen3"])
@settings(max_examples=40, deadline=None)
@given(talks=st.lists(st.one_of(plain_talks, tool_talks), max_size=4), part=st.booleans())
def test_any_conversation_has_the_same_labels(name, talks, part):
    encoder = fast_encoder(load(name), assistant_only=part)
    require_same_labels(encoder, rendered(encoder, talks))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.text("aé中🙂e\u0301 \n"), st.lists(st.tuples(*[st.integers(0, 12)] * 2))))
)
def test_any_turns_in_any_text_have_the_same_labels(batch):
    encoder = fast_encoder(load("small-qwen3"))
    require_same_labels(encoder, [Rendered(text, turns) for text, turns in batch])


def test_turns_that_overlap_or_are_out_of_order_have_the_same_labels():
    encoder = fast_encoder(load("small-qwen3"))
    turns = [(4, 6), (0, 2), (5, 99)]
    require_same_labels(encoder, [Rendered("中文 a b c d", turns), Rendered("next", [])])


def test_marks_of_the_template_have_the_same_labels():
    tokenizer = copy.deepcopy(load("small-qwen3"))
    tokenizer.chat_template = MARKED
    encoder = fast_encoder(tokenizer)
    batch = rendered(encoder, talks_of(["a", "é 🙂", "中 文", " ", "x\n", "<|im_end|>", "b"]))
    assert batch[0].turns
    require_same_labels(encoder, batch)


def test_tokens_that_do_not_spell_the_text_are_labelled_by_offsets(monkeypatch):
    tokenizer = copy.deepcopy(load("small-qwen3"))
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    encoder = fast_encoder(tokenizer)
    relabelled = []
    relabel = labels._relabel
    monkeypatch.setattr(
        labels,
        "_relabel",
        lambda number, *rest: (relabelled.append(number), relabel(number, *rest)),
    )
    monkeypatch.setattr(encoder._fast, "sample", lambda *_: ())
    batch = [Rendered("abc", [(1, 3)]), Rendered("e\u0301 e\u0301a bc", [(3, 5)])]
    label_fast(batch, encoder._fast)
    assert relabelled == [1]
    require_same_labels(encoder, batch)


def test_a_tokenizer_that_trims_offsets_is_labelled_by_offsets():
    tokenizer = copy.deepcopy(load("small-gpt2"))
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    assert open_chat_engine(tokenizer, "fast").token_bytes is None
    encoder = conversation_encoder(load("small-qwen3"), engine=open_chat_engine(tokenizer, "fast"))
    require_same_labels(encoder, [Rendered("a  b c", [(1, 3)])])


def test_a_tokenizer_that_adds_a_space_is_labelled_by_offsets():
    tokenizer = copy.deepcopy(load("small-gpt2"))
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = type(backend.pre_tokenizer)(add_prefix_space=True)
    assert not TokenBytes.of(backend).agree(backend, ["a", "b c"])


def conversations(count: int = 200) -> list[dict[str, object]]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"What is {number} é?"},
                {"role": "assistant", "content": f"It is 中 {number * 7}."},
            ]
        }
        for number in range(count)
    ]


def test_pack_dataset_gives_the_same_rows_with_every_engine(monkeypatch):
    monkeypatch.setattr("quire.text.samples._BATCH", 1_000)
    rows = [
        pack_dataset(
            conversations(),
            folder_of("small-qwen3"),
            messages_column="messages",
            max_length=64,
            tokenizer_engine=name,
        )
        for name in ("auto", "fast", "tokenizers", "transformers")
    ]
    assert all(other.equals(rows[0]) for other in rows[1:])


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in conversations()))
    return file


def pack(corpus, out, **options):
    options = {"messages_column": "messages", "max_length": 64, "partition_size": 5_000, **options}
    pack_corpus([corpus], out, folder_of("small-qwen3"), **options)
    return json.loads((out / "manifest.json").read_text())


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_output_has_the_same_bytes_and_names_its_engine(corpus, tmp_path, workers):
    engines = {
        name: pack(corpus, tmp_path / name, tokenizer_engine=name, workers=workers)
        for name in ("fast", "tokenizers")
    }
    shards = [[shard["sha256"] for shard in found["shards"]] for found in engines.values()]
    assert shards[0] == shards[1]
    names = [found["tokenizer_engine"]["name"] for found in engines.values()]
    assert names == ["fastokens", "tokenizers"]


def wrong_labels(monkeypatch, word: str) -> None:
    """Labels by bytes that are wrong where a text holds the word."""
    by_bytes = labels._labels

    def wrong(batch, encoded, fast):
        found = by_bytes(batch, encoded, fast)
        for number, rendered in enumerate(batch):
            if word in rendered.text:
                labels._part(found, encoded.lengths, number)[:] = 7
        return found

    monkeypatch.setattr(labels, "_labels", wrong)
    monkeypatch.setattr(fast_tokenizer, "_SHARE", 1)


def test_other_labels_are_an_error_with_the_record(corpus, tmp_path, monkeypatch):
    wrong_labels(monkeypatch, "What is 137 ")
    monkeypatch.setattr("quire.text.samples._BATCH", 1_000)
    with pytest.raises(TokenizerMismatch, match=r"a\.jsonl: record 137: the labels of"):
        pack(corpus, tmp_path / "out", tokenizer_engine="fast", workers=1)
    with pytest.raises(TokenizerMismatch, match=r"^record 137: the labels of") as raised:
        pack_dataset(
            conversations(),
            folder_of("small-qwen3"),
            messages_column="messages",
            max_length=64,
            tokenizer_engine="fast",
        )
    assert raised.value.document == 137


def test_a_part_of_a_long_conversation_is_compared(monkeypatch):
    encoder = fast_encoder(load("small-qwen3"))
    text = "a b é 中 " * 5_000
    turns = [(start, start + 30) for start in range(0, len(text), 50)]
    require_same_labels(encoder, [Rendered(text, turns)])
    wrong_labels(monkeypatch, "中")
    monkeypatch.setattr(fast_tokenizer, "_SHARE", 100)
    with pytest.raises(TokenizerMismatch, match="labels of document 0"):
        encoder.encode_batch([Rendered(text, turns)])


def test_half_a_surrogate_pair_is_a_bad_record():
    records = [*conversations(3), {"messages": [{"role": "user", "content": "a\ud800"}]}]
    options = {"messages_column": "messages", "max_length": 64}
    with pytest.raises(InvalidDocument, match="3 has half a surrogate pair at character"):
        pack_dataset(records, folder_of("small-qwen3"), **options)
    rows, _ = pack_dataset(
        records, folder_of("small-qwen3"), max_bad_records=1, return_ledger=True, **options
    )
    assert rows.equals(pack_dataset(records[:3], folder_of("small-qwen3"), **options))


def test_the_engine_of_conversations_must_support_the_tokenizer():
    tokenizer = copy.deepcopy(load("small-qwen3"))
    tokenizer.backend_tokenizer.model.dropout = 0.5
    with pytest.raises(InvalidOption, match="drops merges at random"):
        pack_dataset(
            conversations(3),
            tokenizer,
            messages_column="messages",
            max_length=64,
            tokenizer_engine="fast",
        )
