"""The layout: folders, the order of imports, the mirror of tests, and the files that may use torch's private names.

Each rule is one test, which lists all violations.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from fx_onnx.extension_points.rooms import ROOMS, TABLE
from tests.sources import PACKAGE, ROOT, Source, folder_of, sources

# The folders of the core: one imports only from those with a smaller number.
CORE = {
    "decompositions": 0,
    "messages": 0,
    "torch_internals": 1,
    "onnx_model": 2,
    "sizes": 3,
    "extension_points": 4,
    "aten": 5,
    "requests": 5,
    "capture": 6,
    "translation": 7,
    "translations": 8,
    "passes": 8,
    "targets": 9,
    "files": 9,
    "program": 10,
    "pipeline": 11,
    "export": 12,
}

# The rooms that a room may import, besides the core.
MAY_IMPORT = {
    "applications": {"libraries"},
    "backends": set(),
    "cli": {"applications", "integrations", "saved_programs", "verification"},
    "compat": {"custom_translations", "verification"},
    "complex_tensors": set(),
    "custom_translations": set(),
    "data_branches": set(),
    "faster_tracing": set(),
    "gradients": set(),
    "integrations": set(),
    "libraries": set(),
    "packed_sequences": set(),
    "quantized_weights": set(),
    "references": set(),
    "report": {"verification"},
    "saved_programs": set(),
    "torchscript": set(),
    "verification": set(),
}
TOP_LEVEL = {"__init__.py", "export.py", "pipeline.py", "py.typed"}
TOP_LEVEL |= {f"{name}.pyi" for name in ("errors", "operators", "ops", "symbolic_helper", "testing", "utils")}

# The __init__ of these packages has code: it imports the files, or has the names of torch.onnx.verification.
REGISTRIES = {"fx_onnx/translations/__init__.py", "decompositions/__init__.py", "fx_onnx/verification/__init__.py"}

# Windows lacks these modules.
POSIX_MODULES = {"crypt", "fcntl", "grp", "nis", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty"}
GUARDED_POSIX = {("fx_onnx/files/locked_file.py", "fcntl")}  # it imports fcntl unless sys.platform is win32

# The errors are classes without a body, so there is nothing to test.
WITHOUT_A_TEST = {"fx_onnx/messages/errors.py"}

# The folders whose files may have equal names: a family of operators, and a subject of legalization.
FAMILIES = (
    {"decompositions", "translations", "capture/patches"},
    {"passes/legalization", "backends/legalization"},
)

# New nodes of a shape that inference does not find: fx_onnx/passes/shape_inference.py names the reasons.
GIVEN_SHAPES = {"fx_onnx/passes/fusion/attention_fusion.py": 1}  # an Expand to a sum of sizes

# The only files that use private or experimental names of torch; each name has its reason there.
PRIVATE_FILES = (
    "fx_onnx/torch_internals/torch_private.py",
    "fx_onnx/torchscript/script_private.py",
    "fx_onnx/torch_internals/dynamo_private.py",
    "fx_onnx/torch_internals/guard_private.py",
    "fx_onnx/torch_internals/size_private.py",
    "fx_onnx/torch_internals/trace_private.py",
    "decompositions/_torch_private.py",
)
FASTER = "fx_onnx/faster_tracing/"  # each record of a replacement has the digests of the sources that it was made for
# Each record of a patch has its reason, and its target is a string.
PATCHES = ("fx_onnx/capture/patches/", "fx_onnx/gradients/transforms.py")
PUBLIC_TORCH = {"torch._assert", "torch._check"}  # documented, although their names begin with an underscore

# Private and experimental attributes of torch's objects. OpOverload._schema is not among them: every stage reads the
# schema, and PyTorch's documentation of custom backends uses the attribute.
PRIVATE_ATTRIBUTES = {
    "_cdata",
    "_dispatch_cache",
    "_op_dk",
    "_opoverload",
    "_overloadname",
    "_reparametrize_module",
    "framework_loc",
    "maybe_user_loc",
    "py_impl",
    "py_kernels",
    "sloc",
    "source_to_var",
}


# ---------------------------------------------------------------- folders


def test_the_top_level_is_the_layout() -> None:
    found = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert found == TOP_LEVEL | {folder for folder in (*CORE, *ROOMS) if (PACKAGE / folder).is_dir()}


def test_init_files_have_only_a_docstring() -> None:
    inits = [s for s in sources() if s.path.name == "__init__.py" and s.path.parent != PACKAGE]
    assert [s.name for s in inits if s.name not in REGISTRIES and _code(s.tree)] == []


def _code(tree: ast.Module) -> list[ast.stmt]:
    """Returns the statements of a module after its docstring."""
    return tree.body[1:] if ast.get_docstring(tree) else tree.body


def test_file_names_are_unique_across_folders() -> None:
    """No folder bears the name of a file either."""
    named = defaultdict(list)
    for source in sources():
        if not source.path.name.startswith("_"):
            named[source.path.name].append(source)
    folders = Counter(path.name for path in PACKAGE.rglob("*") if path.is_dir() and path.name != "__pycache__")
    assert [name for name, count in folders.items() if count > 1 and name != "legalization"] == []
    assert [name for name in folders if f"{name}.py" in named and name != "capture"] == []
    repeated = [files for files in named.values() if len(files) > 1]
    assert [[s.name for s in files] for files in repeated if not _are_families(files)] == []


def _are_families(files: list[Source]) -> bool:
    folders = [source.path.parent.relative_to(ROOT).as_posix().removeprefix("fx_onnx/") for source in files]
    return any(len(folders) == len(set(folders)) and set(folders) <= family for family in FAMILIES)


def test_the_package_map_lists_every_package() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert {s.module for s in sources() if s.path.name == "__init__.py"} == set(config["packages"])
    assert config["package-dir"] == {"fx_onnx.decompositions": "decompositions"}


def test_modules_that_only_posix_has_are_not_imported() -> None:
    imported = {(s.name, each.partition(".")[0]) for s in sources() for each in s.imports}
    assert {pair for pair in imported if pair[1] in POSIX_MODULES} == GUARDED_POSIX


# ---------------------------------------------------------------- the mirror of tests


def _mirrored(helpers: bool) -> dict[str, str]:
    """Returns the test of each file, as a path without suffix.

    A helper, whose name begins with an underscore, is tested through its callers. It may have a test file, whose name
    has no underscore: ``test_torch_private.py`` tests ``_torch_private.py``.
    """
    found = {}
    for source in sources():
        name = source.path.stem
        if name != "__init__" and (helpers or not name.startswith("_")):
            folder = source.path.parent.relative_to(ROOT).as_posix().removeprefix("fx_onnx").strip("/")
            found[source.name] = f"tests/{folder}/test_{name.lstrip('_')}".replace("//", "/")
    return found


def _tests() -> set[str]:
    return {path.relative_to(ROOT).as_posix().removesuffix(".py") for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_file_has_its_test() -> None:
    """The test of ``name.py`` is ``test_name.py``, or several files ``test_name_subject.py``."""
    tests = _tests()
    missing = [
        f"{stem}.py"
        for source, stem in _mirrored(helpers=False).items()
        if source not in WITHOUT_A_TEST and not any(test == stem or test.startswith(f"{stem}_") for test in tests)
    ]
    assert missing == []


def test_every_test_has_its_file() -> None:
    stems = set(_mirrored(helpers=True).values())
    stems |= {f"tests/tools/test_{path.stem}" for path in (ROOT / "tools").glob("*.py")}
    nested = {test for test in _tests() if test.count("/") > 1 and not test.startswith("tests/end_to_end/")}
    stray = [t for t in nested if t not in stems and not any(t.startswith(f"{stem}_") for stem in stems)]
    assert sorted(stray) == []


# ---------------------------------------------------------------- imports


def test_imports_are_absolute() -> None:
    assert [f"{s.name} imports {name}" for s in sources() for name in s.imports if name.startswith(".")] == []


def test_imports_follow_the_order() -> None:
    wrong = [
        f"{s.name} imports {name}"
        for s in sources()
        for name in s.imports
        if name.partition(".")[0] == "fx_onnx" and s.folder and not _may_import(s.folder, folder_of(name))
    ]
    assert wrong == []


def _may_import(importer: str, imported: str) -> bool:
    if imported == importer:
        return True
    if importer in CORE:
        return imported in CORE and CORE[imported] < CORE[importer]
    return imported in CORE or imported in MAY_IMPORT[importer] or imported == ""


def test_the_table_of_rooms_is_the_only_place_that_names_their_modules() -> None:
    """So who reads the table sees who calls whom. A room may name its own modules."""
    rooms = "|".join(ROOMS)
    wrong = [
        f"{s.name}: {node.value}"
        for s in sources()
        if s.name != "fx_onnx/extension_points/rooms.py"
        for node in s.nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (found := re.match(rf"fx_onnx\.({rooms})[.:\w]*$", node.value))
        and found[1] != s.folder
    ]
    assert wrong == []


def test_every_room_is_in_the_table() -> None:
    rows = {row.partition(":")[0].split(".")[1] for group in TABLE.values() for row in group.values()}
    assert rows & ROOMS.keys() == ROOMS.keys() - {"cli"}  # the command is an entry point of the package
    assert MAY_IMPORT.keys() == ROOMS.keys()


def test_every_row_of_the_table_exists() -> None:
    assert [
        f"{group}: {row}"
        for group, rows in TABLE.items()
        for row in rows.values()
        if not (set(row.partition(":")[2:]) - {""}) <= _names_in(row.partition(":")[0])
    ] == []


def _names_in(module: str) -> set[str]:
    return set(dir(importlib.import_module(module)))


def test_tests_import_the_rooms_of_their_folder_only() -> None:
    """The tests of the core pass without any room, and those of a room with the rooms that it may import."""
    wrong = []
    for path in (ROOT / "tests").rglob("*.py"):
        folder = path.relative_to(ROOT / "tests").parts[0]
        source = Source(path)
        allowed = {folder, *MAY_IMPORT.get(folder, ())} if folder in ROOMS else set()
        if folder in ROOMS or folder in CORE:
            named = {folder_of(name) for name in source.imports if name.startswith("fx_onnx.")}
            wrong += [f"{source.name} imports {each}" for each in named & ROOMS.keys() - allowed]
    assert sorted(wrong) == []


def test_no_imports_are_circular() -> None:
    modules = {s.module for s in sources()}
    graph = {
        s.module: {m for name in s.imports if (m := _module_of(name, modules)) not in (None, s.module)}
        for s in sources()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None


def _module_of(name: str, modules: set[str]) -> str | None:
    """Returns the module that an imported name is, or is defined in; None outside of the package."""
    return next((each for each in (name, name.rpartition(".")[0]) if each in modules), None)


def test_op_families_import_helpers_only() -> None:
    """One family does not import another. What families share is in a module that begins with an underscore."""
    wrong = [
        f"{s.name} imports {name}"
        for s in sources()
        if s.folder == "translations"
        for name in s.imports
        if folder_of(name) == "decompositions"
        or (name.startswith("fx_onnx.translations.") and not name.split(".")[2].startswith("_"))
    ]
    assert wrong == []


def test_decompositions_do_not_import_onnx_or_the_package() -> None:
    wrong = [
        f"{s.name} imports {name}"
        for s in sources()
        if s.folder == "decompositions"
        for name in s.imports
        if "onnx" in name.removeprefix("fx_onnx.decompositions")
    ]
    assert wrong == []


def test_only_the_emitter_and_the_passes_create_nodes() -> None:
    creators = {s.folder for s in sources() if re.search(r"\bir\.(Node|node)\(", s.text)}
    assert creators <= {
        "translation",
        "passes",
        "backends",
        "compat",
        "data_branches",
    }  # the last three have passes too


def test_passes_give_shapes_only_where_inference_finds_none() -> None:
    given = ((s.name, n) for s in sources() for n in s.nodes if s.folder == "passes" and isinstance(n, ast.Call))
    assert Counter(name for name, call in given if _gives_sizes(call)) == GIVEN_SHAPES


def _gives_sizes(call: ast.Call) -> bool:
    """Returns whether it is a call such as ``f.Expand(x, target, sizes=...)``."""
    is_of_builder = isinstance(call.func, ast.Attribute) and call.func.attr[:1].isupper()
    return is_of_builder and any(each.arg == "sizes" for each in call.keywords)


# ---------------------------------------------------------------- private names of torch


def _private_torch(source: Source) -> set[str]:
    """Returns the private and experimental names of torch in a file, in strings too, but not ATen operators."""
    names = source.dotted | set(source.imports)
    if not any(each in source.path.as_posix() for each in PATCHES):
        names |= {n.value for n in source.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    private = {name for name in names if re.match(r"torch(\.\w+)*\.(_[a-zA-Z]|experimental\b)[\w.:]*$", name)}
    private = {name for name in private if not name.startswith("torch.ops.") and name not in PUBLIC_TORCH}
    attributes = [node for node in source.nodes if isinstance(node, ast.Attribute)]
    private |= {node.attr for node in attributes} & PRIVATE_ATTRIBUTES
    return private | {ast.unparse(n) for n in attributes if n.attr == "expr" and _is_attribute(n.value, "node")}


def _is_attribute(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name


def test_private_names_of_torch_are_in_their_files_only() -> None:
    files = [s for s in sources() if s.name not in PRIVATE_FILES and not s.name.startswith(FASTER)]
    stray = {s.name: names for s in files if (names := _private_torch(s))}
    assert stray == {}


def test_operators_are_found_through_core_operators() -> None:
    """``torch.ops.aten`` would fail at import if the installed torch lacks the operator."""
    direct = {s.name for s in sources() if any(name.startswith("torch.ops.aten") for name in s.dotted)}
    assert direct == set()


def test_the_guard_recognizes_private_names(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(
        "import torch.utils._pytree as p\nfrom torch.fx.experimental import proxy_tensor\n"
        "torch._C.x(size.node.expr, op.py_kernels, torch.ops.aten._softmax, torch._check, 'torch._dynamo.config')\n"
    )
    assert _private_torch(Source(path)) == {
        "py_kernels",
        "size.node.expr",
        "torch._C",
        "torch._C.x",
        "torch._dynamo.config",
        "torch.fx.experimental.proxy_tensor",
        "torch.utils._pytree",
    }
