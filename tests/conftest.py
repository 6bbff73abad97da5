"""How many examples hypothesis tries: as the tests say, or, by night, 10,000 of every property.

``make nightly`` takes hours.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import bf16

NIGHTLY = 10_000

# A busy machine makes no test fail.
settings.register_profile("quire", deadline=None)
settings.register_profile(
    "nightly", deadline=None, max_examples=NIGHTLY, suppress_health_check=list(HealthCheck)
)
# Under mutmut, few and always the same: a mutant that lives has to live on.
settings.register_profile("mutants", deadline=None, max_examples=25, derandomize=True)
PROFILE = os.environ.get("QUIRE_HYPOTHESIS", "quire")
settings.load_profile(PROFILE)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background, and commands that tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def registered() -> Iterator[Callable[..., None]]:
    """`register_strategy`; what the test registers is gone behind it."""
    from quire import register_strategy
    from quire.plan.strategies import _STRATEGIES

    before = dict(_STRATEGIES)
    yield register_strategy
    _STRATEGIES.clear()
    _STRATEGIES.update(before)


def pytest_configure(config: pytest.Config) -> None:
    """Nothing has imported torch yet."""
    bf16.prepare(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By night, properties and machines that name fewer examples get as many as the others.

    A property that is tried with several parameters shares its examples among them.
    """
    bf16.skip_if_it_crashes(items)
    if PROFILE != "nightly":
        return
    shared = Counter(item.nodeid.partition("[")[0] for item in items)
    for item in items:
        examples = -(-NIGHTLY // shared[item.nodeid.partition("[")[0]])
        test = getattr(item, "obj", None)
        holder = getattr(test, "__func__", test)
        set_examples(holder, "_hypothesis_internal_use_settings", examples)
        set_examples(getattr(item, "cls", None), "settings", examples)  # a machine's test case


def set_examples(holder: object, name: str, examples: int) -> None:
    """Give the settings under this name, if they are hypothesis', the examples of the night."""
    given = getattr(holder, name, None)
    if isinstance(given, settings):
        setattr(holder, name, settings(given, max_examples=examples, deadline=None))
