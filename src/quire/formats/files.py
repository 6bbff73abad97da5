"""Finding input files: paths, globs, folders and saved datasets, in a reproducible order."""

from __future__ import annotations

import glob
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import takewhile
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from quire.errors import CorruptFile, InvalidOption, SourceChanged, SourceError, StorageError
from quire.formats import COMPRESSIONS, format_named, format_of, known_suffixes
from quire.formats.compression import open_decompressed
from quire.options.names import setting
from quire.printable import counted
from quire.storage import AnyPath, Named, RemotePath, as_path, matching
from quire.storage.hub import hub_dataset

if TYPE_CHECKING:
    from quire.formats.fields import Fields
    from quire.formats.format import Batch, Format, Span

_NOT_IN_FOLDERS = (".json", ".md", ".py")
"""A folder of data often has such files, which describe it or made it; they are read only if they
are named, one by one or by a pattern."""
_COLUMN = re.compile(r"[A-Za-z_]\w*(-\w+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """One file of documents."""

    number: int
    path: AnyPath
    name: str
    """Relative to what the user named, or to the folder that all inputs share."""
    size: int
    changed_at: int | None = None
    """When set, a change of the modification time counts as a change of the file."""
    fingerprint: str = ""
    """Of its content, where the reader records one."""
    beside: tuple[tuple[str, str], ...] = ()
    """Names and fingerprints of other files that are read with it."""
    text_column: str | None = None
    """The column of its text, if its input names one."""
    is_text: bool = False
    """Whether a pattern chose it although its suffix is of no format, so it is read as text."""
    corpus: str | None = None
    """The format of a tokenized corpus, if it is of one that its suffix does not show."""

    @property
    def format(self) -> Format:
        """How it is read."""
        if self.corpus is not None:
            return cast("Format", _corpora().record_format(self.corpus))
        found, _ = format_of(self.path.name)
        if self.is_text:
            return format_named("text")
        if found is None:
            raise _unknown_format(self.path, "inputs")
        return found

    @property
    def compression(self) -> str | None:
        """``gzip``, ``zstd`` or None."""
        return None if self.corpus is not None else format_of(self.path.name)[1]

    @property
    def kind(self) -> str:
        """Format and compression, as manifests record them: ``jsonl.gz``."""
        suffix = {None: "", "gzip": ".gz", "zstd": ".zst"}[self.compression]
        return self.format.name + suffix

    def open(self) -> BinaryIO:
        """Its bytes, decompressed, if it has not changed."""
        self.require_unchanged()
        return open_decompressed(self.path, self.size, self.compression)

    def own_fields(self, fields: Fields) -> Fields:
        """What is read of each record of this file."""
        return fields if self.text_column is None else replace(fields, text_column=self.text_column)

    def read(self, span: Span, fields: Fields) -> Iterator[Batch]:
        """The records of a span, or from a cursor on, in batches."""
        yield from self.format.read(self, span, self.own_fields(fields))
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise if the file is not what it was when it was found."""
        try:
            now = self.path.stat()
        except StorageError:
            raise
        except OSError as error:
            raise SourceChanged(f"{self.path} can no longer be read: {error.strerror}") from error
        changed_at = None if self.changed_at is None else now.st_mtime_ns
        if (now.st_size, changed_at) != (self.size, self.changed_at):
            raise SourceChanged(
                f"{self.path} changed during the run: it had {self.size} bytes and now has "
                f"{now.st_size}; restore it, or start over with files that do not change"
            )


class FoundFile(NamedTuple):
    """A file that the inputs name."""

    path: AnyPath
    name: str
    text_column: str | None = None
    is_text: bool = False
    corpus: str | None = None


def find_files(
    named: Iterable[Named], *, option: str = "inputs", pattern: str | None = None
) -> list[InputFile]:
    """The files that paths, globs and folders name; ``option`` is their name in messages."""
    found = find_paths(named, option=option, pattern=pattern)
    return [
        InputFile(number=number, size=file.path.stat().st_size, **file._asdict())
        for number, file in enumerate(found)
    ]


def split_column(named: Named) -> tuple[Named, str | None]:
    """A path, and the column of text that is named after a colon, if it is not part of the path.

    >>> split_column("s3://bucket/books/*.parquet:body"), split_column("s3://bucket/books")
    (('s3://bucket/books/*.parquet', 'body'), ('s3://bucket/books', None))
    """
    if not isinstance(named, str):
        return named, None
    path, _, column = named.rpartition(":")
    if len(path) < 2 or not _COLUMN.fullmatch(column) or os.path.lexists(named):
        return named, None
    return path, column


def find_paths(
    named: Iterable[Named],
    *,
    option: str = "inputs",
    exclude: Callable[[AnyPath], bool] = lambda path: False,
    pattern: str | None = None,
    format: str | None = None,  # noqa: A002
) -> list[FoundFile]:
    """Every file that is named, in that order; in globs and folders by name.

    A file that is named twice is an error. Globs ignore files that ``exclude`` selects. A
    ``pattern`` selects files of folders, which are text if their suffix is of no format. The
    ``format`` is that of a tokenized corpus.
    """
    found: list[tuple[AnyPath, str]] = []
    columns: dict[AnyPath, str | None] = {}
    corpora: dict[AnyPath, str] = {}
    for one in as_list(named, option):
        path_named, column = split_column(one)
        here, tokens = _found(path_named, option, exclude, pattern, format)
        corpora |= tokens
        found += here
        columns |= {path: column for path, _ in here}
    if not found:
        raise InvalidOption(f"{option} is empty; name files, globs or folders")
    seen: dict[object, AnyPath] = {}
    for path, _ in found:
        known = format_of(path.name)[0]
        if known is None and path not in corpora and not _is_text(path, pattern):
            raise _unknown_format(path, option)
        if columns[path] is not None and (known is None or known.is_plain_text):
            raise InvalidOption(
                f"{option}: {path} is text without columns, but the column {columns[path]!r} is "
                "named after the colon; leave it out"
            )
        identity = _identity(path, option)
        if identity in seen:
            raise InvalidOption(
                f"{option}: {path} and {seen[identity]} are the same file, whose documents would "
                "be read twice; name it once"
            )
        seen[identity] = path
    return [
        FoundFile(
            path,
            name,
            columns[path],
            is_text=format_of(path.name)[0] is None and path not in corpora,
            corpus=corpora.get(path),
        )
        for path, name in _with_distinct_names(found)
    ]


def _is_text(path: AnyPath, pattern: str | None) -> bool:
    """Whether a file of unknown suffix is one that the pattern chose; compressed ones are not."""
    if pattern is None or path.name.lower().endswith(tuple(COMPRESSIONS)):
        return False
    return PurePosixPath(path.name).match(PurePosixPath(pattern).name)


def as_list(named: Iterable[Named], option: str = "inputs") -> list[Named]:
    """What was named, as a list; an iterator can be read only once."""
    if isinstance(named, str | os.PathLike | RemotePath):
        raise InvalidOption(f"{option} is one path, {as_path(named)}, but must be a list of paths")
    if not isinstance(named, Iterable):
        raise InvalidOption(f"{option} is {named!r} but must be a list of paths")
    return list(named)


def _unknown_format(path: AnyPath, option: str) -> InvalidOption:
    pattern = setting("pattern", "*" + path.suffix)
    as_text = f"; to read such files as text, name their folder and {pattern}"
    return InvalidOption(
        f"{option}: {path} has a suffix of no known format; known are {known_suffixes()}{as_text}"
    )


class _NothingKnown(InvalidOption):
    """No file of a known suffix is named."""


def _corpora() -> ModuleType:
    return import_module("quire.formats.corpora")  # whose formats use this module


def _identity(path: AnyPath, option: str) -> object:
    if isinstance(path, RemotePath):
        return str(path)
    if not path.is_file():
        raise InvalidOption(f"{option}: {path} is not a regular file")
    return path.stat().st_dev, path.stat().st_ino


def _with_distinct_names(found: list[tuple[AnyPath, str]]) -> list[tuple[AnyPath, str]]:
    """The files, named relative to the folder that they share if two names would be the same."""
    if len({name for _, name in found}) == len(found):
        return found
    whole = [_absolute(path).split("/") for path, _ in found]
    local = [parts for (path, _), parts in zip(found, whole, strict=True) if isinstance(path, Path)]
    shared = len(_common_start(local or whole))
    return [
        # Next to local files, those of a store keep their URI.
        (path, "/".join(parts if local and isinstance(path, RemotePath) else parts[shared:]))
        for (path, _), parts in zip(found, whole, strict=True)
    ]


def _absolute(path: AnyPath) -> str:
    """The absolute path; links are not followed, as their targets may have any name."""
    return str(path) if isinstance(path, RemotePath) else os.path.abspath(path)  # noqa: PTH100


def _common_start(paths: Sequence[list[str]]) -> list[str]:
    """The folders that all paths begin with."""
    first, last = min(paths)[:-1], max(paths)[:-1]
    pairs = zip(first, last, strict=False)
    return [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _found(
    named: Named,
    option: str,
    exclude: Callable[[AnyPath], bool],
    pattern: str | None,
    format: str | None,  # noqa: A002
) -> tuple[list[tuple[AnyPath, str]], dict[AnyPath, str]]:
    """(path, name) of every file that one argument names; and the formats of those of a corpus.

    Suffixes come first: a corpus is recognized where they show nothing, or ``format`` names it.
    """
    if format in (None, "arrow", "parquet"):  # tables are copied as what they are
        here, problem = [], None
        try:
            here = _find(named, option, exclude, pattern)
        except _NothingKnown as error:
            problem = error
        is_known = pattern is not None or any(format_of(path.name)[0] for path, _ in here)
        if is_known or not _corpora().is_corpus(named):
            if problem is not None:
                raise problem
            for path, _ in here:
                known = format_of(path.name)[0]
                if format is not None and (known is None or known.name != format):
                    raise InvalidOption(
                        f"{option}: {path} is not of {setting('format', format)}; leave it out"
                    )
            return here, {}
        format = None  # noqa: A001
    tokens, root = dict(_corpora().files_of_corpus(named, format)), as_path(named)
    is_folder = root.is_dir()
    return [(file, _name(file, root) if is_folder else file.name) for file in tokens], tokens


def _find(
    named: Named, option: str, exclude: Callable[[AnyPath], bool], pattern: str | None
) -> list[tuple[AnyPath, str]]:
    """(path, name) of every file that one argument names."""
    path = as_path(named)
    is_pattern = glob.has_magic(str(path))
    try:
        if path.is_dir():
            return list(_in_folder(path, option, pattern))
        if path.exists():
            return [(path, path.name)]
    except StorageError:
        raise
    except OSError as error:  # a name that no file can have, a folder that may not be read
        if not is_pattern:
            raise InvalidOption(
                f"{option}: {named} cannot be looked up: {error.strerror}"
            ) from error
    if is_pattern:
        return _matching(path, option, exclude)
    if isinstance(path, RemotePath):
        path.require_bucket()
    if (dataset := hub_dataset(named)) is not None:
        return _of_hub(named, dataset, option, pattern)
    raise _NothingKnown(f"{option}: there is no file or folder {path}")


def _of_hub(named: Named, uri: str, option: str, pattern: str | None) -> list[tuple[AnyPath, str]]:
    """The files of a dataset of the hub."""
    folder = as_path(uri)
    try:
        if folder.is_dir():
            return list(_in_folder(folder, option, pattern))
    except SourceError as error:
        raise SourceError(f"{option}: there is no file or folder {named}; {error}") from error
    raise InvalidOption(f"{option}: there is no file, folder or dataset of the hub {named}")


def _matching(
    pattern: AnyPath, option: str, exclude: Callable[[AnyPath], bool]
) -> list[tuple[AnyPath, str]]:
    root, found = matching(pattern)
    files = {_name(path, root): path for path in found if not exclude(path)}
    if not files:
        raise InvalidOption(f"{option}: no file matches {str(pattern)!r}; correct the pattern")
    return [(files[name], name) for name in sorted(files)]


def _in_folder(folder: AnyPath, option: str, pattern: str | None) -> Iterator[tuple[AnyPath, str]]:
    if (folder / "dataset_dict.json").is_file():
        raise InvalidOption(
            f"{option}: {folder} holds the splits of a dataset; name the folder of one"
        )
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        yield from saved_dataset(folder)
        return
    files = {_name(path, folder): path for path in _files_below(folder, option)}
    visible = sorted(name for name in files if not _is_hidden(name))
    if pattern is not None:
        yield from ((files[name], name) for name in _chosen(visible, folder, option, pattern))
        return
    known = [name for name in visible if _is_read_from_folders(name)]
    suffixes = known_suffixes(without=_NOT_IN_FOLDERS)
    if not known:
        hints = (
            f"; '{folder}/**/*{PurePosixPath(name).suffix}' names its other files"
            for name in visible
            if format_of(name)[0] is not None
        )
        hint = next(hints, "")
        raise _NothingKnown(f"{option}: {folder} holds no file that ends with {suffixes}{hint}")
    beside = {_name(one, folder) for name in known for one in _beside(files[name])}
    if others := sorted(set(visible) - set(known) - beside):
        warnings.warn(
            f"{folder}: {len(others)} of {len(visible)} files left unread "
            f"({', '.join(others[:3])}); files that are read end with {suffixes}",
            stacklevel=2,
        )
    yield from ((files[name], name) for name in known)


def _chosen(names: Sequence[str], folder: AnyPath, option: str, pattern: str) -> Sequence[str]:
    """The names that a pattern matches: one without a slash, in folders of any depth."""
    chosen = [name for name in names if PurePosixPath(name).match(pattern)]
    if not chosen:
        raise InvalidOption(
            f"{option}: of the {counted(len(names), 'file')} in {folder}, none matches "
            f"{setting('pattern', pattern)}; correct the pattern"
        )
    return chosen


def _beside(path: AnyPath) -> list[AnyPath]:
    found, _ = format_of(path.name)
    return [] if found is None else found.beside(path)


def _is_read_from_folders(name: str) -> bool:
    return format_of(name)[0] is not None and not name.lower().endswith(_NOT_IN_FOLDERS)


def _files_below(folder: AnyPath, option: str) -> Iterator[AnyPath]:
    if isinstance(folder, RemotePath):
        yield from folder.files_below()
        return
    for path in folder.rglob("*"):
        if path.is_symlink() and path.is_dir() and not _is_hidden(_name(path, folder)):
            raise InvalidOption(
                f"{option}: {path} is a link to a folder, which is not followed; name the folder "
                "itself as well, or remove the link"
            )
        if path.is_file():
            yield path


def saved_dataset(folder: AnyPath) -> Iterator[tuple[AnyPath, str]]:
    """The Arrow files of `Dataset.save_to_disk`, in the order of its rows."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{folder / 'state.json'} names no data files: {error!r}") from error
    for name in names:
        file = file_beside(folder / "state.json", name)
        if not file.is_file():
            raise CorruptFile(f"{folder / 'state.json'} names {name!r}, which is not in the folder")
        yield file, name


_LONGEST_NAME = 255


def file_beside(index: AnyPath, name: object) -> AnyPath:
    """The file of this name in the folder of an index; raises if the index names any other."""
    if (
        not isinstance(name, str)
        or PurePosixPath(name).name != name
        or name in ("", "..")
        or not name.isprintable()  # no zeros or half characters, which the system refuses
        or len(name.encode()) > _LONGEST_NAME
    ):
        raise CorruptFile(f"{index} names {name!r:.80}, which is not a file beside it")
    return index.parent / name


def _name(path: AnyPath, root: AnyPath) -> str:
    return path.relative_to(root).as_posix()  # type: ignore[arg-type] # of the same kind


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))
