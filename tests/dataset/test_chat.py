"""Conversations: one document each, trained on what the assistant says and how it ends."""

from __future__ import annotations

import copy
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.word_tokenizer import CHAT, word_tokenizer, words_of
from tests.tokenizer_files import folder_of, load, parameters
from tokenizers import processors

import quire
from quire.errors import CorruptFile, InvalidDocument, InvalidOption
from quire.text.chat import conversation_encoder

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi?"},
    {"role": "assistant", "content": "Hello \N{WAVING HAND SIGN}"},
    {"role": "user", "content": "Bye."},
    {"role": "assistant", "content": "Bye."},
]
TOOLS = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "Four."},
]
NO_THOUGHTS = "<think>\n\n</think>\n\n"  # Qwen3's template opens its last turns with these


@pytest.fixture(params=parameters("qwen3", "qwen3-base"))
def qwen3(request):
    """EOS closes a turn in the first, and is another token, PAD, in the base form."""
    return load(request.param)


def pack(conversations, tokenizer, **options):
    records = [{"messages": messages} for messages in conversations]
    options = {"max_length": 512, "messages_column": "messages", **options}
    return quire.pack_dataset(records, tokenizer, **options).to_pylist()


def said(row, tokenizer) -> str:
    pairs = list(zip(row["input_ids"], row["labels"], strict=True))
    assert all(label in (token, -100) for token, label in pairs)
    return tokenizer.decode([label for _, label in pairs if label != -100])


def test_labels_are_what_the_assistant_says_with_the_end_of_each_turn(qwen3):
    (row,) = pack([TALK], qwen3)
    assert said(row, qwen3) == (f"Hello \N{WAVING HAND SIGN}<|im_end|>{NO_THOUGHTS}Bye.<|im_end|>")
    assert qwen3.decode(row["input_ids"]) == qwen3.apply_chat_template(TALK, tokenize=False)


def test_a_conversation_of_many_messages_is_one_document(qwen3):
    (row,) = pack([TALK * 3, TALK], qwen3)
    lengths = [len(pack([talk], qwen3)[0]["input_ids"]) for talk in (TALK * 3, TALK)]
    assert row["input_ids"].count(qwen3.convert_tokens_to_ids("<|im_end|>")) == 20
    assert row["document_starts"] == [0, lengths[0]]


def test_a_tool_call_is_trained_and_its_result_is_not(qwen3):
    (row,) = pack([TOOLS], qwen3)
    assert said(row, qwen3) == (
        '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call><|im_end|>'
        f"{NO_THOUGHTS}Four.<|im_end|>"
    )


def test_an_empty_answer_is_its_end_of_turn(qwen3):
    talk = [TALK[1], {"role": "assistant", "content": ""}]
    assert said(pack([talk], qwen3)[0], qwen3) == f"{NO_THOUGHTS}<|im_end|>"
    for nothing in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        assert pack([[TALK[1], nothing]], qwen3) == pack([talk], qwen3)


