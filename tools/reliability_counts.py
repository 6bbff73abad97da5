"""The counts of docs/reliability.md: one line per goal, then what each command wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Counts = dict[str, Any]
"""All files of counts, by their names."""


@dataclass(frozen=True)
class Goal:
    """A goal, and how to read the result from the files of counts."""

    what: str
    goal: str
    counted: Callable[[Counts], str]


def _kills(counts: Counts) -> str:
    loops = [each for name, each in counts.items() if name.startswith("kills")]
    local = sum(each["kills_in_all"] for each in loops) + counts["soak"]["kills"]
    ray, store = sum(counts["ray_kills"]["kills"].values()), counts["store_kills"]["kills_in_all"]
    return (
        f"{local:,} local ({counts['soak']['kills']:,} of them in the soak), {ray} Ray, {store} S3"
    )


def _fuzz(counts: Counts) -> str:
    totals = counts["fuzz"]["totals"]
    fewest = min(each["executions"] for each in counts["fuzz"]["targets"].values())
    return (
        f"{totals['executions']:,} of {len(counts['fuzz']['targets'])} targets (at least "
        f"{fewest:,} each), {totals['defects']} defects"
    )


def _engine(counts: Counts) -> str:
    families = counts["engine"]["families"].values()
    strings, size = (min(each[key] for each in families) for key in ("strings", "bytes"))
    return (
        f"{len(families)} families, at least {strings:,} strings and {size:,} bytes each, "
        f"{sum(each['differences'] for each in families)} differences"
    )


GOALS = (
    Goal(
        "tokenizer engines: fuzzed strings and text per family; documents with other ids",
        "10 million, 1 GB and 0",
        _engine,
    ),
    Goal(
        "resume points tried; inexact ones",
        "100,000 and 0",
        lambda c: "{tried:,} and {inexact}".format(**c["resume_points"]["totals"]),
    ),
    Goal(
        "file operations; faults injected; byte-equal afterwards",
        "every operation, 5 faults, all",
        lambda c: (
            f"{c['disk']['operations_in_all']:,}; {c['disk']['faults_tried_in_all']:,}; "
            f"{c['disk']['byte_equal_in_all']:,}"
        ),
    ),
    Goal("random kills, every output byte-equal", "1,000", _kills),
    Goal(
        "random training steps planned; broken guarantees",
        "1,000,000 and 0",
        lambda c: "{cases:,} and {violations}".format(**{"violations": 0, **c["step"]["counts"]}),
    ),
    Goal(
        "examples per property, at least; in total",
        "10,000 of each",
        lambda c: (
            f"{c['properties']['fewest examples of a property']:,}, and "
            f"{c['properties']['examples in all']:,} of "
            f"{c['properties']['properties tried']} properties"
        ),
    ),
    Goal(
        "faults in the list; protections removed; tests that failed as they must",
        "every line has a test",
        lambda c: (
            f"{c['controls']['fault_lines']}; {c['controls']['protections_removed']}; "
            f"{c['controls']['tests_that_noticed']}"
        ),
    ),
    Goal("fuzz executions", "1,000,000 and 0 defects", _fuzz),
    Goal(
        "pairs of world sizes for resuming; inexact ones",
        "500 and 0",
        lambda c: "{tried:,} and {inexact}".format(**c["elastic"]["totals"]),
    ),
    Goal(
        "training runs killed and resumed through frameworks; inexact ones",
        "every framework, 0",
        lambda c: "{cells:,} and {inexact}".format(**c["resume_matrix"]),
    ),
    Goal(
        "soak",
        "counted",
        lambda c: (
            f"{c['soak']['minutes']:.0f} minutes, {c['soak']['tokens']:,} tokens, "
            f"{c['soak']['kills']:,} kills, {len(c['soak']['failures'])} failures"
        ),
    ),
    Goal(
        "branches of the core; not taken by the quick tests",
        "all taken",
        lambda c: f"{c['branches']['branches']:,}; {c['branches']['branches not taken']}",
    ),
    Goal(
        "`make test` on two cores: seconds, CPU seconds, share of the branches that all tests take",
        "300, 600, 95 %",
        lambda c: (
            "{wall seconds:,}, {cpu seconds:,}, {percent of the branches that the whole takes} %"
        ).format(**c["suites"]["suites"]["test"]),
    ),
    Goal(
        "mutants of the core that a test detects",
        "95 %",
        lambda c: (
            f"{c['mutants']['noticed, percent']} % of {c['mutants']['tried']:,} tried, a random "
            f"sample of {c['mutants']['mutants']:,}; "
            f"{c['mutants']['survivors explained']} survivors are explained, "
            f"{c['mutants']['survivors unexplained']} are not"
        ),
    ),
)


def counts_of(folder: Path) -> Iterator[str]:
    """The chapter's text: goals, then a part for every file of counts."""
    counts = {
        file.stem: json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(folder.glob("*.json"))
        if file.stem != "defects"  # a table of its own
    }
    rows = [f"| {goal.what} | {goal.goal} | {_counted(goal, counts)} |" for goal in GOALS]
    yield "\n".join(["| what | goal | counted |", "|---|---|---|", *rows]) + "\n"
    for name, plain in counts.items():
        yield f"### {name[0].upper()}{name[1:].replace('_', ' ')}\n"
        yield f"`{plain.get('command', f'docs/reliability/{name}.json')}`\n"
        yield "\n".join(["| | |", "|---|--:|", *_scalars(plain)]) + "\n"
        yield from _tables(plain)


def _counted(goal: Goal, counts: Counts) -> str:
    try:
        return goal.counted(counts)
    except KeyError as missing:
        return f"not counted ({missing} is missing)"


def _scalars(plain: Counts) -> Iterator[str]:
    """Every number by its name; for lists, their length.

    >>> list(_scalars({"kills_in_all": 1000, "failures": [], "said": "x", "each": {"a": 1}}))
    ['| kills in all | 1,000 |', '| failures | 0 |', '| each, a | 1 |']
    """
    for key, value in plain.items():
        if _is_number(value) or isinstance(value, list):
            yield f"| {_words(key)} | {_figure(value)} |"
        elif isinstance(value, dict):
            numbers = {k: v for k, v in value.items() if _is_number(v)}
            yield from (
                f"| {_words(key)}, {_words(k)} | {_figure(v)} |" for k, v in numbers.items()
            )


def _tables(plain: Counts) -> Iterator[str]:
    """A separate table for counts with several numbers in each line.

    >>> print(*_tables({"kinds": {"a": {"tried": 5, "bad": 0}, "b": {"tried": 1}}}))
    | kinds | tried | bad |
    |---|--:|--:|
    | a | 5 | 0 |
    | b | 1 |  |
    """
    for key, value in plain.items():
        found = value.items() if isinstance(value, dict) else ()
        lines = {name: line for name, line in found if isinstance(line, dict)}
        if not lines:
            continue
        names = {name: None for line in lines.values() for name, v in line.items() if _is_number(v)}
        head = [
            f"| {_words(key)} | {' | '.join(map(_words, names))} |",
            f"|---|{'--:|' * len(names)}",
        ]
        body = [
            f"| {_words(k)} | {' | '.join(_figure(line.get(n, '')) for n in names)} |"
            for k, line in lines.items()
        ]
        yield "\n".join([*head, *body]) + "\n"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _figure(value: Any) -> str:
    if isinstance(value, list):
        return str(len(value))
    return f"{value:,}" if _is_number(value) else str(value)


def _words(key: object) -> str:
    if str(key).endswith(".py"):
        return f"`{key}`"
    return str(key).rpartition("::")[2].removeprefix("test_").replace("_", " ")
