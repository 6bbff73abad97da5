"""Follow one document through quire: files touched, package switches, and the functions on the way.

`python -m tools.walks` prints the table of docs/architecture.md, and with the name of a walk
the modules of that walk in the order of their first call, with their functions.

A file counts if one of its functions is called. A package switch is a call in another package than
the call before it. A call is upward if a package of a lower layer (see import-linter's layers in
pyproject.toml) calls a package of a higher one: a callback. Each walk runs twice and the second run
counts, so that imports and caches do not.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import re
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import quire

SOURCE = Path(quire.__file__).parent
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
TEXT = "A quire is a gathering of sheets."


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of quire's functions."""

    module: str
    function: str
    caller: str | None
    """The module of the nearest function of quire that is waiting for this one."""

    @property
    def package(self) -> str:
        return package_of(self.module)


def package_of(module: str) -> str:
    """The part of a module's name below ``quire``: a package, or a module of its own."""
    return module.partition(".")[0]


def record(walk: Callable[[], object]) -> list[Call]:
    """The calls of a walk, in order, in all threads; comprehensions and lambdas do not count."""
    calls: list[Call] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        module = _module_of(frame)
        if event != "call" or module is None or frame.f_code.co_name.startswith("<"):
            return
        calls.append(Call(module, frame.f_code.co_name, _caller_of(frame)))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return calls


def _module_of(frame: FrameType) -> str | None:
    return _module_name(frame.f_code.co_filename)


@functools.cache
def _module_name(file: str) -> str | None:
    if not Path(file).is_relative_to(SOURCE):
        return None
    parts = Path(file).relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _caller_of(frame: FrameType) -> str | None:
    waiting = frame.f_back
    while waiting is not None:
        if waiting.f_code.co_name != "<module>" and (module := _module_of(waiting)):
            return module
        waiting = waiting.f_back
    return None


def layers() -> dict[str, int]:
    """The layer of every package, 0 at the bottom."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    lines = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {
        package: number
        for number, line in enumerate(reversed(lines))
        for package in re.findall(r"quire\.(\w+)", line)
    }


def upward_calls(calls: list[Call]) -> set[tuple[str, str]]:
    """Pairs of modules of which the first, in a lower layer, calls the second."""
    layer = layers()
    return {
        (call.caller, call.module)
        for call in calls
        if call.caller and layer.get(package_of(call.caller), 0) < layer.get(call.package, 0)
    }


def num_switches(calls: list[Call]) -> int:
    """Calls in another package than the call before."""
    return sum(first.package != second.package for first, second in itertools.pairwise(calls))


def pack_dataset(_folder: Path) -> None:
    quire.pack_dataset([{"text": TEXT}], "byte", max_length=64)


def quire_pack(folder: Path) -> None:
    from quire.cli.app import app

    source, out = _written(folder), folder / f"out{len(list(folder.iterdir()))}"
    options = ["--tokenizer", "byte", "--max-length", "64"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app(["pack", str(source), "--out", str(out), *options], standalone_mode=False)


def open_stream(folder: Path) -> None:
    from quire.stream import open_stream

    data = {"files": [str(_written(folder))], "repeat": False, "tokenizer": {"kind": "byte"}}
    with open_stream({"data": data, "train": {"seq_len": 64, "batch_size": 1}}) as stream:
        list(stream)


def packed_vl_dataset(_folder: Path) -> None:
    from quire.collate import VisionPaddingFreeCollator
    from quire.vision import PackedVLDataset

    samples = [{"input_ids": [5, 6, 7], "labels": [5, 6, 7], "length": 3}]
    packs = PackedVLDataset(samples, packing_length=8, packing_drop_last=False)
    VisionPaddingFreeCollator(return_tensors="np")(list(packs))


WALKS: dict[str, Callable[[Path], None]] = {
    "pack_dataset": pack_dataset,
    "quire pack": quire_pack,
    "open_stream": open_stream,
    "PackedVLDataset": packed_vl_dataset,
}


def _written(folder: Path) -> Path:
    file = folder / "documents.jsonl"
    file.write_text(json.dumps({"text": TEXT}) + "\n")
    return file


def calls_of(name: str) -> list[Call]:
    """The calls of a walk in a process that has made it before."""
    with tempfile.TemporaryDirectory() as folder:
        WALKS[name](Path(folder))
        return record(lambda: WALKS[name](Path(folder)))


def print_table() -> None:
    """Files, switches and upward calls of every walk."""
    print("| path | files | package switches | upward calls |\n|---|---|---|---|")
    for name in WALKS:
        calls = calls_of(name)
        files, upward = len({call.module for call in calls}), len(upward_calls(calls))
        print(f"| `{name}` | {files} | {num_switches(calls)} | {upward} |")


def print_steps(name: str) -> None:
    """The modules of a walk in the order of their first call, each with its functions."""
    calls = calls_of(name)
    functions: dict[str, dict[str, None]] = {}
    for call in calls:
        functions.setdefault(call.module, {})[call.function] = None
    for module, called in functions.items():
        print(f"{module}: {', '.join(called)}")
    for caller, module in sorted(upward_calls(calls)):
        print(f"upward: {caller} calls {module}")


if __name__ == "__main__":
    for named in sys.argv[1:]:
        print_steps(named)
    if not sys.argv[1:]:
        print_table()
