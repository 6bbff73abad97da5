"""Saved states: one JSON document with a version and a checksum, read without trust."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidState, OutputError, QuireError
from quire.files import leftovers_swept, whole_file
from quire.ledger import Ledger
from quire.options import require_path
from quire.seals import Seal, canonical
from quire.stream.chomp import translated_options
from quire.stream.labels import unmarked

FORMAT = "quire.stream"
State: TypeAlias = dict[str, Any]
Tokens: TypeAlias = npt.NDArray[np.int32]

ENGINE = "tokenizer_engine"
"""Which engine encodes, for the record: another one may continue. Only where there is a choice."""
_MARKS = "untrained"
"""Which tokens are not trained, in bits; only where there are any."""
_FIELDS = ("format", "version", "step", "options", "tokenizer", "streams", "checksum")


def sealed(body: Mapping[str, Any]) -> State:
    """The state with its format, version and checksum."""
    return _SEAL.sealed(body)


def opened(state: object) -> State:
    """The state in the form of this version, if it is complete and undamaged."""
    body = _SEAL.opened(state)
    return read_fields("the state", body, (*_FIELDS, ENGINE) if ENGINE in body else _FIELDS)


def save_state(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a stream's state to a file, which appears complete or not at all."""
    require_path("the path of the state", path)
    text = canonical(opened(state))
    try:
        with leftovers_swept(path), whole_file(path) as temporary:
            temporary.write_bytes(text.encode())
    except OSError as error:
        raise OutputError(
            f"the state cannot be saved as {os.fspath(path)}: {error.strerror or error}; an "
            "earlier state there is kept: fix the cause, then save again"
        ) from error


