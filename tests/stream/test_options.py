"""The options of a stream: every rule, and the vocabulary that follows from the tokenizer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from quire.config import load_options
from quire.errors import InvalidOption
from quire.stream import DataOptions, SourceOptions, StreamConfig, TrainOptions, open_stream
from quire.stream import options as stream_options
from quire.stream.options import StreamOptions
from tests.stream.inputs import ListSource, Numbers, config, same, take
from tests.tokenizer_files import folder_of, load, parameters

TEXT = {"backend": "local_text", "local_text": "Grüße"}


def plain(data=None, model=None, train=None):
    return {
        "data": {**TEXT, "tokenizer": {"kind": "byte"}, **(data or {})},
        "train": {"seq_len": 8, "batch_size": 2, **(train or {})},
        "model": model or {},
    }


def test_defaults_are_those_of_the_contract():
    options = load_options(StreamConfig, {"train": {"seq_len": 8, "batch_size": 2}})
    data, tokenizer = options.data, options.data.tokenizer
    assert (data.backend, data.hf_split, data.text_key) == ("hf", "train", "text")
    assert (data.shuffle, data.shuffle_buffer_size, data.seed, data.repeat) == (
        True,
        10000,
        0,
        True,
    )
    assert (data.max_retries, data.retry_delay_sec, data.state_update_interval) == (3, 1.0, 2000)
    assert (data.packing_mode, data.packing_buffer_docs) == ("sequential", 128)
    assert data.packing_max_docs_per_bin is None
    assert (data.mask_boundary_loss, data.train_on_eos, data.emit_position_ids) == (
        True,
        True,
        False,
    )
    assert (data.grain_prefetch, data.last_batch, data.num_streams) == (0, "pad", 1)
    assert (tokenizer.kind, tokenizer.add_bos, tokenizer.add_eos) == ("hf", False, True)
    assert (tokenizer.vocab_size_multiple, tokenizer.auto_set_special_tokens) == (128, True)
    assert (tokenizer.byte_offset, tokenizer.max_doc_tokens) == (3, None)
    assert (options.train.grad_accum, options.model.segment_masking) == (1, True)


@pytest.mark.parametrize(
    ("section", "name", "value", "rule"),
    [
        ("data", "packing_buffer_docs", 0, "must be an integer >= 1"),
        ("data", "packing_max_docs_per_bin", 0, "must be an integer >= 1"),
        ("data", "shuffle_buffer_size", 0, "must be an integer >= 1"),
        ("data", "seed", -1, "must be an integer >= 0"),
        ("data", "max_retries", -1, "must be an integer >= 0"),
        ("data", "retry_delay_sec", -0.5, "must be a finite number >= 0"),
        ("data", "retry_delay_sec", float("nan"), "must be a finite number >= 0"),
        ("data", "state_update_interval", 0, "must be an integer >= 1"),
        ("data", "grain_prefetch", -1, "must be an integer >= 0"),
        ("data", "num_workers", -1, "must be an integer >= 0"),
        ("data", "num_streams", 0, "must be an integer >= 1"),
        ("data", "max_bad_records", -1, "must be an integer >= 0"),
        ("data", "packing_mode", "bins", "must be one of sequential, bin, online"),
        ("data", "backend", "s3", "must be one of hf, files, local_text"),
        ("data", "last_batch", "keep", "must be one of pad, drop"),
        ("data.tokenizer", "kind", "bytes", "must be one of hf, byte"),
        ("data.tokenizer", "byte_offset", -1, "must be an integer >= 0"),
        ("data.tokenizer", "vocab_size_multiple", 0, "must be an integer >= 1"),
        ("data.tokenizer", "max_doc_tokens", 0, "must be an integer >= 1"),
        ("train", "seq_len", 0, "must be an integer >= 1"),
        ("train", "batch_size", 0, "must be an integer >= 1"),
        ("train", "grad_accum", 0, "must be an integer >= 1"),
        ("model", "vocab_size", 0, "must be an integer >= 1"),
        ("model", "pad_token_id", -1, "must be an integer >= 0"),
        ("model", "pad_token_id", 10**30, "must be at most 2147483647"),
        ("model", "bos_token_id", 2**31, "must be at most 2147483647"),
        ("model", "eos_token_id", 2**31, "must be at most 2147483647"),
        ("data.tokenizer", "byte_offset", 10**30, "must be at most 2147483392"),
    ],
)
def test_a_wrong_value_is_refused_with_the_dotted_name_the_value_and_the_rule(
    section, name, value, rule
):
    wrong = plain()
    part = wrong
    for key in section.split("."):
        part = part[key]
    part[name] = value
    with pytest.raises(InvalidOption) as caught:
        open_stream(wrong)
    assert f"{section}.{name} is {value!r} but {rule}" in str(caught.value)


def test_a_limit_that_no_document_reaches_cuts_nothing():
    wide = plain()
    wide["data"]["tokenizer"]["max_doc_tokens"] = 10**30
    with open_stream(wide) as stream, open_stream(plain()) as other:
        assert same([next(stream)], [next(other)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"num_streams": 3}, "data.num_streams is 3 but must divide train.batch_size, which is 2"),
        ({"sources": [{"weight": 0}]}, "data.sources[0].weight is 0 but must be a finite"),
        ({"sources": [{"weight": 1}]}, "there is another source besides it"),
        ({"tokenizer": {"kind": "hf"}}, "data.tokenizer.hf_name_or_path is null"),
        (
            {"tokenizer": {"hf_name_or_path": "no/such/tokenizer-anywhere"}},
            "no tokenizer can be loaded",
        ),
        ({"tokenizer": {"kind": "byte", "byte_offset": 2}}, "eos_token_id is 2 but bytes are"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # huggingface_hub warns of its own requests
def test_options_that_contradict_each_other_are_refused(data, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InvalidOption) as caught:
        open_stream(plain(data))
    assert message in str(caught.value)


def test_packing_options_of_bins_do_not_affect_the_sequential_packer():
    bins = {"packing_max_docs_per_bin": 1, "packing_buffer_docs": 3, "repeat": False}
    with open_stream(plain(bins)) as stream, open_stream(plain({"repeat": False})) as other:
        assert same(take(stream), take(other))


def test_the_config_of_a_whole_training_run_opens_a_stream():
    """Names of chomp's own options, of which a stream reads a part."""
    run = plain(
        {"repeat": False},
        model={"backend": "megalodon", "chunk_size": 16, "num_layers": 2, "output_size": -1},
        train={"steps": 10, "allow_cpu": True, "deterministic": None, "log_every": 1},
    )
    run |= {name: {"enabled": True} for name in ("optim", "checkpoint", "logging", "debug")}
    with (
        pytest.warns(UserWarning, match=r"are ignored: train\.steps, .*model\.chunk_size, .*optim"),
        open_stream(run) as stream,
        open_stream(plain({"repeat": False})) as other,
    ):
        assert same(take(stream), take(other))
    run["data"]["steps"] = 10
    with pytest.raises(InvalidOption, match=r"unknown option data\.steps;"):
        open_stream(run)


