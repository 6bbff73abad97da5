"""Jinja without attributes, with only a few calls, and with a limit on the work that it does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import BaseLoader, StrictUndefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from quire.compat.recipes.budget import Budget
from quire.compat.recipes.dialect import as_jinja
from quire.compat.recipes.meter import Meter

_FILTERS = {
    name: FILTERS[name]
    for name in ("default", "d", "string", "int", "float", "trim", "upper", "lower", "length")
} | {"list": list}
_METHODS: dict[type, set[str]] = {
    str: {"upper", "lower", "strip", "startswith", "endswith", "split"},
    dict: {"items", "keys", "values", "get"},
}
_MAX_INTEGER = 1 << 64
_MAX_RANGE = 10_000


class RecipeEnvironment(ImmutableSandboxedEnvironment):
    """The environment that renders one recipe, once."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, loader: BaseLoader, budget: Budget) -> None:
        super().__init__(
            loader=loader,
            extensions=[LinesOfRecipes],
            trim_blocks=True,
            keep_trailing_newline=True,
            undefined=StrictUndefined,
            finalize=_paid,
            optimized=False,
            auto_reload=False,
        )
        self.budget = budget
        self.filters = {name: self._paying(made) for name, made in _FILTERS.items()}
        self.filters |= {"counted": self._counted, "paid": self._pay, "ticked": self._tick}
        self.globals = {"range": _short_range, "namespace": Namespace}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401
        """Whether a template may see this: parts of loops and namespaces, a few methods."""
        if attr.startswith("_"):
            return False
        if isinstance(obj, LoopContext | Namespace | BlockReference):
            return True
        return attr in _METHODS.get(type(obj), set())

    def is_safe_callable(self, obj: Any) -> bool:  # noqa: ANN401
        """Whether a template may call this: macros, blocks, and the few methods above."""
        if isinstance(obj, Macro | BlockReference) or obj in (_short_range, Namespace):
            return True
        owner = getattr(obj, "__self__", None)
        return getattr(obj, "__name__", "") in _METHODS.get(type(owner), set())

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The result of a call, which is paid for."""
        self.budget.step()
        if not self.is_safe_callable(obj):
            raise SecurityError(f"a call of {getattr(obj, '__name__', type(obj).__name__)}")
        return self._pay(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """The result of an operator, if it is small."""
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise SecurityError(f"the operator {operator}")
        if operator == "*":
            _require_small_product(left, right)
        return self._pay(super().call_binop(context, operator, left, right))

    def get_template(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The template, for an include as well."""
        self.budget.step()
        return super().get_template(*args, **kwargs)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401
        return super()._generate(Meter().visit(source), *args, **kwargs)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.budget.step()
            yield item

    def _paying(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def paying(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self._pay(args[0])  # its length may cost more than what comes out
            return self._pay(function(*args, **kwargs))

        return paying

    def _tick(self, value: Any) -> Any:  # noqa: ANN401
        self.budget.write(None)
        return value

    def _pay(self, value: Any) -> Any:  # noqa: ANN401
        self.budget.write(value)
        return value


@pass_context  # so that text, too, is paid for when it is written, not when it is compiled
def _paid(context: Context, value: Any) -> Any:  # noqa: ANN401
    context.environment.budget.write(value)  # type: ignore[attr-defined]
    return value


def _short_range(*numbers: int) -> range:
    """A range that is no endless one."""
    made = range(*numbers)
    if len(made) > _MAX_RANGE:
        raise SecurityError(f"range of {len(made)} numbers, over {_MAX_RANGE}")
    return made


def _require_small_product(left: object, right: object) -> None:
    sizes = [len(one) if isinstance(one, str | list | tuple) else one for one in (left, right)]
    if all(isinstance(one, int | float) for one in sizes):
        product = sizes[0] * sizes[1]  # type: ignore[operator]
        if abs(product) >= _MAX_INTEGER or (sizes != [left, right] and product > _MAX_RANGE):
            raise SecurityError("a product as large as this")


MARK = "\ue000{name}:{line}\ue001"
"""Goes before every line of text, and is taken out again: it tells where the line came from."""


class LinesOfRecipes(Extension):
    """Reads the line statements of recipes, and remembers which line each text came from."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """The template in Jinja's syntax."""
        return as_jinja(source)

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """The tokens, with a mark before each line of text."""
        for token in stream:
            is_text = token.type == "data"
            yield Token(token.lineno, "data", _marked(token, stream.name)) if is_text else token


def _marked(token: Token, name: str | None) -> str:
    lines = token.value.split("\n")
    return "\n".join(
        MARK.format(name=name, line=number) + line
        for number, line in enumerate(lines, token.lineno)
    )
