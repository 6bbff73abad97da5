"""`verify --inputs` derives every drop again: no false alarm, and no reason is trusted."""

from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.corpus.corpora import forge, jsonl, pack
from tests.tokenizer_files import folder_of

from quire.errors import InvalidOption
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output

GPT2, QWEN3 = folder_of("small-gpt2"), folder_of("small-qwen3")
MASKED = -100


def problems(out, inputs, tokenizer=None):
    report = verify_output(out)
    assert report.problems == []
    return verify_inputs(report, [inputs], tokenizer).problems


def lose_last_row(out, reason):
    """Remove the last row and count its content as dropped, with matching checksums."""

    def forget(manifest):
        shard = manifest["shards"][-1]
        path = out / shard["file"]
        table = pq.read_table(path)
        row = table.slice(table.num_rows - 1).to_pylist()[0]
        pq.write_table(table.slice(0, table.num_rows - 1), path)
        tokens, documents = len(row["input_ids"]), len(set(row["document_ids"]))
        shard.update(
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(), bytes=path.stat().st_size
        )
        for counts in (shard, manifest):
            counts["rows"] -= 1
            counts["tokens"] -= tokens
            counts["content"] -= tokens
            ledger = counts["ledger"]
            padding = manifest["options"]["max_length"] - tokens
            ledger["tokens"]["padding"] -= padding
            del ledger["tokens"]["trained"]  # as earlier versions wrote it
            for what, number in (("documents", documents), ("tokens", tokens)):
                ledger[what]["emitted"] -= number
                dropped = ledger[what]["dropped"]
                dropped[reason] = dropped.get(reason, 0) + number

    forge(out, forget)


def tokens(*lengths, labels=None):
    return [
        {
            "input_ids": [10 * n + i for i in range(length)],
            "labels": [MASKED if labels and labels[n] else n] * length,
        }
        for n, length in enumerate(lengths)
    ]


@pytest.mark.parametrize(
    ("reason", "options"),
    [
        ("unsupervised", {}),
        ("too_long", {"overlong": "drop"}),
        ("row_too_short", {"min_length": 2}),
        ("row_too_short", {"min_length": 8}),
    ],
)
def test_a_removed_row_is_reported_whatever_reason_the_ledger_counts(tmp_path, reason, options):
    path, out = jsonl(tmp_path / "a.jsonl", tokens(*[8] * 6)), tmp_path / "out"
    pack(path, out, None, pretokenized=True, **options)
    assert problems(out, path) == []
    lose_last_row(out, reason)
    found = problems(out, path)
    assert any("tokens 0 to 8 of 8 are missing" in problem for problem in found)


