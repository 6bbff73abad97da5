"""Texts that people write or fetch: recipes, configs, lines of JSON, tokenizers, boundaries."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from quire import boundaries
from quire.collate import DataCollatorForCausalLM
from quire.compat.recipes import load_recipe
from quire.compat.recipes.rendering import variables_used
from quire.config import load_options
from quire.corpus.inputs import find_inputs, read_span
from quire.corpus.options import CorpusOptions
from quire.formats.format import Span
from quire.stream import StreamConfig
from quire.text import ByteTokenizer
from quire.text.engine import open_tokenizer
from quire.text.fast_tokenizer import ENOUGH, engine_version
from quire.text.hostile_texts import hostile_texts
from quire.text.tokenizer_file import load_tokenizer_file
from quire.vision import VisionPackingOptions
from tests.compat.recipes.test_any_text import PIECES
from tests.fuzz.mutation import mutated_bytes, mutated_json, mutated_lines
from tests.fuzz.target import Subject, Target, by_name

_PIECES = (
    *PIECES, "&a ", "*a", "<<: *a", "!!set ", "!!binary ", "!!timestamp ", "? [", "2024-13-45",
    "[[[[[[[[", "{{{{{{{{", "|2", ">-", "'''", "!!python/object/apply:os.system ['true']",
    "%TAG ! x",
    "-- include '../outside/secret'\n", "-- extends '/etc/passwd'\n", "{{ ''.__class__ }}",
    "{{ range(99999999) }}", "{{ 'a' * 999999999 }}", "{{ 9 ** 9 ** 9 }}", "1e999", ".inf", ".nan",
    "0x" + "f" * 50, "1_000", "1:30:00", "~", "!var {name: z, default: 3}", "\ue000", "\x85",
)  # fmt: skip
_RECIPES = (
    """\
-- extends 'parent.yaml'
-- set length = 64
-- block dataset
[map_function]
.define: &map !partial:forgather.ml.datasets:block_tokenize_fn
    max_length: {{ length * 2 }}
    packed: True
    stride: !var {name: stride, default: 0}
[targets]
rows: !dict {fn: *map, list: !list [1, 2.5, text, null]}
bin: !singleton:quire:Bin {max_length: 16}
-- endblock
""",
    """\
-- for n in [1, 2, 3]
target_{{ n }}: !dict
    number: {{ n }}
    again: &x{{ n }} [a, b, {c: d}]
    more: *x{{ n }}
-- endfor
tokenizer: !singleton:quire:ByteTokenizer {}
-- if length is defined
length: !var length
-- endif
""",
)
_CONFIG = """\
data:
  backend: local_text
  local_text: abc
  shuffle_buffer_size: 10
  sources: []
  packing_mode: bin
  packing_max_docs_per_bin: null
  retry_delay_sec: 0.5
  tokenizer: {kind: byte, add_bos: true, byte_offset: 3}
train:
  seq_len: 8
  batch_size: 2
