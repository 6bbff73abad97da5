"""A conversation to token ids and labels on what the assistant says, against transformers'
`apply_chat_template`, which gives only the ids. Both sides take turns; CPU time, best of several
runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from tests.tokenizer_files import load, parameters

from benchmarks.harness import Table, milliseconds, ratio
from quire.text.chat import conversation_encoder

TITLE = "Conversations"
SHORT = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France, and how many people live there?"},
    {"role": "assistant", "content": "Paris; about 2.1 million people live in the city itself."},
]
CALLS = 10
REPEATS = 25
TURNS = (100, 800)


def run() -> list[Table]:
    table = Table(
        "Labels compared with apply_chat_template",
        ["tokenizer", "conversation", "apply_chat_template", "quire, with labels", "ratio"],
    )
    names = [getattr(name, "values", (name,))[0] for name in parameters("qwen3")]
    for name in names:
        tokenizer = load(name)
        encode = conversation_encoder(tokenizer)
        for shown, talk, calls in _talks():

            def theirs(tokenizer=tokenizer, talk=talk, calls=calls) -> None:
                for _ in range(calls):
                    tokenizer.apply_chat_template(talk)

            def ours(encode=encode, talk=talk, calls=calls) -> None:
                for _ in range(calls):
                    encode(talk)

            slow, fast = (t / calls for t in _cpu_times(theirs, ours))
            table.add(name, shown, milliseconds(slow), milliseconds(fast), ratio(fast / slow))
    return [table]


def _cpu_times(*functions: Callable[[], None]) -> list[float]:
    """The least CPU seconds of each function, interleaved."""
    best = [math.inf] * len(functions)
    for _ in range(REPEATS):
        for place, function in enumerate(functions):
            start = time.process_time()
            function()
            best[place] = min(best[place], time.process_time() - start)
    return best


def _talks() -> list[tuple[str, list[dict[str, str]], int]]:
    long = [
        {"role": role, "content": f"{what} {number}"}
        for number in range(max(TURNS))
        for role, what in (("user", "question"), ("assistant", "answer"))
    ]
    return [
        ("one short answer", SHORT, CALLS),
        *((f"{turns} turns", long[: 2 * turns], 1) for turns in TURNS),
    ]