NULLS = [
    {"role": "user", "content": "a", "name": None, "tool_calls": None},
    {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
    {"role": "tool", "content": None},
    {"role": "assistant", "content": "b"},
    {"role": "assistant"},
]
KEYS = (
    "{% for m in messages %}{{ m.role }} {{ m.content }} {{ 'n' if 'name' in m }} "
    "{{ 't' if 'tool_calls' in m }} </s> {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


@pytest.mark.parametrize("template", [CHAT, KEYS])
@pytest.mark.parametrize("assistant_only", [True, False])
def test_content_that_is_null_is_empty_wherever_the_conversation_comes_from(
    tmp_path, template, assistant_only
):
    tokenizer = word_tokenizer(template)
    options = {"assistant_only": assistant_only}
    (row,) = pack([NULLS], tokenizer, **options)
    calls = "t " if template == KEYS else ""
    assert words_of(row["input_ids"]) == (
        f"user a </s> assistant {calls}</s> tool </s> assistant b </s> assistant </s>"
    )
    if assistant_only:
        assert words_of(row["labels"]) == f"{calls}</s> b </s> </s>"
    options = {**options, "max_length": 512}
    dataset = Dataset.from_list([{"messages": NULLS}])
    assert quire.pack_dataset(dataset, tokenizer, messages_column="messages", **options)[0] == row
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": NULLS}) + "\n")
    dataset.to_parquet(tmp_path / "a.parquet")
    for kind in ("jsonl", "parquet"):
        out, options["messages_column"] = tmp_path / kind, "messages"
        quire.pack_corpus([tmp_path / f"a.{kind}"], out, tmp_path / "tokenizer", **options)
        (packed,) = pq.read_table(out / "data").to_pylist()
        assert {name: packed[name] for name in row} == row


def test_thoughts_that_the_template_drops_from_history_cause_no_error(qwen3):
    thinking = {"role": "assistant", "content": "<think>\nWell.\n</think>\n\nHello."}
    (row,) = pack([[TALK[1], thinking, TALK[3], thinking]], qwen3)
    assert said(row, qwen3) == ("Hello.<|im_end|><think>\nWell.\n</think>\n\nHello.<|im_end|>")


def test_an_end_of_turn_inside_the_content_does_not_end_the_turn(qwen3):
    sly = {"role": "assistant", "content": "I say <|im_end|> and go on."}
    (row,) = pack([[TALK[1], sly]], qwen3)
    assert said(row, qwen3) == f"{NO_THOUGHTS}I say <|im_end|> and go on.<|im_end|>"


def test_an_assistant_that_speaks_first_is_trained(qwen3):
    (row,) = pack([[{"role": "assistant", "content": "Welcome."}, TALK[1]]], qwen3)
    assert said(row, qwen3) == "Welcome.<|im_end|>"


def test_the_whole_conversation_is_trained_on_request(qwen3):
    (row,) = pack([TALK], qwen3, assistant_only=False)
    assert row["labels"] == row["input_ids"]


def test_a_conversation_in_which_the_assistant_is_silent_is_unsupervised(qwen3):
    records = [{"messages": [TALK[1]]}, {"messages": TALK}]
    rows, ledger = quire.pack_dataset(
        records, qwen3, messages_column="messages", max_length=512, return_ledger=True
    )
    assert len(rows) == 1
    assert ledger.check().documents.dropped == {"unsupervised": 1}


PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
)


def with_template(template: str):
    tokenizer = copy.copy(load("small-qwen3"))
    tokenizer.chat_template = template
    return tokenizer


def test_marks_of_a_template_are_used_and_equal_the_turns_that_are_found():
    found, marked = with_template(PLAIN), with_template(MARKED)
    for talk in (TALK, TOOLS, TALK * 2):
        assert pack([talk], found) == pack([talk], marked)
    assert said(pack([TALK], marked)[0], marked) == (
        "Hello \N{WAVING HAND SIGN}<|im_end|>Bye.<|im_end|>"
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=2, max_size=6))
def test_turns_of_any_text_are_found_where_the_template_marks_them(contents):
    found, marked = with_template(PLAIN), with_template(MARKED)
    talk = talk_of(*contents)
    assert conversation_encoder(found)(talk) == conversation_encoder(marked)(talk)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec="ascii"), max_size=12), min_size=2, max_size=6))
