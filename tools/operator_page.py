"""Writes docs/operators.md: the operators that can be exported, and how, by opset.

python -m tools.operator_page
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from fx_onnx.aten.decompose import find_decomposition
from fx_onnx.decompositions import DECOMPOSITIONS
from fx_onnx.extension_points.translation_table import registered_translations, translation_table
from fx_onnx.onnx_model.opsets import MAXIMUM_OPSET, MINIMUM_NATIVE_OPSET
from fx_onnx.torch_internals.torch_private import OpOverload
from tools.operator import all_overloads, handlers, is_folded

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operators.md"
OPSETS = range(MINIMUM_NATIVE_OPSET, MAXIMUM_OPSET + 1)
NAMESPACES = {"aten": "ATen", "quantized_decomposed": "PT2E quantization"}

HEAD = """\
# Operators

This page lists the operators of torch {version} that fx_onnx exports, at each opset. `python -m tools.operator_page`
writes it. An operator that writes to its arguments, such as `add_`, is exported as the one that does not.
[Coverage](coverage.md) tells how many calls of PyTorch's own operator tests are right.

Opsets {first} to {last} are native. Older opsets are reached by [rewriting the finished model](opsets.md), whatever the
operator is. The entries:

- **translation**: a function of fx_onnx emits ONNX nodes. `+` marks one that supports some calls only; all other calls
  are decomposed.
- **decomposition**: fx_onnx or torch rewrites the call to operators that have a translation. Some of torch's
  decompositions lead to operators without a translation, so an export may still refuse the call.
- **constant**: torch computes the result during the export, because no tensor is among the arguments.
- **complex**: only calls with complex tensors are exported.
- A number is the first opset of an entry. Without one, the entry holds for all native opsets.

Operators that return no tensor, such as sizes and assertions, are not listed. Overloads with the same entry share a
row. `python -m tools.operator NAME` names the functions.
"""

MISSING = """\
## Without an export

An export that meets one of these operators fails with UnsupportedOperatorError, which lists all of them. Most are
called by the backward of another operator, or by a backend or a layout (sparse, nested) that ONNX does not have.
`python -m tools.operator --missing` prints the overloads.

"""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Returns the text of docs/operators.md."""
    head = HEAD.format(version=_version(), first=OPSETS[0], last=OPSETS[-1])
    sections = [_section(namespace, title) for namespace, title in NAMESPACES.items()]
    return "\n".join([head, *sections, _libraries(), MISSING + _missing()])


def _version() -> str:
    return ".".join(torch.__version__.split(".")[:2])


def _section(namespace: str, title: str) -> str:
    """Returns a table with a row for each operator, or for each group of overloads that have the same entry."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for target in _of_tensors(namespace):
        if found := entry(target):
            rows[target._schema.name.partition("::")[2], found].append(target._schema.overload_name or "default")
    lines = [f"## {title}", "", "| operator | overloads | export |", "|---|---|---|"]
    lines += [f"| `{name}` | {_joined(overloads)} | {found} |" for (name, found), overloads in sorted(rows.items())]
    return "\n".join([*lines, ""])


def _libraries() -> str:
    """Returns a table with a row for each operator that is known by its name, because its library is optional."""
    names = sorted(each for each in {*registered_translations(), *DECOMPOSITIONS} if isinstance(each, str))
    names = [name for name in names if not name.startswith("fx_onnx::")]
    lines = ["## Other libraries", "", "| operator | export |", "|---|---|"]
    lines += [f"| `{name}` | {_by_opset([_named_kind(name, opset) for opset in OPSETS])} |" for name in names]
    return "\n".join([*lines, ""])


def _named_kind(name: str, opset: int) -> str:
    translation = translation_table(opset).get(name)
    if translation is not None:
        return "translation" if translation.supports is None else "translation +"
    is_of_torch = any(target._schema.name == name for target in torch.onnx.ops.aten_decompositions())
    return "decomposition" if name in DECOMPOSITIONS or is_of_torch else ""


def _of_tensors(namespace: str) -> Iterator[OpOverload]:
    """Yields the operators of a namespace that return tensors."""
    for target in all_overloads(namespace):
        if any("Tensor" in str(result.type) for result in target._schema.returns):
            yield target


def _joined(overloads: Iterable[str]) -> str:
    return ", ".join(sorted(overloads))


def entry(target: OpOverload) -> str:
    """Returns how an operator is exported at each native opset; "" if nothing exports it."""
    return _by_opset([_kind(target, opset) for opset in OPSETS])


def _by_opset(kinds: Sequence[str]) -> str:
    """Returns the entries of all native opsets as text; "" if all are empty."""
    pairs = zip(OPSETS, kinds, [None, *kinds], strict=False)
    changes = [(opset, kind) for opset, kind, before in pairs if kind != before]
    if len(changes) == 1:
        return changes[0][1]
    return ", ".join(f"{kind or 'nothing'} {opset}" for opset, kind in changes)


def _kind(target: OpOverload, opset: int) -> str:
    """Returns the entry of an operator at one opset."""
    translation = translation_table(opset).get(target)
    if translation is not None:
        return "translation" if translation.supports is None else "translation +"
    if find_decomposition(target) is not None:
        return "decomposition"
    if is_folded(target):
        return "constant"
    is_complex_only = any(line.startswith("for complex tensors") for line in handlers(target, opset))
    return "complex" if is_complex_only and len(target.overloadpacket.overloads()) <= 2 else ""  # itself and ``out``


def _missing() -> str:
    """Returns the operators of ATen that nothing exports, in groups."""
    groups: dict[str, set[str]] = defaultdict(set)
    for target in _of_tensors("aten"):
        if not entry(target):
            name = target._schema.name.removeprefix("aten::")
            groups[_group(name)].add(name)
    return "\n".join(_group_lines(groups))


def _group(name: str) -> str:
    for group, words in GROUPS.items():
        if any(word in name for word in words):
            return group
    return "Others"


GROUPS = {
    "Backward": ("backward", "_grad", "vjp", "jvp"),
    "Layouts and quantized tensors": (
        "sparse", "nested", "jagged", "quantize", "coalesce", "csr", "csc", "bsr", "bsc", "ccol", "crow", "indices",
        "values",
    ),
    "Backends": ("cudnn", "miopen", "mkl", "mps", "cuda", "vulkan", "cutlass", "_cslt", "xnnpack", "flash", "hip"),
    "Optimizers and lists of tensors": ("foreach", "fused_", "amp_"),
}  # fmt: skip
"""Words in the names of the operators of each group."""


def _group_lines(groups: dict[str, set[str]]) -> Iterator[str]:
    for group in (*GROUPS, "Others"):
        if groups[group]:
            yield f"{group}: {', '.join(f'`{name}`' for name in sorted(groups[group]))}.\n"


if __name__ == "__main__":
    main()
