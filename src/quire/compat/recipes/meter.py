"""The meter that is put on a template before it is compiled."""

from __future__ import annotations

from typing import Any, cast

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

_MAKERS = (nodes.List, nodes.Dict, nodes.Tuple, nodes.Concat)


class Meter(NodeTransformer):
    """Charges for everything whose cost grows with its values or with the turns of a loop.

    Loops, collections, joined text, text itself, slices, conditions, assignments, and both sides of
    comparisons and tests. The filters ``counted``, ``paid`` and ``ticked`` are the environment's.
    Text becomes an expression, because Jinja passes only expressions to ``finalize``.
    """

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
        makes = isinstance(node, _MAKERS) or is_slice
        return _filtered(cast(nodes.Expr, node), "paid") if makes else node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    made.set_environment(node.environment)  # type: ignore[arg-type]
    return made
