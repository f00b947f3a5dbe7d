"""Writes the tables of kernels, each from its runtime or from the runtime's published table.

    python -m tools.kernel_tables onnxruntime                  from the installed ONNX Runtime
    python -m tools.kernel_tables onnxruntime_oldest           in an environment with an older ONNX Runtime, after that
    python -m tools.kernel_tables coreml                       from a document in the installed ONNX Runtime
    python -m tools.kernel_tables onnxruntime_cuda             in an environment with onnxruntime-gpu
    python -m tools.kernel_tables reference                    from the installed onnx
    python -m tools.kernel_tables openvino                     in an environment with openvino and onnx
    python -m tools.kernel_tables web NODE_MODULES             from the npm package onnxruntime-web: webgpu and webnn
    python -m tools.kernel_tables directml WHEEL               from a wheel of onnxruntime-directml
    python -m tools.kernel_tables tensorrt                     with onnxruntime-ep-nv-tensorrt-rtx-cu13
    python -m tools.kernel_tables qnn                          with onnxruntime-qnn

An environment with OpenVINO needs no PyTorch, so this file imports fx_onnx only for ONNX Runtime.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "fx_onnx" / "passes" / "legalization" / "kernels"
OLDEST_OPSET = 7
OPEN = 2**31 - 1  # ONNX Runtime gives this as the last version of a kernel that has none
Admitted = dict[str, frozenset[str]]
Kernels = dict[tuple[str, int, int], list[Admitted]]  # (operator, first version, last version) → the dtypes of each


def write(name: str, runtime: str, version: str, source: str, rows: Mapping[str, Sequence[str]], **facts: bool) -> None:
    """Writes one table, with one operator in each line."""
    has_dtypes = any("=" in line for lines in rows.values() for line in lines)
    date = datetime.now(UTC).date().isoformat()
    head = {"runtime": runtime, "version": version, "date": date, "source": source, "has_dtypes": has_dtypes, **facts}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    operators = [f"    {json.dumps(name)}: {json.dumps(list(found))}" for name, found in sorted(rows.items())]
    text = "\n".join(["{", *lines, '  "operators": {', ",\n".join(operators), "  }", "}"])
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def operator_versions() -> dict[str, list[int]]:
    """Returns the versions of each operator of ONNX's default domain."""
    import onnx

    found: dict[str, list[int]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and not schema.deprecated:
            found[schema.name].append(schema.since_version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}


def ranges(has_kernel: Mapping[int, bool]) -> list[str]:
    """Returns the rows of an operator: the ranges of its versions that have a kernel."""
    versions = sorted(has_kernel)
    pairs = [(v, following - 1) for v, following in itertools.pairwise(versions) if has_kernel[v]]
    pairs += [(versions[-1], versions[-1])] if has_kernel[versions[-1]] else []
    return [f"{first} {last}" for first, last in _contiguous(pairs)]


# ---------------------------------------------------------------- ONNX Runtime


def onnxruntime() -> None:
    """Writes the kernels of the CPU provider."""
    _provider("onnxruntime", "CPU")


def onnxruntime_oldest() -> None:
    """Removes from the table of the CPU provider what the installed ONNX Runtime, an older one, does not compute.

    What the operators of an opset that it does not load compute remains.
    """
    import onnxruntime as runtime

    from fx_onnx.passes.legalization.kernel_tables import ANY, DTYPES, kernel_table
    from fx_onnx.verification.reference_session import is_loaded

    table = kernel_table("onnxruntime")
    common: Kernels = defaultdict(list)
    names = {dtype.upper(): name for name, dtype in DTYPES.items()}
    older, versions = defaultdict(list), operator_versions()
    for (operator, first, last), group in _kernels("CPU").items():
        for version in range(first, last + 1):
            older[operator, version] += group
    for operator, rows in table.rows.items():
        for row in rows:
            new = {
                variable: frozenset(names[dtype.name] for dtype in dtypes) for variable, dtypes in row.admitted.items()
            }
            for version in range(row.first, (row.last or row.first) + 1):
                newer = [new] * (version in versions.get(operator, ()))
                for old in older[operator, version] if is_loaded(max(version, OLDEST_OPSET)) else newer:
                    both = {variable: old.get(variable, ANY) & new.get(variable, ANY) for variable in {**old, **new}}
                    common[operator, version, version].append(both)
    described = f"{runtime.__version__} to {table.version.rpartition(' ')[2]}"
    write("onnxruntime", table.runtime, described, table.source, _rows(common))


def onnxruntime_cuda() -> None:
    """Writes the kernels of the CUDA provider. The provider's library must load, so it needs CUDA and a driver."""
    _provider("onnxruntime-cuda", "CUDA")


def _provider(table: str, provider: str) -> None:
    """Writes the kernels that a provider registers."""
    import onnxruntime as runtime

    source = "onnxruntime.capi.onnxruntime_pybind11_state.get_all_opkernel_def()"
    write(table, f"ONNX Runtime, {provider} provider", runtime.__version__, source, _rows(_kernels(provider)))


def _kernels(provider: str) -> Kernels:
    """Returns the kernels that a provider of the installed ONNX Runtime registers."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kernels: Kernels = defaultdict(list)
    for kernel in state.get_all_opkernel_def():
        first, last = kernel.version_range
        if kernel.provider == f"{provider}ExecutionProvider" and not kernel.domain and last >= OLDEST_OPSET:
            admitted = {name: _dtypes(types) for name, types in kernel.type_constraints.items()}
            # a kernel without a last version applies only to the version in which the operator last changed
            kernels[kernel.op_name, first, first if last == OPEN else last].append(admitted)
    return kernels


def _rows(kernels: Kernels) -> dict[str, list[str]]:
    """Returns the rows of each operator; merges kernels that differ in one type variable."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for (name, first, last), group in sorted(kernels.items()):
        for each in _merged(group):
            words = [f"{variable}={_words(types)}" for variable, types in sorted(each.items()) if types]
            if len(words) == len(each):
                found[name, " ".join(words)].append((first, last))
    rows = sorted((name, *pair, words) for (name, words), pairs in found.items() for pair in _contiguous(pairs))
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, first, last, words in rows:
        by_name[name].append(f"{first} {last} {words}".strip())
    return by_name


def _dtypes(types: list[str]) -> frozenset[str]:
    """Returns the short names of the tensor types among the types."""
    from fx_onnx.passes.legalization.kernel_tables import DTYPES

    names = {dtype: name for name, dtype in DTYPES.items()}
    found = (re.fullmatch(r"tensor\((\w+)\)", text) for text in types)
    return frozenset(names[match[1]] for match in found if match is not None and match[1] in names)


def _words(types: frozenset[str]) -> str:
    from fx_onnx.passes.legalization.kernel_tables import ANY, DTYPES

    return "any" if types == ANY else ",".join(name for name in DTYPES if name in types)


def _merged(kernels: list[Admitted]) -> list[Admitted]:
    rest = [each for place, each in enumerate(kernels) if each not in kernels[:place]]
    for place, first in enumerate(rest):
        for second in rest[place + 1 :]:
            differing = [name for name in first if first[name] != second.get(name)]
            if first.keys() == second.keys() and len(differing) == 1:
                one = {**first, differing[0]: first[differing[0]] | second[differing[0]]}
                return _merged([one if each is first else each for each in rest if each is not second])
    return rest


def _contiguous(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if found and found[-1][1] + 1 >= first:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def coreml() -> None:
    """Writes the operators of the CoreML provider's model format MLProgram, as ONNX Runtime's mobile tools list them.

    The document has neither versions nor dtypes: a builder takes all versions of an operator. Its conditions, such as
    "Only 2D Pool", are in no table.
    """
    import onnxruntime as runtime

    document = "tools/mobile_helpers/coreml_supported_mlprogram_ops.md"
    text = (Path(runtime.__file__).parent / document).read_text(encoding="utf-8")
    names = {name.lower(): name for name in operator_versions()}  # it spells ArgMax as Argmax
    listed = re.findall(r"^\|ai\.onnx:(\w+)\|", text, flags=re.MULTILINE)
    rows = {names[name.lower()]: ["1 *"] for name in listed if name.lower() in names}
    source = f"{document} of the Python package onnxruntime"
    write("coreml", "ONNX Runtime, CoreML provider", runtime.__version__, source, rows)


# ---------------------------------------------------------------- onnx.reference


def reference() -> None:
    """Writes the operators that onnx's reference evaluator implements, as a class or through their function body."""
    import onnx
    from onnx.reference import ops

    def is_implemented(name: str, version: int) -> bool:
        try:
            return ops.load_op("", name, version) is not None
        except Exception:  # it raises errors of several types
            return bool(onnx.defs.get_schema(name, version).has_context_dependent_function)

    rows = {
        name: ranges({version: is_implemented(name, version) for version in versions})
        for name, versions in operator_versions().items()
    }
    write("reference", "onnx.reference", onnx.__version__, "onnx.reference.ops.load_op", _without_empty(rows))


# ---------------------------------------------------------------- OpenVINO


def openvino() -> None:
    """Writes the operators for which OpenVINO's ONNX frontend has a conversion rule.

    The frontend has no list. It reads a model of one node, in which only the operator's name is right, and names the
    operator if it has no rule for it. Some wrong nodes crash it, so each is read in a separate process.
    """
    import openvino as runtime

    def has_rule(name: str, version: int) -> bool:
        process = os.fork()
        if not process:
            os._exit(1 if "No conversion rule found" in _read_error(runtime.Core(), name, version) else 0)
        return os.waitpid(process, 0)[1] != 256

    rows = {
        name: ranges({version: has_rule(name, version) for version in versions})
        for name, versions in operator_versions().items()
    }
    source = "the ONNX frontend, which was given a model of one node for each operator"
    write("openvino", "OpenVINO", runtime.__version__.split("-")[0], source, _without_empty(rows))


def _read_error(core: object, name: str, version: int) -> str:
    from onnx import TensorProto, helper

    values = [
        helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each, shape in (("x", [2]), ("y", None))
    ]
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)
    try:
        core.read_model(model.SerializeToString())  # type: ignore[attr-defined]
    except Exception as error:
        return str(error)
    return ""


def _without_empty(rows: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in rows.items() if found}


# ---------------------------------------------------------------- the tables in onnxruntime-web


def web(modules: str) -> None:
    """Writes the tables of the providers WebGPU and WebNN, which the npm package documents.

    "13+" of WebGPU is a kernel without a last version, which applies only to the version in which the operator last
    changed. "13+" of WebNN is a builder for all later versions.
    """
    package = Path(modules) / "onnxruntime-web"
    version = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    for name, provider in (("webgpu", "WebGPU"), ("webnn", "WebNN")):
        rows = {}
        text = (package / "docs" / f"{name}-operators.md").read_text(encoding="utf-8")
        for operator, versions in re.findall(r"^\| (\w+) \| ai\.onnx\(([^)]*)\)", text, flags=re.MULTILINE):
            rows[operator] = [_published(each.strip(), name == "webnn") for each in versions.split(",")]
        runtime = f"ONNX Runtime Web, {provider} provider"
        write(name, runtime, version, f"docs/{name}-operators.md of the npm package onnxruntime-web", rows)


def _published(versions: str, has_later_ones: bool) -> str:
    if versions.endswith("+"):
        first = versions[:-1]
        return f"{first} {'*' if has_later_ones else first}"
    first, _, last = versions.partition("-")
    return f"{first} {last or first}"


# ---------------------------------------------------------------- compiled libraries


def directml(wheel: str) -> None:
    """Writes the kernels that the DirectML provider registers."""
    from tools.kernels_in_libraries import directml_kernels

    kernels: Kernels = defaultdict(list)
    for name, version, admitted in directml_kernels(Path(wheel)):
        kernels[name, version, version].append(admitted)
    version = Path(wheel).name.split("-")[1]
    source = "the registrations in onnxruntime.dll of the Python package onnxruntime-directml"
    write("directml", "ONNX Runtime, DirectML provider", version, source, _rows(kernels))


def tensorrt() -> None:
    """Writes the operators and dtypes for which TensorRT for RTX builds an engine; its parser has no versions.

    It compiles some thousand models, in half an hour.
    """
    import onnx_ir as ir

    from fx_onnx.backends.tensorrt_compiler import PLUGINS, compile_model, libraries
    from fx_onnx.backends.tensorrt_engine import VERSION
    from tools.compiled_kernels import rows
    from tools.kernels_in_libraries import tensorrt_operators

    def is_taken(proto: Any) -> bool:
        return bool(compile_model(ir.from_proto(proto), {}).size)

    parser = f"{libraries()}/libtensorrt_onnxparser_rtx.so.{VERSION}"
    source = "engines for the test models of onnx, with the Python package onnxruntime-ep-nv-tensorrt-rtx-cu13"
    found = rows(tensorrt_operators(parser, operator_versions()), is_taken, PLUGINS)
    write("tensorrt", "TensorRT for RTX", VERSION, source, found, casts_float16=False)


def qnn() -> None:
    """Writes the operators and dtypes that the compiler of onnxruntime-qnn takes, with static shapes.

    An operator whose name the library does not have is not compiled; a short name may be a number in its code.
    Whether quantization is taken depends on the operator between.
    """
    import onnxruntime_qnn

    from fx_onnx.backends.qnn_compiler import installed_version
    from fx_onnx.backends.qnn_session import compile_file
    from tools.compiled_kernels import in_a_fork, rows

    def is_taken(proto: Any) -> bool:
        return compile_file(proto.SerializeToString())[0] > 0

    source = "the test models of onnx, compiled with the Python package onnxruntime-qnn"
    library = Path(onnxruntime_qnn.get_library_path()).read_bytes()
    named = [name for name in operator_versions() if len(name) < 10 or f"{name}\0".encode() in library]
    found = rows(
        named,
        in_a_fork(is_taken),
        ("QuantizeLinear", "DequantizeLinear"),
        narrow=True,
        dtypes=("bool", "uint8", "int8", "int32", "int64", "float16", "float"),
    )
    write("qnn", "onnxruntime-qnn", installed_version(), source, found, casts_float16=False)


if __name__ == "__main__":
    WRITERS = (
        onnxruntime,
        onnxruntime_oldest,
        onnxruntime_cuda,
        coreml,
        reference,
        openvino,
        web,
        directml,
        tensorrt,
        qnn,
    )
    {each.__name__: each for each in WRITERS}[sys.argv[1]](*sys.argv[2:])
