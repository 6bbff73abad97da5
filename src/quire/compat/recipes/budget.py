"""How much a template may do: enough for any recipe, and never without end."""

from __future__ import annotations

from quire.compat.recipes.problems import Unplaced

MAX_STEPS = 20_000
"""Turns of loops, calls and includes."""
MAX_CHARACTERS = 1 << 20
"""Text that is made or compared on the way, whether it is written or not."""
_ITEM = 16
"""What a number, or an item of a list, counts for."""
_REMEDY = "shorten its loops, or write the YAML out"


class Budget:
    """What is left to a template."""

    def __init__(self, steps: int = MAX_STEPS, characters: int = MAX_CHARACTERS) -> None:
        self._steps, self._characters = steps, characters

    def step(self) -> None:
        """Pay for a turn of a loop or a call."""
        self._steps -= 1
        if self._steps < 0:
            raise Unplaced(f"the template takes more than {MAX_STEPS} steps", _REMEDY)

    def write(self, value: object) -> None:
        """Pay for a value: its characters, and those of everything inside it."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self._characters -= _ITEM + (len(one) if isinstance(one, str | bytes) else 0)
            if self._characters < 0:
                raise Unplaced(
                    f"the template handles more than {MAX_CHARACTERS} characters", _REMEDY
                )
            if isinstance(one, dict):
                waiting += [*one.keys(), *one.values()]
            elif isinstance(one, list | tuple | set | range):
                waiting += one
