"""Local files: jsonl, parquet and text, plain or compressed, found by globs."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from quire.errors import InvalidOption, SourceChanged
from quire.stream.sources.lines import COMPRESSIONS, JsonLines
from quire.stream.sources.shards import Shard
from quire.stream.sources.text_file import TextFile

_KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}


class FileShards:
    """Every file is a shard; paths and globs as given, the files of a glob sorted by name."""

    def __init__(self, patterns: Sequence[str], text_key: str) -> None:
        self._paths = _matching(patterns)
        self._kinds = [_kind(path) for path in self._paths]
        self._sizes = [path.stat().st_size for path in self._paths]
        self._text_key = text_key

    @property
    def names(self) -> list[str]:
        """Names and sizes: a file that grew is another file."""
        return [f"{path.name} {size}" for path, size in zip(self._paths, self._sizes, strict=True)]

    def open(self, number: int, cursor: object | None) -> Shard:
        """The file from its start, or from a cursor; it has the size that it had."""
        path, kind = self._paths[number], self._kinds[number]
        size = path.stat().st_size
        if size != self._sizes[number]:
            raise SourceChanged(
                f"{path} has {size} bytes but had {self._sizes[number]} when the stream was "
                "opened; give it the same files, unchanged, or start anew"
            )
        if kind == "jsonl":
            return JsonLines(path, cursor, self._text_key)
        if kind == "text":
            return TextFile(path, cursor)
        from quire.stream.sources.parquet import ParquetRows

        return ParquetRows(path, cursor, self._text_key)


def _matching(patterns: Sequence[str]) -> list[Path]:
    paths: list[Path] = []
    for pattern in patterns:
        paths += _behind(pattern)
    seen: dict[Path, Path] = {}
    for path in paths:
        real = path.resolve()
        if real in seen:
            raise InvalidOption(
                f"data.files: {path} and {seen[real]} are the same file, whose documents would "
                "come twice; let the patterns match it once"
            )
        seen[real] = path
    return paths


def _behind(pattern: str) -> list[Path]:
    """The file of that name, as `quire pack` takes it; or all that match, sorted by name."""
    if os.path.isfile(pattern):  # noqa: PTH113 - Path raises where a name is too long to be one
        return [Path(pattern)]
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute ones too
    files = [Path(name) for name in found if Path(name).is_file()]
    if not files:
        raise InvalidOption(f"data.files: {pattern!r} matches no file; mend the pattern")
    return files


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    kind = _KINDS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        raise InvalidOption(
            f"data.files: {path} has a suffix that tells no format; known are "
            f"{', '.join(_KINDS)}, and behind them {', '.join(COMPRESSIONS)}"
        )
    return kind