@pytest.mark.parametrize("section", ["train", "model", "data"])
def test_a_number_of_thousands_of_digits_is_refused_by_name(section):
    name = {"train": "seq_len", "model": "pad_token_id", "data": "max_retries"}[section]
    wrong = plain()
    wrong[section][name] = 10**5000
    with pytest.raises(InvalidOption, match=rf"{section}\.{name} is an integer of about 5,001 dig"):
        open_stream(wrong)


def test_the_byte_tokenizer_has_256_ids_and_those_below_them():
    with open_stream(plain(data={"repeat": False})) as stream:
        assert stream.config.model.vocab_size == 259
        assert stream.config.model.pad_token_id == 0
        assert stream.config.model.eos_token_id == 2
        (batch,) = take(stream)
    assert batch.input_ids[0, 0].tolist() == [byte + 3 for byte in "Grüße".encode()] + [2]


def test_a_byte_vocabulary_that_is_too_small_is_refused():
    with pytest.raises(InvalidOption, match=r"model\.vocab_size is 258 but .* has 259 ids"):
        open_stream(plain(model={"vocab_size": 258}))
    with open_stream(plain(model={"vocab_size": 300})) as stream:
        assert stream.config.model.vocab_size == 300


def test_special_ids_of_the_byte_tokenizer_come_from_the_model():
    model = {"pad_token_id": 300, "eos_token_id": 299}
    data = {"tokenizer": {"kind": "byte", "byte_offset": 2}, "repeat": False}
    with open_stream(plain(data, model)) as stream:
        (batch,) = take(stream)
        assert stream.config.model.vocab_size == 301
    assert batch.input_ids[0, 0, -1] == 299
    assert (batch.input_ids[0, 1] == 300).all()


