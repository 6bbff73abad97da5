"""Every kind of tokenizer, and the checks of each."""
# ruff: noqa: S106  (a token is no password)

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
import torch
from tests.text.literal_tokenizer import LiteralTokenizer
from tests.tokenizer_files import folder_of, load, parameters
from transformers import ByT5Tokenizer, CTRLTokenizer, PreTrainedTokenizerFast

from quire.errors import InvalidDocument, InvalidOption
from quire.text import ByteTokenizer, EncodeOptions, as_tokenizer, encode_texts

TEXTS = ["A quire is a gathering.", "", "Ünïcode 書 🎉\n\n\ttabs", "x" * 3000, "<|endoftext|> it"]


def ids_of(tokenizer, texts=TEXTS) -> list[list[int]]:
    encoded = as_tokenizer(tokenizer).encode_batch(texts)
    assert encoded.tokens.dtype == np.int32 and encoded.lengths.dtype == np.int64
    parts = np.split(encoded.tokens, np.cumsum(encoded.lengths)[:-1])
    return [part.tolist() for part in parts]


def word_level() -> tokenizers.Tokenizer:
    """Ids with holes: three words, the last with id 7."""
    model = tokenizers.models.WordLevel({"a": 0, "b": 7, "[UNK]": 3}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return tokenizer


@pytest.mark.parametrize("name", parameters("qwen3", "gpt2"))
def test_a_file_a_folder_and_the_objects_of_both_libraries_agree(name):
    folder = folder_of(name)
    fast = load(name)
    expected = [fast(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    assert ids_of(folder) == expected
    assert ids_of(str(folder / "tokenizer.json")) == expected
    assert ids_of(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))) == expected
    assert ids_of(fast) == expected
    by_path, by_object = as_tokenizer(folder), as_tokenizer(fast)
    for special in ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size"):
        assert getattr(by_path, special) == getattr(by_object, special), special
    assert by_path.decode(expected[2]) == by_object.decode(expected[2]) == TEXTS[2]


def test_objects_of_the_tokenizers_package_have_no_special_token_ids():
    tokenizer = as_tokenizer(word_level())
    specials = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert specials == (None, None, None)


def test_a_ready_made_class_of_the_tokenizers_package_is_a_tokenizer():
    ready_made = tokenizers.ByteLevelBPETokenizer()
    ready_made.train_from_iterator(["low lower lowest"] * 5, show_progress=False)
    expected = [ready_made.encode(text).ids for text in ("low lower", "")]
    assert ids_of(ready_made, ["low lower", ""]) == expected != [[], []]


def test_slow_byt5_and_the_byte_tokenizer_are_the_same_tokenizer():
    slow = ByT5Tokenizer()
    assert not slow.is_fast
    ours = ByteTokenizer(pad_token_id=0, bos_token_id=None, eos_token_id=1)
    texts = ["A quire.", "", "Ünïcode 書"]
    assert ids_of(slow, texts) == ids_of(ours, texts)
    assert as_tokenizer(slow).eos_token_id == 1 and as_tokenizer(slow).bos_token_id is None
    assert as_tokenizer(slow).vocab_size == len(slow) == 384


@pytest.fixture
def slow(tmp_path):
    """A byte-pair tokenizer in Python, with a vocabulary of its own."""
    vocabulary = {"<unk>": 0, "a@@": 1, "b": 2, "ab": 3, "a": 4}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b</w>\n")
    return CTRLTokenizer(
        str(tmp_path / "vocab.json"),
        str(tmp_path / "merges.txt"),
        bos_token="<s>",
        eos_token="</s>",
    )


def test_a_slow_tokenizer_adds_no_special_tokens_and_recognizes_literal_ones(slow):
    assert not slow.is_fast
    assert ids_of(slow, ["ab a b", "<s>ab</s>"]) == [[3, 4, 2], [5, 3, 6]]
    assert as_tokenizer(slow).vocab_size == 7


def test_a_fast_tokenizer_that_truncated_and_padded_before_gives_all_ids():
    tokenizer = load("small-gpt2")
    tokenizer.pad_token = tokenizer.eos_token
    try:
        tokenizer(["a b c", "a"], truncation=True, max_length=2, padding=True)
        assert tokenizer.backend_tokenizer.truncation and tokenizer.backend_tokenizer.padding
        assert [len(ids) for ids in ids_of(tokenizer, ["a b c", "a"])] == [3, 1]
    finally:
        tokenizer.pad_token = None


def test_the_owners_truncation_and_padding_are_unchanged():
    tokenizer = word_level()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(pad_id=3, pad_token="[UNK]", length=5)
    assert ids_of(tokenizer, ["a b a b", "a"]) == [[0, 7, 0, 7], [0]]
    assert [encoding.ids for encoding in tokenizer.encode_batch(["a b a b"])] == [[0, 7, 3, 3, 3]]


def test_literal_special_tokens_are_encoded_as_the_tokenizer_does_by_default():
    tokenizer = load("small-gpt2")
    assert ids_of(tokenizer, ["<|endoftext|>"]) == [[756]]
    literal = load("small-gpt2", split_special_tokens=True)
    expected = literal("<|endoftext|>", add_special_tokens=False)["input_ids"]
    assert len(expected) > 1
    assert ids_of(literal, ["<|endoftext|>"]) == [expected]
    assert ids_of(tokenizer, ["<|endoftext|>"]) == [[756]], "one does not change the other"


def test_an_earlier_call_that_split_special_tokens_has_no_effect():
    tokenizer = load("small-gpt2")
    tokenizer("<|endoftext|>", split_special_tokens=True)
    assert tokenizer.backend_tokenizer.encode_special_tokens
    assert ids_of(tokenizer, ["<|endoftext|>"]) == [[756]]


def test_specials_that_a_tokenizer_would_add_itself_are_not_added():
    tokenizer = word_level()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="b $A b", special_tokens=[("b", 7)]
    )
    assert tokenizer.encode("a").ids == [7, 0, 7]
    assert ids_of(tokenizer, ["a"]) == [[0]]
    assert ids_of(PreTrainedTokenizerFast(tokenizer_object=tokenizer), ["a"]) == [[0]]


