"""Tokenizer engines: the fast one gives the ids of `tokenizers`, or is not used."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.tokenizer_files import folder_of, load, parameters
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors
from tools.tokenizer_families import llama3_style, sentencepiece_style
from typer.testing import CliRunner

from quire import pack_corpus, pack_dataset
from quire.blocks import block_tokenize_fn
from quire.cli.app import app
from quire.corpus import estimate
from quire.corpus.options import CorpusOptions
from quire.errors import InvalidOption, QuireError
from quire.stream import open_stream
from quire.text import as_tokenizer, engine, fast_tokenizer
from quire.text.engine import engine_record, open_tokenizer
from quire.text.fast_tokenizer import FastTokenizer, TokenizerMismatch
from quire.text.hostile_texts import hostile_texts
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output

TEXTS = [
    "Hello world",
    "",
    "naïve Straße 中文 🙂 don't",
    "  spaces\t\n\r\n",
    "<|im_end|> x <|endoftext|>",
]
MANY = 10**9


@pytest.fixture(autouse=True)
def _forget_engines():
    engine._recent.clear()


def fast(name: str = "small-qwen3") -> FastTokenizer:
    return open_tokenizer(folder_of(name), "fast")


def ids(tokenizer, texts) -> list[list[int]]:
    encoded = tokenizer.encode_batch(texts)
    return [encoded.of(number).tolist() for number in range(len(texts))]


def trained(style) -> tokenizers.Tokenizer:
    return style(
        ["The quick brown fox don't jump, naïve 中文 1234.\n\n"] * 20 + TEXTS, vocab_size=700
    )


class Wrong:
    """An engine that gives a wrong id for every text that holds a word."""

    def __init__(self, engine, word: str, change: int = 1) -> None:
        self._engine, self._word, self._change = engine, word, change

    def encode_batch_flat(self, texts, **options):
        data, offsets = self._engine.encode_batch_flat(texts, **options)
        tokens, ends = np.frombuffer(data, "<u4").copy(), np.frombuffer(offsets, "<u8")
        for number, text in enumerate(texts):
            if self._word in text:
                tokens[int(ends[number])] ^= self._change
        return tokens.tobytes(), offsets


class Failing:
    """An engine that raises for every batch with a word in it."""

    def __init__(self, engine, word: str) -> None:
        self._engine, self._word, self.calls = engine, word, 0

    def encode_batch_flat(self, texts, **options):
        self.calls += 1
        if any(self._word in text for text in texts):
            raise ValueError("PCRE2: match limit exceeded")
        return self._engine.encode_batch_flat(texts, **options)


@pytest.mark.parametrize("name", parameters("qwen3", "gpt2"))
def test_the_fast_engine_gives_the_ids_of_tokenizers(name):
    tokenizer = open_tokenizer(folder_of(name), "fast")
    texts = [*TEXTS, *hostile_texts(["<|im_end|>", "<|endoftext|>"])]
    assert tokenizer.is_fast
    assert ids(tokenizer, texts) == ids(as_tokenizer(folder_of(name)), texts)


@pytest.mark.parametrize("style", [llama3_style, sentencepiece_style])
def test_styles_of_other_families_give_the_ids_of_tokenizers(style):
    backend = trained(style)
    texts = [*TEXTS, *hostile_texts(["<s>", "<|eot_id|>"])]
    assert ids(open_tokenizer(backend, "fast"), texts) == ids(as_tokenizer(backend), texts)


@given(texts=st.lists(st.text(max_size=60), max_size=8))
def test_any_text_has_the_ids_of_tokenizers(texts):
    tokenizer = open_tokenizer(folder_of("small-qwen3"), "fast")
    assert ids(tokenizer, texts) == ids(tokenizer.reference, texts)


@pytest.mark.parametrize("size", [0, fast_tokenizer.ENOUGH - 1])
def test_auto_does_not_load_the_fast_engine_for_little_text(size):
    tokenizer = open_tokenizer(folder_of("small-qwen3"), "auto", size)
    assert engine_record(tokenizer)["name"] == "tokenizers"


def test_auto_loads_the_fast_engine_for_much_text():
    tokenizer = open_tokenizer(folder_of("small-qwen3"), "auto", MANY)
    record = engine_record(tokenizer)
    assert record["name"] == "fastokens"
    assert record["compared_with"]["name"] == "tokenizers"


def test_auto_switches_once_there_was_enough_text_of_unknown_size(monkeypatch):
    monkeypatch.setattr(fast_tokenizer, "ENOUGH", 100)
    tokenizer = open_tokenizer(folder_of("small-qwen3"))
    first = ids(tokenizer, TEXTS)
    assert not tokenizer.is_fast
    again = open_tokenizer(folder_of("small-qwen3"))  # as a map function does for every batch
    assert ids(again, TEXTS) == first
    assert again is tokenizer
    assert again.is_fast


def test_a_token_that_is_added_later_makes_another_engine():
    owner = load("small-qwen3").__class__.from_pretrained(folder_of("small-qwen3"))
    before = ids(open_tokenizer(owner, "fast"), ["a<new>b"])
    owner.add_tokens(["<new>"])
    after = ids(open_tokenizer(owner, "fast"), ["a<new>b"])
    assert after != before
    assert after == ids(as_tokenizer(owner), ["a<new>b"])


def small_model(merges) -> models.BPE:
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "he", "the"]
    return models.BPE({token: n for n, token in enumerate(vocabulary)}, merges)


def test_a_model_that_is_replaced_or_changed_makes_another_engine():
    owner = tokenizers.Tokenizer(small_model([("t", "h"), ("th", "e")]))
    owner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert ids(open_tokenizer(owner, "fast"), ["the then"]) == ids(
        as_tokenizer(owner), ["the then"]
    )
    owner.model = small_model([("h", "e"), ("t", "he")])
    assert ids(open_tokenizer(owner, "fast"), ["the th"]) == ids(as_tokenizer(owner), ["the th"])
    owner.model = small_model([("t", "h")])
    before = open_tokenizer(owner, "fast")
    owner.model.ignore_merges = True
    assert open_tokenizer(owner, "fast") is not before
    assert ids(open_tokenizer(owner, "fast"), ["the"]) == ids(as_tokenizer(owner), ["the"])
    owner.model.dropout = 0.5
    with pytest.raises(InvalidOption, match="at random"):
        open_tokenizer(owner, "fast")


def test_a_post_processor_that_is_set_later_is_honoured():
    owner = load("small-qwen3").__class__.from_pretrained(folder_of("small-qwen3"))
    owner.bos_token = "<|endoftext|>"  # noqa: S105
    assert not open_tokenizer(owner, "fast").adds_bos
    owner.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", owner.bos_token_id)]
    )
    assert as_tokenizer(owner).adds_bos
    assert open_tokenizer(owner, "fast").adds_bos


def test_split_special_tokens_is_honoured():
    owner = load("small-qwen3", split_special_tokens=True)
    tokenizer = open_tokenizer(owner, "fast")
    assert tokenizer.is_fast
    assert ids(tokenizer, TEXTS) == ids(as_tokenizer(owner), TEXTS)
    assert ids(tokenizer, ["<|im_end|>"]) != ids(fast(), ["<|im_end|>"])


def test_truncation_and_padding_of_a_file_have_no_effect(tmp_path):
    plain = json.loads((folder_of("small-gpt2") / "tokenizer.json").read_text())
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**plain, "truncation": cut}))
    assert ids(open_tokenizer(tmp_path, "fast"), TEXTS) == ids(fast("small-gpt2"), TEXTS)


def unigram() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0))


def word_piece() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))  # noqa: S106


def bpe(**changes) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], **changes))


def bpe_with_stripping() -> tokenizers.Tokenizer:
    backend = bpe()
    backend.add_tokens([AddedToken("<x>", lstrip=True)])
    return backend


def bpe_with_gaps() -> tokenizers.Tokenizer:
    plain = json.loads(bpe().to_str())
    plain["added_tokens"] = [
        {
            "id": 9,
            "content": "<x>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ]
    return tokenizers.Tokenizer.from_str(json.dumps(plain))


def bpe_with(part: str, value) -> tokenizers.Tokenizer:
    backend = bpe()
    setattr(backend, part, value)
    return backend


def bpe_without_unknown() -> tokenizers.Tokenizer:
    """Characters outside its vocabulary vanish, and their neighbors are merged."""
    letters = sorted({*map(chr, range(33, 127)), *pre_tokenizers.ByteLevel.alphabet()})
    vocabulary = {token: number for number, token in enumerate([*letters, "13"])}
    return tokenizers.Tokenizer(models.BPE(vocabulary, [("1", "3")]))


UNSUPPORTED = {
    "leaves out characters": bpe_without_unknown,
    "its model is Unigram": unigram,
    "its model is WordPiece": word_piece,
    "drops merges at random": lambda: bpe(dropout=0.5),
    "lstrip": bpe_with_stripping,
    "gaps": bpe_with_gaps,
    "Metaspace": lambda: bpe_with("pre_tokenizer", pre_tokenizers.Metaspace()),
    "NFKC": lambda: bpe_with("normalizer", normalizers.NFKC()),
}


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_a_kind_that_is_not_supported_falls_back_and_says_so_once(reason):
    backend = UNSUPPORTED[reason]()
    with pytest.warns(UserWarning, match="encoded by tokenizers") as said:
        tokenizer = open_tokenizer(backend, "auto", MANY)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = open_tokenizer(backend, "auto", MANY)
        assert ids(again, ["a"]) == ids(as_tokenizer(backend), ["a"])
    assert not tokenizer.is_fast
    assert engine_record(tokenizer)["name"] == "tokenizers"


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_a_kind_that_is_not_supported_is_an_error_if_the_fast_engine_is_asked_for(reason):
    backend = UNSUPPORTED[reason]()
    for _ in range(2):
        with pytest.raises(InvalidOption, match="tokenizer_engine is 'fast' but it cannot be used"):
            open_tokenizer(backend, "fast")


@pytest.mark.parametrize(
    ("found", "said"), [(None, "not installed"), ("0.9.0", "0.9.0 is installed")]
)
def test_a_missing_or_unknown_engine_falls_back(monkeypatch, found, said):
    monkeypatch.setattr(fast_tokenizer, "engine_version", lambda: found)
    with pytest.warns(UserWarning, match=said):
        tokenizer = open_tokenizer(folder_of("small-qwen3"), "auto", MANY)
    assert ids(tokenizer, TEXTS) == ids(as_tokenizer(folder_of("small-qwen3")), TEXTS)


@pytest.mark.parametrize("before", [0, 50])
@pytest.mark.parametrize("second", ["ew>", "new"])
def test_added_tokens_that_overlap_have_the_ids_of_tokenizers(second, before):
    owner = tokenizers.Tokenizer.from_file(str(folder_of("small-gpt2") / "tokenizer.json"))
    owner.add_special_tokens([f"<|{number}|>" for number in range(before)])
    owner.add_tokens([AddedToken("<ne", normalized=True), AddedToken("<new", normalized=True)])
    owner.add_tokens([AddedToken(second, normalized=False)])
    with pytest.warns(UserWarning, match="different ids"):
        tokenizer = open_tokenizer(owner, "auto", MANY)
    assert ids(tokenizer, ["a <new> b"]) == ids(as_tokenizer(owner), ["a <new> b"])


def test_a_pattern_that_ignores_case_is_found_wherever_it_is():
    owner = tokenizers.Tokenizer.from_file(str(folder_of("small-gpt2") / "tokenizer.json"))
    for pattern in (r"\p{N}{1,3}|" * 12 + r"(?i:'s|'t)|\p{L}+|.", r"(?mi:'s|'t)|\p{L}+|."):
        owner.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer = open_tokenizer(owner, "fast")
        tokenizer._fast = Wrong(tokenizer._fast, "\u017f")
        assert ids(tokenizer, ["it'\u017fx"]) == ids(as_tokenizer(owner), ["it'\u017fx"])


def test_a_character_that_was_once_a_space_has_the_ids_of_tokenizers():
    owner = tokenizers.Tokenizer.from_file(str(folder_of("small-gpt2") / "tokenizer.json"))
    spaces = pre_tokenizers.Split(tokenizers.Regex(r"\s+"), "removed")
    rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    owner.pre_tokenizer = pre_tokenizers.Sequence([spaces, rest])
    tokenizer = open_tokenizer(owner, "auto", MANY)
    tokenizer._fast = Wrong(tokenizer._fast, "\u180e")
    assert ids(tokenizer, ["a\u180eb"]) == ids(as_tokenizer(owner), ["a\u180eb"])


def test_what_surrounds_an_unknown_character_has_the_ids_of_tokenizers():
    backend = bpe_without_unknown()
    with pytest.warns(UserWarning, match="leaves out characters"):
        tokenizer = open_tokenizer(backend, "auto", MANY)
    assert ids(tokenizer, ["1\u2ec53"]) == ids(as_tokenizer(backend), ["1\u2ec53"])


def wrong_from_the_start(monkeypatch, word: str) -> None:
    load_engine = fast_tokenizer._load
    monkeypatch.setattr(fast_tokenizer, "_load", lambda backend: Wrong(load_engine(backend), word))


def test_an_engine_that_differs_on_the_hostile_texts_is_not_used(monkeypatch):
    wrong_from_the_start(monkeypatch, "don't")
    with pytest.warns(UserWarning, match="give different ids"):
        tokenizer = open_tokenizer(folder_of("small-qwen3"), "auto", MANY)
    assert ids(tokenizer, TEXTS) == ids(as_tokenizer(folder_of("small-qwen3")), TEXTS)


def test_an_engine_that_differs_on_the_first_documents_is_not_used(monkeypatch):
    wrong_from_the_start(monkeypatch, "Straße 中文")
    tokenizer = open_tokenizer(folder_of("small-qwen3"), "auto", MANY)
    with pytest.warns(UserWarning, match="give different ids for document 2"):
        found = ids(tokenizer, TEXTS)
    assert found == ids(as_tokenizer(folder_of("small-qwen3")), TEXTS)
    assert not tokenizer.is_fast


def test_an_engine_that_is_loaded_late_is_tried_on_the_first_documents_that_it_encodes(monkeypatch):
    monkeypatch.setattr(fast_tokenizer, "ENOUGH", 20)
    wrong_from_the_start(monkeypatch, "Straße 中文")
    tokenizer = open_tokenizer(folder_of("small-qwen3"))
    tokenizer.encode_batch(["a"])
    with pytest.warns(UserWarning, match="give different ids for document 2"):
        found = ids(tokenizer, TEXTS)
    assert found == ids(as_tokenizer(folder_of("small-qwen3")), TEXTS)


def test_a_later_difference_is_an_error_with_the_document():
    tokenizer = fast()
    tokenizer.encode_batch(TEXTS)
    tokenizer._fast = Wrong(tokenizer._fast, "needle")
    with pytest.raises(TokenizerMismatch, match="document 1 from token 0 on") as raised:
        tokenizer.encode_batch(["", "a needle"])
    assert raised.value.document == 1


def test_long_documents_are_compared_in_part():
    tokenizer = fast()
    tokenizer.encode_batch(TEXTS)
    tokenizer._fast = Wrong(tokenizer._fast, "needle")
    with pytest.raises(TokenizerMismatch):
        tokenizer.encode_batch(["needle " * 10_000])


def test_at_most_one_percent_of_the_text_is_encoded_twice():
    tokenizer = fast()
    batch = ["some words of a document " * 40] * 50
    tokenizer.encode_batch(batch)
    before = tokenizer.compared["characters"]
    for _ in range(50):
        tokenizer.encode_batch(batch)
    share = (tokenizer.compared["characters"] - before) / (50 * sum(map(len, batch)))
    assert 0.0005 < share < 0.01


def test_one_wrong_id_in_thousands_of_documents_is_found_by_its_bytes():
    tokenizer = fast()
    batch = [f"some words of document {number} " * 9 for number in range(3_000)]
    tokenizer.encode_batch(batch)
    tokenizer._fast = Wrong(tokenizer._fast, "document 2345 ")
    with pytest.raises(TokenizerMismatch, match="document 2345 from token 0 on"):
        tokenizer.encode_batch(batch)


def test_an_id_outside_the_vocabulary_is_found_by_its_bytes():
    tokenizer = fast()
    tokenizer.encode_batch(TEXTS)
    tokenizer._fast = Wrong(tokenizer._fast, "needle", change=1 << 31)
    with pytest.raises(TokenizerMismatch, match="document 99 from token 0 on"):
        tokenizer.encode_batch(["some words"] * 99 + ["needle"])


def test_of_documents_that_are_all_normalized_only_a_share_is_encoded_twice():
    tokenizer = fast()
    batch = ["e\u0301t\u00e9 " * 500] * 50
    for _ in range(60):
        tokenizer.encode_batch(batch)
    num_characters = 60 * sum(map(len, batch))
    assert tokenizer.compared["characters"] < 3 * fast_tokenizer._FIRST + num_characters / 100


def test_a_document_on_which_the_engine_fails_is_encoded_by_tokenizers():
    tokenizer = fast()
    tokenizer._fast = failing = Failing(tokenizer._fast, "world")
    assert ids(tokenizer, TEXTS * 20) == ids(tokenizer.reference, TEXTS * 20)
    assert failing.calls > 1
    assert tokenizer.is_fast


class PanicException(BaseException):
    """What a panic of Rust is for Python."""


class Panicking(Failing):
    def encode_batch_flat(self, texts, **options):
        try:
            return super().encode_batch_flat(texts, **options)
        except ValueError:
            raise PanicException("index out of bounds") from None


def test_a_panic_of_the_engine_is_a_failure_like_any_other(monkeypatch):
    tokenizer = fast()
    tokenizer._fast = Panicking(tokenizer._fast, "world")
    assert ids(tokenizer, TEXTS) == ids(tokenizer.reference, TEXTS)

    def panic(backend):
        raise PanicException("not implemented")

    monkeypatch.setattr(fast_tokenizer, "_load", panic)
    with pytest.warns(UserWarning, match="cannot load it: not implemented"):
        open_tokenizer(folder_of("small-gpt2"), "auto", MANY)


def test_a_panic_of_tokenizers_is_an_error_only_for_the_texts_that_it_encodes():
    owner = bpe_with("normalizer", normalizers.Strip())
    owner.add_tokens([AddedToken("  ", normalized=True)])  # no text is left to find it in
    assert ids(open_tokenizer(owner, "auto"), ["ab"]) == ids(as_tokenizer(owner), ["ab"])


def test_an_engine_is_not_used_by_another_thread_before_it_is_compared(monkeypatch):
    tokenizer = FastTokenizer(as_tokenizer(folder_of("small-qwen3")))
    seen = []

    def texts_while_loading(backend):
        seen.append(tokenizer.is_fast)  # what another thread would see
        return ["a"]

    monkeypatch.setattr(fast_tokenizer, "_hostile_texts", texts_while_loading)
    tokenizer.load()
    assert seen == [False]
    assert tokenizer.is_fast


def test_documents_with_a_long_s_are_encoded_by_tokenizers():
    tokenizer = fast()
    tokenizer._fast = Wrong(tokenizer._fast, "\u017f")
    texts = ["a", "it'\u017fx", "b", "c", "\u017f", "d"]
    assert ids(tokenizer, texts) == ids(tokenizer.reference, texts)


@pytest.mark.parametrize("engine", ["fast", "auto"])
def test_an_engine_survives_pickling(engine):
    tokenizer = open_tokenizer(folder_of("small-qwen3"), engine, MANY)
    copy = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301
    assert copy.is_fast
    assert ids(copy, TEXTS) == ids(tokenizer, TEXTS)


def test_the_transformers_engine_calls_the_tokenizer_itself():
    for named in (folder_of("small-qwen3"), load("small-qwen3")):
        tokenizer = open_tokenizer(named, "transformers")
        assert engine_record(tokenizer) is None
        assert ids(tokenizer, TEXTS) == ids(fast(), TEXTS)


@pytest.mark.parametrize("engine", ["fast", "tokenizers"])
def test_an_engine_that_a_tokenizer_does_not_have_is_an_error(engine):
    with pytest.raises(InvalidOption, match=f"tokenizer_engine is '{engine}' but ByteTokenizer"):
        open_tokenizer("byte", engine)


class Own:
    """A caller's own tokenizer, which happens to have an attribute named backend."""

    bos_token_id = pad_token_id = None
    eos_token_id = 2
    vocab_size = 259
    backend = "mine"

    def encode_batch(self, texts):
        return as_tokenizer("byte").encode_batch(texts)


