"""Options built as objects: validated like a file, with integers of any kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from quire.errors import InvalidOption
from quire.options.nested import flat_options
from quire.stream import (
    DataOptions,
    ModelOptions,
    StreamConfig,
    TokenizerOptions,
    TrainOptions,
    WeightedSource,
    open_stream,
)
from quire.stream.open import StreamArguments
from tests.option_fields import integer_fields
from tests.stream.inputs import ListSource, Numbers, same, shards_of, take, unique_documents

KINDS = [TokenizerOptions, DataOptions, TrainOptions, ModelOptions]
GIVEN = {TrainOptions: {"seq_len": 8, "batch_size": 2}}
DOCUMENTS = unique_documents([5, 3, 9, 14, 2, 6, 30, 4, 7, 12])


def config_of(number):
    """A config with every integer made by the given function."""
    return StreamConfig(
        data=DataOptions(
            shuffle_buffer_size=number(4),
            seed=number(3),
            max_retries=number(2),
            state_update_interval=number(5),
            max_bad_records=number(1),
            packing_mode="bin",
            packing_buffer_docs=number(4),
            packing_max_docs_per_bin=number(3),
            grain_prefetch=number(2),
            num_workers=number(0),
            num_streams=number(2),
            tokenizer=TokenizerOptions(
                byte_offset=number(3), vocab_size_multiple=number(64), max_doc_tokens=number(25)
            ),
        ),
        train=TrainOptions(seq_len=number(8), batch_size=number(4), grad_accum=number(2)),
        model=ModelOptions(
            vocab_size=number(100),
            pad_token_id=number(0),
            bos_token_id=number(1),
            eos_token_id=number(2),
        ),
    )


def opened(config, number):
    source = ListSource(shards_of(DOCUMENTS, 3))
    rank = {"rank": number(1), "world_size": number(2)}
    return open_stream(config, source=source, tokenizer=Numbers(), **rank)


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_numpy_integers_give_the_same_batches_and_states_as_python_integers(kind):
    with opened(config_of(int), int) as plain, opened(config_of(kind), kind) as stream:
        assert same(take(stream, 4), take(plain, 4))
        text = json.dumps(stream.get_state())
        assert text == json.dumps(plain.get_state())
        plain.set_state(json.loads(text))
        assert same(take(stream, 4), take(plain, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_options_keep_numpy_integers_as_python_integers(kind):
    for name in integer_fields(kind):
        more = {"packing_mode": "bin"} if name == "packing_max_docs_per_bin" else {}
        options = kind(**{**GIVEN.get(kind, {}), **more, name: np.int64(2)})
        assert type(getattr(options, name)) is int, name


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_refused_for_integers_that_are_not_optional(kind):
    for name in integer_fields(kind, optional=False):
        with pytest.raises(InvalidOption, match=f"{name} is None but must be an int"):
            kind(**{**GIVEN.get(kind, {}), name: None})


def test_numpy_integers_of_a_vocabulary_become_python_integers():
    tokenizer = Numbers()
    tokenizer.vocab_size, tokenizer.eos_token_id = np.int64(1 << 20), np.int64(2)
    source = ListSource(shards_of(DOCUMENTS, 3))
    options = StreamConfig(train=TrainOptions(seq_len=8, batch_size=2))
    with open_stream(options, source=source, tokenizer=tokenizer) as stream:
        next(stream)
        json.dumps(stream.get_state())
        model = flat_options(stream.config.model)
    assert {type(value) for value in model.values()} == {int, bool}


@pytest.mark.parametrize("weight", [np.float32(0.5), np.float64(0.5), np.int64(1), 1])
def test_a_numpy_weight_becomes_a_python_float(weight):
    assert type(WeightedSource(weight=weight).weight) is float
    assert type(DataOptions(retry_delay_sec=weight).retry_delay_sec) is float


@pytest.mark.parametrize("wrong", ["1", None, True, 1j, [1], float("nan"), 0, -1])
def test_a_weight_that_is_not_a_number_above_zero_is_refused(wrong):
    with pytest.raises(InvalidOption, match=r"weight is .* but must be a finite number > 0"):
        WeightedSource(weight=wrong)


@pytest.mark.parametrize("wrong", ["1", None, True, [1], float("inf"), -1])
def test_a_delay_that_is_not_a_finite_number_is_refused(wrong):
    with pytest.raises(InvalidOption, match=r"retry_delay_sec is .* but must be a finite"):
        DataOptions(retry_delay_sec=wrong)


TEXT = {"backend": "local_text", "local_text": "abc", "tokenizer": TokenizerOptions(kind="byte")}
TRAIN = TrainOptions(seq_len=8, batch_size=2)


@pytest.mark.parametrize("wrong", [None, 5, [], b"config.yaml", 1.5, TRAIN])
@pytest.mark.parametrize("opens", [open_stream, lambda config: StreamArguments.of(config, {})])
def test_an_object_that_is_not_a_config_is_refused_with_the_kinds_that_are(wrong, opens):
    with pytest.raises(InvalidOption) as caught:
        opens(wrong)
    assert str(caught.value) == (
        f"the config is a {type(wrong).__name__} but must be a StreamConfig, a dict or the path of "
        "a YAML file; or give options as keywords"
    )


@pytest.mark.parametrize("wrong", [None, {"seq_len": 8, "batch_size": 2}])
@pytest.mark.parametrize(
    ("section", "kind"),
    [("train", "TrainOptions"), ("data", "DataOptions"), ("model", "ModelOptions")],
)
def test_a_section_of_another_kind_is_refused_by_name(section, kind, wrong):
    with pytest.raises(InvalidOption) as caught:
        StreamConfig(**{"train": TRAIN, section: wrong})
    assert str(caught.value) == (
        f"{section} is a {type(wrong).__name__} but must be a {kind}; or give open_stream the "
        "whole config as a dict"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"tokenizer": None}, "data.tokenizer is None but must map names to values"),
        ({"shuffle": "no"}, "shuffle is 'no' but must be True or False"),
        ({"files": "a.jsonl"}, "files is 'a.jsonl' but must be a list"),
        ({"files": (Path("a.jsonl"),)}, "files[0] is PosixPath('a.jsonl') but"),
        ({"local_text": 5}, "local_text is 5 but must be a string"),
        ({"text_key": 5}, "text_key is 5 but must be a string"),
        ({"sources": ("abc",)}, "data.sources[0] is 'abc' but must map names to values"),
    ],
)
def test_config_objects_and_files_are_validated_by_the_same_types(data, message):
    with pytest.raises(InvalidOption) as caught:
        open_stream(StreamConfig(train=TRAIN, data=DataOptions(**{**TEXT, **data})))
    assert message in str(caught.value)


def test_lists_in_config_objects_are_accepted_as_tuples(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    files = [str(tmp_path / "a.jsonl")]
    source = WeightedSource(backend="files", files=files)
    options = StreamConfig(
        train=TRAIN, data=DataOptions(sources=[source], tokenizer=TokenizerOptions(kind="byte"))
    )
    with open_stream(options) as stream:
        batches = take(stream, 3)
        state = json.loads(json.dumps(stream.get_state()))
    plain = {
        "train": {"seq_len": 8, "batch_size": 2},
        "data": {
            "sources": [{"backend": "files", "files": files}],
            "tokenizer": {"kind": "byte"},
        },
    }
    with open_stream(plain) as stream:
        assert same(take(stream, 3), batches)
        stream.set_state(state)


def test_valid_config_objects_are_kept_unchanged():
    options = StreamConfig(train=TRAIN, data=DataOptions(**TEXT))
    assert StreamArguments.of(options, {}).config == options
