"""The rules of the house, held by reading the source: the mirror, the layers, the table, docstrings, lengths, words."""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

import fx_onnx.ops  # noqa: F401  registers the translations
from fx_onnx.core.opsets import MAXIMUM_OPSET, MINIMUM_OPSET
from fx_onnx.core.translation_table import Translation, _translations
from fx_onnx.decompositions import DECOMPOSITIONS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fx_onnx"
DECOMPOSED = ROOT / "decompositions"
TESTS = "tests"

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 50

# A folder imports from the folders before it only; aten and capture stand side by side and do not know each other.
ORDER = {
    "decompositions": 0,
    "core": 1,
    "capture": 2,
    "aten": 2,
    "translation": 3,
    "ops": 4,
    "passes": 5,
    "program": 6,
    "pipeline": 7,
    "export": 8,
}
TOP_LEVEL = {"__init__.py", "export.py", "pipeline.py", "py.typed"}

# Where the user's code runs, which may raise anything: a forward, a decomposition, a translation. Once a stage.
EXCEPT_EXCEPTION: dict[str, int] = {
    "fx_onnx/capture/capture.py": 1,
    "fx_onnx/aten/decompose.py": 1,
    "fx_onnx/translation/translate.py": 1,
}

# The only files that use private or experimental names of torch; each name has its reason there.
PRIVATE_FILES = ("fx_onnx/core/torch_private.py", "decompositions/_torch_private.py")

PUBLIC_TORCH: dict[str, str] = {
    "torch._check": "documented, although its name begins with an underscore",
}
PRIVATE_ATTRIBUTES: dict[str, str] = {
    "_dispatch_cache": "kernels of an operator",
    "py_kernels": "kernels of an operator",
    "py_impl": "kernels of an operator",
    "_cdata": "storage",
    "_overloadname": "name of an operator",
    "_opoverload": "operator of a custom_op",
    "sloc": "place of a guard",
    "framework_loc": "place of a guard",
    "maybe_user_loc": "place of a guard",
    "source_to_var": "symbols of a shape environment",
}
"""Private and experimental attributes of torch's objects.

``OpOverload._schema`` is not among them: it is the schema itself, which every stage reads and PyTorch's own
documentation of custom backends uses.
"""


def _sources() -> list[Path]:
    return sorted([*PACKAGE.rglob("*.py"), *DECOMPOSED.rglob("*.py")])


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=_name(path))


def _module(path: Path) -> str:
    """The dotted name when installed: decompositions/x.py is fx_onnx.decompositions.x."""
    relative = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    relative = relative.removesuffix(".__init__")
    return relative if relative.startswith("fx_onnx") else f"fx_onnx.{relative}"


SOURCES = _sources()
by_file = pytest.mark.parametrize("path", SOURCES, ids=_name)


# ---------------------------------------------------------------- the mirror


def _mirrored(helpers: bool = False) -> Iterator[tuple[str, str]]:
    """Yields each source file and its test file.

    A helper, whose name begins with an underscore, is tested through its callers; it may have a test file, without
    the underscore: test_torch_private.py tests _torch_private.py.
    """
    for path in SOURCES:
        if (helpers or not path.name.startswith("_")) and path.name != "__init__.py":
            folder = path.parent.relative_to(ROOT).as_posix().removeprefix("fx_onnx").strip("/")
            yield _name(path), f"{TESTS}/{folder}/test_{path.name.lstrip('_')}".replace("//", "/")


# The errors are classes without a body, so there is nothing to test.
WITHOUT_A_TEST = {"fx_onnx/core/errors.py"}


def test_every_file_has_its_test() -> None:
    missing = [test for source, test in _mirrored() if source not in WITHOUT_A_TEST and not (ROOT / test).exists()]
    assert not missing, "\n".join(missing)


def test_every_test_has_its_file() -> None:
    expected = {test for _, test in _mirrored(helpers=True)}
    mirrored = [path for path in (ROOT / TESTS).glob("*/**/test_*.py") if path.parts[-2] != "end_to_end"]
    found = {path.relative_to(ROOT).as_posix() for path in mirrored}
    assert not sorted(found - expected)