class Shouting(PreTrainedTokenizerFast):
    """A fast tokenizer with its own way to its backend, as CPM's has with words."""

    def _encode_plus(self, text, **options):
        shouted = [part.upper() for part in text] if isinstance(text, list) else text.upper()
        return super()._encode_plus(shouted, **options)


def test_a_fast_tokenizer_that_prepares_its_texts_is_called_instead_of_its_backend():
    vocabulary = {"[UNK]": 0, "A": 1, "a": 2}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = Shouting(tokenizer_object=backend, unk_token="[UNK]")
    assert ids_of(tokenizer, ["a A"]) == [[1, 1]]
    assert ids_of(PreTrainedTokenizerFast(tokenizer_object=backend), ["a A"]) == [[2, 1]]


# Plain callables


@pytest.mark.parametrize("make", [list, tuple, np.array, torch.tensor])
def test_a_plain_callable_may_return_lists_arrays_or_tensors(make):
    class Callable(LiteralTokenizer):
        def __call__(self, texts):
            return {"input_ids": [make([5, 6]) for _ in texts]}

    assert ids_of(Callable(), ["x", "y"]) == [[5, 6], [5, 6]]


def test_a_callable_receives_only_the_keywords_that_it_accepts():
    class Keen(LiteralTokenizer):
        def __call__(self, texts, add_special_tokens=True):
            return {"input_ids": [[1] * add_special_tokens + [5] for _ in texts]}

    class Open(LiteralTokenizer):
        def __call__(self, texts, **options):
            assert options == {"add_special_tokens": False, "truncation": False, "padding": False}
            return {"input_ids": [[6] for _ in texts]}

    assert ids_of(Keen(), ["x"]) == [[5]]
    assert ids_of(Open(), ["x"]) == [[6]]


def test_the_tokenizer_is_not_called_without_texts():
    class Refusing(LiteralTokenizer):
        def __call__(self, texts):
            raise AssertionError("asked")

    assert len(as_tokenizer(Refusing()).encode_batch([]).lengths) == 0
    assert len(as_tokenizer(word_level()).encode_batch([]).lengths) == 0