def test_a_tokenizer_with_another_kind_of_backend_has_no_choice_of_engines():
    assert ids(open_tokenizer(Own(), "auto", MANY), ["ab"]) == [[100, 101]]
    assert engine_record(Own()) is None
    with pytest.raises(InvalidOption, match="Own has no backend of the tokenizers package"):
        open_tokenizer(Own(), "fast")


def test_the_byte_tokenizer_is_not_one_of_transformers():
    with pytest.raises(InvalidOption, match="tokenizer_engine is 'transformers' but ByteTok"):
        open_tokenizer("byte", "transformers")


def documents(count: int = 300) -> list[dict[str, str]]:
    return [{"text": f"{TEXTS[n % 5]} document {n} " * (1 + n % 17)} for n in range(count)]


def test_pack_dataset_gives_the_same_rows_with_every_engine():
    rows = [
        pack_dataset(documents(), folder_of("small-qwen3"), max_length=64, tokenizer_engine=engine)
        for engine in ("auto", "fast", "tokenizers", "transformers")
    ]
    assert all(other.equals(rows[0]) for other in rows[1:])


def test_a_difference_in_pack_dataset_names_the_record(monkeypatch):
    wrong_from_the_start(monkeypatch, "document 137")
    monkeypatch.setattr(fast_tokenizer, "_SHARE", 1)
    monkeypatch.setattr("quire.dataset.documents._BATCH_BYTES", 5_000)
    with pytest.raises(TokenizerMismatch, match=r"^record 137: ") as raised:
        pack_dataset(documents(), folder_of("small-qwen3"), max_length=64, tokenizer_engine="fast")
    assert raised.value.document == 137