def test_a_document_that_a_plan_leaves_out_needs_a_reason(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", tokens(8, 8, 3, 8)), tmp_path / "out"
    options = {"index_only": True, "shuffle": False, "strategy": "greedy"}
    pack(path, out, None, pretokenized=True, **options)
    assert problems(out, path) == []
    (file,) = (out / "plans").glob("*.arrow")
    plan = pa.ipc.open_file(file.read_bytes()).read_all()
    with pa.ipc.new_file(file, plan.schema) as writer:
        writer.write_table(plan.slice(0, plan.num_rows - 1))

    def forget(manifest):
        (entry,) = manifest["plans"]
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        entry.update(sha256=digest, bytes=file.stat().st_size)
        ledgers = (entry["ledger"], manifest["ledger"])
        for counts in (entry, manifest):
            counts["rows"] -= 1
            counts["tokens"] -= 11
            counts["content"] -= 11
        for ledger in ledgers:
            ledger["tokens"]["padding"] -= 5
            ledger["tokens"]["trained"] = 14
            for what, number in (("documents", 2), ("tokens", 11)):
                ledger[what]["emitted"] -= number
                ledger[what]["dropped"]["unsupervised"] = number

    forge(out, forget)
    found = [problem.partition(": ")[2] for problem in verify_output(out).problems]
    reason = "are in no row, which the options do not explain"
    assert f"tokens 0 to 3 of document 2 {reason}" in found
    assert f"tokens 0 to 8 of document 3 {reason}" in found


def test_documents_that_are_too_long_or_untrained_may_be_missing(tmp_path):
    records = tokens(8, 20, 8, 5, labels=[False, False, True, False])
    path, out = jsonl(tmp_path / "a.jsonl", records), tmp_path / "out"
    dropped = pack(path, out, None, pretokenized=True, overlong="drop").ledger.documents.dropped
    assert dropped == {"too_long": 1, "unsupervised": 1}
    assert problems(out, path) == []


def test_a_drop_counted_under_another_reason_is_reported(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", tokens(8, 20)), tmp_path / "out"
    pack(path, out, None, pretokenized=True, overlong="drop")

    def rename(manifest):
        for counts in (manifest["shards"][0], manifest):
            for what in ("documents", "tokens"):
                dropped = counts["ledger"][what]["dropped"]
                dropped["unsupervised"] = dropped.pop("too_long")

    forge(out, rename)
    assert [problem.partition(" as ")[0] for problem in problems(out, path)] == [
        "the ledger counts 0 documents",
        "the ledger counts 1 document",
        "the ledger counts 0 tokens",
        "the ledger counts 20 tokens",
    ]


def test_a_good_record_that_is_listed_as_bad_is_reported(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", ["abc", {"text": None}, "de"]), tmp_path / "out"
    pack(path, out, max_bad_records=1)
    assert problems(out, path, "byte") == []
    listed = (out / "bad_records.jsonl").read_text().replace('"record": 1', '"record": 2')
    (out / "bad_records.jsonl").write_text(listed)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    forge(out, lambda manifest: manifest["bad_records"].update(sha256=digest))
    assert problems(out, path, "byte")[:2] == [
        "record 1 of input 0 is bad, but is not listed as bad",
        "record 2 of input 0 is listed as bad, but nothing is wrong with it",
    ]


@pytest.mark.parametrize(
    "record",
    [
        '{"text": 7}',
        '{"text": "a", "text": "b"}',
        '{"text": "a", "x": NaN}',
        '{"text": "\\ud800"}',
        '["text"]',
        '{"text": "cut',
        '{"text": "' + "x" * 90 + '"}',
        "[" * 3000,
    ],
)
def test_records_that_the_packer_rejects_are_bad_for_the_check(tmp_path, record):
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    path.write_text('{"text": "abc"}\n' + record + '\n{"text": "de"}\n')
    pack(path, out, max_bad_records=1, max_record_bytes=90)
    assert problems(out, path, "byte") == []


@pytest.mark.parametrize(
    ("first", "record"),
    [
        ({"labels": [1, 2]}, {"labels": [1.0, 2.5]}),
        ({"loss_mask": [True, False]}, {"loss_mask": [1, 0]}),
        ({"loss_mask": [0.5, 1]}, {"loss_mask": [True, False]}),
        ({"labels": [1, 2]}, {"labels": [1, 2**70]}),
        ({}, {"labels": [1, 2]}),
    ],
)
def test_numbers_that_the_packer_rejects_are_bad_for_the_check(tmp_path, first, record):
    records = [{"input_ids": [5, 6], **given} for given in (first, record, first)]
    path, out = jsonl(tmp_path / "a.jsonl", records), tmp_path / "out"
    result = pack(path, out, None, max_bad_records=1, pretokenized=True)
    assert result.ledger.documents.dropped == {"bad_record": 1}
    assert problems(out, path) == []


def test_bytes_that_are_not_utf8_are_bad_in_lines_and_tables(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b'{"text": "\xff"}\n{"text": "abc"}\n')
    (tmp_path / "in" / "b.txt").write_bytes(b"\xff")
    raw = pa.array([b"fine", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "in" / "c.parquet")
    pack(tmp_path / "in", tmp_path / "out", max_bad_records=3)
    assert problems(tmp_path / "out", tmp_path / "in", "byte") == []


def test_a_text_that_starts_with_two_bos_tokens_is_not_a_problem(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["<|endoftext|><|endoftext|>hello world"])
    pack(path, tmp_path / "out", GPT2, add_bos=True)
    assert problems(tmp_path / "out", path, GPT2) == []


TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello there"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": None},
]


@pytest.mark.parametrize("assistant_only", [True, False])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_conversations_are_rendered_again(tmp_path, assistant_only, kind):
    talks = [{"messages": TALK}, {"messages": TALK[:1]}, {"messages": TALK * 3}]
    path, out = tmp_path / f"a.{kind}", tmp_path / "out"
    if kind == "jsonl":
        jsonl(path, talks)
    else:
        pq.write_table(pa.Table.from_pylist(talks), path)
    options = {"messages_column": "messages", "assistant_only": assistant_only}
    pack(path, out, QWEN3, max_length=128, **options)
    assert problems(out, path, QWEN3) == []

    def change(manifest):
        manifest["options"]["assistant_only"] = not assistant_only

    forge(out, change)
    assert "labels 0 to" in problems(out, path, QWEN3)[0]


NULLS = {"a": 1, "b": None}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"default": None}}}]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_nulls_inside_tools_and_calls_are_treated_as_the_packer_treats_them(tmp_path, kind):
    call = {"type": "function", "function": {"name": "add", "arguments": NULLS}}
    talk = [TALK[0], {"role": "assistant", "content": None, "tool_calls": [call]}]
    path, records = tmp_path / f"a.{kind}", [{"messages": talk, "tools": TOOLS}]
    if kind == "jsonl":
        jsonl(path, records)
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    pack(path, tmp_path / "out", QWEN3, max_length=512, messages_column="messages")
    assert problems(tmp_path / "out", path, QWEN3) == []


TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_template(folder, template):
    """The small Qwen3 tokenizer with another chat template."""
    folder.mkdir()
    for file in QWEN3.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "chat_template": template + TURNS})
    )
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    return folder


@pytest.mark.parametrize(
    "dated",
    [
        "{{ strftime_now('%d %b %Y') }}",
        "{{ strftime_now(format='%d %b %Y') }}",
        "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}",
        "{% if strftime_now is not defined %}1{% else %}{{ strftime_now('%d') }}{% endif %}",
        "{% set form = '%d %b %Y' %}{{ strftime_now(form) }}",
    ],
)
def test_a_conversation_is_rendered_with_the_date_of_its_run(tmp_path, dated):
    folder = with_template(tmp_path / "tokenizer", dated)
    path, out = jsonl(tmp_path / "a.jsonl", [{"messages": TALK[:2]}]), tmp_path / "out"
    pack(path, out, folder, max_length=128, messages_column="messages", chat_date="2024-07-26")
    assert problems(out, path, folder) == []
    forge(out, lambda manifest: manifest["options"].update(chat_date="2024-07-27"))
    assert "differ from the input" in problems(out, path, folder)[0]


def test_a_template_may_mark_only_a_part_of_what_the_assistant_says_as_trained(tmp_path):
    marked = (
        "{% for m in messages %}{% if loop.last %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>"
        "{% endfor %}{% set messages = [] %}"
    )
    folder = with_template(tmp_path / "tokenizer", marked)
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    said = [f"answer number {n} of the assistant" for n in range(2)]
    jsonl(path, [{"messages": [{"role": "assistant", "content": text} for text in said]}])
    pack(path, out, folder, max_length=128, messages_column="messages")
    assert problems(out, path, folder) == []


@pytest.mark.parametrize("kind", [pa.ipc.new_file, pa.ipc.new_stream])
def test_53_a_column_that_is_not_needed_is_not_decompressed(tmp_path, kind):
    path, out = tmp_path / "a.arrow", tmp_path / "out"
    table = pa.table({"text": ["abc"] * 4, "other": [b"\0" * (8 << 20)] * 4})
    with kind(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table)
    del table
    pack(path, out)
    before, watched = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(watched)
    try:
        assert problems(out, path, "byte") == []
    finally:
        pa.set_memory_pool(before)
    assert watched.max_memory() < 8 << 20