# ---------------------------------------------------------------- the layers


def _imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports when it runs, wherever in it; under TYPE_CHECKING nothing runs."""
    tree = _tree(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_name(path)} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(dotted: str) -> str:
    """The layer's name that an import is of: fx_onnx.ops.x is ops."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_the_top_level_is_the_layout() -> None:
    found = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert found == TOP_LEVEL | {room for room in ORDER if (PACKAGE / room).is_dir()}


@by_file
def test_imports_follow_the_order(path: Path) -> None:
    own = _room(_module(path))
    if not own:
        return
    for dotted in _imports(path):
        room = _room(dotted)
        if dotted.startswith("fx_onnx") and room != own:
            assert room in ORDER, f"{_name(path)} imports {dotted}"
            assert ORDER[room] < ORDER[own], f"{_name(path)} imports {dotted}"


@pytest.mark.parametrize("path", [p for p in SOURCES if "/ops/" in _name(p)], ids=_name)
def test_op_families_import_helpers_only(path: Path) -> None:
    """One family knows nothing of another; what they share is in a module that begins with an underscore."""
    for dotted in _imports(path):
        assert _room(dotted) != "decompositions", f"{_name(path)} imports {dotted}"
        if dotted.startswith("fx_onnx.ops."):
            assert dotted.split(".")[2].startswith("_"), f"{_name(path)} imports {dotted}"


@pytest.mark.parametrize("path", sorted(DECOMPOSED.rglob("*.py")), ids=_name)
def test_decompositions_know_nothing_of_onnx(path: Path) -> None:
    for dotted in _imports(path):
        if dotted.startswith("fx_onnx"):
            assert dotted.startswith("fx_onnx.decompositions"), f"{_name(path)} imports {dotted}"
        assert "onnx" not in dotted.removeprefix("fx_onnx"), f"{_name(path)} imports {dotted}"


def test_the_emitter_alone_creates_nodes() -> None:
    """Passes rewrite models; everywhere else a node comes from the emitter."""
    found = [
        _name(path)
        for path in SOURCES
        if "/passes/" not in _name(path) and re.search(r"\bir\.(Node|node)\(", path.read_text(encoding="utf-8"))
    ]
    assert found in ([], ["fx_onnx/translation/emitter.py"])


# ---------------------------------------------------------------- the table against the ATen schemas


def _registered() -> list[Any]:
    entries = [entry for entries in _translations.values() for entry in entries]
    overloads = [entry for entry in entries if isinstance(entry.target, OpOverload)]
    return [pytest.param(entry, id=f"{entry.target}-{entry.since}") for entry in overloads]


def _siblings(translation: Translation) -> list[OpOverload]:
    """The operators that the same function translates; its parameters may be those of all of them together."""
    found = [e.target for entries in _translations.values() for e in entries if e.function is translation.function]
    return [target for target in found if isinstance(target, OpOverload)]


def _parameters(function: Any, after: int) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())[after:]


# ATen's numbers for what has a name in Python (c10/core/ScalarType.h, MemoryFormat.h).
SCALAR_TYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32]
MEMORY_FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last]


def _plain(default: Any) -> Any:
    """A default in one form: schemas give lists, spread a single number over all dims, and number dtypes."""
    if default in SCALAR_TYPES:
        return SCALAR_TYPES.index(default)
    if default in MEMORY_FORMATS:
        return MEMORY_FORMATS.index(default)
    if isinstance(default, (list, tuple)):
        items = tuple(default)
        return items[0] if items and all(item == items[0] for item in items) else items
    return default


# What these keywords ask for shows in the fake result, or ONNX has no such thing: ``**options`` may stand for them.
WITHOUT_EFFECT = {"dtype", "layout", "device", "pin_memory", "generator", "memory_format"}