def test_the_marks_of_a_template_equal_those_of_transformers(contents):
    marked, talk = with_template(MARKED), talk_of(*contents)
    ids, labels = conversation_encoder(marked)(talk)
    theirs = marked.apply_chat_template(
        talk, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    assert ids == theirs["input_ids"]
    assert [int(label != -100) for label in labels] == theirs["assistant_masks"]


NARROW = MARKED.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>")


def test_all_tokens_of_a_character_are_trained_where_transformers_loses_some():
    tokenizer = with_template(NARROW)
    (row,) = pack([talk_of("hi", "\N{CUNEIFORM SIGN A}")], tokenizer)
    assert said(row, tokenizer) == "\N{CUNEIFORM SIGN A}"


def test_only_the_answer_is_trained_where_the_mask_of_transformers_includes_the_user():
    tokenizer = copy.deepcopy(load("small-qwen3"))
    tokenizer.chat_template = NARROW
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    (row,) = pack([talk_of("hi", "Yes  ", "Secret", "No")], tokenizer)
    assert "Secret" not in said(row, tokenizer)
    assert said(row, tokenizer).startswith("Yes")


def test_the_mask_of_a_template_is_used_even_if_it_is_narrower():
    tokenizer = with_template(NARROW)
    assert said(pack([TALK[3:]], tokenizer)[0], tokenizer) == "Bye."


def talk_of(*contents: str) -> list[dict[str, str]]:
    roles = ("user", "assistant") * len(contents)
    return [{"role": role, "content": said} for role, said in zip(roles, contents, strict=False)]


SPACE_BEFORE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
LINES_AFTER = (
    "{% for m in messages %}### {{ m.role }}\n{{ m.content }}{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}### assistant\n{% endif %}"
)


def ids_of(tokens: list[str]) -> list[int]:
    """The ids of tokens, as the vocabulary writes them: Ġ is a space, Ċ the end of a line."""
    return load("small-qwen3").convert_tokens_to_ids(tokens)


@pytest.mark.parametrize("end", ["{{ eos_token }}", ""])
def test_an_answer_whose_first_token_includes_the_space_of_the_prompt_is_trained(end):
    eos = ["<|im_end|>"] * bool(end)
    template = SPACE_BEFORE.replace("{{ eos_token }}", end)
    (row,) = pack([talk_of("True or not?", "True")], with_template(template))
    question = ["user", ":", "ĠTrue", "Ġor", "Ġnot", "?", *eos, "a", "ss", "ist", "ant", ":"]
    answer = ["ĠTrue", *eos]
    assert row["input_ids"] == ids_of(question + answer)
    assert row["labels"] == [-100] * len(question) + ids_of(answer)


def test_an_answer_whose_last_token_includes_the_lines_after_it_is_trained_to_its_end():
    (row,) = pack([talk_of("not", "Hello there.")], with_template(LINES_AFTER))
    question = ["##", "#", "Ġuser", "Ċ", "not", "ĊĊ", "##", "#", "Ġa", "ss", "ist", "ant", "Ċ"]
    answer = ["H", "el", "lo", "Ġthere", ".ĊĊ"]
    assert row["input_ids"] == ids_of(question + answer)
    assert row["labels"] == [-100] * len(question) + ids_of(answer)


@pytest.mark.parametrize("template", [SPACE_BEFORE, LINES_AFTER])
def test_tokens_that_straddle_an_edge_are_trained_as_in_the_mask_of_transformers(template):
    marked = with_template(
        template.replace("{{ m.content }}", "{% if m.role == 'assistant' %}{% generation %}"
                         "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}")
        .replace("{{ eos_token }}", "")
    )  # fmt: skip
    found = with_template(template.replace("{{ eos_token }}", ""))
    for talk in (talk_of("hi", "Yes."), talk_of("hi", "Yes", "So?", "No!"), talk_of("a", "\n b")):
        assert pack([talk], found) == pack([talk], marked)


def test_all_tokens_of_a_character_at_the_edge_are_trained():
    tokenizer = with_template(LINES_AFTER)
    (row,) = pack([talk_of("hi", "\N{CUNEIFORM SIGN A}")], tokenizer)
    assert said(row, tokenizer) == "\N{CUNEIFORM SIGN A}"
    assert sum(label != -100 for label in row["labels"]) > 1


def test_blank_tokens_inside_an_answer_are_trained_if_their_offsets_are_trimmed():
    tokenizer = copy.deepcopy(load("small-qwen3"))
    tokenizer.chat_template = PLAIN
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    (row,) = pack([talk_of("hi", "One\n    Two")], tokenizer)
    assert said(row, tokenizer) == "One\n    Two<|im_end|>"


def test_an_empty_answer_without_an_end_of_turn_trains_no_token():
    talk = talk_of("hi", "", "So?", "No")
    tokenizer = with_template(LINES_AFTER)
    assert said(pack([talk], tokenizer)[0], tokenizer) == "No"


def test_without_special_tokens_a_token_shared_with_the_template_is_trained():
    tokenizer = with_template(
        "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    (row,) = pack([TALK], tokenizer)
    assert said(row, tokenizer) == " Hello \N{WAVING HAND SIGN} Bye.\n"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}X{% endif %}",
        "{% for m in messages %}{{ m.content | reverse | join }}{% endfor %}",
        "nothing",
        PLAIN + "{% if not add_generation_prompt %}{{ messages[2].content | length }}{% endif %}",
    ],
)
def test_turns_that_cannot_be_found_are_an_error_or_a_counted_drop(template):
    tokenizer = with_template(template)
    with pytest.raises(InvalidDocument, match=r"record 0 .* message 2, .*generation.*fix the data"):
        pack([TALK], tokenizer)
    with pytest.warns(UserWarning, match="bad_record: 1 document, .*nothing is left"):
        assert pack([TALK], tokenizer, max_bad_records=1) == []
    assert len(pack([TALK], tokenizer, assistant_only=False)) == 1


