"""Jinja without attributes, with a few allowed calls, and with a limit on the work it does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from jinja2 import BaseLoader, StrictUndefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from quire.compat.recipes.errors import UnlocatedError
from quire.compat.recipes.syntax import as_jinja

MAX_STEPS = 20_000
"""Loop iterations, calls and includes."""
MAX_CHARACTERS = 1 << 20
"""Text that is produced or compared on the way, whether or not it is written."""
_ITEM_COST = 16
"""What a number, or an item of a list, costs in characters."""
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


class Budget:
    """The work that a template may still do: enough for any recipe, but finite."""

    def __init__(self, steps: int = MAX_STEPS, characters: int = MAX_CHARACTERS) -> None:
        self._steps, self._characters = steps, characters

    def step(self) -> None:
        """Charge for a loop iteration or a call."""
        self._steps -= 1
        if self._steps < 0:
            raise _over_budget(f"takes more than {MAX_STEPS} steps")

    def charge(self, value: object) -> None:
        """Charge for a value: its characters, and those of everything inside it."""
        waiting = [value]
        while waiting:
            item = waiting.pop()
            self._characters -= _ITEM_COST + (len(item) if isinstance(item, str | bytes) else 0)
            if self._characters < 0:
                raise _over_budget(f"handles more than {MAX_CHARACTERS} characters")
            if isinstance(item, dict):
                waiting += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple | set | range):
                waiting += item


def _over_budget(what: str) -> UnlocatedError:
    return UnlocatedError(f"the template {what}", "shorten its loops, or write the YAML out")


class RecipeEnvironment(ImmutableSandboxedEnvironment):
    """The environment that renders one recipe, once."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, loader: BaseLoader) -> None:
        super().__init__(
            loader=loader,
            extensions=[RecipeSyntax],
            trim_blocks=True,
            keep_trailing_newline=True,
            undefined=StrictUndefined,
            finalize=_charged_output,
            optimized=False,
            auto_reload=False,
        )
        self.budget = Budget()
        self.filters = {name: self._charged_filter(made) for name, made in _FILTERS.items()}
        self.filters |= {"counted": self._counted, "paid": self._charge, "ticked": self._tick}
        self.globals = {"range": _short_range, "namespace": Namespace}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401
        """Whether a template may read this: parts of loops and namespaces, a few methods."""
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
        """The result of a call, charged to the budget."""
        self.budget.step()
        if not self.is_safe_callable(obj):
            raise SecurityError(f"a call of {getattr(obj, '__name__', type(obj).__name__)}")
        return self._charge(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """The result of an operator, if it is small."""
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise SecurityError(f"the operator {operator}")
        if operator == "*":
            _require_small_product(left, right)
        return self._charge(super().call_binop(context, operator, left, right))

    def get_template(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The template; includes come through here as well."""
        self.budget.step()
        return super().get_template(*args, **kwargs)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401
        return super()._generate(_ChargeInserter().visit(source), *args, **kwargs)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.budget.step()
            yield item

    def _charged_filter(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def charged(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self._charge(args[0])  # a long input may cost more than its result
            return self._charge(function(*args, **kwargs))

        return charged

    def _tick(self, value: Any) -> Any:  # noqa: ANN401
        self.budget.charge(None)
        return value

    def _charge(self, value: Any) -> Any:  # noqa: ANN401
        self.budget.charge(value)
        return value


class _ChargeInserter(NodeTransformer):
    """Inserts charges for everything whose cost grows with its values or with loop iterations.

    Loops, collections, joined text, text itself, slices, conditions, assignments, and both sides of
    comparisons and tests. The filters ``counted``, ``paid`` and ``ticked`` are the environment's.
    Text becomes an expression, because Jinja passes only expressions to ``finalize``.
    """

    _COLLECTIONS = (nodes.List, nodes.Dict, nodes.Tuple, nodes.Concat)

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The node, or its replacement."""
        if isinstance(node, nodes.TemplateData):
            return nodes.Const(node.data, lineno=node.lineno)
        if isinstance(node, nodes.Tuple) and node.ctx != "load":
            return node  # names that are assigned to
        self.generic_visit(node)
        if isinstance(node, nodes.For):
            node.iter = _filtered(cast(nodes.Expr, node.iter), "counted")
        elif isinstance(node, nodes.If | nodes.CondExpr):
            node.test = _filtered(cast(nodes.Expr, node.test), "ticked")
        elif isinstance(node, nodes.Assign):
            node.node = _filtered(cast(nodes.Expr, node.node), "ticked")
        elif isinstance(node, nodes.Compare | nodes.Operand):
            node.expr = _filtered(node.expr, "paid")
        elif isinstance(node, nodes.Test):
            node.node = _filtered(node.node, "paid")
            node.args = [_filtered(argument, "paid") for argument in node.args]
        is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        makes = isinstance(node, self._COLLECTIONS) or is_slice
        return _filtered(cast(nodes.Expr, node), "paid") if makes else node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    made.set_environment(node.environment)  # type: ignore[arg-type]
    return made


@pass_context  # so that text, too, is charged when it is written, not when it is compiled
def _charged_output(context: Context, value: Any) -> Any:  # noqa: ANN401
    context.environment.budget.charge(value)  # type: ignore[attr-defined]
    return value


def _short_range(*numbers: int) -> range:
    """A range of limited length."""
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
"""Inserted before every line of text to record where it came from, and removed after rendering."""


class RecipeSyntax(Extension):
    """Translates the line statements of recipes, and marks which line each text came from."""

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
