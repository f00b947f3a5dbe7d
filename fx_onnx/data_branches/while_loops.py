"""Writes a ``while`` on data of a model with ``torch.while_loop``, as an example for its author."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import CodeType
from typing import Any

__all__ = ["rewritten_loop"]

_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Yield)


class _Assigning(ast.NodeTransformer):
    """Writes ``x += y`` as ``x = x + y``, because a body may not write to what the loop carries."""

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """Returns the assignment of a variable."""
        if not isinstance(node.target, ast.Name):
            return node
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)


def rewritten_loop(code: CodeType, line: int) -> str:
    """Returns the loop of a function at a line, in the form of ``torch.while_loop``.

    The loop carries each variable that its body assigns. It is empty for a loop that this form cannot have, such as one
    with ``break``, one that assigns to an attribute, or one whose condition needs Python's ``and``.

    Args:
        code: The code of the function.
        line: The number of the line in its file.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return ""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
    loop = next((node for node in loops if node.lineno + code.co_firstlineno - 1 == line), None)
    if loop is None or loop.orelse or any(isinstance(node, (ast.BoolOp, ast.Not)) for node in ast.walk(loop.test)):
        return ""
    nodes = [node for statement in loop.body for node in ast.walk(statement)]
    targets = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
    if any(isinstance(node, _LEAVING) for node in nodes) or not all(isinstance(node, ast.Name) for node in targets):
        return ""
    names = ", ".join(dict.fromkeys(ast.unparse(target) for target in targets))
    body = textwrap.indent("\n".join(ast.unparse(_Assigning().visit(statement)) for statement in loop.body), "    ")
    return (
        f"def condition({names}):\n    return {ast.unparse(loop.test)}\n"
        f"def body({names}):\n{body}\n    return {names},\n"
        f"{names}, = torch.while_loop(condition, body, ({names},))"
    )