def test_the_error_of_a_template_that_rejects_a_conversation_names_the_record():
    tokenizer = with_template(
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(
        InvalidDocument, match="record 1 is rejected by the chat template: no tools"
    ):
        pack([TALK, TOOLS], tokenizer, assistant_only=False)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (None, "has null under 'messages', where a list"),
        ([], "has no messages"),
        ("Hi?", "has str under 'messages', where a list"),
        ([{"content": "Hi?"}], "message 0 without a role"),
        (["Hi?"], "message 0 without a role"),
        ([{"role": None, "content": "Hi?"}], "message 0 without a role"),
    ],
)
def test_an_invalid_conversation_is_a_bad_record_under_its_own_number(messages, problem):
    tokenizer = with_template(PLAIN)
    with pytest.raises(InvalidDocument, match=f"record 1 .*{problem}|record 1 {problem}"):
        pack([TALK, messages], tokenizer)
    with pytest.warns(UserWarning, match="bad_record: 1 document, "):
        rows = pack([messages, TALK], tokenizer, max_bad_records=1, keep_sources=True)
    assert rows[0]["document_ids"] == [1]


def test_tool_calls_are_rendered_with_only_their_own_arguments():
    """Arrow gives all structs the same keys: the arguments of one tool would appear in all."""
    other = {"type": "function", "function": {"name": "sin", "arguments": {"x": 0.5}}}
    calls = [TOOLS, [TOOLS[0], {**TOOLS[1], "tool_calls": [other]}, *TOOLS[2:]]]
    tokenizer = load("small-qwen3")
    from_dicts = pack(calls, tokenizer)
    dataset = Dataset.from_list([{"messages": messages} for messages in calls])
    assert "x" in str(dataset.features)
    from_arrow = quire.pack_dataset(dataset, tokenizer, messages_column="messages", max_length=512)
    assert from_arrow.to_list() == from_dicts
    text = tokenizer.decode(from_dicts[0]["input_ids"])
    assert '"arguments": {"a": 2, "b": 2}}' in text and '"arguments": {"x": 0.5}}' in text
    assert "null" not in text


def test_conversations_of_a_sliced_table():
    tokenizer = with_template(PLAIN)
    table = pa.table({"messages": [TALK[:2], TALK, TALK[:3]]}).slice(1, 1)
    rows = quire.pack_dataset(table, tokenizer, messages_column="messages", max_length=512)
    assert rows.to_pylist() == pack([TALK], tokenizer)


def test_long_conversations_are_dropped_and_counted():
    tokenizer = with_template(PLAIN)
    with pytest.warns(UserWarning, match="too_long: 1 document, "):
        rows = pack([TALK * 4, TALK], tokenizer, drop_longer_than=60)
    assert len(rows) == 1


def test_a_tokenizer_without_a_template_is_rejected():
    with pytest.raises(InvalidOption, match="GPT2Tokenizer has no chat template"):
        pack([TALK], load("small-gpt2"))
    with pytest.raises(InvalidOption, match="messages need a tokenizer"):
        pack([TALK], None)


def test_a_tokenizer_can_be_given_by_its_folder():
    folder = folder_of("small-qwen3")
    expected = pack([TALK], load("small-qwen3"))
    assert pack([TALK], folder) == expected
    assert pack([TALK], str(folder)) == expected


def test_the_error_for_a_path_without_a_tokenizer_says_what_to_pass(tmp_path):
    for named in ("byte", folder_of("small-qwen3") / "tokenizer.json"):
        with pytest.raises(InvalidOption, match=f"folder with a chat template, not {named}"):
            pack([TALK], named)
    with pytest.raises(CorruptFile, match="cannot be loaded as a tokenizer"):
        pack([TALK], tmp_path)
    with pytest.raises(InvalidOption, match="GPT2Tokenizer has no chat template"):
        pack([TALK], folder_of("small-gpt2"))


def test_a_slow_tokenizer_does_not_report_the_characters_of_its_tokens():
    class Slow:
        is_fast = False
        eos_token = None

        def get_chat_template(self):
            return PLAIN

        def apply_chat_template(self, messages, **_):
            return "".join(m["content"] for m in messages)

        def __call__(self, texts, **_):
            return {"input_ids": [[ord(c) for c in text] for text in texts]}

    with pytest.raises(InvalidOption, match=r"Slow is a slow tokenizer.*fast tokenizer"):
        pack([TALK], Slow())
    (row,) = pack([TALK], Slow(), assistant_only=False)
    assert row["labels"] == row["input_ids"]
