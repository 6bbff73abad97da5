"""`open_corpus`: tokens that another system wrote, read in place.

To add a format, write a module with ``recognizes``, ``main_file``, ``open_files`` and ``OPTIONS``,
and add its name to `CORPORA`.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from quire.errors import CorruptFile, InvalidOption, StorageError, unknown_name
from quire.formats.token_corpus import TokenCorpus
from quire.formats.token_files import Ints, TokenFile
from quire.storage import AnyPath, Named, RemotePath, as_path, matching

if TYPE_CHECKING:
    from quire.formats.token_tables import TokenFormat

CORPORA = {
    "megatron": "megatron",
    "datatrove": "datatrove",
    "mds": "mds",
    "litdata": "litdata",
    "llmc": "llmc",
    "nemo": "nemo",
    "olmo": "olmo",
    "arrow": "token_arrow",
    "parquet": "token_parquet",
}
"""The names of formats, and the modules of this package that read them."""
_NAMED = ("arrow", "parquet")
"""Not recognized: `quire pack` reads them as records unless their format is named."""


class CorpusFormat(Protocol):
    """What a module of a format defines."""

    OPTIONS: Mapping[str, Sequence[str]]
    """Options, and the values that each may have; no values: any."""

    def recognizes(self, path: AnyPath) -> bool:
        """Whether this file is of the format, by its content."""

    def main_file(self, path: AnyPath) -> AnyPath | None:
        """The file to open for a path that the user named; None if there is none."""

    def open_files(
        self, path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
    ) -> list[TokenFile]:
        """The documents of one file, or of those that it lists.

        ``known`` are the edges of documents, by file, that were found by reading all tokens.
        """


def open_corpus(
    path: Named | Iterable[Named],
    format: str | None = None,  # noqa: A002
    *,
    known: Mapping[str, Ints] | None = None,
) -> TokenCorpus:
    """The documents of a tokenized corpus of another system, in place.

    ``path`` is a file, a prefix, a folder or a glob, or a list of them; local, or a URI. The
    ``format`` is recognized from content, and otherwise a name, with options after a colon:
    ``megatron:unit=documents``. ``known`` are the `TokenFile.edges` of an earlier call, by path.

    >>> import numpy, struct, tempfile
    >>> from pathlib import Path
    >>> prefix = Path(tempfile.mkdtemp()) / "corpus"
    >>> _ = prefix.with_suffix(".bin").write_bytes(numpy.array([5, 6, 7], "<u2").tobytes())
    >>> index = struct.pack("<9sQBQQ2i2q3q", b"MMIDIDX", 1, 8, 2, 3, 1, 2, 0, 2, 0, 1, 2)
    >>> _ = prefix.with_suffix(".idx").write_bytes(index)
    >>> corpus = open_corpus(prefix)
    >>> corpus.lengths().tolist(), corpus.tokens(1).tolist(), corpus.tokens(1, 1, 2).tolist()
    ([1, 2], [6, 7], [7])
    """
    is_many = isinstance(path, Iterable) and not isinstance(path, str)
    given = cast("Iterable[Named]", path if is_many else [path])
    named = [found for one in given for found in _matching(as_path(one))]
    if not named:
        raise InvalidOption("no corpus is named; name a file, a prefix or a folder")
    name, options = parse_format(format)
    found = [pair for one in named for pair in _found(one, name)]
    kinds = sorted({kind for kind, _ in found})
    if len(kinds) > 1:
        raise InvalidOption(
            f"{', '.join(map(str, named))} hold several formats, {', '.join(kinds)}; name those of "
            "one format"
        )
    opened = [_module(kind).open_files(file, options, known or {}) for kind, file in found]
    files = [file for one in opened for file in one]
    if not files:
        raise CorruptFile(
            f"{', '.join(map(str, named))} lists no file of tokens; restore its index"
        )
    return TokenCorpus(format or kinds[0], files)


def is_corpus(path: Named) -> bool:
    """Whether this is a tokenized corpus of another system, by its content.

    Of a folder's parquet files only the first is opened: there may be many, and all are of a kind.
    """
    try:
        found = _matching(as_path(path))
        if len(found) == 1 and not found[0].is_dir():
            return any(_recognized(found[0], _recognizable()))
        files = found if len(found) > 1 else _files_below(found[0])
        tables = [file for file in files if file.suffix == ".parquet"]
        few = [*(file for file in files if file.suffix != ".parquet"), *tables[:1]]
        return any(_module(name).recognizes(file) for file in few for name in _recognizable())
    except StorageError:
        raise
    except OSError:  # a name that no file can have
        return False


def _matching(path: AnyPath) -> Sequence[AnyPath]:
    """The files that a glob matches; the path itself if it is none, or matches nothing."""
    if not glob.has_magic(str(path)) or path.exists():
        return [path]
    return sorted(matching(path)[1], key=str) or [path]


def files_of_corpus(path: Named, format: str | None) -> list[tuple[AnyPath, str]]:  # noqa: A002
    """(file, format) of every file to open of a corpus."""
    name, _ = parse_format(format)
    found = (pair for one in _matching(as_path(path)) for pair in _found(one, name))
    return [(file, format or kind) for kind, file in found]


@cache
def record_format(format: str) -> TokenFormat:  # noqa: A002
    """How documents of such files are read one after another, to be copied."""
    from quire.formats.token_tables import TokenFormat

    name, options = parse_format(format)
    return TokenFormat(format, _module(str(name)).open_files, options=options)


def parse_format(given: str | None) -> tuple[str | None, dict[str, str]]:
    """The name of a format and its options.

    >>> parse_format("megatron:unit=documents")
    ('megatron', {'unit': 'documents'})
    """
    if given is None:
        return None, {}
    if not isinstance(given, str):
        raise InvalidOption(f"format is {given!r} but must be a name such as 'megatron'")
    name, _, rest = given.partition(":")
    if name not in CORPORA:
        raise unknown_name("format", name, CORPORA)
    known = _module(name).OPTIONS
    options: dict[str, str] = {}
    for item in filter(None, rest.split(",")):
        key, sign, value = item.partition("=")
        if key not in known:
            raise unknown_name(f"option of {name}", key, known)
        if not sign or (known[key] and value not in known[key]):
            allowed = " or ".join(known[key]) or "a value"
            raise InvalidOption(f"format {given!r}: {key} must be {allowed}, as in {key}=…")
        options[key] = value
    return name, options


def _found(path: AnyPath, name: str | None) -> list[tuple[str, AnyPath]]:
    """(format, file to open) of every file that a path names."""
    found = list(_recognized(path, [name] if name else _recognizable()))
    if not found and name is not None and (file := _module(name).main_file(path)) is not None:
        return [(name, file)]
    if not found:
        known = name or f"a known format ({', '.join(CORPORA)})"
        there = f"holds no corpus of {known}" if path.exists() else "does not exist"
        raise InvalidOption(
            f"{path} {there}; name a file, a prefix or a folder of one, and the format if it "
            "cannot be recognized"
        )
    return found


def _recognized(path: AnyPath, names: Sequence[str]) -> Iterator[tuple[str, AnyPath]]:
    files = _files_below(path) if path.is_dir() else None
    for name in names:
        module = _module(name)
        if files is not None:
            found = {module.main_file(one): None for one in files if module.recognizes(one)}
            yield from ((name, one) for one in found if one is not None)
        elif (file := module.main_file(path)) is not None and module.recognizes(file):
            yield name, file


def _files_below(folder: AnyPath) -> list[AnyPath]:
    """The files of a folder, at any depth, in order; without those that a dot hides."""
    if isinstance(folder, RemotePath):
        return sorted((one for one in folder.files_below() if _is_seen(one, folder)), key=str)
    below = (one for one in folder.rglob("*") if one.is_file() and _is_seen(one, folder))
    return sorted(below, key=str)


def _is_seen(path: AnyPath, folder: AnyPath) -> bool:
    parts = path.relative_to(folder).parts  # type: ignore[arg-type] # of the same kind
    return not any(part.startswith(".") for part in parts)


def _recognizable() -> list[str]:
    return [name for name in CORPORA if name not in _NAMED]


@cache
def _module(name: str) -> CorpusFormat:
    return cast("CorpusFormat", import_module(f"quire.formats.{CORPORA[name]}"))
