"""A tokenizer that its owner uses in other threads: no token is lost, and it is not modified."""

from __future__ import annotations

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import tokenizers
from tests.text.word_tokenizer import SPECIALS, WORDS, word_backend, word_tokenizer
from tests.tokenizer_files import load
from transformers import PreTrainedTokenizerFast

import quire
from quire.stream import open_stream
from quire.text import as_tokenizer
from quire.text.chat import conversation_encoder

TEXT = " ".join("abcdefghij" * 2)
TALK = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}]


def backend() -> tokenizers.Tokenizer:
    """Cut to eight tokens and padded, as many published files are."""
    made = word_backend()
    made.enable_truncation(8)
    made.enable_padding(length=12, pad_id=2, pad_token=SPECIALS[2])
    return made


def fast(**options) -> PreTrainedTokenizerFast:
    return word_tokenizer(backend=backend(), **options)


def settings_of(tokenizer) -> tuple:
    held = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return held.truncation, held.padding, held.encode_special_tokens, held.to_str()


@contextmanager
def used_by_its_owner(tokenizer):
    """Another thread that truncates, pads and splits with it all the time."""
    done = threading.Event()

    def use():
        while not done.is_set():
            tokenizer.enable_truncation(3)
            tokenizer.enable_padding(length=5)
            tokenizer.encode_special_tokens = True
            tokenizer.no_truncation()
            tokenizer.no_padding()
            tokenizer.encode_special_tokens = False

    thread = threading.Thread(target=use)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Watched(PreTrainedTokenizerFast):
    """A fast tokenizer that counts how often it is called; a call writes to its backend."""

    calls = 0

    def _encode_plus(self, *arguments, **options):
        Watched.calls += 1
        return super()._encode_plus(*arguments, **options)


def packed_tokens(tokenizer) -> int:
    records = [{"text": TEXT}] * 50
    _, ledger = quire.pack_dataset(
        records, tokenizer, max_length=64, add_bos=False, add_eos=False, return_ledger=True
    )
    return ledger.check().tokens.input


def test_no_token_is_lost_while_the_owner_truncates_in_another_thread():
    for tokenizer in (backend(), fast()):
        with used_by_its_owner(getattr(tokenizer, "backend_tokenizer", tokenizer)):
            assert [packed_tokens(tokenizer) for _ in range(20)] == [50 * 20] * 20


def test_threads_that_share_a_file_with_a_truncation_lose_no_token(tmp_path):
    backend().save(str(tmp_path / "tokenizer.json"))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(packed_tokens, [tmp_path] * 40)) == [50 * 20] * 40


@pytest.mark.parametrize("make", [backend, fast])
def test_the_owners_settings_are_unchanged(make):
    tokenizer = make()
    held = getattr(tokenizer, "backend_tokenizer", tokenizer)
    held.encode_special_tokens = True
    before = settings_of(tokenizer)
    assert as_tokenizer(tokenizer).encode_batch([TEXT, "a </s>"]).lengths.tolist() == [20, 2]
    assert settings_of(tokenizer) == before
    assert before[0]["max_length"] == 8 and before[1]["length"] == 12 and before[2] is True


def test_conversations_keep_the_owners_settings_and_lose_nothing_next_to_other_threads():
    tokenizer = fast()
    before = settings_of(tokenizer)
    ids, labels = conversation_encoder(tokenizer)(TALK)
    assert (len(ids), sum(label >= 0 for label in labels)) == (1 + 20 + 1 + 1 + 20 + 1, 21)
    assert settings_of(tokenizer) == before
    with used_by_its_owner(tokenizer.backend_tokenizer):
        encode = conversation_encoder(tokenizer)
        assert [encode(TALK) for _ in range(50)] == [(ids, labels)] * 50


def test_nothing_is_written_to_the_owners_backend_even_for_a_moment(tmp_path, monkeypatch):
    """Calling a fast tokenizer writes to its backend, so it is not called."""
    tokenizer = fast()
    for name in ("set_truncation_and_padding", "_encode_plus", "__call__"):
        monkeypatch.setattr(PreTrainedTokenizerFast, name, None)
    written = []
    theirs = tokenizer.backend_tokenizer

    class Noting:
        """The owner's backend, which records every write."""

        def __getattr__(self, name):
            if name.startswith(("no_", "enable_", "add_", "train")):
                written.append(name)
            return getattr(theirs, name)

        def __setattr__(self, name, value):
            written.append(name)

    tokenizer._tokenizer = Noting()
    assert packed_tokens(tokenizer) == 50 * 20
    assert len(conversation_encoder(tokenizer)(TALK)[0]) == 44
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    config = {
        "data": {
            "files": [str(tmp_path / "a.jsonl")],
            "repeat": False,
            "tokenizer": {"kind": "hf", "add_eos": False},
        },
        "train": {"seq_len": 8, "batch_size": 1},
    }
    stream = open_stream(config, tokenizer=tokenizer)
    assert sum(1 for _ in stream) == 3
    assert stream.ledger.check().tokens.emitted == 20
    assert written == []


def test_a_class_that_encodes_in_its_own_way_is_called_on_a_copy():
    made = fast(kind=Watched)
    before, Watched.calls = settings_of(made), 0
    assert packed_tokens(made) == 50 * 20
    assert Watched.calls > 0
    assert settings_of(made) == before


def test_tokens_that_the_owner_adds_take_effect_the_next_time_the_tokenizer_is_passed():
    tokenizer = fast()
    earlier = as_tokenizer(tokenizer)
    tokenizer.add_tokens(["zz"])
    assert earlier.encode_batch(["zz"]).tokens.tolist() == [0]
    assert as_tokenizer(tokenizer).encode_batch(["zz"]).tokens.tolist() == [len(WORDS)]


def test_a_copy_that_was_pickled_has_no_truncation_either():
    again = pickle.loads(pickle.dumps(as_tokenizer(fast())))  # noqa: S301
    assert again.encode_batch([TEXT]).lengths.tolist() == [20]


@pytest.mark.parametrize("splits", [False, True])
def test_a_copy_of_a_backend_that_splits_special_tokens_splits_them_too(splits):
    own = load("small-gpt2").backend_tokenizer
    own.encode_special_tokens = splits
    text = "a <|endoftext|> b"
    found = as_tokenizer(own).encode_batch([text]).tokens.tolist()
    assert found == own.encode(text, add_special_tokens=False).ids
    assert (own.token_to_id("<|endoftext|>") in found) is not splits
