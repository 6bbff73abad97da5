"""The documents that inputs give: their tokens, and the columns beside them.

Files and records are read by other code than that which packed them, and conversations rendered by
the tokenizer's own method. The tokenizer is the same one, and so is what finds the assistant's
turns; but inside messages whose place is certain, labels are derived apart from it.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument, InvalidOption
from quire.storage import AnyPath, local_copy
from quire.text import Tokenizer, TokenizerLike, as_tokenizer
from quire.text.chat import conversation_encoder
from quire.text.chat_template import ChatTokenizer, as_chat_tokenizer
from quire.verify.input_chats import Chats
from quire.verify.input_values import Values, records_of

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""The tokens of a document under ``input_ids``, and what goes along with them."""
FILE_SHIFT = 40
"""A document's number is that of its file, shifted by this, plus that of its record."""
_BATCH = 256
_IGNORED = -100
_ZEROS_FROM = {"attention_mask": 0, "position_ids": 1}
"""Columns in which a zero from this place on shows padding, or several documents."""
_PACKED = ("document_starts", "seq_lengths")
_PER_TOKEN = (
    *("labels", "loss_mask", "attention_mask", "token_type_ids", "assistant_masks"),
    "completion_mask",
)
"""Columns that go along unasked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    """How records become documents."""

    keys: tuple[str, ...]
    """The fields that are read."""
    encode: Callable[[Sequence[Values | None]], Iterator[Columns | None]]
    """The documents of some records; None for a bad record."""
    bos: int | None = None
    """What opens every fragment."""
    eos: int | None = None
    """What ends every document that is not empty."""


def make_encoder(manifest: Mapping[str, Any], named: TokenizerLike | None) -> Encoder:
    """The encoder that the options of the output ask for."""
    options = manifest["options"]
    if options["pretokenized"]:
        return _token_encoder(manifest)
    if named is None:
        raise InvalidOption("to compare text with tokens, name the tokenizer that packed it")
    _require_same_file(manifest, named)
    if options["messages_key"] is None:
        return _text_encoder(options, as_tokenizer(named))
    return _chat_encoder(options, _with_template(named, manifest.get("chat_template")))


def documents_of(
    paths: Sequence[AnyPath], manifest: Mapping[str, Any], encoder: Encoder
) -> Iterator[tuple[int, Columns | None]]:
    """(number, columns) of every record of the inputs; None for bad ones."""
    most_bytes = manifest["options"]["max_record_bytes"]
    for number, path in enumerate(paths):
        with local_copy(path) as local:
            kind = manifest["inputs"][number]["kind"]
            records = records_of(local, kind, encoder.keys, most_bytes)
            while batch := list(islice(records, _BATCH)):
                found = encoder.encode([values for _, values in batch])
                for (record, _), columns in zip(batch, found, strict=True):
                    yield (number << FILE_SHIFT) + record, columns


def _require_same_file(manifest: Mapping[str, Any], named: TokenizerLike) -> None:
    """Raise if the tokenizer.json is not the one that packed the output."""
    recorded = ((manifest.get("tokenizer") or {}).get("files") or {}).get("tokenizer.json")
    if recorded is None or named == "byte" or not isinstance(named, str | os.PathLike):
        return
    file = Path(named) / "tokenizer.json" if Path(named).is_dir() else Path(named)
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != recorded:
        raise InvalidOption(
            f"{file} is not the tokenizer.json that packed this output: its SHA-256 is not "
            f"{recorded}; give the tokenizer as it was"
        )


def _text_encoder(options: Mapping[str, Any], tokenizer: Tokenizer) -> Encoder:
    bos = tokenizer.bos_token_id if options["add_bos"] else None
    eos = tokenizer.eos_token_id if options["add_eos"] else None
    key = options["text_key"]
    cut = None if options["truncate_at"] is None else re.compile(options["truncate_at"])

    def encode(records: Sequence[Values | None]) -> Iterator[Columns | None]:
        given = [None if values is None else values.get(key) for values in records]
        texts = [text if isinstance(text, str) else "" for text in given]
        if cut is not None:
            texts = [cut.split(text, maxsplit=1)[0] for text in texts]
        encoded = tokenizer.encode_batch(texts)
        pieces = np.split(encoded.tokens, np.cumsum(encoded.lengths)[:-1])
        for text, tokens in zip(given, pieces, strict=True):
            yield {"input_ids": _closed(tokens, bos, eos)} if isinstance(text, str) else None

    return Encoder(keys=(key,), encode=encode, bos=bos, eos=eos)


def _closed(tokens: npt.NDArray[Any], bos: int | None, eos: int | None) -> npt.NDArray[Any]:
    """The tokens without any BOS that the text brings, and with EOS."""
    others = np.flatnonzero(tokens != bos) if bos is not None else np.arange(len(tokens))
    content = tokens[others[0] :] if len(others) else tokens[:0]
    return np.append(content, eos) if eos is not None and len(content) else content


def _token_encoder(manifest: Mapping[str, Any]) -> Encoder:
    columns = dict(manifest["columns"])
    tokens_key = manifest["options"].get("tokens_key", "input_ids")
    keys = {name: tokens_key if name == "input_ids" else name for name in columns}
    late = [] if manifest["options"]["columns"] else [n for n in _PER_TOKEN if n not in columns]
    watched = sorted({*_ZEROS_FROM, *_PACKED, *late} - set(columns))

    def encode(records: Sequence[Values | None]) -> Iterator[Columns | None]:
        for values in records:
            if values is None or _is_unfit(values, list(keys.values())):
                yield None
                continue
            if any(isinstance(values.get(name), list) and values[name] for name in late):
                yield None  # what the first record does not have would be lost
                continue
            lists = {name: values[key] for name, key in keys.items()}
            if not all(_are_of(lists[name], kind) for name, kind in columns.items()):
                yield None
                continue
            yield {name: np.array(v, dtype=None if v else np.int64) for name, v in lists.items()}

    return Encoder(keys=(*keys.values(), *watched), encode=encode)


def _is_unfit(values: Values, columns: Sequence[str]) -> bool:
    """Whether a record is not one document with its columns."""
    lists = [values.get(name) for name in columns]
    if any(not isinstance(given, list) for given in lists):
        return True
    if len({len(given) for given in lists if given is not None}) > 1:
        return True
    if any(isinstance(values.get(name), list) for name in _PACKED):
        return True
    return any(0 in (values.get(name) or [])[start:] for name, start in _ZEROS_FROM.items())


def _are_of(values: Sequence[object], kind: str) -> bool:
    """Whether all are numbers of a column that has this Arrow type."""
    types = set(map(type, values))
    if kind == "bool":
        return types <= {bool}
    if kind in ("halffloat", "float", "double"):
        return types <= {int, float}
    limits = np.iinfo(kind)
    return types <= {int} and all(limits.min <= value <= limits.max for value in cast(Any, values))


def _with_template(named: TokenizerLike, template: object) -> ChatTokenizer:
    """The tokenizer with the template that the manifest records; 0.1.0 recorded none."""
    tokenizer = as_chat_tokenizer(named)
    if template is None:
        return tokenizer
    own: Any = copy.copy(tokenizer)
    own.chat_template = template
    return cast(ChatTokenizer, own)


def _chat_encoder(options: Mapping[str, Any], tokenizer: ChatTokenizer) -> Encoder:
    key, tools_key = options["messages_key"], options.get("tools_key")
    date = options.get("chat_date")
    chats = Chats(tokenizer, date)
    rendered = conversation_encoder(tokenizer, options["assistant_only"], date)

    def encode(records: Sequence[Values | None]) -> Iterator[Columns | None]:
        for values in records:
            messages = None if values is None else values.get(key)
            if values is None or not isinstance(messages, list):
                yield None
                continue
            tools = None if tools_key is None else values.get(tools_key)
            try:
                _, found = rendered(messages, tools)
            except InvalidDocument:
                yield None
                continue
            ids, said, heard = chats(messages, tools)
            labels = np.array(found)
            if options["assistant_only"] and len(labels) == len(ids):
                labels = np.where(said, ids, np.where(heard, _IGNORED, labels))
            yield {"input_ids": ids, "labels": labels}

    return Encoder(keys=(key,) if tools_key is None else (key, tools_key), encode=encode)
