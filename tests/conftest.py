"""Which tests are slow, and how many examples hypothesis tries.

``make test`` leaves the slow ones out and tries few examples of every property; ``make test-all``
runs everything, with the examples that the tests ask for; ``make nightly`` tries 10,000 of every
property, which takes hours.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

# One thread per worker, said before anything imports torch, numpy or tokenizers.
os.environ.update(
    dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
    ),
    RAYON_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
)

import pytest
from hypothesis import HealthCheck, settings

from tests import bf16

TESTS = Path(__file__).resolve().parent
SLOW = (
    *(f"cluster/test_{name}.py" for name in ("bad_input", "bytes", "deaths", "engine_choice")),
    *("cluster/test_interrupts.py", "cluster/test_store.py"),
    "dataset/test_example.py",
    *(f"faults/test_{name}.py" for name in ("controls", "disk_faults", "pack_memory", "soak")),
    "faults/test_pack_process.py",
    "report/test_browser.py",
    "storage",
    "stream/test_jax_training.py",
    "stream/test_processes.py",
    "test_examples.py",
    "test_site.py",
)
"""Folders and files of which every test is slow: they need a cluster, a server, a browser, a
training run, many processes, or every fault at every operation."""
QUICK, FEWEST = 25, 3
NIGHTLY = 10_000

# A busy machine makes no test fail.
settings.register_profile("quire", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=QUICK)
settings.register_profile(
    "nightly", deadline=None, max_examples=NIGHTLY, suppress_health_check=list(HealthCheck)
)
# Under mutmut, few and always the same: a mutant that lives has to live on.
settings.register_profile("mutants", deadline=None, max_examples=25, derandomize=True)
PROFILE = os.environ.get("QUIRE_HYPOTHESIS", "quire")
settings.load_profile(PROFILE)

MEMORY = Path("/dev/shm")  # noqa: S108 - only a faster place for the same files

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background, and commands that tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory if possible: a sync to a busy disk takes longer than the test."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        inner = Path(folder) / "test"
        inner.mkdir()
        yield inner


@pytest.fixture
def registered() -> Iterator[Callable[..., None]]:
    """`register_strategy`; what the test registers is removed after it."""
    from quire import register_strategy
    from quire.plan.strategies import _REGISTERED

    before = dict(_REGISTERED)
    yield register_strategy
    _REGISTERED.clear()
    _REGISTERED.update(before)


def pytest_configure(config: pytest.Config) -> None:
    """Nothing has imported torch yet."""
    bf16.prepare(config)


@cache
def is_slow(path: Path) -> bool:
    """Whether all tests of the file or folder are slow."""
    return any(path == TESTS / slow or TESTS / slow in path.parents for slow in SLOW)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are left out are not imported."""
    return (config.option.markexpr == "not slow" and is_slow(collection_path)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow; by night and in a quick run, give properties and machines their examples.

    A property that is tried with several parameters shares its examples among them.
    """
    bf16.skip_if_it_crashes(items)
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")
    if PROFILE not in ("quick", "nightly"):
        return
    shared = Counter(item.nodeid.partition("[")[0] for item in items)
    for item in items:
        times = shared[item.nodeid.partition("[")[0]]
        test = getattr(item, "obj", None)
        holder = getattr(test, "__func__", test)
        set_examples(holder, "_hypothesis_internal_use_settings", times)
        set_examples(getattr(item, "cls", None), "settings", times)  # a machine's test case


def set_examples(holder: object, name: str, times: int) -> None:
    """Give the settings under this name, if they are hypothesis', the examples of the profile."""
    given = getattr(holder, name, None)
    if isinstance(given, settings):
        if PROFILE == "nightly":
            examples = -(-NIGHTLY // times)
        else:
            examples = min(given.max_examples, max(FEWEST, QUICK // times))
        setattr(holder, name, settings(given, max_examples=examples, deadline=None))