def test_block_tokenize_fn_gives_the_same_rows_with_every_engine():
    features = {"text": [document["text"] for document in documents()]}
    rows = [
        block_tokenize_fn(features, folder_of("small-qwen3"), "text", tokenizer_engine=engine)
        for engine in ("auto", "fast", "tokenizers")
    ]
    assert rows[0] == rows[1] == rows[2]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(document) + "\n" for document in documents()))
    return file


def files_of(out) -> dict[str, bytes]:
    return {
        str(file.relative_to(out)): file.read_bytes()
        for file in sorted(out.rglob("*"))
        if file.is_file() and file.name != "manifest.json"
    }


def manifest_of(out) -> dict[str, object]:
    plain = json.loads((out / "manifest.json").read_text())
    return {
        key: value for key, value in plain.items() if key not in ("tokenizer_engine", "checksum")
    }


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_output_has_the_same_bytes_with_every_engine(corpus, tmp_path, workers):
    outs = [tmp_path / engine for engine in ("fast", "tokenizers")]
    for out in outs:
        pack_corpus(
            [corpus],
            out,
            folder_of("small-qwen3"),
            max_length=64,
            partition_size=20_000,
            tokenizer_engine=out.name,
            workers=workers,
        )
    assert files_of(outs[0]) == files_of(outs[1])
    assert manifest_of(outs[0]) == manifest_of(outs[1])
    names = [
        json.loads((out / "manifest.json").read_text())["tokenizer_engine"]["name"] for out in outs
    ]
    assert names == ["fastokens", "tokenizers"]


