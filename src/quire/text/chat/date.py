"""The date that a chat template gets if it asks for one: the same for a whole run.

Templates of Llama 3 and gpt-oss write today's date with ``strftime_now``. With the system's clock,
the same conversations would have other tokens tomorrow.
"""

from __future__ import annotations

import calendar
import datetime
import string
from functools import lru_cache

ASKS_FOR_DATE = "strftime_now"
"""The function that a template calls for the date."""

FIXED_NOW = (
    "{%- macro strftime_now(format) -%}{%- for part in format.split('%%') -%}"
    "{%- set now = namespace(text=part) -%}"
    "{%- for directive, value in quire_date.items() if directive in part -%}"
    "{%- set now.text = now.text.replace(directive, value) -%}{%- endfor -%}"
    "{{ now.text }}{{ '%' if not loop.last }}{%- endfor -%}{%- endmacro %}\n"
)
"""Prepended to a template so that it takes the date from ``quire_date``, see `directives`.

A template sees only plain data, so a function cannot be passed to it. The line end is part of the
macro, so what follows renders as if it were at the start.
"""

_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_MONTHS = "January February March April May June July August September October November December"


_clock = datetime.date.today


def today() -> datetime.date:
    """The local date, as in transformers."""
    return _clock()


@lru_cache(maxsize=8)
def directives(date: datetime.date) -> dict[str, str]:
    """What each directive of strftime gives at midnight of the date, in any locale.

    >>> found = directives(datetime.date(2024, 7, 6))
    >>> [found[name] for name in ("%d", "%-d", "%b", "%Y", "%H")]
    ['06', '6', 'Jul', '2024', '00']
    """
    midnight = datetime.datetime.combine(date, datetime.time())
    day, month = _DAYS[date.weekday()], _MONTHS.split()[date.month - 1]
    named = {
        "a": day[:3],
        "A": day,
        "b": month[:3],
        "h": month[:3],
        "B": month,
        "c": f"{day[:3]} {month[:3]} {date.day:2} 00:00:00 {date.year}",
        "p": "AM",
        "r": "12:00:00 AM",
        "s": str(calendar.timegm(date.timetuple())),
        "x": midnight.strftime("%m/%d/%y"),
        "X": "00:00:00",
    }
    plain = {
        letter: named.get(letter) or midnight.strftime(f"%{letter}")
        for letter in string.ascii_letters
    }
    unpadded = {
        letter: value.strip().lstrip("0") or "0"
        for letter, value in plain.items()
        if value.strip().isdigit()
    }
    return {
        **{f"%{letter}": value for letter, value in plain.items()},
        **{f"%-{letter}": value for letter, value in unpadded.items()},
    }