def test_an_object_with_the_protocols_own_methods_is_a_tokenizer():
    class Own:
        bos_token_id = eos_token_id = pad_token_id = vocab_size = None

        def encode_batch(self, texts):
            return ByteTokenizer().encode_batch(texts)

    own = Own()
    assert as_tokenizer(own) is own


def returning(ids) -> LiteralTokenizer:
    class Returning(LiteralTokenizer):
        vocab_size = 100

        def __call__(self, texts):
            return {"input_ids": [[5], ids]}

    return Returning()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([2**40], "document 1 has token id 1099511627776 but ids have 31 bits"),
        (np.array([2**32 + 5]), "document 1 has token id 4294967301 but ids have 31 bits"),
        ([-(2**31) - 1], "document 1 has token id -2147483649"),
        ([1.5], r"document 1: the tokenizer returned \[1.5\] but a flat list of integer ids"),
        ([True], "flat list of integer ids"),
        ([None], "flat list of integer ids"),
        ([[3, 4]], "flat list of integer ids"),
        ([[3, 4], [5]], "flat list of integer ids"),
        (["7"], "flat list of integer ids"),
        (7, "flat list of integer ids"),
        ([-1], "document 1 has token id -1 but the vocabulary has 100 ids"),
        ([99, 100], "document 1 has token id 100 but the vocabulary has 100 ids"),
    ],
)
def test_invalid_token_ids_are_rejected_and_never_rounded_or_wrapped(ids, message):
    with pytest.raises(InvalidDocument, match=message):
        encode_texts(["x", "y"], as_tokenizer(returning(ids)), EncodeOptions())


def test_the_largest_id_decides_if_a_vocabulary_has_gaps():
    assert ids_of(word_level(), ["a b"]) == [[0, 7]]
    assert as_tokenizer(word_level()).vocab_size == 8
    fast = PreTrainedTokenizerFast(tokenizer_object=word_level(), unk_token="[UNK]")
    assert len(fast) == 3 and as_tokenizer(fast).vocab_size == 8
    encode_texts(["a b"], as_tokenizer(fast), EncodeOptions())


@pytest.mark.parametrize("name", ["bos_token_id", "eos_token_id"])
@pytest.mark.parametrize("token", [-1, [2, 3], "</s>", 1.0, True, 100])
def test_invalid_special_ids_are_rejected(name, token):
    tokenizer = returning([6])
    setattr(tokenizer, name, token)
    with pytest.raises(InvalidOption, match=f"{name} is "):
        encode_texts(["x", "y"], as_tokenizer(tokenizer), EncodeOptions(add_bos=True))


def test_an_object_that_is_not_a_tokenizer_is_an_error_that_says_what_to_pass():
    for wrong in (5, None, SimpleNamespace(bos_token_id=1)):
        with pytest.raises(
            InvalidOption, match="is not a tokenizer: pass 'byte', a path, a transf"
        ):
            as_tokenizer(wrong)


def test_a_callable_must_declare_its_special_ids():
    tokenizer = as_tokenizer(lambda texts: {"input_ids": [[5] for _ in texts]})
    with pytest.raises(InvalidOption, match="has no bos_token_id; set it to an id, or to None"):
        encode_texts(["x"], tokenizer, EncodeOptions())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[5]], "returned list without 'input_ids'"),
        ({"ids": [[5]]}, "returned dict without 'input_ids'"),
        ({"input_ids": [[5]]}, "returned 1 lists of input_ids for 2 texts"),
    ],
)
def test_a_callable_must_return_input_ids_for_every_text(answer, message):
    class Wrong(LiteralTokenizer):
        def __call__(self, texts):
            return answer

    with pytest.raises(InvalidOption, match=message):
        as_tokenizer(Wrong()).encode_batch(["x", "y"])


@pytest.mark.parametrize("make", [lambda: "byte", word_level])
def test_half_a_surrogate_pair_is_an_error_that_names_the_document(make):
    with pytest.raises(InvalidDocument, match="document 1 has half a surrogate pair at character"):
        encode_texts(["fine", "ab\ud800"], as_tokenizer(make()), EncodeOptions())


def test_a_tokenizer_can_be_sent_to_another_process():
    for tokenizer in (as_tokenizer("byte"), as_tokenizer(word_level())):
        there = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301
        assert ids_of(there, ["a b"]) == ids_of(tokenizer, ["a b"])
