"""Patterns that the fast engine may match differently are left to `tokenizers`."""

from __future__ import annotations

import warnings

import pytest
import tokenizers
from tests.tokenizer_files import folder_of
from tokenizers import Regex, normalizers, pre_tokenizers
from tools.tokenizer_families import LLAMA3_PATTERN

from quire.text import as_tokenizer, engine
from quire.text.engine import open_tokenizer
from quire.text.patterns import doubtful_part, hazards_of, patterns_of

MANY = 10**9
PUBLISHED = {
    "llama 3": LLAMA3_PATTERN,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    "deepseek 3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"""
    r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "ideographs": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "falcon": "[0-9][0-9][0-9]",
    "bloom": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
}


def splitting(pattern: str, behavior: str = "isolated") -> tokenizers.Tokenizer:
    owner = tokenizers.Tokenizer.from_file(str(folder_of("small-gpt2") / "tokenizer.json"))
    split = pre_tokenizers.Split(Regex(pattern), behavior)
    rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    owner.pre_tokenizer = pre_tokenizers.Sequence([split, rest])
    return owner


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer.encode_batch([text]).tokens.tolist()


@pytest.fixture(autouse=True)
def _forget_engines():
    engine._recent.clear()


@pytest.mark.parametrize("name", PUBLISHED)
def test_patterns_of_published_tokenizers_are_known(name):
    assert doubtful_part(PUBLISHED[name]) is None


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        (r"\p{L}+|(?<!\w)'", r"\w"),
        (r"a\b", r"\b"),
        (r"[\w-]+", r"[\w-]"),
        ("[[:alpha:]]", "[[:alpha:]"),
        (r"\p{Han}+|.", r"\p{Han}"),
        (r"\s+$", "$"),
        ("^a", "^"),
        ("[a[bc]]", "[a[bc]"),
        ("[a-z&&[^b]]", "[a-z&&[^b]"),
        ("(?m:.)", "(?m:"),
        ("(?i)a", "(?i)"),
        ("(?i:ss|ff)", "(?i:"),
        ("(?i:'s|st)", "(?i:"),
    ],
)
def test_what_the_libraries_read_differently_is_found(pattern, part):
    assert doubtful_part(pattern) == part


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"(?<!\w)'", "\u246f's"), ("(?i:\u00df|ss|ff)", "\ufb00"), (r"\s+$", "a \n b")],
)
def test_a_pattern_with_a_doubtful_part_has_the_ids_of_tokenizers(pattern, text):
    owner = splitting(pattern)
    with pytest.warns(UserWarning, match=r"its pattern has .*, which fastokens may match"):
        tokenizer = open_tokenizer(owner, "auto", MANY)
    assert ids(tokenizer, text) == ids(as_tokenizer(owner), text)


def test_a_pattern_of_the_normalizer_is_read_too():
    owner = splitting(r"\p{L}+")
    owner.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"\W"), "")])
    assert patterns_of(owner) == [r"\W", r"\p{L}+"]
    with pytest.warns(UserWarning, match=r"its pattern has \\W,"):
        open_tokenizer(owner, "auto", MANY)


def test_a_character_that_was_once_a_space_is_left_to_tokenizers_where_spaces_are_matched():
    assert hazards_of([r"(?i:'s)|\s+"]) == "\u017f\u180e"
    assert hazards_of(["[a-z]+"]) == ""
    owner = splitting(r"(?<=abcd)\s", "removed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer = open_tokenizer(owner, "auto", MANY)
    assert tokenizer.is_fast
    assert ids(tokenizer, "abcd\u180eb") == ids(as_tokenizer(owner), "abcd\u180eb")
