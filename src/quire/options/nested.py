"""Options from nested plain values, such as a config's sections, and back.

Every error gives the dotted name of the option, its value, the rule and the nearest known name. The
dataclasses validate their values themselves (`quire.options.Options`).
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from quire.errors import InvalidOption, shown
from quire.options.rules import require_items

Options = TypeVar("Options")


def build_options(
    kind: type[Options], plain: object, path: str = "", ignored: list[str] | None = None
) -> Options:
    """The dataclass with these values, also nested ones; ``path`` is its dotted name in the config.

    Keys of other programs are added to ``ignored``, by their dotted names; without it, they are an
    error.

    >>> from quire.options import RowOptions
    >>> build_options(RowOptions, {"max_length": 8})
    RowOptions(max_length=8, max_documents_per_row=None)
    >>> build_options(RowOptions, {"max_length": 0}, "train")
    Traceback (most recent call last):
    quire.errors.InvalidOption: train.max_length is 0 but must be an integer >= 1
    >>> build_options(RowOptions, {"maxlength": 8}, "train")
    Traceback (most recent call last):
    quire.errors.InvalidOption: unknown option train.maxlength; did you mean train.max_length?
    known: train.max_length, train.max_documents_per_row
    """
    if dataclasses.is_dataclass(plain) and isinstance(plain, kind):
        return plain
    if not isinstance(plain, Mapping):
        raise InvalidOption(
            f"{path or 'the config'} is {shown(plain)} but must map names to values"
        )
    hints = _hints(kind)  # type: ignore[arg-type]
    parts = {part.name: part for part in _fields(kind)}
    unknown = [key for key in plain if key not in parts]
    may_ignore = ignored is not None and getattr(kind, "ignores_unknown", False)
    for key in unknown:
        if not may_ignore or _near(kind, key, path) is not None:
            raise _unknown_option(kind, key, path)
    values = {
        name: _value(hints[name], plain[name], _dotted(path, name), ignored)
        if name in plain
        else _default(part, hints[name], _dotted(path, name))
        for name, part in parts.items()
    }
    if ignored is not None:
        ignored += [_dotted(path, _text(key)) for key in unknown]
    try:
        return kind(**values)
    except InvalidOption as error:
        raise InvalidOption(f"{path}.{error}" if path else str(error)) from None


def flat_options(options: object, path: str = "") -> dict[str, Any]:
    """Every option by its dotted name, as plain values.

    >>> @dataclasses.dataclass
    ... class Train:
    ...     seq_len: int
    >>> flat_options(Train(8), "train")
    {'train.seq_len': 8}
    """
    if dataclasses.is_dataclass(options):
        flat: dict[str, Any] = {}
        for part in dataclasses.fields(options):
            flat |= flat_options(getattr(options, part.name), _dotted(path, part.name))
        return flat
    if isinstance(options, tuple) and any(dataclasses.is_dataclass(item) for item in options):
        flat = {f"{path}.length": len(options)}
        for number, item in enumerate(options):
            flat |= flat_options(item, f"{path}[{number}]")
        return flat
    return {path: list(options) if isinstance(options, tuple) else options}


def _value(
    hint: Any,  # noqa: ANN401 - any annotation
    plain: object,
    path: str,
    ignored: list[str] | None,
) -> object:
    if dataclasses.is_dataclass(hint):
        return build_options(hint, plain, path, ignored)  # type: ignore[arg-type]
    if get_origin(hint) is tuple and dataclasses.is_dataclass(get_args(hint)[0]):
        items = require_items(path, plain)
        kind: type = get_args(hint)[0]
        return tuple(build_options(kind, x, f"{path}[{i}]") for i, x in enumerate(items))
    return plain


def _default(part: dataclasses.Field[Any], hint: Any, path: str) -> object:  # noqa: ANN401
    if part.default is not dataclasses.MISSING:
        return part.default
    if dataclasses.is_dataclass(hint):
        return build_options(hint, {}, path)  # type: ignore[arg-type]
    if part.default_factory is not dataclasses.MISSING:
        return part.default_factory()
    raise InvalidOption(f"{path} is missing; it has no default")


_CLOSE = 0.65
"""How similar (by difflib) a misspelt name and an option must be: `chunk_size`, another program's
option, has 0.6 with `vocab_size`; `vocab`, which means it, has 0.67."""


def _unknown_option(kind: type, key: object, path: str) -> InvalidOption:
    near = _near(kind, key, path)
    hint = f" did you mean {near}?" if near is not None else ""
    own = [_dotted(path, part.name) for part in _fields(kind)]
    return InvalidOption(
        f"unknown option {_dotted(path, _text(key))};{hint} known: {', '.join(own)}"
    )


def _near(kind: type, key: object, path: str) -> str | None:
    """The option that was probably meant: a similar name here, or the same one in a section."""
    own = [part.name for part in _fields(kind)]
    if close := difflib.get_close_matches(_text(key), own, n=1, cutoff=_CLOSE):
        return _dotted(path, close[0])
    below = _dotted_names(kind, path)
    return next((name for name in below if name.rpartition(".")[2] == _text(key)), None)


def _dotted_names(kind: type, path: str) -> Iterator[str]:
    hints = _hints(kind)
    for part in _fields(kind):
        name = _dotted(path, part.name)
        yield name
        if dataclasses.is_dataclass(hints[part.name]):
            yield from _dotted_names(hints[part.name], name)


def _fields(kind: type) -> list[dataclasses.Field[Any]]:
    """The options; a field that ``repr`` leaves out is not for callers."""
    return [part for part in dataclasses.fields(kind) if part.init and part.repr]


def _text(key: object) -> str:
    return key if isinstance(key, str) else shown(key)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