def test_a_conversation_is_rendered_with_the_recorded_template(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(QWEN3)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    path, out = jsonl(tmp_path / "a.jsonl", [{"messages": TALK[:2]}]), tmp_path / "out"
    pack(path, out, tokenizer, max_length=128, messages_column="messages", assistant_only=False)
    assert problems(out, path, QWEN3) == [], "the folder has another template"
    forge(out, lambda manifest: manifest.pop("chat_template"))
    assert "differ from the input" in problems(out, path, QWEN3)[0]


def test_another_tokenizer_file_is_refused(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", ["abc"]), tmp_path / "out"
    pack(path, out, GPT2)
    with pytest.raises(InvalidOption, match=r"is not the tokenizer\.json that packed this output"):
        problems(out, path, QWEN3)


def test_an_input_of_the_same_size_with_other_content_is_refused(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", ["abc", "de"]), tmp_path / "out"
    pack(path, out)
    path.write_text(path.read_text().replace("de", "df"))
    with pytest.raises(InvalidOption, match="was changed after it was packed"):
        problems(out, path, "byte")


POLICIES = ["split", "truncate", "truncate_left", "drop", "fill"]
SHAPES = st.just({"strategy": "wrapped", "min_length": 6}) | st.fixed_dictionaries(
    {},
    optional={
        "strategy": st.sampled_from(["best_fit", "first_fit", "greedy"]),
        "overlong": st.sampled_from(POLICIES),
        "min_length": st.integers(1, 12),
        "max_documents_per_row": st.integers(1, 3),
        "partition_size": st.sampled_from([60, 1 << 20]),
        "index_only": st.booleans(),
    },
)


@pytest.mark.filterwarnings("ignore:.* has no rows")
@settings(max_examples=60)
@given(
    records=st.lists(
        st.lists(st.tuples(st.integers(0, 50), st.sampled_from([MASKED, 1])), max_size=40),
        min_size=1,
        max_size=8,
    ),
    shape=SHAPES,
    stride=st.sampled_from([0, 0, 3]),
)
def test_tokens_packed_in_any_way_have_no_problems(tmp_path_factory, records, shape, stride):
    folder = tmp_path_factory.mktemp("tokens")
    rows = [{"input_ids": [i for i, _ in r], "labels": [n for _, n in r]} for r in records]
    if shape.get("overlong", "split") == "split":
        shape = {"stride": stride, **shape} if shape.get("strategy") != "wrapped" else shape
    path = jsonl(folder / "a.jsonl", rows)
    pack(path, folder / "out", None, pretokenized=True, **shape)
    assert problems(folder / "out", path) == []


@pytest.mark.filterwarnings("ignore:.* has no rows")
@settings(max_examples=60)
@given(
    values=st.lists(st.text("ab <|endoftext|>é", max_size=40), min_size=1, max_size=8),
    shape=SHAPES,
    specials=st.fixed_dictionaries(
        {}, optional={"add_bos": st.booleans(), "add_eos": st.booleans()}
    ),
    limits=st.fixed_dictionaries(
        {}, optional={"drop_longer_than": st.integers(1, 30), "truncate_at": st.just("b ")}
    ),
)
def test_texts_packed_in_any_way_have_no_problems(
    tmp_path_factory, values, shape, specials, limits
):
    folder = tmp_path_factory.mktemp("texts")
    path = jsonl(folder / "a.jsonl", values)
    pack(path, folder / "out", **shape, **specials, **limits)
    assert problems(folder / "out", path, "byte") == []


SAID, HEARD = "the answer to that question is no", "is the answer to this question yes"


@pytest.fixture
def talk(tmp_path):
    messages = [{"role": "user", "content": HEARD}, {"role": "assistant", "content": SAID}]
    return jsonl(tmp_path / "a.jsonl", [{"messages": messages}])


def test_wrong_labels_are_reported_even_if_packer_and_check_find_the_same_wrong_turns(
    tmp_path, talk, monkeypatch
):
    options = {"max_length": 64, "messages_column": "messages"}
    pack(talk, tmp_path / "right", QWEN3, **options)
    assert problems(tmp_path / "right", talk, QWEN3) == []

    def everything(plain):
        def find(messages, template):
            text = template.render(messages)
            return text, [(0, len(text))]

        return find

    monkeypatch.setattr("quire.text.chat._turns_of", everything)
    pack(talk, tmp_path / "wrong", QWEN3, **options)
    (problem,) = problems(tmp_path / "wrong", talk, QWEN3)
    assert "labels 0 to" in problem


@pytest.mark.parametrize("index_only", [False, True])
def test_two_fragments_of_a_document_may_each_be_in_a_row_that_is_too_short(tmp_path, index_only):
    """In rows of 8 with BOS and EOS, 15 tokens are cut at 7 and at 13: EOS is not alone."""
    path = jsonl(tmp_path / "a.jsonl", ["a" * 14])
    options = {"max_length": 8, "min_length": 8, "add_bos": True, "max_documents_per_row": 1}
    pack(path, tmp_path / "out", index_only=index_only, **options)
    assert problems(tmp_path / "out", path, "byte") == []


@pytest.mark.parametrize(
    ("records", "old", "new"),
    [
        ([([1, 2], [MASKED] * 2), ([3] * 9, [3] * 9)], "unsupervised", "row_too_short"),
        ([([1, 2], [1, 2]), ([3] * 15, [3] * 15)], "row_too_short", "unsupervised"),
        ([([1], [MASKED]), ([3] * 16, [3] * 16)], "row_too_short", "unsupervised"),
    ],
    ids=["untrained", "trained", "one token"],
)
def test_a_document_of_one_fragment_has_one_reason(tmp_path, records, old, new):
    path = jsonl(tmp_path / "a.jsonl", [{"input_ids": i, "labels": n} for i, n in records])
    out = tmp_path / "out"
    pack(path, out, None, pretokenized=True, max_length=16, min_length=3)
    assert problems(out, path) == []

    def rename(manifest):
        for ledger in (manifest["ledger"], manifest["shards"][0]["ledger"]):
            for tally in ledger.values():
                tally["dropped"][new] = tally["dropped"].pop(old)

    forge(out, rename)
    assert problems(out, path) != []


@pytest.mark.parametrize("index_only", [False, True])
@pytest.mark.parametrize("overlong", ["split", "truncate", "truncate_left", "drop"])
def test_rows_that_align_cannot_fill_are_no_problem(tmp_path, overlong, index_only):
    """With align=4, a row of 7 tokens holds documents of at most 4."""
    given = jsonl(tmp_path / "a.jsonl", ["x" * length for length in range(1, 12)])
    pack(
        given, tmp_path / "out", max_length=7, align=4, add_bos=False, min_length=3,
        overlong=overlong, index_only=index_only,
    )  # fmt: skip
    assert problems(tmp_path / "out", given, "byte") == []
