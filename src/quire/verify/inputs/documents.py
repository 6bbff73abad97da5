"""The documents that inputs give: their tokens, and the columns that belong to them.

Conversations are rendered by the tokenizer's own method (`rendering`). The tokenizer is shared with
the packer, and so is the code that finds the assistant's turns; but the labels of messages that can
be located in the text with certainty are derived independently.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument, InvalidOption
from quire.options import EncodeOptions, PackOptions, SourceOptions, TokenizerEngine
from quire.storage import AnyPath, local_copy
from quire.text import Tokenizer, TokenizerLike, as_tokenizer
from quire.text.chat import conversation_encoder
from quire.text.chat.template import ChatTokenizer
from quire.text.encode import unusable_texts
from quire.text.engine import open_tokenizer
from quire.text.hub import local_tokenizer
from quire.verify.inputs.answers import (
    PAIRS,
    NotOfItsKind,
    Talk,
    Text,
    answers_of,
    keys_of,
)
from quire.verify.inputs.files import FILE_SHIFT, Records, Values, read_records
from quire.verify.inputs.images import (
    Grids,
    grids_of_model,
    keys_of_messages,
    keys_of_samples,
    message_encoder,
    sample_encoder,
)
from quire.verify.inputs.rendering import Renderer, with_template

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""The tokens of a document under ``input_ids``, and its other columns."""
DOCUMENT_OPTIONS = frozenset(
    {
        "text_column", "record_kind", "messages_column", "tools_column", "assistant_only",
        "chat_date",
        "pretokenized", "tokens_column", "columns",
        "add_bos", "add_eos", "drop_longer_than", "truncate_to", "truncate_at", "tokenizer_engine",
        "keep_sources", "index_only", "partition_size", "max_record_bytes",
        "images_column", "max_images", "max_patches", "embed_images", "max_image_pixels",
        "image_token_id", "merge_size",
    }
)  # fmt: skip
"""The options that decide what documents are, all of which this package applies itself."""
_BATCH = 256
_IGNORED = -100
_ZEROS_FROM = {"attention_mask": 0, "position_ids": 1}
"""Columns in which a zero, from this token on, is a sign of padding or of several documents."""
_PACKED = ("document_starts", "seq_lengths")
_PER_TOKEN = (
    *("labels", "loss_mask", "attention_mask", "token_type_ids", "assistant_masks"),
    "completion_mask",
)
"""Columns that are packed whether or not they were requested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    """How records become documents."""

    keys: tuple[str, ...]
    """The fields that are read."""
    encode: Callable[[Sequence[Values | None]], Iterator[Columns | tuple[Columns, ...] | None]]
    """The documents of some records, two of each if they are pairs; None for a bad record."""
    in_pairs: bool = False
    bos: int | None = None
    """The token before every fragment."""
    eos: int | None = None
    """The token after every document that is not empty."""
    for_file: Callable[[AnyPath], Encoder] | None = None
    """The encoder for the records of one file, if they depend on where it is."""


def make_encoder(
    manifest: Mapping[str, Any],
    tokenizer: TokenizerLike | None,
    engine: TokenizerEngine | None = None,
    image_root: Path | None = None,
) -> Encoder:
    """The encoder for the options of the output.

    Without an engine, texts are encoded by the reference, not by the engine that packed them.
    """
    options = manifest["options"]
    _require_known(options)
    if options["pretokenized"]:
        return _token_encoder(manifest)
    if options.get("record_kind") == "vision":
        return _sample_encoder(options, image_root)
    tokenizer = local_tokenizer(tokenizer)
    if tokenizer is None:
        raise InvalidOption(
            "text can only be compared with tokens if the tokenizer is known; give the tokenizer "
            "that packed the output (--tokenizer)"
        )
    _require_same_file(manifest, tokenizer)
    kind, template = options.get("record_kind"), manifest.get("chat_template")
    if kind == "vision_messages":
        grid_of = grids_of_model(Path(str(tokenizer)))
        return _message_encoder(options, image_root, with_template(tokenizer, template), grid_of)
    if options["messages_column"] is not None or (kind and template is not None):
        return _chat_encoder(options, with_template(tokenizer, template))
    opened = as_tokenizer(tokenizer) if engine is None else open_tokenizer(tokenizer, engine)
    return _completion_encoder(options, opened) if kind else _text_encoder(options, opened)


def read_documents(
    paths: Sequence[AnyPath], manifest: Mapping[str, Any], encoder: Encoder
) -> Iterator[tuple[int, Columns | None, tuple[int, ...]]]:
    """(number, columns, lengths of all that share its row) of every document of the inputs.

    The columns of bad records are None.
    """
    most_bytes = manifest["options"]["max_record_bytes"]
    for_file = encoder.for_file
    for file, path in enumerate(paths):
        encoder = encoder if for_file is None else for_file(path)
        with local_copy(path) as local:
            records = _records_of(local, manifest["inputs"][file], encoder, most_bytes)
            while batch := list(islice(records, _BATCH)):
                documents = encoder.encode([values for _, values in batch])
                for (record, _), found in zip(batch, documents, strict=True):
                    number = (file << FILE_SHIFT) + record * (1 + encoder.in_pairs)
                    if not isinstance(found, tuple):
                        yield number, found, ()
                        continue
                    lengths = tuple(len(columns["input_ids"]) for columns in found)
                    for place, columns in enumerate(found):
                        yield number + place, columns, lengths


def _records_of(path: Path, entry: Mapping[str, Any], encoder: Encoder, most_bytes: int) -> Records:
    """The records of an input; one that names its own column of text has it under the usual key."""
    column = entry.get("text_column")
    if column is None:
        yield from read_records(path, entry["kind"], encoder.keys, most_bytes)
        return
    for number, values in read_records(path, entry["kind"], (column,), most_bytes):
        is_there = values is not None and column in values
        yield number, {encoder.keys[0]: values[column]} if is_there else values  # type: ignore[index]


def _require_known(options: Mapping[str, Any]) -> None:
    """Raise for an option that is set but not applied here: its effect would look like damage."""
    known = DOCUMENT_OPTIONS | {field.name for field in fields(PackOptions)}
    groups = (SourceOptions, EncodeOptions)
    defaults = {field.name: field.default for group in groups for field in fields(group)}
    others = {name: options[name] for name in options if name not in known}
    if unknown := sorted(n for n, value in others.items() if defaults.get(n, MISSING) != value):
        raise InvalidOption(
            f"the output was packed with {', '.join(unknown)}, which quire verify --inputs does "
            "not know, so its documents cannot be derived again; verify it without --inputs (to "
            "add an option, apply it in quire.verify.inputs.documents)"
        )


def _require_same_file(manifest: Mapping[str, Any], tokenizer: TokenizerLike) -> None:
    """Raise if the tokenizer.json is not the one that packed the output."""
    recorded = ((manifest.get("tokenizer") or {}).get("files") or {}).get("tokenizer.json")
    if recorded is None or tokenizer == "byte" or not isinstance(tokenizer, str | os.PathLike):
        return
    file = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != recorded:
        raise InvalidOption(
            f"{file} is not the tokenizer.json that packed this output: its SHA-256 is not "
            f"{recorded}; give the original tokenizer"
        )


def _text_encoder(options: Mapping[str, Any], tokenizer: Tokenizer) -> Encoder:
    bos = tokenizer.bos_token_id if options["add_bos"] else None
    eos = tokenizer.eos_token_id if options["add_eos"] else None
    key = options["text_column"]
    cut = None if options["truncate_at"] is None else re.compile(options["truncate_at"])

    def encode(records: Sequence[Values | None]) -> Iterator[Columns | None]:
        given = [None if values is None else values.get(key) for values in records]
        texts = [text if isinstance(text, str) else "" for text in given]
        if cut is not None:
            texts = [cut.split(text, maxsplit=1)[0] for text in texts]
        bad = unusable_texts(texts, tokenizer)
        usable = ["" if number in bad else text for number, text in enumerate(texts)]
        encoded = tokenizer.encode_batch(usable)
        pieces = np.split(encoded.tokens, np.cumsum(encoded.lengths)[:-1])
        for number, (text, tokens) in enumerate(zip(given, pieces, strict=True)):
            is_good = isinstance(text, str) and number not in bad
            yield {"input_ids": _with_eos(tokens, bos, eos)} if is_good else None

    return Encoder(keys=(key,), encode=encode, bos=bos, eos=eos)


def _with_eos(tokens: npt.NDArray[Any], bos: int | None, eos: int | None) -> npt.NDArray[Any]:
    """The tokens without any BOS that the text itself starts with, and with EOS."""
    others = np.flatnonzero(tokens != bos) if bos is not None else np.arange(len(tokens))
    content = tokens[others[0] :] if len(others) else tokens[:0]
    return np.append(content, eos) if eos is not None and len(content) else content


def _token_encoder(manifest: Mapping[str, Any]) -> Encoder:
    columns = dict(manifest["columns"])
    tokens_column = manifest["options"].get("tokens_column", "input_ids")
    keys = {name: tokens_column if name == "input_ids" else name for name in columns}
    # A column that the first record does not have would be lost, so it makes a record bad.
    late = [] if manifest["options"]["columns"] else [n for n in _PER_TOKEN if n not in columns]
    watched = sorted({*_ZEROS_FROM, *_PACKED, *late} - set(columns))

    def encode_record(values: Values) -> Columns | None:
        if not _is_one_document(values, list(keys.values())):
            return None
        if any(isinstance(values.get(name), list) and values[name] for name in late):
            return None
        lists = {name: values[key] for name, key in keys.items()}
        if not all(_have_type(lists[name], kind) for name, kind in columns.items()):
            return None
        return {name: np.array(v, dtype=None if v else np.int64) for name, v in lists.items()}

    return Encoder(keys=(*keys.values(), *watched), encode=_one_by_one(encode_record))


def _sample_encoder(options: Mapping[str, Any], image_root: Path | None) -> Encoder:
    def for_file(path: AnyPath) -> Encoder:
        folder = image_root or Path(str(path)).parent
        return Encoder(keys=keys, encode=_one_by_one(sample_encoder(options, folder)))

    keys = keys_of_samples(options)
    return Encoder(keys=keys, encode=_one_by_one(lambda _: None), for_file=for_file)


def _message_encoder(
    options: Mapping[str, Any], image_root: Path | None, tokenizer: ChatTokenizer, grid_of: Grids
) -> Encoder:
    """Messages with images, whose tokens are those of a conversation with longer placeholders."""
    options = {**options, "messages_column": options["messages_column"] or "messages"}
    encode_talk = _talk_encoder(options, tokenizer)

    def for_file(path: AnyPath) -> Encoder:
        folder = image_root or Path(str(path)).parent
        encode_sample = message_encoder(options, folder, encode_talk, grid_of)

        def encode(values: Values) -> Columns | None:
            try:
                return encode_sample(values)
            except (NotOfItsKind, InvalidDocument):
                return None

        return Encoder(keys=keys, encode=_one_by_one(encode))

    keys = keys_of_messages(options)
    return Encoder(keys=keys, encode=_one_by_one(lambda _: None), for_file=for_file)


def _one_by_one(
    encode_record: Callable[[Values], Columns | tuple[Columns, ...] | None],
) -> Callable[[Sequence[Values | None]], Iterator[Columns | tuple[Columns, ...] | None]]:
    return lambda records: (None if values is None else encode_record(values) for values in records)


def _is_one_document(values: Values, columns: Sequence[str]) -> bool:
    """Whether a record is one document: lists of the same length, and no sign of packing."""
    lists = [values.get(name) for name in columns]
    if not all(isinstance(given, list) for given in lists):
        return False
    if len({len(given) for given in lists if given is not None}) > 1:
        return False
    if any(isinstance(values.get(name), list) for name in _PACKED):
        return False
    return not any(0 in (values.get(name) or [])[start:] for name, start in _ZEROS_FROM.items())


def _have_type(values: Sequence[object], kind: str) -> bool:
    """Whether all values fit a column of this Arrow type."""
    types = set(map(type, values))
    if kind == "bool":
        return types <= {bool}
    if kind in ("halffloat", "float", "double"):
        return types <= {int, float}
    limits = np.iinfo(kind)
    return types <= {int} and all(limits.min <= value <= limits.max for value in cast(Any, values))


def _chat_encoder(options: Mapping[str, Any], tokenizer: ChatTokenizer) -> Encoder:
    return _answer_encoder(options, _talk_encoder(options, tokenizer), is_chat=True)


def _talk_encoder(
    options: Mapping[str, Any], tokenizer: ChatTokenizer
) -> Callable[[Talk], Columns]:
    date, assistant_only = options.get("chat_date"), options["assistant_only"]
    renderer = Renderer(tokenizer, date)
    packer = conversation_encoder(tokenizer, assistant_only, date)

    def encode(talk: Talk) -> Columns:
        _, found = packer(*talk)
        ids, trained, untrained = renderer.render(talk)
        labels = np.array(found)
        if assistant_only and len(labels) == len(ids):
            labels = np.where(trained, ids, np.where(untrained, _IGNORED, labels))
        return {"input_ids": ids, "labels": labels}

    return encode


def _answer_encoder(
    options: Mapping[str, Any],
    encode: Callable[[Any], Columns],
    *,
    is_chat: bool,
    **specials: Any,  # noqa: ANN401 - bos and eos
) -> Encoder:
    """The encoder of records with answers, from that of one conversation or text."""
    in_pairs = options.get("record_kind") == PAIRS

    def encode_record(values: Values) -> Columns | tuple[Columns, ...] | None:
        try:
            found = tuple(encode(one) for one in answers_of(values, options, is_chat))
        except (NotOfItsKind, InvalidDocument):
            return None
        return found if in_pairs else found[0]

    return Encoder(
        keys=keys_of(options), encode=_one_by_one(encode_record), in_pairs=in_pairs, **specials
    )


def _completion_encoder(options: Mapping[str, Any], tokenizer: Tokenizer) -> Encoder:
    """Texts whose first characters are not trained, with BOS and EOS as other texts."""
    bos = tokenizer.bos_token_id if options["add_bos"] else None
    eos = tokenizer.eos_token_id if options["add_eos"] else None

    def encode(one: Text) -> Columns:
        if unusable_texts([one.text], tokenizer):
            raise NotOfItsKind
        asked = one.asked if options["assistant_only"] else 0
        try:
            ids, places = cast(Any, tokenizer).encode_with_offsets(one.text)
        except UnicodeEncodeError:
            raise NotOfItsKind from None
        content = _with_eos(np.array(ids, dtype=np.int64), bos, None)
        ends = np.array([end for _, end in places], dtype=np.int64)[len(ids) - len(content) :]
        labels = np.where(ends > asked, content, _IGNORED)
        both = {"input_ids": content, "labels": labels}
        if eos is None or not len(content):
            return both
        return {name: np.append(values, eos) for name, values in both.items()}

    return _answer_encoder(options, encode, is_chat=False, bos=bos, eos=eos)
