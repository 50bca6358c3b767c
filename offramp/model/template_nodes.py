"""The syntax tree of a template, rewritten so that what jinja compiles to plain Python asks the environment instead.

Templates can't name these methods of the environment themselves.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer


def lead_through_environment(tree: nodes.Template) -> nodes.Template:
    """Changes `tree`: loops, the operators `~` and comparisons, slices, and lists and mappings written out."""
    _Rewriter().visit(tree)
    return tree


class _Rewriter(NodeTransformer):
    def __init__(self) -> None:
        self.num_visited = 0

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        self.num_visited += 1
        return super().visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja's names, here and below
        before = self.num_visited
        self.generic_visit(node)
        size = nodes.Const(self.num_visited - before, lineno=node.lineno)
        node.iter = _call("loop_items", node.iter, size)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return _call("concat_values", *node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        self.generic_visit(node)
        for operand in node.ops:
            operand.expr = _call("step", operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        absent = nodes.Const(None, lineno=node.lineno)
        return _call("cut", node.node, *(part or absent for part in (node.arg.start, node.arg.stop, node.arg.step)))

    def visit_List(self, node: nodes.List) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return _call("made", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return _call("made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("made", node) if node.ctx == "load" else node


def _call(name: str, first: Any, *others: nodes.Expr) -> nodes.Call:
    method = nodes.EnvironmentAttribute(name, lineno=first.lineno)
    return nodes.Call(method, [first, *others], [], None, None, lineno=first.lineno)