def test_an_output_is_resumed_with_another_engine(corpus, tmp_path):
    options = {"max_length": 64, "partition_size": 20_000}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    pack_corpus([corpus], whole, folder_of("small-qwen3"), tokenizer_engine="fast", **options)

    def interrupt(progress) -> None:
        if progress.commit is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_corpus(
            [corpus],
            resumed,
            folder_of("small-qwen3"),
            tokenizer_engine="fast",
            on_progress=interrupt,
            **options,
        )
    pack_corpus(
        [corpus],
        resumed,
        folder_of("small-qwen3"),
        tokenizer_engine="tokenizers",
        resume=True,
        **options,
    )
    assert files_of(whole) == files_of(resumed)


def test_a_difference_while_packing_names_file_and_record_and_commits_nothing(
    corpus, tmp_path, monkeypatch
):
    wrong_from_the_start(monkeypatch, "document 137")
    monkeypatch.setattr(fast_tokenizer, "_SHARE", 1)
    monkeypatch.setattr(fast_tokenizer, "_FIRST", 50)
    with pytest.raises(TokenizerMismatch, match=r"a\.jsonl: record 137: .*different ids"):
        pack_corpus(
            [corpus],
            tmp_path / "out",
            folder_of("small-qwen3"),
            max_length=64,
            tokenizer_engine="fast",
            partition_size=2_000,
        )
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.slow
def test_workers_of_an_engine_that_differs_on_the_first_documents_all_use_tokenizers(
    corpus, tmp_path, monkeypatch
):
    """Each worker deciding for itself, the manifest could not name one engine."""
    monkeypatch.setattr(fast_tokenizer, "ENOUGH", 100)
    monkeypatch.setattr(engine, "ENOUGH", 100)
    wrong_from_the_start(monkeypatch, "document 1 ")
    options = {"max_length": 64, "partition_size": 2_000, "workers": 2}
    with pytest.warns(UserWarning, match="give different ids") as said:
        packed = pack_corpus([corpus], tmp_path / "a", folder_of("small-qwen3"), **options)
    assert len(said) == 1
    assert packed.manifest["tokenizer_engine"]["name"] == "tokenizers"
    engine._recent.clear()
    slow = pack_corpus(
        [corpus],
        tmp_path / "b",
        folder_of("small-qwen3"),
        tokenizer_engine="tokenizers",
        **options,
    )
    assert packed.manifest["shards"] == slow.manifest["shards"]


