"""Inputs made from valid ones: bytes, JSON values and lines of text with seeded random changes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

NUMBERS = (
    0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**63 - 1,
    2**63, 2**64 - 1, 2**64, 10**30, -1, -2, -(2**31), -(2**63), -(2**63) - 1,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "0", "1", "x", "\0",
    "\ud800", "\u2028", "../outside/secret", "/etc/passwd", "data/../../outside/secret",
    "(" * 40, "(a+)+$", "%s%n", "__class__", "byte", "quire.stream", [], {}, [[]], [None], [0],
    [0, 0], [1, 0], {"": 0}, {"version": True}, "A" * 5000, [0] * 3000,
)  # fmt: skip
WORDS = (
    b"null", b"true", b"-1", b"1e999", b"NaN", b"{}", b"[]", b'""', b"{", b"[" * 40, b'"', b",",
    b":", b"\\", b"\\u0000", b"\\ud800", b"\x00", b"\xff\xff\xff\xff", b"\xef\xbb\xbf", b"\n",
    b"\r\n", b"../", b"!!python/object/apply:os.system", b"gASVAAAA", b"PAR1", b"ARROW1",
)  # fmt: skip


def mutated_bytes(choose: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The data with one to six changes."""
    changed = bytearray(data)
    for _ in range(choose.choice((1, 1, 1, 2, 3, 6))):
        choose.choice(_BYTE_CHANGES)(choose, changed)
    if others and choose.random() < 0.1:
        other = choose.choice(others)
        changed[_place(choose, changed) :] = other[_place(choose, other) :]
    return bytes(changed)


def _place(choose: Random, data: Sequence[int]) -> int:
    return choose.randrange(len(data) + 1)


def _flip(choose: Random, data: bytearray) -> None:
    if data:
        data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)


def _overwrite_number(choose: Random, data: bytearray) -> None:
    form = choose.choice(("<b", "<h", "<i", "<q", ">i"))
    size = struct.calcsize(form)
    if len(data) >= size:
        place = choose.randrange(len(data) - size + 1)
        value = choose.choice(NUMBERS) & (2 ** (8 * size) - 1)
        order = "little" if form[0] == "<" else "big"
        data[place : place + size] = value.to_bytes(size, order)


def _cut(choose: Random, data: bytearray) -> None:
    place = _place(choose, data)
    del data[place : place + choose.choice((1, 2, 8, 64, 100_000))]


def _repeat(choose: Random, data: bytearray) -> None:
    start = _place(choose, data)
    piece = data[start : start + choose.choice((1, 4, 16, 128))]
    data[_place(choose, data) : 0] = piece * choose.choice((1, 1, 2, 50))


def _insert_word(choose: Random, data: bytearray) -> None:
    place = _place(choose, data)
    data[place:place] = choose.choice(WORDS)


def _insert_noise(choose: Random, data: bytearray) -> None:
    place = _place(choose, data)
    data[place:place] = choose.randbytes(choose.choice((1, 2, 9, 40)))


_BYTE_CHANGES: tuple[Callable[[Random, bytearray], None], ...] = (
    _flip, _flip, _overwrite_number, _cut, _repeat, _insert_word, _insert_noise,
)  # fmt: skip


def mutated_json(choose: Random, text: str | bytes, names: Sequence[str] = ()) -> Any:
    """The value of a JSON text with one to three of its parts changed.

    ``names`` are keys that may be put in place of others.
    """
    value = [json.loads(text)]  # the outermost value can be changed as well
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        holder, key = _part(choose, value)
        choose.choice(_PART_CHANGES)(choose, holder, key, names)
        if not value:
            value = [None]
    return value[0]


def _part(choose: Random, value: list[Any]) -> tuple[Any, Any]:
    """A list or dict somewhere inside, and a key of it."""
    holder, key = value, 0
    while isinstance(inner := holder[key], list | dict) and inner and choose.random() < 0.85:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        holder, key = inner, choose.choice(keys)
    return holder, key


def _set_any(choose: Random, holder: Any, key: Any, names: Sequence[str]) -> None:
    # A copy: what later changes do to it must not reach other executions.
    holder[key] = deepcopy(choose.choice(VALUES + NUMBERS))


def _set_near(choose: Random, holder: Any, key: Any, names: Sequence[str]) -> None:
    """A value of the same kind: these pass the first checks."""
    old = holder[key]
    if isinstance(old, bool):
        holder[key] = not old
    elif isinstance(old, int | float):
        holder[key] = choose.choice((old + 1, old - 1, -old, old * 2, choose.choice(NUMBERS)))
    elif isinstance(old, str):
        cut = choose.randrange(len(old) + 1)
        holder[key] = choose.choice((old[:cut], old + old[:3], old[::-1], old.upper(), f"../{old}"))
    elif isinstance(old, list):
        holder[key] = choose.choice((old[::-1], old + old, old[:1], old[1:], [*old, None]))
    elif isinstance(old, dict):
        holder[key] = choose.choice((list(old.items()), list(old), {**old, "more": 0}))


def _set_kind(choose: Random, holder: Any, key: Any, names: Sequence[str]) -> None:
    old = holder[key]
    holder[key] = choose.choice((str(old)[:200], [old], {"0": old}, {"value": old}, [old, old]))


def _delete(choose: Random, holder: Any, key: Any, names: Sequence[str]) -> None:
    del holder[key]


def _copy(choose: Random, holder: Any, key: Any, names: Sequence[str]) -> None:
    """The value of a neighbor, valid there and wrong here."""
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    holder[key] = json.loads(json.dumps(holder[choose.choice(keys)]))


def _rename(choose: Random, holder: Any, key: Any, names: Sequence[str]) -> None:
    if isinstance(holder, dict):
        holder[choose.choice((*names, *holder, "", "x", "__proto__"))] = holder.pop(key)


def _deepen(choose: Random, holder: Any, key: Any, names: Sequence[str]) -> None:
    inner = holder[key]
    for _ in range(choose.choice((1, 20, 250))):
        inner = [inner]
    holder[key] = inner


_PART_CHANGES = (_set_any, _set_any, _set_near, _set_near, _set_near, _set_kind, _delete, _copy,
                 _rename, _deepen)  # fmt: skip


def mutated_lines(choose: Random, text: str, pieces: Sequence[str]) -> str:
    """The text with lines moved, indented, repeated or left out, and pieces put between."""
    lines = text.split("\n")
    for _ in range(choose.choice((1, 1, 2, 3, 5))):
        number = choose.randrange(len(lines))
        line = lines[number]
        cut = choose.randrange(len(line) + 1)
        piece = choose.choice(pieces)
        lines[number : number + 1] = choose.choice(
            (
                [], [line, line], [" " * choose.choice((1, 2, 4)) + line], [line.lstrip()],
                [line[:cut] + piece + line[cut:]], [line[:cut] + piece], [piece, line],
                [line[:cut], line[cut:]], [line, choose.choice(lines)], [line[cut:] + line[:cut]],
            )
        ) or [""]  # fmt: skip
    return "\n".join(lines)
