"""The style: docstrings, lengths, broad excepts, leftovers and words. Each test lists all violations."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.sources import ROOT, matches, sources

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 50

# These call the user's code, which may raise anything: a forward, a decomposition, a translation. One for each stage.
BROAD_EXCEPTS = {
    "fx_onnx/capture/capture.py": 1,
    "fx_onnx/aten/decompose.py": 1,
    "fx_onnx/translation/translate.py": 1,
}

# Words that a reader of English as a second language has to read twice. Say what the thing does instead.
AVOIDED = (
    r"in the place of",
    r"in spite of",
    r"for the most part",
    r"\b[Ll]ikewise\b",
    r"\b(is|are) to be had\b",
    r"\bcan be had\b",
    r"\bmade good\b",
    r"\bmakes? good\b",
    r"\bsoon done\b",
    r"\bis no load\b",
    r"\bhas words\b",
    r"\banew\b",
    r"\bof ours\b",
    r"\bcomes of\b",
)

# The folders whose prose is checked.
PROSE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks", "tools")


# ---------------------------------------------------------------- docstrings and lengths


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yields the public classes and functions, and the public methods of public classes.

    The methods of a protocol, setters, overloads and overrides need no docstring, because another one describes them.
    """
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in node.bases):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        decorators = " ".join(map(ast.unparse, method.decorator_list))
                        if not re.search(r"\.setter\b|overload|override", decorators):
                            yield method


def test_public_names_have_docstrings() -> None:
    missing = [
        f"{s.name}: {name}"
        for s in sources()
        for name, node in [("the module", s.tree), *((node.name, node) for node in _public(s.tree))]
        if s.text.strip() and not ast.get_docstring(node)
    ]
    assert missing == []


def test_files_are_short() -> None:
    long = {s.name: count for s in sources() if (count := len(s.text.splitlines())) > MAX_FILE_LINES}
    assert long == {}


def test_functions_are_short() -> None:
    functions = ((s, node) for s in sources() for node in s.nodes if isinstance(node, ast.FunctionDef))
    long = {f"{s.name}: {f.name}": count for s, f in functions if (count := _code_lines(f)) > MAX_FUNCTION_LINES}
    assert long == {}


def _code_lines(node: ast.FunctionDef) -> int:
    """Returns the number of lines of a function without its docstring."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node):
        doc = node.body[0]
        total -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return total


# ---------------------------------------------------------------- statements


def test_broad_excepts_are_where_user_code_runs() -> None:
    handlers = ((s, node) for s in sources() for node in s.nodes if isinstance(node, ast.ExceptHandler))
    found = Counter(s.name for s, node in handlers if _is_broad(node) and ast.unparse(node.body[-1]) != "raise")
    assert found == BROAD_EXCEPTS


def _is_broad(node: ast.ExceptHandler) -> bool:
    return node.type is None or re.search(r"\b(Base)?Exception\b", ast.unparse(node.type)) is not None


def test_no_asserts_prints_or_stubs() -> None:
    assert [f"{s.name}:{node.lineno}" for s in sources() for node in s.nodes if _is_leftover(node)] == []  # type: ignore[attr-defined]


def _is_leftover(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        body = node.body[1:] if ast.get_docstring(node) else node.body
        return len(body) == 1 and isinstance(body[0], ast.Raise)
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(node, ast.Assert) or (isinstance(called, ast.Name) and called.id == "print")


def test_nothing_is_left_for_later() -> None:
    pattern = r"\b(?:TODO|FIXME|XXX|HACK)\b"
    assert [f"{s.name}:{line}" for s in sources() for line, _ in matches(pattern, s.text)] == []


# ---------------------------------------------------------------- prose


def _prose() -> Iterator[Path]:
    for name in PROSE:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".py", ".md"))


def test_prose_is_plain() -> None:
    pattern = "|".join(AVOIDED)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in _prose()
        for line, words in matches(pattern, path.read_text(encoding="utf-8"))
    ]
    assert found == []
