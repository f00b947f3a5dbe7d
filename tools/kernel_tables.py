"""Writes the table of kernels in fx_onnx/passes/legalization/cpu_kernels.py, from the installed ONNX Runtime.

python tools/cpu_kernels.py
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from fx_onnx.passes.legalization.cpu_kernels import ANY, DTYPES

TARGET = Path(__file__).parents[1] / "fx_onnx" / "passes" / "legalization" / "cpu_kernels.py"
OLDEST_OPSET = 7
OPEN = 2**31 - 1  # ONNX Runtime gives this as the last version of a kernel that has none
Admitted = dict[str, frozenset[str]]
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def lines() -> list[str]:
    """Returns a line for each operator, version range and kernel; merges kernels that differ in one type variable."""
    kernels: dict[tuple[str, int, int], list[Admitted]] = defaultdict(list)
    for kernel in state.get_all_opkernel_def():
        first, last = kernel.version_range
        if kernel.provider == "CPUExecutionProvider" and not kernel.domain and last >= OLDEST_OPSET:
            admitted = {name: _dtypes(types) for name, types in kernel.type_constraints.items()}
            # a kernel without a last version applies only to the version in which the operator last changed
            kernels[kernel.op_name, first, first if last == OPEN else last].append(admitted)
    ranges: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for (name, first, last), group in sorted(kernels.items()):
        for each in _merged(group):
            words = [f"{variable}={_words(types)}" for variable, types in sorted(each.items()) if types]
            if len(words) == len(each):
                ranges[name, " ".join(words)].append((first, last))
    rows = [(name, first, last, words) for (name, words), found in ranges.items() for first, last in _contiguous(found)]
    return [f"{name} {first} {last} {words}".strip() for name, first, last, words in sorted(rows)]


def _dtypes(types: list[str]) -> frozenset[str]:
    """Returns the names of the tensor types among the types."""
    found = (re.fullmatch(r"tensor\((\w+)\)", text) for text in types)
    return frozenset(NAMES[match[1]] for match in found if match is not None and match[1] in NAMES)


def _words(types: frozenset[str]) -> str:
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


def _contiguous(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and found[-1][1] + 1 >= first:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


if __name__ == "__main__":
    text = TARGET.read_text(encoding="utf-8")
    text = re.sub(r'(?<=^VERSION = ").*(?="$)', onnxruntime.__version__, text, flags=re.M)
    text = re.sub(r'(?<=^_TABLE = """\\\n).*(?=^"""$)', "\n".join(lines()) + "\n", text, flags=re.M | re.S)
    TARGET.write_text(text, encoding="utf-8")
