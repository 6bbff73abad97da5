"""`open_stream` with keywords: the same batches as a config, checked in the same way."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from quire.errors import InvalidOption, InvalidState
from quire.options import EncodeOptions, PackOptions, SourceOptions
from quire.stream import GrainBatches, StreamOptions, TorchBatches, open_stream
from quire.stream.chomp import NAMES, DataOptions, TokenizerOptions, TrainOptions
from quire.stream.state import sealed
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    same,
    shards_of,
    take,
    unique_documents,
    windows_of,
    write_jsonl,
)

SHARDS = shards_of(unique_documents(LENGTHS), 3)
SHAPE = {"max_length": 8, "batch_size": 2}


def opened(**keywords):
    given = {"source": ListSource(SHARDS), "tokenizer": Numbers(), "shuffle_buffer_size": 4}
    return open_stream(**{**given, **SHAPE, "repeat": False, **keywords})


def from_config(**data):
    plain = config(**{"shuffle_buffer_size": 4, "repeat": False, **data})
    return open_stream(plain, source=ListSource(SHARDS), tokenizer=Numbers())


SAME = {
    "wrapped": ({}, {}),
    "first_fit": (
        {"strategy": "first_fit", "buffer_size": 5, "max_documents_per_row": 3},
        {"packing_mode": "bin", "packing_buffer_docs": 5, "packing_max_docs_per_bin": 3},
    ),
    "online": (
        {"strategy": "online", "buffer_size": 6, "prefetch": 2},
        {"packing_mode": "online", "packing_buffer_docs": 6, "grain_prefetch": 2},
    ),
    "truncated": ({"truncate_to": 3}, {"tokenizer": {"max_doc_tokens": 3}}),
    "labels": (
        {"mask_boundary_loss": False, "train_on_eos": False, "emit_position_ids": True},
        {"mask_boundary_loss": False, "train_on_eos": False, "emit_position_ids": True},
    ),
    "streams": (
        {"num_streams": 2, "seed": 3, "last_batch": "drop"},
        {"num_streams": 2, "seed": 3, "last_batch": "drop"},
    ),
    "specials": (
        {"add_bos": False, "add_eos": False},
        {"tokenizer": {"add_bos": False, "add_eos": False}},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_keywords_and_a_config_give_the_same_batches_and_resume_each_other(name):
    keywords, data = SAME[name]
    with (
        opened(**{"add_bos": True, "vocab_size": 1 << 20, **keywords}) as ours,
        from_config(**data) as theirs,
    ):
        assert same(take(ours, 2), take(theirs, 2))
        assert ours.ledger == theirs.ledger
        state = json.loads(json.dumps(ours.state_dict()))
        assert state == theirs.get_state()
        rest = take(ours)
        theirs.load_state_dict(state)
        assert same(take(theirs), rest)


def test_rows_have_max_length_tokens_and_the_same_number_of_labels():
    with opened(max_length=16, grad_accum=3) as stream:
        batch = next(stream)
    assert batch.input_ids.shape == batch.labels.shape == (3, 2, 16)
    assert stream.options.window_size == 17


def test_files_may_be_one_pattern(tmp_path):
    pattern = write_jsonl(tmp_path, SHARDS)
    one = open_stream(files=pattern, tokenizer=Numbers(), **SHAPE)
    several = open_stream(files=[pattern], tokenizer=Numbers(), **SHAPE)
    with one, several:
        assert same(take(one, 5), take(several, 5))


def test_a_column_of_another_name_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "ab"}\n')
    keywords = {"files": str(tmp_path / "*.jsonl"), "tokenizer": "byte", "repeat": False, **SHAPE}
    with open_stream(text_column="body", **keywords) as stream:
        (batch,) = take(stream)
    assert windows_of(batch)[0] == [1, 100, 101, 2]  # the byte tokenizer adds BOS itself
    with open_stream(**keywords) as stream, pytest.raises(Exception, match="text") as caught:
        next(stream)
    assert "data." not in str(caught.value)


def test_documents_over_a_limit_are_dropped_and_counted():
    long = [length for length in LENGTHS if length + 1 > 9]
    with opened(add_bos=True, drop_longer_than=9, truncate_to=4) as stream:
        take(stream)
        ledger = stream.ledger.check()
    assert ledger.documents.dropped["too_long"] == len(long)
    assert ledger.tokens.dropped["too_long"] == sum(long)
    kept = [length for length in LENGTHS if 0 < length <= 8]
    assert ledger.documents.emitted == len(kept)
    assert ledger.tokens.dropped["truncated"] == sum(max(0, length - 4) for length in kept)
    assert ledger.tokens.special == 2 * len(kept)


def test_a_mixture_is_a_list_of_sources(tmp_path):
    pattern = write_jsonl(tmp_path, SHARDS)
    sources = [{"files": [pattern], "weight": 3}, {"local_text": "7 8 9"}]
    ours = open_stream(sources=sources, tokenizer=Numbers(), add_bos=True, **SHAPE)
    theirs = open_stream(config(sources=sources), tokenizer=Numbers())
    with ours, theirs:
        assert same(take(ours, 9), take(theirs, 9))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_lenght": 8}, "unknown option max_lenght; did you mean max_length?"),
        ({"packing_mode": "bin"}, "unknown option packing_mode"),
        ({"max_length": 0}, "max_length is 0 but must be an integer >= 1"),
        ({"strategy": "bin"}, "strategy is 'bin' but must be one of wrapped, first_fit, online"),
        ({"num_streams": 3}, "num_streams is 3 but must divide batch_size, which is 2"),
        ({"shuffle": "no"}, "shuffle is 'no'"),
        ({"sources": [{"weight": 0}]}, "sources[0].weight is 0"),
        ({"eos_token_id": 1 << 20}, "eos_token_id is 1048576 but the vocabulary has 1048576 ids"),
        ({"tokenizer": None}, "tokenizer is missing"),
        ({"config": {"train": SHAPE}}, "there are a config and the keywords"),
    ],
)
def test_a_wrong_keyword_is_refused_in_the_names_of_the_caller(wrong, message):
    with pytest.raises(InvalidOption) as caught:
        opened(**wrong)
    assert message in str(caught.value)
    assert "data." not in str(caught.value)


def test_a_missing_special_token_names_the_keyword():
    tokenizer = Numbers()
    tokenizer.eos_token_id = None
    with pytest.raises(InvalidOption, match=r"^add_eos is true but the tokenizer has no EOS"):
        opened(tokenizer=tokenizer)
    with opened(tokenizer=tokenizer, add_eos=False) as stream:
        assert len(take(stream, 1)) == 1


def test_a_state_of_other_keywords_names_them():
    with opened(seed=1) as one, opened(seed=2) as other, pytest.raises(InvalidState) as caught:
        other.load_state_dict(one.state_dict())
    assert "seed (saved 1, now 2)" in str(caught.value)
    assert "data." not in str(caught.value)


def test_a_stream_of_keywords_has_options_and_no_config():
    with opened() as stream:
        assert (stream.options.max_length, stream.options.eos_token_id) == (8, 2)
        with pytest.raises(InvalidOption, match="opened with keywords"):
            _ = stream.config


def test_loaders_take_keywords_too():
    given = {"source": ListSource(SHARDS), "tokenizer": Numbers(), "repeat": False, **SHAPE}
    with open_stream(**given) as stream:
        expected = [batch.input_ids.tolist() for batch in take(stream)]
    assert [batch["input_ids"].tolist() for batch in GrainBatches(**given)] == expected
    torch = TorchBatches(**given)
    assert [[batch["input_ids"].tolist()] for batch in torch] == expected
    assert torch.options == stream.options


def test_every_option_of_the_config_has_a_name_in_quire():
    """Or it is only about how chomp's config names a tokenizer."""
    own = {"tokenizer", "kind", "hf_name_or_path", "byte_offset", "vocab_size_multiple"}
    own.add("auto_set_special_tokens")
    for kind in (DataOptions, TokenizerOptions, TrainOptions):
        translated = {dotted.rpartition(".")[2] for dotted in NAMES.values()}
        assert {option.name for option in fields(kind)} <= translated | own
    ours = {option.name for option in fields(StreamOptions)}
    answers = {"record_kind", "messages_column", "tools_column", "assistant_only", "chat_date"}
    assert ours - set(NAMES) == {"names", "drop_longer_than", "truncate_at", *answers}


