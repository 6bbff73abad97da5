"""Options: frozen dataclasses that declare each option once, with its rule and its help.

`quire.options.groups` has the groups that paths share, `quire.options.rules` what values may be.
"""

from quire.options.groups import (
    EncodeOptions,
    Options,
    Overlong,
    PackOptions,
    SourceOptions,
    group_values,
    make_options,
    suggest_keywords,
    takes_options,
)
from quire.options.rules import (
    LARGEST,
    Count,
    Integer,
    Number,
    Positive,
    Seed,
    Size,
    is_integer,
    parse_size,
    require_flag,
    require_flags,
    require_integer,
    require_items,
    require_path,
    rule_of,
    validate,
)

__all__ = [
    "LARGEST",
    "Count",
    "EncodeOptions",
    "Integer",
    "Number",
    "Options",
    "Overlong",
    "PackOptions",
    "Positive",
    "Seed",
    "Size",
    "SourceOptions",
    "group_values",
    "is_integer",
    "make_options",
    "parse_size",
    "require_flag",
    "require_flags",
    "require_integer",
    "require_items",
    "require_path",
    "rule_of",
    "suggest_keywords",
    "takes_options",
    "validate",
]
