"""Command-line options generated from option dataclasses, and arguments that commands share."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from quire.options import Integer, Number, parse_size

_INPUT_GROUPS = ("TextOptions", "RecordOptions", "SourceOptions", "SourceFields", "StreamSource")
_PANEL_OF_GROUP = {
    **dict.fromkeys(_INPUT_GROUPS, "Input"),
    "EncodeOptions": "Tokens",
    **dict.fromkeys(("RowOptions", "PackOptions", "StreamOptions"), "Packing"),
    "PipelineFields": "Running",
}
"""The panel of ``--help`` for the options that a class declares; others are about the output."""
_LONGEST_CHOICES = 50
"""Characters of choices that ``--help`` shows in place of a type."""
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUTS...",
        help="Files, globs or folders of jsonl or ndjson (.gz, .zst), parquet, arrow, txt (one "
        "document per file), or a dataset written by save_to_disk; paths, or URIs such as "
        "s3://bucket/folder. PATH:COLUMN names the column of an input's text.",
    ),
]


def tokenizers_to_complete(incomplete: str) -> list[str]:
    """Completions of a tokenizer in a shell: 'byte', tokenizer files, and folders."""
    found = sorted(Path(incomplete or ".").parent.glob(f"{Path(incomplete).name}*"))
    files = [str(path) for path in found if path.is_dir() or path.name == "tokenizer.json"]
    return [name for name in ("byte", *files) if name.startswith(incomplete)]


def strategies_to_complete(incomplete: str) -> list[str]:
    """Completions of a strategy in a shell."""
    from quire.plan.strategies import strategy_names

    return [name for name in strategy_names() if name.startswith(incomplete)]


def plans_to_complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completions of a plan in a shell: the plans of the output named before it."""
    from quire.errors import QuireError
    from quire.packed.manifest import read_manifest
    from quire.storage import as_path

    try:
        plans = [plan["name"] for plan in read_manifest(as_path(ctx.params["path"]))["plans"]]
    except (KeyError, OSError, QuireError):
        return []
    return [name for name in plans if name.startswith(incomplete)]