def tokenizer_of(**ids):
    numbers = Numbers()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(numbers, name, ids.get(name))
    return numbers


def test_an_hf_vocabulary_is_rounded_up_and_special_ids_are_copied():
    tokenizer = tokenizer_of(bos_token_id=5, eos_token_id=6)
    tokenizer.vocab_size = 1000
    options = config(tokenizer={"vocab_size_multiple": 64})
    options["model"] = {"eos_token_id": 9, "vocab_size": 900}
    with open_stream(options, source=ListSource([[[10]]]), tokenizer=tokenizer) as stream:
        model = stream.config.model
    assert (model.vocab_size, model.bos_token_id, model.eos_token_id) == (1024, 5, 6)
    assert model.pad_token_id == 6  # no PAD: EOS pads
    options["data"]["tokenizer"]["auto_set_special_tokens"] = False
    options["model"] = {"eos_token_id": 9, "bos_token_id": 8, "vocab_size": 1025}
    with open_stream(options, source=ListSource([[[10]]]), tokenizer=tokenizer) as stream:
        model = stream.config.model
    assert (model.vocab_size, model.bos_token_id, model.eos_token_id) == (1088, 8, 9)


@pytest.mark.parametrize("name", ["bos", "eos"])
def test_a_requested_special_token_that_is_missing_is_an_error(name):
    ids = {"bos_token_id": 1, "eos_token_id": 2, f"{name}_token_id": None}
    with pytest.raises(
        InvalidOption, match=rf"data\.tokenizer\.add_{name} is true but the tokenizer has no"
    ):
        open_stream(config(), source=ListSource([[[10]]]), tokenizer=tokenizer_of(**ids))


def test_a_special_token_hidden_by_an_option_is_named_with_the_remedies():
    options = config(tokenizer={"auto_set_special_tokens": False})
    with pytest.raises(
        InvalidOption,
        match=r"auto_set_special_tokens is false, so the tokenizer's own BOS \(1\) is not used; "
        r"set model\.bos_token_id to 1, auto_set_special_tokens to true, or data\.tok",
    ):
        open_stream(options, source=ListSource([[[10]]]), tokenizer=Numbers())


def test_a_special_id_outside_the_vocabulary_is_an_error():
    options = plain(model={"vocab_size": 259, "eos_token_id": 259})
    with pytest.raises(InvalidOption):
        open_stream(options)


def test_train_on_eos_false_requires_an_eos():
    options = config(train_on_eos=False, tokenizer={"add_eos": False})
    with pytest.raises(InvalidOption, match=r"data\.train_on_eos is False but model\.eos_token_id"):
        open_stream(options, source=ListSource([[[10]]]), tokenizer=tokenizer_of(bos_token_id=1))


