"""States that are damaged, foreign, newer, forged or of other options: errors, never batches."""

from __future__ import annotations

import base64
import copy
import json
import pickle

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidOption, InvalidState, SourceChanged
from quire.stream import load_state, open_stream, save_state
from quire.stream.state import sealed, tokens_from_json, tokens_to_json
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    same,
    shards_of,
    take,
    unique_documents,
)

SHARDS = shards_of(unique_documents(LENGTHS), 2)


def opened(**options):
    options = {"shuffle_buffer_size": 4, "packing_mode": "bin", "packing_buffer_docs": 7, **options}
    return open_stream(config(**options), source=ListSource(SHARDS), tokenizer=Numbers())


@pytest.fixture(scope="module")
def state():
    with opened() as stream:
        take(stream, 5)
        assert stream.ledger.tokens.pending
        return stream.get_state()


@pytest.fixture
def file(state, tmp_path):
    file = tmp_path / "state.json"
    save_state(state, file)
    return file


def through_bytes(state):
    return json.loads(json.dumps(state).encode())


def forged(state, *path, value):
    """The state with one changed value and a matching checksum."""
    changed = copy.deepcopy(state)
    part = changed
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    del changed["checksum"]
    body = {name: changed[name] for name in changed if name != "format"}
    return sealed(body)


def test_a_saved_state_is_loaded_unchanged(state, file):
    assert load_state(file) == json.loads(json.dumps(state))
    assert not list(file.parent.glob(".*"))


def test_saving_twice_and_before_the_first_batch_is_exact(tmp_path):
    """Fault 34; for after the last batch see test_resume, ending streams."""
    with opened() as stream:
        first = stream.get_state()
        assert stream.get_state() == first
        expected = take(stream, 5)
    with opened() as stream:
        stream.set_state(first)
        assert same(take(stream, 5), expected)


@settings(max_examples=150)
@given(data=st.data())
def test_any_flipped_bit_is_detected(state, tmp_path_factory, data):
    """Fault 27: detected by the checksum or by JSON itself."""
    file = tmp_path_factory.mktemp("flipped") / "state.json"
    save_state(state, file)
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(bytes(content))
    with pytest.raises(InvalidState, match=r"state\.json"):
        load_state(file)


def test_a_truncated_state_is_refused(file):
    """Fault 27."""
    content = file.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(InvalidState, match="not a complete JSON document"):
            load_state(file)


@pytest.mark.parametrize("wrong", [None, 5, b"state.json", ["state.json"]])
def test_an_object_that_is_not_a_path_is_refused(state, wrong):
    with pytest.raises(InvalidOption) as saving:
        save_state(state, wrong)
    with pytest.raises(InvalidOption) as loading:
        load_state(wrong)
    message = f"the path of the state is {wrong!r} but must be a string or a Path"
    assert str(saving.value) == str(loading.value) == message


def test_a_missing_state_is_named(tmp_path):
    with pytest.raises(InvalidState, match="there is no state at"):
        load_state(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "not a state of a quire stream"),
        (b"[]", "not a state of a quire stream: a state is a dict, not a list"),
        (b"3", "not a state of a quire stream: a state is a dict, not a int"),
        (b'{"format": "grain"}', "its format is 'grain'"),
        (pickle.dumps({"format": "quire.stream"}), "not a complete JSON document"),
        (b"[" * 100_000, "not a complete JSON document"),
        (b'{"format": "quire.stream", "version": 99}', "reads up to 3; upgrade quire"),
        (b'{"format": "quire.stream", "version": true}', "a version is an integer"),
        (b'{"format": "quire.stream", "version": 1, "checksum": null}', "checksum is None"),
        (b'{"format": "quire.stream", "version": 1, "step": NaN}', "is not JSON"),
    ],
)
def test_a_foreign_state_is_refused(tmp_path, content, message):
    """Faults 29 and 50: newer, foreign, or a pickle."""
    file = tmp_path / "state.json"
    file.write_bytes(content)
    with pytest.raises(InvalidState, match=message):
        load_state(file)