def load_state(path: str | os.PathLike[str]) -> State:
    """The state in a file, checked."""
    require_path("the path of the state", path)
    file = Path(path)
    if not file.is_file():
        raise InvalidState(f"there is no state at {file}")
    try:
        state = json.loads(file.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise InvalidState(
            f"{file} is not a complete JSON document ({error}); use an earlier state"
        ) from error
    try:
        return opened(state)
    except InvalidState as error:
        raise InvalidState(f"{file}: {error}") from None


def read_fields(what: str, plain: object, names: Sequence[str]) -> State:
    """The fields of a part of a state, exactly these."""
    if not isinstance(plain, Mapping):
        raise InvalidState(f"{what} is {type(plain).__name__} but must be a dict")
    if set(plain) != set(names):
        raise InvalidState(
            f"{what} has the fields {sorted(map(str, plain))} but must have {sorted(names)}; use a "
            "state exactly as it was saved"
        )
    return dict(plain)


def read_count(what: str, value: object, most: int | None = None) -> int:
    """The value, if it is an integer from 0 to ``most``."""
    if not _is_int(value) or value < 0 or (most is not None and value > most):
        limit = "" if most is None else f" and <= {most}"
        raise InvalidState(f"{what} is {value!r} but must be an integer >= 0{limit}")
    return value


def read_counts(what: str, values: object, length: int | None = None) -> list[int]:
    """The values, if they are a list of counts, of this length."""
    if not isinstance(values, list) or (length is not None and len(values) != length):
        size = "" if length is None else f"{length} "
        raise InvalidState(f"{what} must be a list of {size}integers")
    return [read_count(f"{what}[{number}]", value) for number, value in enumerate(values)]


def tokens_to_json(documents: Sequence[Tokens]) -> State:
    """Documents end to end in base64, with as few bytes per token as the largest id needs.

    >>> tokens_to_json([np.array([1, 2], np.int32)])
    {'lengths': [2], 'width': 1, 'data': 'AQI='}
    """
    marked = np.concatenate([*documents, np.zeros(0, np.int32)])
    flat = unmarked(marked).astype("<i4")
    width = (int(flat.max(initial=1)).bit_length() + 7) // 8
    data = flat.view(np.uint8).reshape(len(flat), 4)[:, :width].tobytes()
    fields: State = {
        "lengths": [len(document) for document in documents],
        "width": width,
        "data": base64.b64encode(data).decode(),
    }
    if (marked < 0).any():
        fields[_MARKS] = base64.b64encode(np.packbits(marked < 0).tobytes()).decode()
    return fields


def tokens_from_json(what: str, plain: object, vocab_size: int) -> list[Tokens]:
    """The documents that `tokens_to_json` wrote; every id is in the vocabulary."""
    has_marks = isinstance(plain, Mapping) and _MARKS in plain
    names = ("lengths", "width", "data")
    fields = read_fields(what, plain, (*names, _MARKS) if has_marks else names)
    lengths = read_counts(f"{what}: lengths", fields["lengths"])
    width = read_count(f"{what}: width", fields["width"], most=4)
    data = _bytes_of(what, "data", fields)
    if not width or len(data) != width * sum(lengths) or 0 in lengths:
        raise InvalidState(
            f"{what}: {len(data)} bytes are not the {sum(lengths)} tokens of {width} bytes that "
            "the lengths say; lengths and width are at least 1"
        )
    flat = np.zeros((sum(lengths), 4), np.uint8)
    flat[:, :width] = np.frombuffer(data, np.uint8).reshape(len(flat), width)
    tokens = flat.view("<i4").ravel().astype(np.int32)
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
        wrong = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
        raise InvalidState(f"{what}: token id {wrong} is outside the vocabulary of {vocab_size}")
    if has_marks:
        marks = np.unpackbits(np.frombuffer(_bytes_of(what, _MARKS, fields), np.uint8))
        if len(marks) != -(-len(tokens) // 8) * 8:
            raise InvalidState(f"{what}: {_MARKS} are not those of {len(tokens)} tokens")
        tokens = np.where(marks[: len(tokens)], ~tokens, tokens)
    return list(np.split(tokens, np.cumsum(lengths[:-1]))) if lengths else []


def _bytes_of(what: str, name: str, fields: State) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidState(f"{what}: {name} is not base64: {error}") from error


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_tail(body: State) -> State:
    """Version 1 to 2: the packer knows the fewest tokens of a document's last fragment.

    In version 1 it could be a single EOS.
    """
    return _with_streams(body, _stream_with_tail)


def _stream_with_tail(stream: object) -> object:
    if not isinstance(stream, Mapping) or not isinstance(stream.get("packer"), Mapping):
        return stream
    packer = stream["packer"]
    if "continues" in packer:  # wrapped windows are cut wherever they are full
        return stream
    return {**stream, "packer": {**packer, "tail": 1}}


def _with_specials_and_new_names(body: State) -> State:
    """Version 2 to 3: ledgers count BOS and EOS as special, and options have the names of quire."""
    options = body.get("options")
    if not isinstance(options, Mapping):
        return body
    adds_bos = bool(options.get("data.tokenizer.add_bos"))
    eos = options.get("model.eos_token_id") if options.get("data.tokenizer.add_eos") else None
    body = _with_streams(body, lambda stream: _stream_with_specials(stream, adds_bos, eos))
    return {**body, "options": translated_options(options)}


def _stream_with_specials(stream: object, adds_bos: bool, eos: int | None) -> object:
    """A stream whose ledger counted BOS and EOS as tokens like any others.

    Version 2 did not record which fragments end a document: those whose last token is EOS.
    """
    try:
        ready, num_ready = _ready_with_ends(stream["ready"], eos)  # type: ignore[index]
        packer, num_buffered = _packer_with_ends(stream["packer"], eos)  # type: ignore[index]
        ledger = Ledger.from_dict(stream["ledger"])  # type: ignore[index]
        counted = _without_specials(ledger, adds_bos, num_ready + num_buffered, eos is not None)
    except (QuireError, LookupError, TypeError, ValueError):  # reported when the state is read
        return stream
    return {**stream, "ledger": counted.to_dict(), "ready": ready, "packer": packer}  # type: ignore[dict-item]


def _without_specials(ledger: Ledger, adds_bos: bool, pending_ends: int, adds_eos: bool) -> Ledger:
    """The ledger with BOS of all documents that started, and EOS of those that ended, apart."""
    documents, tokens = ledger.documents, ledger.tokens
    num_lost = documents.dropped["drop_last"]
    started = documents.emitted + documents.pending + num_lost
    ended = max(0, started - pending_ends - num_lost)
    dropped = Counter(tokens.dropped)
    dropped["drop_last"] -= (adds_bos + adds_eos) * num_lost
    num_special = adds_bos * documents.emitted + adds_eos * ended
    num_pending = adds_bos * documents.pending + adds_eos * pending_ends
    counted = replace(
        tokens,
        input=tokens.input - num_special - num_pending - (adds_bos + adds_eos) * num_lost,
        emitted=tokens.emitted - num_special,
        pending=tokens.pending - num_pending,
        dropped=dropped,
        special=num_special,
    )
    return replace(ledger, tokens=counted)


def _ready_with_ends(ready: State, eos: int | None) -> tuple[State, int]:
    windows = tokens_from_json("the windows", ready["tokens"], 1 << 31)
    ends = [
        int((tokens[np.cumsum(lengths) - 1] == eos).sum())
        for tokens, lengths in zip(windows, ready["lengths"], strict=True)
    ]
    return {**ready, "ends": ends}, sum(ends)


def _packer_with_ends(packer: State, eos: int | None) -> tuple[State, int]:
    documents = tokens_from_json("the packer", packer["tokens"], 1 << 31)
    ends = [int(tokens[-1] == eos) for tokens in documents]
    # Only `online` buffers fragments, of which some do not end their document.
    return ({**packer, "ends": ends} if "opens" in packer else packer), sum(ends)


def _with_streams(body: State, change: Callable[[object], object]) -> State:
    streams = body.get("streams")
    if not isinstance(streams, Mapping):
        return body
    return {**body, "streams": {name: change(stream) for name, stream in streams.items()}}


_SEAL = Seal(
    format=FORMAT,
    owner="a quire stream",
    migrations={1: _with_tail, 2: _with_specials_and_new_names},
)