model: {vocab_size: 512, eos_token_id: 2}
"""
_VISION = "packing_length: 80\npacking_buffer: 16\npacking_min_fill_ratio: 0.65\nseed: 1\n"
_LINES = (
    '{"text": "a document", "id": 3}\n{"text": "\\ud83d\\ude42 \\u2028", "x": [1, {"y": null}]}\n',
    '{"text": ""}\n\n{"text": "no end"}', '{"text": null}\n[1]\n{"text": "a", "text": "b"}\n',
)  # fmt: skip


def _recipe(folder: Path) -> Subject:
    (folder / "parent.yaml").write_text("-- block dataset\nc: 1\n-- endblock\nlast: 2\n")
    file = folder / "recipe.yaml"

    def make(choose: Random) -> bytes:
        text = mutated_lines(choose, choose.choice(_RECIPES), _PIECES)
        data = text.encode("utf-8", "surrogatepass")
        return mutated_bytes(choose, data) if choose.random() < 0.2 else data

    def read(data: bytes) -> None:
        file.write_bytes(data)
        given = {"length": 32, "tokenizer": "byte"}
        recipe = load_recipe(file, {name: given[name] for name in variables_used(file) & {*given}})
        for target in recipe:
            recipe[target]

    return Subject(make=make, read=read)


def _config(folder: Path) -> Subject:
    file = folder / "config.yaml"
    kinds = (
        (StreamConfig, _CONFIG),
        (VisionPackingOptions, _VISION),
        (CorpusOptions, "max_length: 9"),
    )

    def make(choose: Random) -> tuple[Any, bytes]:
        kind, text = choose.choice(kinds)
        data = mutated_lines(choose, text, _PIECES).encode("utf-8", "surrogatepass")
        return kind, mutated_bytes(choose, data) if choose.random() < 0.2 else data

    def read(given: tuple[Any, bytes]) -> None:
        file.write_bytes(given[1])
        load_options(given[0], file)

    return Subject(make=make, read=read)


def _config_override(_folder: Path) -> Subject:
    """What is given on the command line: ``data.seed=1``."""
    import yaml

    plain = yaml.safe_load(_CONFIG)
    names = (
        "data.seed",
        "data.tokenizer.kind",
        "train",
        "model.vocab_size",
        "data.sources",
        "a..b",
    )

    def make(choose: Random) -> str:
        text = f"{choose.choice(names)}={choose.choice(_PIECES)}{choose.choice(_PIECES)}"
        return mutated_lines(choose, text, _PIECES) if choose.random() < 0.3 else text

    return Subject(make=make, read=lambda text: _none(load_options(StreamConfig, plain, [text])))


def _none(_value: object) -> None:
    return None


_READ_AS = (
    CorpusOptions(max_length=8),
    CorpusOptions(max_length=8, pretokenized=True, max_record_bytes=64),
    CorpusOptions(max_length=8, messages_column="x"),
)
"""As text, as tokens, as conversations."""
_SEEDS = [text.encode() for text in (*_LINES, '{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}\n')]


def _read_lines(file: Path, options: CorpusOptions) -> str | None:
    columns = {"input_ids": "int32", "labels": "int32"} if options.pretokenized else {}
    (found,) = find_inputs([file])
    span = Span(file=0, start=0, stop=None, first_record=0, size=found.size)
    bad = 0
    for batch in read_span(found, span, options, columns):
        bad += len(batch.bad)
        for record in batch.bad:
            assert record.reason.isprintable(), "a reason that a terminal would obey"
    return "bad record" if bad else None


def _jsonl(folder: Path) -> Subject:
    file = folder / "a.jsonl"

    def make(choose: Random) -> tuple[int, bytes]:
        return choose.randrange(3), mutated_bytes(choose, choose.choice(_SEEDS), _SEEDS)

    def read(given: tuple[int, bytes]) -> str | None:
        file.write_bytes(given[1])
        return _read_lines(file, _READ_AS[given[0]])

    return Subject(make=make, read=read)


def _compressed(suffix: str, shrink: Callable[[bytes], bytes]) -> Callable[[Path], Subject]:
    """Lines whose compressed form was changed, or that were changed before; some are bombs."""

    def prepare(folder: Path) -> Subject:
        file = folder / f"a.jsonl.{suffix}"
        bombs = [shrink(b"a" * (80 << 20)), shrink((b" " * (1 << 20) + b"\n") * 80)]
        whole = [shrink(seed) for seed in (*_SEEDS, b"".join(_SEEDS) * 200, b"")]

        def make(choose: Random) -> tuple[int, bytes]:
            form = choose.randrange(3)
            if choose.random() < 0.3:
                return form, shrink(mutated_bytes(choose, choose.choice(_SEEDS), _SEEDS))
            if choose.random() < 0.002:
                return form, choose.choice(bombs)
            data = choose.choice(whole)
            joined = data + choose.choice(whole) if choose.random() < 0.2 else data
            return form, mutated_bytes(choose, joined, whole)

        def read(given: tuple[int, bytes]) -> str | None:
            file.write_bytes(given[1])
            return _read_lines(file, _READ_AS[given[0]])

        return Subject(make=make, read=read)

    return prepare


def _zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


def _tokenizer_json(folder: Path) -> Subject:
    vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", "a", "b", "ab", " "])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "b")], unk_token="a"))  # noqa: S106
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    backend.add_special_tokens(["<s>", "</s>"])
    file, beside = folder / "tokenizer.json", folder / "tokenizer_config.json"
    seed = backend.to_str()
    engine_version()  # reads files of the installation, once
    config = json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}})

    def make(choose: Random) -> tuple[bytes, bytes]:
        if choose.random() < 0.3:
            return seed.encode(), _changed(choose, config)
        return _changed(choose, seed), config.encode()

    def read(given: tuple[bytes, bytes]) -> None:
        file.write_bytes(given[0])
        beside.write_bytes(given[1])
        tokenizer = load_tokenizer_file(folder)
        texts = ["ab a b", "", "zz\u2028"]
        encoded = tokenizer.encode_batch(texts)
        assert encoded.lengths.sum() == len(encoded.tokens)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the fast engine cannot be used
            fast = open_tokenizer(folder, "auto", ENOUGH).encode_batch(texts)
        assert fast.tokens.tolist() == encoded.tokens.tolist()

    return Subject(make=make, read=read)


_PATTERNS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+",
    r"(a+)+$|\s+(?!\S)|\s+",
    r"(?=(\w+))\1|(?<!\p{L})\d|.",
)
"""That of Llama 3, one that backtracks, one with look-around and a back reference."""


def _engine_seeds() -> list[str]:
    """Tokenizers of the kinds that the fast engine takes."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {word: number for number, word in enumerate([*sorted(alphabet), "ab", "abc"])}
    found = [tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "b"), ("ab", "c")]))]
    found[0].pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for pattern in _PATTERNS:
        one = tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "b"), ("ab", "c")]))
        split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        one.pre_tokenizer = pre_tokenizers.Sequence([split, level])
        one.normalizer = normalizers.NFC()
        one.add_special_tokens(["<s>", "</s>"])
        found.append(one)
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "ab"]
    numbers = {word: number for number, word in enumerate(pieces)}
    model = models.BPE(numbers, [("a", "b")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)  # noqa: S106
    found.append(tokenizers.Tokenizer(model))
    found[-1].normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    return [one.to_str() for one in found]


def _tokenizer_engine(folder: Path) -> Subject:
    """What the fast engine is given: damaged tokenizers of its kinds, and hostile texts.

    An abort of the engine would end this process, which the campaign reports as a crash.
    """
    file, seeds = folder / "tokenizer.json", _engine_seeds()
    hostile = hostile_texts(["<s>", "</s>"])
    engine_version()

    def make(choose: Random) -> tuple[bytes, list[str]]:
        texts = [
            "".join(choose.choices(hostile, k=choose.randrange(1, 4))) * choose.choice((1, 1, 9))
            for _ in range(3)
        ]
        return _changed(choose, choose.choice(seeds)), [*texts, "aab " * 2000, "a" * 5000]

    def read(given: tuple[bytes, list[str]]) -> str | None:
        file.write_bytes(given[0])
        reference = load_tokenizer_file(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the fast engine cannot be used
            fast = open_tokenizer(folder, "auto", ENOUGH)
            encoded = fast.encode_batch(given[1])
        assert encoded.tokens.tolist() == reference.encode_batch(given[1]).tokens.tolist()
        return None if getattr(fast, "is_fast", False) else "fallback"

    return Subject(make=make, read=read)


def _changed(choose: Random, text: str) -> bytes:
    if choose.random() < 0.3:
        return mutated_bytes(choose, text.encode())
    return json.dumps(mutated_json(choose, text)).encode("utf-8", "surrogatepass")


def _document_starts(_folder: Path) -> Subject:
    """Starts of rows, in every form that is read, one by one and in a batch."""
    tokenizer = ByteTokenizer()
    collators = [
        DataCollatorForCausalLM(tokenizer, return_tensors="np", attention=attention)
        for attention in (None, "segments", "varlen")
    ]
    forms = {
        "document_starts": lambda v: boundaries.check_starts(v, 9),
        "segment_ids": boundaries.starts_from_segment_ids,
        "cu_seqlens": boundaries.starts_from_cu_seqlens,
        "position_ids": lambda v: boundaries.starts_from_position_ids(v, 9),
        "seq_idx": lambda v: boundaries.starts_from_seq_idx(v, 9),
        "lengths": boundaries.starts_from_lengths,
    }
    seeds = {
        "document_starts": "[0, 3, 7]", "segment_ids": "[1, 1, 1, 2, 2, 2, 2, 3, 3]",
        "cu_seqlens": "[0, 3, 7, 9]", "position_ids": "[0, 1, 2, 0, 1, 2, 3, 0, 1]",
        "seq_idx": "[0, 0, 0, 1, 1, 1, 1, 2, 2]", "lengths": "[3, 4, 2]",
    }  # fmt: skip

    def make(choose: Random) -> tuple[str, int, Any]:
        if choose.random() < 0.5:
            row = '{"input_ids": [5, 6, 7, 8, 9, 5, 6, 7, 8], "document_starts": [0, 3, 7]}'
            return "row", choose.randrange(len(collators)), mutated_json(choose, row)
        name = choose.choice(list(forms))
        return name, 0, mutated_json(choose, seeds[name])

    def read(given: tuple[str, int, Any]) -> None:
        name, which, value = given
        if name == "row":
            collators[which]([value, {"input_ids": [5], "document_starts": [0]}])
        else:
            forms[name](value)

    return Subject(make=make, read=read)


TARGETS = by_name(
    Target(name="recipe", prepare=_recipe),
    Target(name="config", prepare=_config),
    Target(name="config_override", prepare=_config_override),
    Target(name="jsonl", prepare=_jsonl),
    Target(name="jsonl_gz", prepare=_compressed("gz", lambda data: gzip.compress(data, mtime=0))),
    Target(name="jsonl_zst", prepare=_compressed("zst", _zstd)),
    Target(name="tokenizer_json", prepare=_tokenizer_json),
    Target(name="tokenizer_engine", prepare=_tokenizer_engine),
    Target(name="document_starts", prepare=_document_starts),
)
