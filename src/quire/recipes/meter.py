"""The meter that is put on a template before it is compiled."""

from __future__ import annotations

from typing import Any, cast

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

_MAKERS = (nodes.List, nodes.Dict, nodes.Tuple, nodes.Concat)


class Meter(NodeTransformer):
    """Puts a price on whatever makes much of little: loops, collections, joined text, text itself.

    The filters ``counted`` and ``paid`` are the environment's. Text becomes an expression, as Jinja
    shows expressions alone to the environment's ``finalize``.
    """

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The node, or what stands in its place."""
        if isinstance(node, nodes.TemplateData):
            return nodes.Const(node.data, lineno=node.lineno)
        if isinstance(node, nodes.Tuple) and node.ctx != "load":
            return node  # names that are assigned to
        self.generic_visit(node)
        if isinstance(node, nodes.For):
            node.iter = _filtered(cast(nodes.Expr, node.iter), "counted")
        return _filtered(cast(nodes.Expr, node), "paid") if isinstance(node, _MAKERS) else node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    made.set_environment(node.environment)  # type: ignore[arg-type]
    return made