SOURCE = ("streams", "0", "mixture", "sources", 0)
FORGERIES = [
    (("step",), -1),
    (("step",), 1.5),
    (("step",), True),
    (("options",), []),
    (("streams",), []),
    (("streams",), {}),
    (("streams", "0"), None),
    (("streams", "0", "over"), 1),
    (("streams", "0", "more"), 1),
    (("streams", "0", "ledger"), {}),
    (("streams", "0", "ledger", "tokens", "input"), 10**6),
    (("streams", "0", "ledger", "tokens", "pending"), 0),
    (("streams", "0", "ledger", "documents", "input"), -1),
    (("streams", "0", "packer"), {}),
    (("streams", "0", "packer", "tail"), 0),
    (("streams", "0", "packer", "tail"), 3),
    (("streams", "0", "packer", "tokens", "lengths"), [10**9]),
    (("streams", "0", "packer", "tokens"), {"lengths": [10**13], "width": 0, "data": ""}),
    (("streams", "0", "ready", "tokens"), {"lengths": [4], "width": 0, "data": ""}),
    (("streams", "0", "ready", "lengths"), [[]]),
    (("streams", "0", "ready", "documents"), None),
    (("streams", "0", "mixture", "taken"), []),
    (("streams", "0", "mixture", "taken"), [-1]),
    (("streams", "0", "mixture", "sources"), []),
    ((*SOURCE, "epoch"), 7),
    ((*SOURCE, "position"), 99),
    ((*SOURCE, "position"), -1),
    ((*SOURCE, "read"), 99),
    ((*SOURCE, "read"), 10**12),
    ((*SOURCE, "digest"), "00"),
    ((*SOURCE, "start"), None),
    ((*SOURCE, "start", "place"), 99),
    ((*SOURCE, "start", "epoch"), "0"),
    ((*SOURCE, "start", "shards"), "other"),
]


@pytest.mark.parametrize(("path", "value"), FORGERIES)
def test_a_forged_state_with_a_good_checksum_is_refused(state, path, value):
    """Fault 28: schema and bounds of every part."""
    with opened() as stream, opened() as untouched:
        before = take(stream, 2)
        with pytest.raises((InvalidState, SourceChanged)):
            stream.set_state(forged(state, *path, value=value))
        # The stream that refused goes on as if nothing had been asked.
        assert same(before + take(stream, 6), take(untouched, 8))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("streams",), []),
        (("streams",), {"0": None}),
        (("streams", "0", "packer"), None),
        (("streams", "0", "packer"), {"continues": 1}),
        (("options",), ["max_length"]),
    ],
)
def test_a_forged_state_of_an_older_version_is_refused(state, path, value):
    """Faults 28 and 29."""
    older = forged(forged(state, *path, value=value), "version", value=1)
    assert older["version"] == 1
    with opened() as stream, pytest.raises(InvalidState):
        stream.set_state(older)


def test_an_unchanged_state_with_a_new_checksum_is_accepted(state):
    with opened() as stream:
        stream.set_state(forged(state, "step", value=state["step"]))
        stream.set_state(state)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"seed": 1}, ["data.seed (saved 0, now 1)"]),
        ({"shuffle": False}, ["data.shuffle (saved True, now False)"]),
        ({"seq_len": 9, "batch_size": 4}, ["train.seq_len (saved 8, now 9)", "train.batch_size"]),
        ({"packing_buffer_docs": 5}, ["data.packing_buffer_docs (saved 7, now 5)"]),
        ({"tokenizer": {"add_bos": False}}, ["data.tokenizer.add_bos (saved True, now False)"]),
        ({"train_on_eos": False}, ["data.train_on_eos"]),
        ({"num_streams": 2}, ["data.num_streams (saved 1, now 2)"]),
    ],
)
def test_other_options_are_refused_by_name(state, changed, names):
    """Fault 30."""
    with opened(**changed) as stream, pytest.raises(InvalidState) as caught:
        stream.set_state(state)
    for name in names:
        assert name in str(caught.value)
    assert "; restore them, or start a new stream" in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"grain_prefetch": 3},
        {"max_retries": 9},
        {"retry_delay_sec": 2.0},
        {"state_update_interval": 1},
        {"max_bad_records": 5},
    ],
)
def test_options_that_do_not_affect_batches_may_differ(state, changed):
    """Fault 33, and the other options that may change."""
    with opened() as stream:
        expected = take(stream, 12)[5:]
    with opened(**changed) as stream:
        stream.set_state(state)
        assert same(take(stream, 7), expected)


class Other(Numbers):
    """Another tokenizer of the same size."""

    def __call__(self, texts):
        return {"input_ids": [[1 + int(w.isdecimal()) for w in text.split()] for text in texts]}


def test_a_different_tokenizer_is_refused(state):
    """Fault 31: it encodes the probes differently."""
    stream = open_stream(
        config(shuffle_buffer_size=4, packing_mode="bin", packing_buffer_docs=7),
        source=ListSource(SHARDS),
        tokenizer=Other(),
    )
    with stream, pytest.raises(InvalidState, match=r"the tokenizer"):
        stream.set_state(state)


