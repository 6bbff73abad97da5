"""Every file operation can fail, be incomplete, or be the last before a kill or power failure."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.corpus.command import ROOT
from tests.faults.installed import QUIRE
from tests.faults.layer import KINDS
from tests.faults.power import Folder, entries, lose_power, operations
from tests.faults.real_command import DisturbedCommand
from tests.faults.trees import tree


def enumerated(folder: Path, *arguments: object, before: str = "") -> dict:
    """The command's counts, from a separate process that runs some code first."""
    code = f"{before}\nfrom tests.faults.enumerate import main\nmain()"
    file = folder / "counts.json"
    words = ["--commands", "0", "--json", str(file), *map(str, arguments)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert file.exists(), done.stderr
    return json.loads(file.read_text())


def test_37_38_39_every_task_gives_the_same_bytes_after_any_file_fault(tmp_path):
    """A spread sample of what `python -m tests.faults.enumerate` does in full."""
    found = enumerated(tmp_path, "--every", 9)
    assert not found["failures"]
    assert found["byte_equal_in_all"] == found["faults_tried_in_all"] > 150
    assert set(found["byte_equal"]) == set(KINDS)
    assert all(count > 5 for count in map(sum, map(dict.values, found["operations"].values())))


NO_SYNC = "import quire.files\nquire.files._sync = lambda path: None"
NO_SYNC_OF_FOLDERS = """
import quire.files
real = quire.files._sync
quire.files._sync = lambda path: None if path.is_dir() else real(path)
"""
IN_PLACE = """
import quire.stream.state
from contextlib import contextmanager
@contextmanager
def in_place(path):
    yield path
quire.stream.state.whole_file = in_place
"""
NO_SWEEP = """
import quire.stream.state
from contextlib import nullcontext
quire.stream.state.leftovers_swept = nullcontext
"""
UNTYPED = "import quire.stream.state\nquire.stream.state.OutputError = OSError"


@pytest.mark.parametrize(
    ("broken", "kind", "said"),
    [
        pytest.param(NO_SYNC, "unsynced-data", "neither the old nor the new", id="no sync"),
        pytest.param(
            NO_SYNC_OF_FOLDERS, "unsynced", "it was done, and is lost", id="no folder sync"
        ),
        pytest.param(
            NO_SYNC_OF_FOLDERS, "unsynced-last", "it was done, and is lost", id="the last name"
        ),
        pytest.param(IN_PLACE, "torn", "neither the old nor the new", id="no rename"),
        pytest.param(NO_SWEEP, "kill", "not as undisturbed", id="no sweep"),
        pytest.param(UNTYPED, "EIO", "ended with 1", id="no typed error"),
    ],
)
def test_a_missing_protection_is_found(tmp_path, broken, kind, said):
    """Negative controls: without it, saving a state is not safe, and the points detect that."""
    found = enumerated(tmp_path, "--only", "state", before=broken)
    assert any(f": {kind} at" in failure and said in failure for failure in found["failures"])


def test_37_42_the_installed_command_and_its_workers_disturbed_at_any_operation(tmp_path):
    """More of it: `python -m tests.faults.enumerate`."""
    if not QUIRE.exists():
        pytest.skip("the quire command is not installed beside this Python")
    command = DisturbedCommand(tmp_path)
    assert len(list(command.run(3, kinds=["kill", "EIO", "unsynced"]))) == 3, command.failures


WATCHED = """
import sys
from pathlib import Path
from tests.faults.layer import Fault, install
from tests.faults.works import all_works
folder, disks = Path(sys.argv[1]), Path(sys.argv[2])
works = [work for work in all_works(folder) if "resume" not in work.name]
for number, work in enumerate(works):
    (disks / str(number)).mkdir()
    work.prepare(disks / str(number))
install(Fault(disk=str(disks), journal=str(folder)))
(disks / "begin").mkdir()
for number, work in enumerate(works):
    work.run(disks / str(number))
"""

CALLS = {
    "open": "open", "openat": "open", "creat": "open",
    "write": "write", "pwrite64": "write", "writev": "write", "pwritev": "write",
    "fsync": "fsync", "fdatasync": "fsync", "sync_file_range": "fsync",
    "rename": "rename", "renameat": "rename", "renameat2": "rename", "link": "rename",
    "unlink": "unlink", "unlinkat": "unlink", "mkdir": "mkdir", "mkdirat": "mkdir",
    "rmdir": "rmdir", "truncate": "truncate", "ftruncate": "truncate", "fallocate": "truncate",
}  # fmt: skip


def test_no_file_operation_bypasses_the_fault_layer(tmp_path):
    """The kernel's list of calls equals that of the layer's journal, kind by kind."""
    trace, disks = tmp_path / "trace", tmp_path / "disks"
    disks.mkdir()
    if shutil.which("strace") is None or not _can_trace(tmp_path):
        pytest.skip("strace is not installed, or may not be used here")
    calls = ",".join(CALLS)
    watch = ["strace", "-f", "-y", "-o", str(trace), "-e", f"trace={calls}"]
    run = [sys.executable, "-W", "ignore", "-c", WATCHED, str(tmp_path), str(disks)]
    done = subprocess.run([*watch, *run], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = Counter(done["operation"] for done in operations(tmp_path))
    assert _of_the_kernel(trace.read_text(), str(disks)) == seen
    assert seen.total() > 200


def _can_trace(folder: Path) -> bool:
    words = ["strace", "-f", "-o", str(folder / "none"), "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _of_the_kernel(trace: str, disks: str) -> Counter[str]:
    """Calls below the folder, after the one that creates `begin`."""
    lines = [line for line in trace.splitlines() if disks in line and "resumed>" not in line]
    begin = next(n for n, line in enumerate(lines) if "mkdir" in line and "/begin" in line)
    found: Counter[str] = Counter()
    for line in lines[begin:]:
        call = re.match(r"\d+ +(\w+)\(", line).group(1)
        kind = CALLS[call]
        if kind == "open":
            kind = "list" if "O_DIRECTORY" in line else kind
            if kind == "open" and not re.search("O_WRONLY|O_RDWR", line):
                continue
        if call == "unlinkat" and "AT_REMOVEDIR" in line:
            kind = "rmdir"
        found[kind] += 1
    return found


def test_a_power_failure_loses_what_was_not_synced(tmp_path):
    """The model itself: literal cases."""
    disk, journal = tmp_path / "disk", tmp_path / "journal"
    for folder in (disk, journal):
        folder.mkdir()
    (disk / "old").write_bytes(b"old")
    (journal / "copy").write_bytes(b"wh")
    done = [
        {"operation": "open", "path": "new", "new": True, "cut": True},
        {"operation": "fsync", "path": "new", "copy": "copy"},
        {"operation": "rename", "path": "new", "to": "old"},
        {"operation": "mkdir", "path": "folder"},
        {"operation": "unlink", "path": "absent", "failed": True},
    ]
    before: Folder = entries(disk)
    (disk / "old").write_bytes(b"whole")
    (disk / "folder").mkdir()

    def lose(*more: dict, kind: str) -> dict[str, bytes | None]:
        lines = [{**one, "path": str(disk / one["path"])} for one in (*done, *more)]
        lines = [{**one, "to": str(disk / one["to"])} if "to" in one else one for one in lines]
        (journal / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        copy = shutil.copytree(disk, tmp_path / f"copy-{len(more)}-{kind}")
        lines = (journal / "journal.jsonl").read_text().replace(str(disk), str(copy))
        (journal / "journal.jsonl").write_text(lines)
        lose_power(
            copy,
            Folder(dict(before.now), dict(before.synced)),
            journal,
            kind=kind,
        )
        return {
            name: (copy / name).read_bytes() if digest else None
            for name, digest in tree(copy).items()
        }

    sync = {"operation": "fsync", "path": "."}
    assert lose(kind="unsynced") == {"old": b"old"}
    assert lose(kind="unsynced-data") == {"old": b"wh\0\0\0", "folder": None}
    assert lose(kind="unsynced-last") == {"old": b"wh\0\0\0"}
    assert lose(sync, kind="unsynced") == {"old": b"wh", "folder": None}
    again = {"operation": "rename", "path": "old", "to": "older"}
    gone = {"operation": "rmdir", "path": "folder"}
    assert lose(sync, again, kind="unsynced-last") == {"old": b"wh", "folder": None}
    assert lose(sync, gone, again, kind="unsynced-last") == {"old": b"wh"}