def test_a_worker_does_not_choose_its_engine_again():
    tokenizer = open_tokenizer(folder_of("small-qwen3"), "auto", MANY)
    ids(tokenizer, TEXTS)
    copy = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301
    copy._fast = Wrong(copy._fast, "Straße 中文")
    with pytest.raises(TokenizerMismatch):
        for _ in range(1000):
            copy.encode_batch(TEXTS)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_difference_while_streaming_names_the_shard_and_the_document(
    corpus, monkeypatch, shuffle
):
    wrong_from_the_start(monkeypatch, "document 38 ")
    monkeypatch.setattr(fast_tokenizer, "_SHARE", 1)
    monkeypatch.setattr(fast_tokenizer, "_FIRST", 20)
    monkeypatch.setattr("quire.stream.shuffle._SLICE_RECORDS", 10)
    place = r"document 38 that stream 0 of 1 reads after record 0 of epoch 0, in .*a\.jsonl"
    with (
        pytest.raises(TokenizerMismatch, match=place),
        stream_of(corpus, "fast", shuffle=shuffle) as stream,
    ):
        arrays_of(stream)


def stream_of(corpus, engine, **changes):
    options = {"max_length": 32, "batch_size": 2, "repeat": False, "tokenizer_engine": engine}
    return open_stream(files=str(corpus), tokenizer=folder_of("small-qwen3"), **options, **changes)


