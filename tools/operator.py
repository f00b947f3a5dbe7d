"""Prints what exports an operator: a translation, a decomposition of fx_onnx or of torch, constant folding, or nothing.

    python -m tools.operator aten.addcmul.default --opset 20
    python -m tools.operator --missing

Without an overload, as in ``aten.addcmul``, the command reports every overload. It exits with 1 if nothing handles one
of them. ``--missing`` lists the operators that nothing handles. Operators of other libraries need ``--import``, for
example ``--import torchvision torchvision.nms``.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

import fx_onnx.translations  # noqa: F401  registers the translations
from fx_onnx.aten.decompose import find_decomposition
from fx_onnx.complex_tensors.complex_to_real import COMPLEX
from fx_onnx.decompositions import DECOMPOSITIONS
from fx_onnx.extension_points.translation_table import Translation, translation_table
from fx_onnx.messages.source_lines import shown_path
from fx_onnx.onnx_model.opsets import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_NATIVE_OPSET
from fx_onnx.torch_internals.torch_private import OpOverload, operator_names


def main() -> int:
    """Parses the command line and prints a paragraph for each overload."""
    parser = argparse.ArgumentParser(prog="tools.operator", description=str(__doc__).splitlines()[0])
    parser.add_argument("operator", nargs="?", help="aten.addcmul.default, aten.addcmul, or aten::addcmul.default")
    parser.add_argument("--missing", action="store_true", help="lists the operators that nothing handles")
    parser.add_argument("--namespace", default="aten", help="the namespace of --missing")
    parser.add_argument("--opset", type=int, default=DEFAULT_OPSET)
    parser.add_argument("--import", dest="library", help="a module that defines the operator")
    options = parser.parse_args()
    if options.library:
        importlib.import_module(options.library)
    if options.missing:
        print("\n".join(map(str, missing(options.namespace, options.opset))))
        return 0
    if options.operator is None:
        parser.error("name an operator, or give --missing")
    try:
        targets = overloads(options.operator)
    except LookupError as error:
        parser.error(str(error))
    answers = {target: list(handlers(target, options.opset)) for target in targets}
    for target, lines in answers.items():
        print(f"{target} at opset {options.opset}")
        for line in lines or ["nothing: the export fails with UnsupportedOperatorError"]:
            print(f"  {line}")
    return 0 if all(answers.values()) else 1


def overloads(name: str) -> list[OpOverload]:
    """Returns the overload that ``name`` gives, or all overloads of the operator.

    Raises:
        LookupError: this torch has no such operator.
    """
    namespace, _, rest = name.removeprefix("torch.ops.").replace("::", ".").partition(".")
    operator, _, overload = rest.partition(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), operator)
        return [getattr(packet, each) for each in ([overload] if overload else packet.overloads())]
    except AttributeError:
        raise LookupError(f"this torch has no operator {name}") from None


def all_overloads(namespace: str) -> Iterator[OpOverload]:
    """Yields the operators of a namespace that a functional program can call: none that writes to an argument."""
    for name in operator_names():
        if name.startswith(f"{namespace}::"):
            packet, _, overload = name.removeprefix(f"{namespace}::").partition(".")
            target = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload or "default", None)
            if isinstance(target, OpOverload) and not target._schema.is_mutable:
                yield target


def missing(namespace: str, opset: int) -> list[OpOverload]:
    """Returns the operators of a namespace that nothing exports."""
    return [target for target in all_overloads(namespace) if next(handlers(target, opset), None) is None]


def handlers(target: OpOverload, opset: int) -> Iterator[str]:
    """Yields a line for each thing that can export ``target``, in the order in which fx_onnx tries them."""
    if target._schema.is_mutable:
        yield "functionalization: an operator that writes to an argument is rewritten to one that does not"
    native = translation_table(opset).get(target)
    if native is not None:
        yield f"translation: {_translation(native)}"
    if (later := _later_translation(target, opset)) is not None:
        yield f"translation from opset {later.since}: {_translation(later)}"
    if native is None or native.supports is not None:
        yield from _decompositions(target)
    if is_folded(target):
        yield "constant folding: torch computes it, because it has no tensor among its arguments"
    if target in COMPLEX or target.overloadpacket in COMPLEX:
        yield f"for complex tensors: {_place(COMPLEX.get(target) or COMPLEX[target.overloadpacket])}"
    if native is None and not any("Tensor" in str(result.type) for result in target._schema.returns):
        yield "no tensor in the result: a number becomes a symbolic expression, an assertion is removed"


_NOT_DENSE = re.compile("^aten::_|sparse|quantized|gradients")
"""Operators that return no dense tensor, or that only torch itself calls."""


def is_folded(target: OpOverload) -> bool:
    """Returns whether every call with static arguments is a constant, such as a window function."""
    schema = target._schema
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    returns_tensors = any("Tensor" in str(result.type) for result in schema.returns)
    is_random = torch.Tag.nondeterministic_seeded in target.tags
    if takes_tensors or not returns_tensors or is_random or schema.is_mutable:
        return False
    return target.namespace == "aten" and _NOT_DENSE.search(schema.name) is None


def _decompositions(target: OpOverload) -> Iterator[str]:
    found = find_decomposition(target)
    if found is None:
        return
    if target in DECOMPOSITIONS or target._schema.name in DECOMPOSITIONS:
        yield f"decomposition of fx_onnx: {_place(found.function)}"
    elif found.function is target:
        yield "decomposition of torch: a kernel in C++ that is composed of other operators"
    else:
        yield f"decomposition of torch: {_place(found.function)}"


def _translation(entry: Translation) -> str:
    where = _place(entry.function)
    return where if entry.supports is None else f"{where}, for calls that {_place(entry.supports)} accepts"


def _later_translation(target: Any, opset: int) -> Translation | None:
    """Returns the first translation of a higher opset."""
    for higher in range(max(opset + 1, MINIMUM_NATIVE_OPSET), MAXIMUM_OPSET + 1):
        entry = translation_table(higher).get(target)
        if entry is not None and entry.since > opset:
            return entry
    return None


def _place(function: Callable[..., Any]) -> str:
    """Returns the name of a function and the file and line of its definition."""
    code = inspect.unwrap(function).__code__
    return f"{getattr(function, '__name__', function)} ({shown_path(code.co_filename)}:{code.co_firstlineno})"


if __name__ == "__main__":
    sys.exit(main())