@pytest.mark.parametrize("name", parameters("qwen3", "gpt2"))
def test_ids_and_sizes_are_taken_from_the_tokenizer(name):
    data = {"tokenizer": {"hf_name_or_path": str(folder_of(name))}, "repeat": False}
    with open_stream(plain(data)) as stream:
        (batch,) = take(stream)
        model = stream.config.model
    theirs = load(name)
    expected = [*theirs("Grüße", add_special_tokens=False)["input_ids"], theirs.eos_token_id]
    assert batch.input_ids[0, 0][batch.attention_mask[0, 0]].tolist() == expected
    assert model.pad_token_id == theirs.convert_tokens_to_ids("<|endoftext|>")
    assert model.eos_token_id == theirs.eos_token_id
    assert model.vocab_size % 128 == 0
    assert model.vocab_size >= len(theirs)


@pytest.mark.parametrize("name", parameters("gpt2"))
def test_with_pad_equal_to_eos_the_real_eos_is_still_a_target(name):
    tokenizer = {"hf_name_or_path": str(folder_of(name))}
    eos = load(name).eos_token_id
    with open_stream(plain({"tokenizer": tokenizer, "repeat": False})) as stream:
        (batch,) = take(stream)
    assert eos in batch.labels[0, 0]
    assert (batch.labels[0, 1] == -100).all()
    assert (batch.input_ids[0, 1] == eos).all()


def test_the_batch_is_the_same_with_and_without_segment_masking():
    from tests.stream.inputs import same

    runs = []
    for masking in (True, False):
        with open_stream(plain(model={"segment_masking": masking})) as stream:
            runs.append(take(stream, 3))
            assert stream.config.model.segment_masking is masking
    assert same(*runs)


def test_stats_count_only_delivered_batches():
    options = config(grain_prefetch=3, shuffle=False)
    source = ListSource([[[10, 11, 12, 13, 14, 15, 16]]])
    with open_stream(options, source=source, tokenizer=Numbers()) as stream:
        take(stream, 2)
        stats = SimpleNamespace(**stream.stats())
    assert (stats.step, stats.tokens, stats.utilization) == (2, 36, 1.0)
    assert stats.documents == 4


def test_a_row_length_beyond_32_bits_is_refused():
    with pytest.raises(InvalidOption, match="seq_len is 99999999999999999999 but must be at most"):
        TrainOptions(seq_len=99999999999999999999, batch_size=1)


@pytest.mark.parametrize(
    ("given", "backend"),
    [
        ({}, "hf"),
        ({"hf_dataset": "a"}, "hf"),
        ({"files": ("a.jsonl",)}, "files"),
        ({"local_text": ""}, "local_text"),
        ({"hf_dataset": "a", "files": ("a.jsonl",)}, "hf"),
        ({"backend": "hf", "files": ("a.jsonl",)}, "hf"),
        ({"backend": None, "files": ("a.jsonl",)}, "files"),
    ],
)
def test_a_missing_backend_follows_from_the_other_options(given, backend):
    assert SourceOptions(**given).backend == backend
    assert DataOptions(**given).backend == backend


def test_files_and_local_text_without_a_backend_are_refused():
    with pytest.raises(InvalidOption, match="set backend to files or local_text"):
        SourceOptions(files=("a.jsonl",), local_text="a")


def test_names_for_messages_are_not_an_option_of_callers():
    for unknown in ({"names": {}}, {"sources": [{"local_text": "a", "names": {}}]}, {"colour": 1}):
        with pytest.raises(InvalidOption, match="unknown option") as caught:
            open_stream(tokenizer="byte", max_length=4, batch_size=1, **unknown)
        assert "names" not in str(caught.value).partition("known: ")[2].split(", ")


def test_an_option_that_is_added_is_recorded_only_if_it_is_set(monkeypatch):
    older = stream_options.IN_EVERY_STATE - {"emit_position_ids"}
    monkeypatch.setattr(stream_options, "IN_EVERY_STATE", older)
    default = StreamOptions(max_length=8, batch_size=2)
    assert "emit_position_ids" not in default.decisive()
    assert replace(default, emit_position_ids=True).decisive()["emit_position_ids"] is True


def test_tools_that_are_left_out_are_recorded():
    options = StreamOptions(max_length=8, batch_size=2, messages_column="messages")
    assert "tools_column" not in options.decisive()
    assert replace(options, tools_column=None).decisive()["tools_column"] is None