def arrays_of(batches) -> list[list[object]]:
    return [[batch.input_ids.tolist(), batch.labels.tolist()] for batch in batches]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stream_gives_the_same_batches_with_every_engine(corpus, workers):
    with (
        stream_of(corpus, "fast", num_workers=workers) as fast,
        stream_of(corpus, "tokenizers") as slow,
    ):
        assert arrays_of(fast) == arrays_of(slow)


def test_a_stream_is_resumed_with_another_engine_and_records_it(corpus):
    with stream_of(corpus, "tokenizers") as whole:
        expected = arrays_of(whole)
    with stream_of(corpus, "fast") as first:
        begun = arrays_of(next(first) for _ in range(3))
        saved = json.dumps(first.get_state())
    assert json.loads(saved)["tokenizer_engine"]["name"] == "fastokens"
    with stream_of(corpus, "tokenizers") as second:
        second.set_state(json.loads(saved))
        assert begun + arrays_of(second) == expected
        assert second.get_state()["tokenizer_engine"]["name"] == "tokenizers"


def test_a_config_names_the_engine(corpus):
    tokenizer = {"hf_name_or_path": str(folder_of("small-qwen3")), "tokenizer_engine": "fast"}
    data = {"files": [str(corpus)], "tokenizer": tokenizer}
    with open_stream({"data": data, "train": {"seq_len": 32, "batch_size": 2}}) as stream:
        assert stream.get_state()["tokenizer_engine"]["name"] == "fastokens"


