"""An EOS that quire adds is `special`, never input, emitted, pending or dropped (decision 18)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.blocks import BlockOptions, pack_texts
from quire.cli.progress import PackProgress
from quire.plan import Plan, PlanOptions, plan_documents
from quire.plan.comparison import compare
from quire.stream import open_stream
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.contracts.packers import Numbers
from tests.corpus.corpora import forge, jsonl, pack, rows
from tests.tokenizer_files import load

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
BOS, EOS = 1, 2
LENGTH = 8


def texts_of(*lengths: int) -> list[str]:
    """Texts whose bytes are never BOS or EOS."""
    return ["x" * length for length in lengths]


def counts(ledger: quire.Ledger) -> tuple:
    """Input, emitted, dropped, overlap, special."""
    tokens = ledger.check().tokens
    return tokens.input, tokens.emitted, dict(tokens.dropped), tokens.overlap, tokens.special


def in_dataset(texts, folder, **options):
    records = [{"text": text} for text in texts]
    return quire.pack_dataset(records, "byte", return_ledger=True, **options)[1]


def in_corpus(texts, folder, **options):
    return pack(jsonl(folder / "a.jsonl", texts), folder / "out", **options).ledger


def in_partitions(texts, folder, **options):
    """A partition for every document."""
    return in_corpus(texts, folder, partition_size=1, **options)


def in_index(texts, folder, **options):
    return in_corpus(texts, folder, index_only=True, **options)


def in_second_plan(texts, folder, **options):
    """Another plan, made from the documents of an output."""
    terms = ("add_bos", "add_eos", "drop_longer_than", "truncate_to")
    given = {name: options.pop(name) for name in terms if name in options}
    in_corpus(texts, folder, index_only=True, **{**given, "max_length": 64})
    return quire.replan(folder / "out", name="second", **options).ledger


PATHS = {
    "pack_dataset": in_dataset,
    "pack_corpus": in_corpus,
    "index only": in_index,
    "replan": in_second_plan,
}
CASES = {
    "whole": ([3], {}, (3, 3, {}, 0, 1)),
    "whole, with BOS": ([3], {"add_bos": True}, (3, 3, {}, 0, 2)),
    "without EOS": ([3], {"add_eos": False}, (3, 3, {}, 0, 0)),
    "an empty text has no EOS": ([0, 3], {}, (3, 3, {}, 0, 1)),
    "split": ([10], {}, (10, 10, {}, 0, 1)),
    "split, BOS in both fragments": ([10], {"add_bos": True}, (10, 10, {}, 0, 3)),
    "split, EOS takes a token along": ([8], {}, (8, 8, {}, 0, 1)),
    "stride": ([10], {"stride": 3}, (10, 10, {}, 3, 1)),
    "stride, BOS": ([10], {"stride": 3, "add_bos": True}, (10, 10, {}, 3, 3)),
    "truncate cuts EOS": ([10], {"overlong": "truncate"}, (10, 8, {"truncated": 2}, 0, 0)),
    "truncate cuts only EOS": ([8, 3], {"overlong": "truncate"}, (11, 11, {}, 0, 1)),
    "truncate_left": ([10], {"overlong": "truncate_left"}, (10, 7, {"truncated": 3}, 0, 1)),
    "drop": ([10, 3], {"overlong": "drop"}, (13, 3, {"too_long": 10}, 0, 1)),
    "drop_longer_than": ([6, 3], {"drop_longer_than": 5}, (9, 3, {"too_long": 6}, 0, 1)),
    "truncate_to keeps EOS": ([5], {"truncate_to": 2}, (5, 2, {"truncated": 3}, 0, 1)),
    "a short row": ([7, 3], {"min_length": 5}, (10, 7, {"row_too_short": 3}, 0, 1)),
    "EOS in a short row": ([10], {"min_length": 5}, (10, 8, {"row_too_short": 2}, 0, 0)),
    "every row is short": ([1], {"min_length": 5}, (1, 0, {"row_too_short": 1}, 0, 0)),
    "fill": ([5, 5, 5], {"overlong": "fill"}, (15, 15, {}, 0, 3)),
    "wrapped, in four fragments": (
        [10, 3],
        {"strategy": "wrapped", "add_bos": True},
        (13, 13, {}, 0, 4 + 2),
    ),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES)
def test_only_content_is_counted_as_input_emitted_or_dropped(case, path, tmp_path):
    lengths, options, expected = CASES[case]
    options = {"max_length": LENGTH, "add_bos": False, **options}
    assert counts(PATHS[path](texts_of(*lengths), tmp_path, **options)) == expected


def test_ledgers_of_partitions_add_up(tmp_path):
    ledger = in_partitions(texts_of(3, 10, 0, 1), tmp_path, max_length=LENGTH, add_bos=True)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert len(manifest["shards"]) == 4
    assert counts(ledger) == (14, 14, {}, 0, 3 + 4)


@pytest.mark.parametrize(
    ("lengths", "options", "expected"),
    [
        ([3], {}, (3, 3, {}, 0, 2)),
        ([10], {"overflow": False}, (10, 7, {"truncated": 3}, 0, 1)),
        ([6, 3], {"max_len": 5}, (9, 3, {"too_long": 6}, 0, 2)),
        ([10, 3], {"packed": True, "min_len": 8}, (13, 12, {"row_too_short": 1}, 0, 3 + 1)),
    ],
)
def test_blocks_count_eos_as_special(lengths, options, expected):
    made = pack_texts(texts_of(*lengths), "byte", BlockOptions(max_length=LENGTH, **options))
    assert counts(made.ledger) == expected


def test_eos_in_given_tokens_is_content():
    records = [{"input_ids": [5, 6, EOS]}]
    _, ledger = quire.pack_dataset(records, max_length=LENGTH, return_ledger=True)
    assert counts(ledger) == (3, 3, {}, 0, 0)


def test_eos_of_a_chat_template_is_content():
    tokenizer = load("small-qwen3")
    talk = [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}]
    packed, ledger = quire.pack_dataset(
        [{"messages": talk}],
        tokenizer,
        messages_column="messages",
        max_length=64,
        return_ledger=True,
    )
    (ids,) = packed["input_ids"].to_pylist()
    assert tokenizer.eos_token_id in ids
    assert counts(ledger) == (len(ids), len(ids), {}, 0, 0)


def test_eos_in_a_text_is_content():
    """The token ends the document, and is followed by the EOS that is added."""
    _, ledger = quire.pack_dataset(
        [{"text": f"10 {EOS}"}], Numbers(), max_length=LENGTH, return_ledger=True
    )
    assert counts(ledger) == (2, 2, {}, 0, 1)


OPTIONS = st.fixed_dictionaries(
    {"max_length": st.integers(5, 12), "add_bos": st.booleans(), "add_eos": st.booleans()},
    optional={
        "strategy": st.sampled_from(["greedy", "first_fit", "wrapped", "tight"]),
        "overlong": st.sampled_from(["truncate", "truncate_left", "drop", "fill"]),
        "stride": st.integers(0, 2),
        "min_length": st.integers(1, 5),
        "max_documents_per_row": st.integers(1, 3),
        "drop_longer_than": st.integers(1, 30),
        "truncate_to": st.integers(1, 30),
    },
)


@settings(max_examples=150, deadline=None)
@given(lengths=st.lists(st.integers(0, 30), max_size=8), options=OPTIONS)
def test_special_is_what_can_be_counted_in_the_rows(lengths, options):
    made, ledger = quire.pack_dataset(
        pa.table({"text": pa.array(texts_of(*lengths), pa.string())}),
        "byte",
        return_ledger=True,
        keep_sources=True,
        **options,
    )
    ids = [token for row in made["input_ids"].to_pylist() for token in row]
    tokens = ledger.check().tokens
    assert tokens.input == sum(lengths)
    assert tokens.special == ids.count(BOS) + ids.count(EOS)
    assert tokens.emitted + tokens.overlap == len(ids) - tokens.special
    assert tokens.padding == made.num_rows * options["max_length"] - len(ids)
    assert tokens.emitted == len(set(content_places(made)))


def content_places(made: pa.Table) -> list[tuple[int, int]]:
    """(document, place) of every token that is not special; a repeated token has one place."""
    places = []
    for row in made.to_pylist():
        ends = [*row["document_starts"][1:], len(row["input_ids"])]
        columns = [row[name] for name in ("document_starts", "document_ids", "document_offsets")]
        parts = zip(columns[0], ends, *columns[1:], strict=True)
        for start, end, document, offset in parts:
            ids = [token for token in row["input_ids"][start:end] if token not in (BOS, EOS)]
            places += [(document, offset + n) for n in range(len(ids))]
    return places


def streamed(folder, texts, strategy, tokenizer="byte", **options):
    path = jsonl(folder / "a.jsonl", texts)
    options = {"max_length": LENGTH - 1, "batch_size": 1, "buffer_size": 3, **options}
    return open_stream(
        files=str(path),
        tokenizer=tokenizer,
        strategy=strategy,
        shuffle=False,
        repeat=False,
        **{"add_bos": False, **options},
    )


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        # The window holds the first document with its EOS, and two bytes of the second.
        ("wrapped", {"input": 10, "emitted": 7, "pending": 3, "special": 1}),
        ("first_fit", {"input": 15, "emitted": 5, "pending": 10, "special": 1}),
        ("online", {"input": 15, "emitted": 5, "pending": 10, "special": 1}),
    ],
)
def test_pending_tokens_of_a_stream_are_content(strategy, expected, tmp_path):
    with streamed(tmp_path, texts_of(5, 5, 5), strategy) as stream:
        next(stream)
        tokens = stream.ledger.check().tokens
        assert {name: getattr(tokens, name) for name in expected} == expected
        state = json.loads(json.dumps(stream.get_state()))
        for _ in stream:
            pass
        assert counts(stream.ledger) == (15, 15, {}, 0, 3)
        whole = stream.ledger
    with streamed(tmp_path, texts_of(5, 5, 5), strategy) as again:
        again.set_state(state)
        assert again.ledger.tokens == tokens
        for _ in again:
            pass
        assert again.ledger == whole


@pytest.mark.parametrize("strategy", ["wrapped", "first_fit", "online"])
def test_a_stream_tells_an_eos_in_a_text_from_an_added_one(strategy, tmp_path):
    """Windows of three tokens: the first ends with the EOS that the text contains."""
    text = f"10 11 {EOS} 12 13"
    with streamed(tmp_path, [text], strategy, Numbers(), max_length=2) as stream:
        next(stream)
        assert stream.ledger.check().tokens.special == 0
        with streamed(tmp_path, [text], strategy, Numbers(), max_length=2) as again:
            again.set_state(json.loads(json.dumps(stream.get_state())))
            for _ in again:
                pass
            assert counts(again.ledger) == (5, 5, {}, 0, 1)


def test_a_stream_counts_no_eos_of_dropped_documents(tmp_path):
    options = {"drop_longer_than": 6, "truncate_to": 4, "last_batch": "drop", "batch_size": 3}
    with streamed(tmp_path, texts_of(7, 5, 0, 2, 3), "first_fit", **options) as stream:
        for _ in stream:
            pass
        ledger = stream.ledger
    # 4 + EOS and 2 + EOS fill a window, 3 + EOS is in another: too few for a batch.
    dropped = {"too_long": 7, "truncated": 1, "drop_last": 9}
    assert counts(ledger) == (17, 0, dropped, 0, 0)


@pytest.fixture
def packed(tmp_path):
    """An output of rows, and its input."""

    def make(**options):
        path = jsonl(tmp_path / "a.jsonl", texts_of(3, 10, 6, 8))
        pack(path, tmp_path / "out", **{"max_length": LENGTH, "add_bos": True, **options})
        assert verify_output(tmp_path / "out").problems == []
        return path, tmp_path / "out"

    return make


def ledgers_of(manifest):
    entries = [manifest, *manifest["shards"], *manifest.get("plans", [])]
    return [entry["ledger"]["tokens"] for entry in entries]


@pytest.mark.parametrize("options", [{}, {"index_only": True}, {"keep_sources": False}])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_forged_count_of_specials_is_found(options, change, packed):
    _, out = packed(**options)

    def alter(manifest):
        for tokens in ledgers_of(manifest):
            tokens["special"] += change

    forge(out, alter)
    assert verify_output(out).problems


@pytest.mark.parametrize("options", [{}, {"index_only": True}])
def test_an_eos_that_is_counted_as_emitted_is_found(options, packed):
    """The sums are right: only the documents show that one EOS too few is counted."""
    _, out = packed(**options)

    def alter(manifest):
        for tokens in ledgers_of(manifest):
            tokens["special"] -= 1
            tokens["emitted"] += 1
            tokens["input"] += 1

    forge(out, alter)
    assert any("special token" in problem for problem in verify_output(out).problems)


def test_eos_that_are_all_counted_as_emitted_are_found_with_the_inputs(packed):
    path, out = packed()

    def alter(manifest):
        for tokens in ledgers_of(manifest):
            tokens["special"] -= 4
            tokens["emitted"] += 4
            tokens["input"] += 4

    forge(out, alter)
    problems = verify_inputs(verify_output(out), [path], "byte").problems
    assert "the output has 4 EOS, but the ledger counts 0" in problems


def test_more_eos_than_documents_end_alike_are_found(packed):
    """Some EOS are cut off, so that their number is known only up to a limit."""
    _, out = packed(overlong="truncate")

    def alter(manifest):
        for tokens in ledgers_of(manifest):
            tokens["special"] += 2
            tokens["emitted"] -= 2
            tokens["input"] -= 2

    forge(out, alter)
    assert any("special token" in problem for problem in verify_output(out).problems)


@pytest.mark.parametrize("options", [{}, {"index_only": True}])
def test_a_forged_content_is_found(options, packed):
    _, out = packed(**options)

    def alter(manifest):
        for entry in [manifest, *manifest["shards"], *manifest.get("plans", [])]:
            entry["content"] -= 1

    forge(out, alter)
    assert any("content token" in problem for problem in verify_output(out).problems)


def test_utilization_counts_eos_and_not_bos(packed):
    path, out = packed()
    ids = [token for row in rows(out)["input_ids"].to_pylist() for token in row]
    result = pack(path, out, max_length=LENGTH, add_bos=True, resume=True)
    places = result.num_rows * LENGTH
    assert result.utilization == (len(ids) - ids.count(BOS)) / places
    options = BlockOptions(max_length=LENGTH, packed=True, packing_strategy="best_fit")
    made = pack_texts(texts_of(3, 10, 6, 8), "byte", options)
    assert made.plan.utilization == result.utilization


ENDS = PlanOptions(max_length=LENGTH, strategy="greedy", ends_with_eos=True)


def test_a_saved_plan_records_eos_only_where_it_is_added(tmp_path):
    plan = plan_documents([4, 11, 7], ENDS)
    plan.save(tmp_path / "plan.arrow")
    assert Plan.load(tmp_path / "plan.arrow", [4, 11, 7]) == plan
    assert recorded_options(tmp_path / "plan.arrow")["ends_with_eos"] is True
    quire.make_plan([4, 11, 7], LENGTH).save(tmp_path / "plain.arrow")
    assert "ends_with_eos" not in recorded_options(tmp_path / "plain.arrow")


def recorded_options(path):
    with pa.OSFile(str(path)) as source:
        return json.loads(pa.ipc.open_file(source).schema.metadata[b"quire.plan"])["options"]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=10),
    stride=st.integers(0, 3),
    num_ranks=st.integers(1, 4),
    remainder=st.sampled_from(["drop", "repeat"]),
)
def test_balanced_rows_count_their_eos(lengths, stride, num_ranks, remainder):
    options = PlanOptions(max_length=LENGTH, stride=stride, ends_with_eos=True, prefix=1)
    plan = plan_documents(np.array(lengths) + 1, options)
    dealt = quire.balance(plan, num_ranks, remainder=remainder)
    used = dealt.rows.ravel().tolist()
    special = sum(
        1 + (fragment.stop == lengths[fragment.document] + 1)
        for row in used
        for fragment in plan[row]
    )
    tokens = dealt.ledger.check().tokens
    assert tokens.special == special
    size = sum(int(plan.row_lengths[row]) for row in used)
    assert tokens.emitted + tokens.overlap + tokens.special == size


def test_a_plan_whose_ledger_counts_too_many_eos_is_rejected(tmp_path):
    plan = plan_documents([4, 4], ENDS)
    with pytest.raises(quire.errors.PlanError, match="6 emitted, 0 repeated and 2 EOS"):
        Plan(**{**vars_of(plan), "options": PlanOptions(max_length=LENGTH)})


def vars_of(plan):
    names = ("row_offsets", "documents", "starts", "stops", "options", "ledger", "fingerprint")
    return {name: getattr(plan, name) for name in names}


def test_lengths_of_another_corpus_are_named_with_their_eos():
    with pytest.raises(quire.errors.PlanError, match="2 documents with 9 tokens, but these are 1"):
        plan_documents([4, 5], ENDS).check_lengths([4])


@pytest.mark.parametrize("strategy", ["wrapped", "first_fit", "online"])
def test_a_stream_restored_after_any_batch_counts_the_same_in_the_end(strategy, tmp_path):
    texts = texts_of(3, 20, 1, 9, 33, 2)
    with streamed(tmp_path, texts, strategy, buffer_size=2) as stream:
        for _ in stream:
            with streamed(tmp_path, texts, strategy, buffer_size=2) as again:
                again.set_state(stream.get_state())
                for _ in again:
                    pass
                assert counts(again.ledger) == (68, 68, {}, 0, 6)


def test_a_shard_of_documents_has_one_eos_for_each(packed):
    _, out = packed(index_only=True)
    forge(out, lambda manifest: manifest["shards"][0]["ledger"]["tokens"].update(special=3))
    (problem,) = verify_output(out).problems
    assert problem.endswith("holds documents with 4 EOS, but its ledger counts 3 special tokens")


def test_documents_that_do_not_end_alike_have_no_eos(tmp_path):
    pack(
        jsonl(tmp_path / "a.jsonl", ["ab", "cd"]), tmp_path / "out", index_only=True, add_eos=False
    )
    forge(tmp_path / "out", lambda manifest: manifest["documents"].update(end_with_eos=True))
    problems = verify_output(tmp_path / "out").problems
    assert any("do not end with the same token (EOS)" in problem for problem in problems)


def test_candidates_count_a_lost_eos_as_lost():
    """So that a policy that cuts only EOS is not taken for one that keeps everything."""
    lengths = np.array([LENGTH + 1, 4])
    (one,) = compare(lengths, [replace(ENDS, overlong="truncate")])
    assert (one.tokens, one.tokens_lost, one.documents_truncated) == (13, 1, 1)
    assert one.ledger.tokens.num_dropped == 0


def test_progress_shows_the_utilization_of_the_result(tmp_path, capsys):
    path = jsonl(tmp_path / "a.jsonl", texts_of(3, 10, 6, 8))
    with PackProgress(LENGTH) as progress:
        result = pack(
            path,
            tmp_path / "out",
            max_length=LENGTH,
            add_bos=True,
            on_progress=progress.advance,
        )
    assert f"{result.utilization:.2%} full" in capsys.readouterr().err