def test_options_of_shared_groups_are_declared_once():
    own = {"strategy", "shuffle", "seed"}  # other choices, and documents are shuffled, not rows
    for group in (SourceOptions, EncodeOptions, PackOptions):
        for option in {field.name for field in fields(group)} - own:
            declared = [kind for kind in StreamOptions.__mro__ if option in vars(kind)]
            assert all(kind in group.__mro__ for kind in declared), option


@pytest.mark.parametrize("option", ["tokens_column", "pretokenized", "overlong", "stride"])
def test_an_option_that_streams_do_not_support_is_refused_by_its_name(option):
    with pytest.raises(InvalidOption, match=f"unknown option {option}"):
        opened(**{option: "split"})


def test_texts_are_cut_before_the_first_match_of_a_pattern():
    keywords = {"local_text": "abc END d", "tokenizer": "byte", "repeat": False, **SHAPE}
    with open_stream(truncate_at=" END", add_bos=False, **keywords) as stream:
        (batch,) = take(stream)
    assert windows_of(batch)[0] == [100, 101, 102, 2]
    with pytest.raises(InvalidOption, match="truncate_at is '\\(', which is not a regular"):
        open_stream(truncate_at="(", **keywords)


def without_option(state, name):
    """The state as a quire that did not have this option would have saved it."""
    options = {option: value for option, value in state["options"].items() if option != name}
    return sealed({**unsealed(state), "options": options})


def unsealed(state):
    return {name: state[name] for name in ("step", "options", "tokenizer", "streams")}


@pytest.mark.parametrize(
    ("option", "value"),
    [("emit_position_ids", True), ("truncate_at", "7"), ("hf_split", "test")],
)
def test_a_state_saved_before_an_option_existed_means_its_default(option, value):
    with opened() as stream:
        take(stream, 1)
        state = without_option(stream.state_dict(), option)
        rest = take(stream)
    with opened() as stream:
        stream.load_state_dict(state)
        assert same(take(stream), rest)
    with opened(**{option: value}) as stream, pytest.raises(InvalidState) as caught:
        stream.load_state_dict(state)
    assert f"saved with other options: {option} (saved " in str(caught.value)
    assert f", now {value!r})" in str(caught.value)


def test_a_state_with_an_option_that_this_version_does_not_have_is_refused():
    with opened() as stream:
        state = stream.state_dict()
        newer = sealed({**unsealed(state), "options": {**state["options"], "newer": 1}})
        with pytest.raises(InvalidState, match=r"newer \(saved 1, now unset\)"):
            stream.load_state_dict(newer)


def test_an_option_added_later_is_recorded_only_if_it_is_set():
    with opened() as plain, opened(truncate_at="7") as cut:
        assert "truncate_at" not in plain.state_dict()["options"]
        assert cut.state_dict()["options"]["truncate_at"] == "7"