def test_verify_uses_the_reference_unless_an_engine_is_named(corpus, tmp_path, monkeypatch):
    out, tokenizer = tmp_path / "out", folder_of("small-qwen3")
    pack_corpus([corpus], out, tokenizer, max_length=64)
    wrong_from_the_start(monkeypatch, "document")
    assert verify_inputs(verify_output(out), [corpus], tokenizer).ok
    with pytest.raises(TokenizerMismatch, match="give different ids"):
        verify_inputs(verify_output(out), [corpus], tokenizer, tokenizer_engine="fast")


def test_commands_say_in_one_line_which_engine_they_use(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fast_tokenizer, "ENOUGH", 100)
    monkeypatch.setattr(engine, "ENOUGH", 100)
    monkeypatch.setattr(fast_tokenizer, "engine_version", lambda: None)
    tokenizer = str(folder_of("small-qwen3"))
    pack_corpus([corpus], tmp_path / "out", tokenizer, max_length=64, tokenizer_engine="tokenizers")
    inputs = [str(corpus), "--tokenizer", tokenizer]
    for command in (
        ["plan", *inputs, "--max-length", "64"],
        ["verify", str(tmp_path / "out"), "--tokenizer-engine", "auto", "--inputs", *inputs],
    ):
        engine._recent.clear()
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        said = [line for line in result.stderr.splitlines() if "fastokens" in line]
        assert [line[:34] for line in said] == ["warning texts are encoded by token"], command


