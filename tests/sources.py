"""The package's source files, each parsed once, for the tests that read the source."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fx_onnx"
DECOMPOSITIONS = ROOT / "decompositions"


@dataclass(frozen=True)
class Source:
    """A Python file of the repository."""

    path: Path

    @property
    def name(self) -> str:
        """The path from the repository's root: ``fx_onnx/onnx_model/names.py``."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """The dotted name when installed: ``decompositions/x.py`` is ``fx_onnx.decompositions.x``."""
        dotted = self.name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        return f"fx_onnx.{dotted}" if dotted.partition(".")[0] == "decompositions" else dotted

    @property
    def folder(self) -> str:
        """The folder of the architecture: ``passes`` for ``fx_onnx/passes/fusion/x.py``; ``export`` for a top file."""
        return folder_of(self.module)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[str]:
        """The dotted names that the file imports at run time, anywhere in it; not those under ``TYPE_CHECKING``."""
        return list(_imports(self.tree))

    @cached_property
    def dotted(self) -> set[str]:
        """The dotted names in the code: ``torch.ops.aten`` of ``torch.ops.aten.add(x)``."""
        return {name for node in self.nodes if (name := _dotted(node)) is not None}


def folder_of(module: str) -> str:
    """Returns the part of a dotted name after ``fx_onnx``; an empty string for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@functools.cache
def sources() -> tuple[Source, ...]:
    """Returns all files of the package, sorted by path."""
    return tuple(Source(path) for path in sorted([*PACKAGE.rglob("*.py"), *DECOMPOSITIONS.rglob("*.py")]))


def is_type_checking(node: ast.AST) -> bool:
    """Returns whether a statement is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{'.' * child.level}{child.module or ''}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and is_type_checking(child):
            for statement in child.orelse:
                yield from _imports(ast.Module([statement], []))
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _imports(child)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)) is not None:
        return f"{base}.{node.attr}"
    return None


def matches(pattern: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields the line number and the text of each match."""
    for match in re.finditer(pattern, text, re.MULTILINE):
        yield text.count("\n", 0, match.start()) + 1, match[0]
