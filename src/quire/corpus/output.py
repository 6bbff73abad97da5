"""The folder that is written: who may write there, what is left over, what is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from quire.corpus.lock import writer_lock
from quire.errors import InvalidOption, OutputError, StorageError
from quire.files import make_folder
from quire.packed.manifest import MANIFEST
from quire.storage import AnyPath, Named, RemotePath, as_path, sweep_scratch

PLANS = "plans"
"""The folder of the plans of an index-only output."""
WORK = ".quire"
"""A folder inside the output that is there only as long as it is not whole."""
RUN = "run.json"
DATA = "data"
"""The folder of the shards: it holds nothing else, so that whatever reads folders can open it."""


@contextmanager
def opened_output(out: AnyPath, *, resume: bool) -> Iterator[AnyPath]:
    """The work folder of an output that is ours to write until the block ends.

    In a store there is no lock, and none is needed: what is committed twice has the same bytes, and
    another run under other terms is refused by the terms that stand there.
    """
    if isinstance(out, RemotePath):
        with errors_of_writing(out):
            sweep_scratch()
            _require_free(out, sorted(path.name for path in out.iterdir()), resume)
            sweep(out)
        yield out / WORK
        return
    with errors_of_writing(out):
        is_new = not out.exists()
        there = [] if is_new else sorted(path.name for path in out.iterdir())
        _require_free(out, there, resume)
        make_folder(out)
        _require_writable(out)
    try:
        with _taken(out):
            yield out / WORK
    finally:
        with errors_of_writing(out):
            # Another's folder stays: where a disk is mounted, it could not be taken away either.
            if is_new and out.exists() and not any(out.iterdir()):
                out.rmdir()


@contextmanager
def _taken(out: Path) -> Iterator[None]:
    """The block alone may write to the output, which holds no temporary file before and behind it.

    The errors of the block itself, which reads inputs too, are not taken for those of the output.
    """
    with errors_of_writing(out), ExitStack() as locks:
        locks.enter_context(writer_lock(out / WORK, out))
        sweep(out)
        held = locks.pop_all()
    try:
        yield
    finally:
        with errors_of_writing(out), held:
            sweep(out)  # workers that were stopped leave what they were writing


@contextmanager
def errors_of_writing(out: AnyPath) -> Iterator[None]:
    """Errors of the disk, or of the store, as errors that say what to do."""
    try:
        yield
    except StorageError as error:
        problem, _, remedy = str(error).partition("\n")
        raise OutputError(
            f"{problem}; what is committed stays\n{remedy}; to continue, resume"
        ) from error.__cause__
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written: {error.strerror or error}; what is committed stays: mend "
            "the cause, then resume"
        ) from error


def require_apart(named: Sequence[Named], out: AnyPath) -> None:
    """Raise if the output lies inside an input: it would be its own input on the next run."""
    for one in named:
        folder = as_path(one)
        if lies_inside(out, folder):
            raise InvalidOption(f"the output {out} lies inside the input {folder}; move it out")


def lies_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Whether a path leads into a folder, by whatever way."""
    if isinstance(path, RemotePath) or isinstance(folder, RemotePath):
        return f"{path}/".startswith(f"{folder}/")
    return folder.is_dir() and path.resolve().is_relative_to(folder.resolve())


def require_no_shards(out: AnyPath) -> None:
    """Raise if shards stand in an output of which nothing says how it was begun."""
    data = out / DATA
    there = sorted(path.name for path in data.iterdir()) if data.is_dir() else []
    if there:
        raise OutputError(
            f"{data} holds files ({', '.join(there[:3])}) but {WORK}/{RUN}, which says how they "
            "were packed, is gone; choose a new output"
        )


def leave_no_beginning(out: AnyPath) -> None:
    """Take away a run that ended before its first shard: other options may begin in its place.

    In a store others may have begun the same, and it stays.
    """
    if isinstance(out, RemotePath):
        return
    with suppress(OSError):  # what ended the run is what is told
        if any((out / DATA).glob("[!.]*")):
            return
        sweep(out)
        (out / DATA).rmdir()
        clear_work(out / WORK)


def clear_work(work: AnyPath) -> None:
    """Take away what only an unfinished output needs."""
    if isinstance(work, RemotePath):
        work.remove_folder()
        return
    for path in work.glob("*.json"):
        path.unlink()


def _require_free(out: AnyPath, there: list[str], resume: bool) -> None:
    if not there:
        return
    if not resume:
        unfinished = WORK in there or MANIFEST not in there
        state = "holds something" if unfinished else "holds a packed dataset"
        raise OutputError(
            f"{out} {state} already; continue an unfinished run with resume, or choose a new output"
        )
    if MANIFEST not in there and WORK not in there:
        raise OutputError(
            f"{out} holds files ({', '.join(there[:3])}) but no run of quire's to resume; choose "
            "a new output"
        )


def _require_writable(out: Path) -> None:
    if not os.access(out, os.W_OK | os.X_OK):
        raise OutputError(f"{out} is read-only for this user; choose another output")


def require_whole(out: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Raise if a file that the manifest names is gone or has another size; none is read."""
    plans = manifest.get("plans", [])
    there = _sizes(out / DATA) | (_sizes(out / PLANS) if plans else {})
    for entry in (*manifest["shards"], *plans):
        found = there.get(entry["file"].rpartition("/")[2])
        if found != entry["bytes"]:
            state = "is gone" if found is None else f"has {found} bytes"
            raise OutputError(
                f"{out} was complete, but {entry['file']} {state} and the manifest says "
                f"{entry['bytes']} bytes; put it back, or remove the output and pack again"
            )
    bad = manifest.get("bad_records", {})
    if "file" in bad and not (out / bad["file"]).is_file():
        raise OutputError(
            f"{out} was complete, but {bad['file']}, which lists {bad['count']} records that were "
            "left out, is gone; put it back, or remove the output and pack again"
        )


def _sizes(folder: AnyPath) -> dict[str, int]:
    if isinstance(folder, RemotePath):
        return folder.sizes()
    return {path.name: path.stat().st_size for path in folder.iterdir()} if folder.exists() else {}


def sweep(out: AnyPath) -> None:
    """Take away temporary files that a killed writer left; the lock says that it is dead.

    In object stores there are none.
    """
    if isinstance(out, RemotePath) and not out.has_temporary_files:
        return
    for folder in (out, out / WORK, out / DATA, out / PLANS):
        for path in folder.glob(".*.tmp"):
            path.unlink()


def sweep_plans(out: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Take away plans that a killed writer had not put into the manifest yet."""
    known = {entry["file"] for entry in manifest["plans"]}
    for path in (out / PLANS).glob("*.arrow"):
        if f"{PLANS}/{path.name}" not in known:
            path.unlink()