def test_an_estimate_repeats_the_warnings_of_the_process_that_packs_the_sample(corpus, monkeypatch):
    monkeypatch.setattr(engine, "ENOUGH", 100)
    monkeypatch.setattr(fast_tokenizer, "engine_version", lambda: None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    options = CorpusOptions(max_length=64)
    given = ([str(corpus)], folder_of("small-qwen3"), options, None, 1 << 20, 0)
    sample, said = estimate._packed_with_warnings(*given)
    assert sample.documents == 300
    assert [line[:26] for line in said] == ["texts are encoded by token"]


def mutated(plain: bytes, seed: int) -> bytes:
    draw = np.random.default_rng(seed)
    data = bytearray(plain)
    for at in draw.integers(0, len(data), 3):
        data[at] = int(draw.integers(32, 127))
    return bytes(data)


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_a_damaged_tokenizer_file_is_a_typed_error_a_fallback_or_gives_the_same_ids(
    first, tmp_path
):
    plain = (folder_of("small-gpt2") / "tokenizer.json").read_bytes()
    for seed in range(first, first * 10 + 40):
        file = tmp_path / f"{seed}.json"
        file.write_bytes(mutated(plain, seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tokenizer = open_tokenizer(file, "auto", MANY)
            except QuireError:
                continue
            assert ids(tokenizer, TEXTS) == ids(as_tokenizer(file), TEXTS)