def _mismatch(function: Any, target: OpOverload, targets: list[OpOverload], after: int) -> list[str]:
    """Why some legal call of ``target`` does not fit ``function``, or is not spelled as the schema spells it."""
    given = _parameters(function, after)
    variadic = {p.kind for p in given} & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    given = [p for p in given if p.kind not in variadic]
    by_name = {parameter.name: parameter for parameter in given}
    positional = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    schema = target._schema.arguments
    known = {argument.name for each in targets for argument in each._schema.arguments}
    problems = [f"needs {p.name}, which no schema has" for p in given if p.name not in known and p.default is p.empty]
    for place, argument in enumerate(schema):
        if len(variadic) == 2 and any(keyword.iskeyword(a.name) for a in schema[: place + 1]):
            break  # Python cannot name the parameter ``from``, nor give what follows it by place
        if argument.name not in by_name and argument.kwarg_only and argument.name in WITHOUT_EFFECT and variadic:
            continue
        parameter = by_name.get(argument.name)
        if not argument.kwarg_only:
            found = positional[place] if place < len(positional) else None
            at_place = {
                t._schema.arguments[place].name for t in targets if place < len(t._schema.arguments)
            }  # of one function for several overloads, another's name may stand here
            if found is None or found.name not in at_place:
                problems.append(f"lacks {argument.name} at place {place}")
                continue
            parameter = found
        if parameter is None:
            problems.append(f"lacks the keyword {argument.name}")
        elif argument.has_default_value():
            if parameter.default is inspect.Parameter.empty:
                problems.append(f"has no default for {parameter.name}")
            elif _plain(parameter.default) != _plain(argument.default_value):
                problems.append(f"defaults {parameter.name} to {parameter.default!r}, not {argument.default_value!r}")
    names = {argument.name for argument in schema}
    needed = [p.name for p in given if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    count = sum(not argument.kwarg_only for argument in schema)
    problems += [
        f"needs {name}, which {target} does not give"
        for name in needed
        if name not in names and name not in [p.name for p in positional[:count]]
    ]
    return problems


@pytest.mark.parametrize("translation", _registered())
def test_a_translation_takes_every_call_of_its_operator(translation: Translation) -> None:
    """After the emitter come the schema's own parameters, with its names, its places and its defaults."""
    problems = _mismatch(translation.function, translation.target, _siblings(translation), after=1)
    assert not problems, f"{translation.function.__name__} for {translation.target._schema}: {problems}"


@pytest.mark.parametrize("translation", [p for p in _registered() if p.values[0].supports is not None])
def test_a_predicate_takes_every_call_of_its_operator(translation: Translation) -> None:
    """``supports`` is called with the operator's arguments, so it must take whatever they are, by place or by name."""
    parameters = _parameters(translation.supports, 0)
    named = {p.name for p in parameters}
    any_place = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    places = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    for place, argument in enumerate(translation.target._schema.arguments):
        taken = any_name or argument.name in named if argument.kwarg_only else any_place or place < places
        assert taken, f"the predicate of {translation.target} does not take {argument.name}"
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    required = [a for a in translation.target._schema.arguments if not a.has_default_value()]
    assert len(needed) <= len(required), f"the predicate of {translation.target} needs {[p.name for p in needed]}"


@pytest.mark.parametrize("target", [pytest.param(t, id=str(t)) for t in DECOMPOSITIONS if isinstance(t, OpOverload)])
def test_a_decomposition_takes_every_call_of_its_operator(target: OpOverload) -> None:
    function = DECOMPOSITIONS[target]
    targets = [t for t, f in DECOMPOSITIONS.items() if f is function and isinstance(t, OpOverload)]
    problems = _mismatch(function, target, targets, after=0)
    assert not problems, f"{function.__name__} for {target._schema}: {problems}"


def test_every_translation_is_of_a_native_opset() -> None:
    since = {entry.since for entries in _translations.values() for entry in entries}
    assert since <= set(range(MINIMUM_OPSET, MAXIMUM_OPSET + 1))


# ---------------------------------------------------------------- docstrings and lengths


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Public classes and functions, and the public methods of public classes; a property's setter says no more."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef) and "Protocol" not in ast.dump(ast.Tuple(node.bases, ast.Load())):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        decorators = [ast.unparse(decorator) for decorator in method.decorator_list]
                        if not any(d.endswith(".setter") or "overload" in d or "override" in d for d in decorators):
                            yield method


@by_file
def test_what_is_public_has_a_docstring(path: Path) -> None:
    tree = _tree(path)
    empty = not path.read_text(encoding="utf-8").strip()
    missing = [] if ast.get_docstring(tree) or empty else ["the module"]
    missing += [node.name for node in _public(tree) if not ast.get_docstring(node)]
    assert not missing, f"{_name(path)}: no docstring on {', '.join(missing)}"


def _code_lines(node: ast.FunctionDef) -> int:
    """The lines of a function, without its docstring: to say much about it is no fault."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node):
        doc = node.body[0]
        total -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return total


@by_file
def test_nothing_is_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES, f"{_name(path)} has {lines} lines"
    functions = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef)]
    long = {node.name: count for node in functions if (count := _code_lines(node)) > MAX_FUNCTION_LINES}
    assert not long, f"{_name(path)}: {long}"


# ---------------------------------------------------------------- words


def test_broad_excepts_are_counted() -> None:
    found: dict[str, int] = {}
    for path in SOURCES:
        for node in ast.walk(_tree(path)):
            reraised = isinstance(node, ast.ExceptHandler) and ast.unparse(node.body[-1]) == "raise"
            if isinstance(node, ast.ExceptHandler) and not reraised:
                caught = "" if node.type is None else ast.unparse(node.type)
                if node.type is None or re.search(r"\b(Base)?Exception\b", caught):
                    found[_name(path)] = found.get(_name(path), 0) + 1
    assert found == EXCEPT_EXCEPTION


def _stub(node: ast.FunctionDef) -> bool:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return len(body) == 1 and isinstance(body[0], ast.Raise)


@by_file
def test_no_assert_print_or_stub(path: Path) -> None:
    for node in ast.walk(_tree(path)):
        assert not isinstance(node, ast.Assert), f"{_name(path)}:{node.lineno}: assert"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{_name(path)}:{node.lineno}: print"
        if isinstance(node, ast.FunctionDef):
            assert not _stub(node), f"{_name(path)}:{node.lineno}: {node.name} only raises"


@by_file
def test_nothing_is_left_for_later(path: Path) -> None:
    found = re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b", path.read_text(encoding="utf-8"))
    assert not found


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)) is not None:
        return f"{base}.{node.attr}"
    return None


def _private_torch(path: Path) -> set[str]:
    """Returns the private and experimental names of torch that a file uses. Names of ATen operators do not count."""
    nodes = list(ast.walk(_tree(path)))
    names = {dotted for node in nodes if (dotted := _dotted(node)) is not None} | set(_imports(path))
    private = {name for name in names if re.match(r"torch(\.\w+)*\.(_[a-zA-Z]|experimental\b)", name)}
    private = {name for name in private if not name.startswith("torch.ops.") and name not in PUBLIC_TORCH}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)} & PRIVATE_ATTRIBUTES.keys()
    expressions = {
        ast.unparse(n) for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n).endswith("node.expr")
    }
    return private | attributes | expressions


def test_private_torch_is_used_in_its_files_only() -> None:
    found = {_name(path): names for path in SOURCES if (names := _private_torch(path))}
    stray = {name: names for name, names in found.items() if name not in PRIVATE_FILES}
    assert not stray


# ---------------------------------------------------------------- the project speaks of itself alone


def test_the_package_map_holds_every_package() -> None:
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packages = {_module(path.parent / "__init__.py") for path in SOURCES if path.name == "__init__.py"}
    assert packages == set(config["packages"])
    assert config["package-dir"] == {"fx_onnx.decompositions": "decompositions"}