TokenizerName = Annotated[
    str | None,
    typer.Option(
        help="'byte', a tokenizer.json, a folder that has one, or a name on the Hugging Face hub.",
        autocompletion=tokenizers_to_complete,
    ),
]
CorpusFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="The format of a tokenized corpus, with its options: olmo:dtype=uint32,eos=100257.",
        show_default="recognized from content",
    ),
]
MaxBadRecords = Annotated[
    int,
    typer.Option(
        min=0,
        help="Bad records to leave out and list before it is an error.",
        rich_help_panel="Input",
    ),
]
ImageRoot = Annotated[
    str | None,
    typer.Option(
        help="The folder that relative paths of images start at.",
        show_default="that of the input that names them",
        rich_help_panel="Input",
    ),
]
PackedPath = Annotated[str, typer.Argument(help="A folder written by quire pack, or its URI.")]
PlanName = Annotated[
    str | None,
    typer.Option(
        help="Which plan of an index-only output to show.", autocompletion=plans_to_complete
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        help="Where to keep the memory-mapped copy of a packed dataset; needed if the dataset is "
        "on a read-only disk."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write the result as JSON.")]


def options_of(
    kind: type,
    *,
    leave_out: Collection[str] = (),
    only_given: bool = False,
    unset: str | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every field of a dataclass, in place of its ``options``.

    The command receives them as a dict. With ``only_given``, none is required and the dict holds
    only those that were given; ``--help`` shows ``unset``, or the default of the class.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        generated = {
            field.name: parameter
            for field in fields(kind)
            if field.name not in leave_out
            for parameter in [_parameter(kind, field, only_given, unset)]
        }
        signature = inspect.signature(command, eval_str=True)
        own = [*signature.parameters.values()]
        at = next(number for number, one in enumerate(own) if one.name == "options")

        @functools.wraps(command)
        def run(**given: Any) -> None:  # noqa: ANN401 - values of any option
            values = {name: given.pop(name) for name in generated}
            command(**given, options=dict(_given_values(kind, values, not only_given)))

        parameters = [*own[:at], *generated.values(), *own[at + 1 :]]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _given_values(
    kind: type, values: dict[str, Any], keep_none: bool
) -> Iterator[tuple[str, object]]:
    """Typer's values as the dataclass takes them: an empty text or list means None."""
    optional = {name for name, hint in _hints(kind).items() if types.NoneType in get_args(hint)}
    for name, value in values.items():
        plain = None if name in optional and value in ("", []) else value
        if keep_none or value is not None:
            yield name, plain


def _parameter(
    kind: type, field: Field[Any], only_given: bool, unset: str | None
) -> inspect.Parameter:
    hint = _hints(kind)[field.name]
    inner = next(part for part in (*_members(hint), str) if part is not types.NoneType)
    annotation, option = _typed(inner, field.name)
    if hint is bool and field.default is False:
        option = {"names": [_flag(field.name)]}  # without a --no- form
    help_text, default_text = _help(kind, field.name)
    default = None if field.default is MISSING else field.default
    is_required = not only_given and field.default is MISSING
    if isinstance(default, int) and annotation is str:
        default = _size_text(default)
    if only_given:
        default_text = unset or default_text or _default_text(field.name, default)
        default = None
    if default is None and not is_required:
        annotation |= None
        option["show_default"] = default_text or False
    if field.name == "strategy" and annotation in (str, str | None):
        option["autocompletion"] = strategies_to_complete
    info = typer.Option(
        *option.pop("names", ()),
        help=help_text,
        rich_help_panel=_panel(kind, field.name),
        **option,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[annotation, info],
        default=inspect.Parameter.empty if is_required else default,
    )


def _default_text(name: str, default: object) -> str | None:
    """What ``--help`` shows of a default that the class fills in: for a flag, its name."""
    if default in (None, ()) or default is False:
        return None
    return _flag(name)[2:] if default is True else str(default)


def _members(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any annotation
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _typed(hint: Any, name: str) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - any annotation
    """The type that the command line parses, and other arguments of its Typer option."""
    if get_origin(hint) is tuple:
        return list[str], {"names": [_flag(name.removesuffix("s"))]}
    if get_origin(hint) is Literal:  # a long list of choices would not fit into a line
        is_long = len("|".join(map(str, get_args(hint)))) > _LONGEST_CHOICES
        return hint, {"metavar": name.rpartition("_")[2].upper()} if is_long else {}
    if get_origin(hint) is not Annotated:
        return hint, {}
    rule = hint.__metadata__[0]
    if isinstance(rule, Integer):
        return int, {"min": rule.least}
    if isinstance(rule, Number):
        return float, {}
    return str, {"metavar": "SIZE"} if rule is parse_size else {}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _size_text(num_bytes: int) -> str:
    """Bytes in the largest unit that divides them.

    >>> _size_text(256 << 20), _size_text(1000)
    ('256M', '1000')
    """
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if num_bytes and num_bytes % (1 << shift) == 0:
            return f"{num_bytes >> shift}{unit}"
    return str(num_bytes)


def _help(kind: type, name: str) -> tuple[str, str | None]:
    """The field's docstring, with what it says of None as the text of the default."""
    text = " ".join(_field_docs(kind).get(name, "").replace("``", "").split())
    text, _, of_none = text.partition(" None: ")
    return text, of_none.rstrip(".") or None


def _panel(kind: type, name: str) -> str:
    """The heading of an option in ``--help``: by the class that first declares it."""
    bases = reversed(kind.__mro__)
    owner = next(base for base in bases if name in vars(base).get("__annotations__", {}))
    return _PANEL_OF_GROUP.get(owner.__name__, "Output")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@functools.cache
def _field_docs(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a dataclass, which Python does not keep."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                docs[ast.unparse(field.target)] = ast.literal_eval(text.value)
    return docs
