"""The output folder: exclusive access, leftovers of killed writers, completeness."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from quire.corpus.lock import writer_lock
from quire.errors import InvalidOption, OutputError, StorageError
from quire.files import make_folder
from quire.formats.files import split_column
from quire.options.names import option
from quire.packed.manifest import MANIFEST
from quire.storage import AnyPath, Named, RemotePath, as_path, sweep_scratch

PLANS = "plans"
"""The folder of the plans of an index-only output."""
WORK = ".quire"
"""A folder inside the output that exists only until it is complete."""
RUN = "run.json"
DATA = "data"
"""The folder of the shards; it holds nothing else, so any Parquet reader can open it."""


@contextmanager
def opened_output(out: AnyPath, *, resume: bool) -> Iterator[AnyPath]:
    """The work folder of an output that no other process writes until the block ends.

    In a store there is no lock, and none is needed: shards that are committed twice have the same
    bytes, and a run with other options is refused because of the header that is there.
    """
    if isinstance(out, RemotePath):
        with write_errors(out):
            sweep_scratch()
            _require_free(out, sorted(path.name for path in out.iterdir()), resume)
            sweep(out)
        yield out / WORK
        return
    with write_errors(out):
        is_new = not out.exists()
        there = [] if is_new else sorted(path.name for path in out.iterdir())
        _require_free(out, there, resume)
        make_folder(out)
        _require_writable(out)
    try:
        with _locked(out):
            yield out / WORK
    finally:
        with write_errors(out):
            # A folder that was there before is kept: it may be a mount point.
            if is_new and out.exists() and not any(out.iterdir()):
                out.rmdir()


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the lock of the output, and remove temporary files before and after the block.

    Errors of the block, which also reads inputs, are not reported as errors of the output.
    """
    with write_errors(out), ExitStack() as locks:
        locks.enter_context(writer_lock(out / WORK, out))
        sweep(out)
        held = locks.pop_all()
    try:
        yield
    finally:
        with write_errors(out), held:
            sweep(out)  # workers that were stopped leave temporary files


@contextmanager
def write_errors(out: AnyPath) -> Iterator[None]:
    """Turn errors of the disk or the store into an `OutputError` that says what to do."""
    try:
        yield
    except StorageError as error:
        problem, _, remedy = str(error).partition("\n")
        raise OutputError(
            f"{problem}; committed shards are kept\n{remedy}; then resume"
        ) from error.__cause__
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written: {error.strerror or error}; committed shards are kept: "
            "fix the cause, then resume"
        ) from error


def require_apart(named: Sequence[Named], out: AnyPath) -> None:
    """Raise if the output is inside an input: the next run would read it."""
    for one in named:
        folder = as_path(split_column(one)[0])
        if is_inside(out, folder):
            raise InvalidOption(f"the output {out} is inside the input {folder}; choose another")


def is_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Whether a path is inside a folder, after resolving links."""
    if isinstance(path, RemotePath) or isinstance(folder, RemotePath):
        return f"{path}/".startswith(f"{folder}/")
    return folder.is_dir() and path.resolve().is_relative_to(folder.resolve())


def require_no_shards(out: AnyPath) -> None:
    """Raise if there are shards but no record of the run that wrote them."""
    data = out / DATA
    there = sorted(path.name for path in data.iterdir()) if data.is_dir() else []
    if there:
        raise OutputError(
            f"{data} holds files ({', '.join(there[:3])}) but {WORK}/{RUN}, which says how they "
            "were packed, is missing; choose a new output"
        )


def discard_empty_run(out: AnyPath) -> None:
    """Remove a run that ended before its first shard, so that other options can be used.

    In a store another process may have begun the same run, so it is kept.
    """
    if isinstance(out, RemotePath):
        return
    with suppress(OSError):  # the error that ended the run is reported instead
        if any((out / DATA).glob("[!.]*")):
            return
        sweep(out)
        (out / DATA).rmdir()
        clear_work(out / WORK)


def clear_work(work: AnyPath) -> None:
    """Remove what only an unfinished output needs."""
    if isinstance(work, RemotePath):
        work.remove_folder()
        return
    for path in work.glob("*.json"):
        path.unlink()


def _require_free(out: AnyPath, there: list[str], resume: bool) -> None:
    if not there:
        return
    if not resume:
        is_finished = MANIFEST in there and WORK not in there
        state = "already holds a packed dataset" if is_finished else "is not empty"
        raise OutputError(
            f"{out} {state}; continue an unfinished run with {option('resume')}, or choose a new "
            "output"
        )
    if MANIFEST not in there and WORK not in there:
        raise OutputError(
            f"{out} holds files ({', '.join(there[:3])}) but no run of quire to resume; choose "
            "a new output"
        )


def _require_writable(out: Path) -> None:
    if not os.access(out, os.W_OK | os.X_OK):
        raise OutputError(f"{out} is read-only for this user; choose another output")


def require_complete(out: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Raise if a file of the manifest is missing or has another size; no file is read."""
    plans = manifest.get("plans", [])
    there = file_sizes(out / DATA) | (file_sizes(out / PLANS) if plans else {})
    for entry in (*manifest["shards"], *plans):
        found = there.get(entry["file"].rpartition("/")[2])
        if found != entry["bytes"]:
            state = "is missing" if found is None else f"has {found} bytes"
            raise OutputError(
                f"{out} was complete, but {entry['file']} {state} and the manifest says "
                f"{entry['bytes']} bytes; restore it, or remove the output and pack again"
            )
    bad = manifest.get("bad_records", {})
    if "file" in bad and not (out / bad["file"]).is_file():
        raise OutputError(
            f"{out} was complete, but {bad['file']}, the list of skipped records, is "
            "missing; restore it, or remove the output and pack again"
        )


def file_sizes(folder: AnyPath) -> dict[str, int]:
    """The sizes of the files in a folder by name, without temporary ones."""
    if isinstance(folder, RemotePath):
        return folder.sizes()
    return {path.name: path.stat().st_size for path in folder.glob("[!.]*")}


def sweep(out: AnyPath) -> None:
    """Remove temporary files of killed writers; call it only while holding the lock.

    In object stores there are none.
    """
    if isinstance(out, RemotePath) and not out.has_temporary_files:
        return
    for folder in (out, out / WORK, out / DATA, out / PLANS):
        for path in folder.glob(".*.tmp"):
            path.unlink()


def sweep_plans(out: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Remove plans that a killed writer had not added to the manifest."""
    known = {entry["file"] for entry in manifest["plans"]}
    for path in (out / PLANS).glob("*.arrow"):
        if f"{PLANS}/{path.name}" not in known:
            path.unlink()