def word_tokenizer(file, words):
    """A tokenizer.json with these words, in addition to those of the probes."""
    vocabulary = {word: number for number, word in enumerate(["<unk>", "</s>", *words])}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="<unk>")  # noqa: S106 - a token
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(file))


def test_a_tokenizer_whose_file_changed_is_refused(tmp_path):
    """Fault 31: the probes contain neither word, so only the hash of the file detects it."""
    file = tmp_path / "tokenizer.json"
    options = config(
        backend="local_text",
        local_text="quire gathers sheets",
        tokenizer={"hf_name_or_path": str(file), "add_bos": False},
    )
    options["model"] = {"eos_token_id": 1}

    def opened_with(words):
        word_tokenizer(file, words)
        return open_stream(options)

    with opened_with(["quire", "sheets"]) as stream:
        first = next(stream)
        state = through_bytes(stream.get_state())
    with opened_with(["quire", "sheets"]) as stream:
        stream.set_state(state)
    with opened_with(["sheets", "quire"]) as stream:
        assert not same([next(stream)], [first])
        with pytest.raises(InvalidState, match=r"the tokenizer \(its files"):
            stream.set_state(state)


@pytest.mark.parametrize("mode", ["sequential", "bin", "online"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_step_around_the_end_of_an_epoch_is_exact(mode, shuffle):
    """Fault 36: three wrap-arounds, the windows of which hold documents of two epochs."""
    options = {"packing_mode": mode, "shuffle": shuffle, "shuffle_buffer_size": 9}
    states, batches, epochs = [], [], []
    with opened(**options) as stream:
        while stream.stats()["epoch"] < 4:
            states.append(through_bytes(stream.get_state()))
            batches += take(stream, 1)
            epochs.append(stream.stats()["epoch"])
    assert set(epochs) == set(range(5))
    turns = [step for step in range(1, len(epochs)) if epochs[step] != epochs[step - 1]]
    for turn in turns:
        for step in range(max(0, turn - 2), min(turn + 3, len(states))):
            with opened(**options) as stream:
                stream.set_state(states[step])
                assert same(take(stream, len(batches) - step), batches[step:])


@pytest.mark.parametrize(
    "change",
    [
        lambda shards: shards[0].__setitem__(0, [9, 9]),
        lambda shards: shards[0].reverse(),
        lambda shards: [shard.clear() for shard in shards],
        lambda shards: shards.append([[5]]),
    ],
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_source_whose_earlier_records_changed_is_refused(change, shuffle):
    """Fault 49: what a state refers to is read again and differs."""
    plain = config(shuffle_buffer_size=30, shuffle=shuffle)
    with open_stream(plain, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        take(stream, 1)
        state = stream.get_state()
    shards = copy.deepcopy(SHARDS)
    change(shards)
    with (
        open_stream(plain, source=ListSource(shards), tokenizer=Numbers()) as stream,
        pytest.raises(SourceChanged),
    ):
        stream.set_state(state)


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1)))
def test_tokens_survive_json(documents):
    arrays = [np.array(document, np.int32) for document in documents]
    plain = json.loads(json.dumps(tokens_to_json(arrays)))
    back = tokens_from_json("tokens", plain, 2**31)
    assert [tokens.tolist() for tokens in back] == documents
    assert len(base64.b64decode(plain["data"])) == plain["width"] * sum(map(len, documents))


def test_a_token_outside_the_vocabulary_is_refused():
    plain = tokens_to_json([np.array([7], np.int32)])
    with pytest.raises(InvalidState, match="token id 7 is outside the vocabulary of 7"):
        tokens_from_json("tokens", plain, 7)


def test_a_state_of_a_full_buffer_is_small_and_quick_to_make():
    """128 documents of web length in the buffer: under a megabyte."""
    lengths = (1034 * np.random.default_rng(0).lognormal(-0.6, 1.092, 300)).astype(int) + 1
    documents = [np.arange(n, dtype=np.int64) % 150_000 + 10 for n in lengths.tolist()]
    source = ListSource([[d.tolist() for d in documents]])
    plain = config(seq_len=4096, packing_mode="bin", packing_buffer_docs=128, shuffle=False)
    with open_stream(plain, source=source, tokenizer=Numbers()) as stream:
        next(stream)
        size = len(json.dumps(stream.get_state()))
    assert size < 1_000_000
