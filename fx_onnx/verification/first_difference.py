"""Finds the first FX node whose value the ONNX model computes wrongly from the values that PyTorch computed.

PyTorch runs the captured graph node by node. As soon as it has computed enough values, the ONNX nodes that compute the
same values run on them, and both are compared. So a whole run of both sides is compared, and memory holds the values of
one group of nodes at a time.
"""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.messages.errors import first_line
from fx_onnx.messages.progress import report_progress
from fx_onnx.program.input_binding import bind
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import pytree
from fx_onnx.verification.model_parts import (
    ModelParts,
    Part,
    executed,
    functional_program,
    graph_module,
    slice_to,
    value_bytes,
)
from fx_onnx.verification.reference_runs import Sides, attempt, lifted_arguments
from fx_onnx.verification.tensor_comparison import Difference, compare, errors_in_double

__all__ = ["GROUP_BYTES", "ComparedPart", "PartComparison", "inaccurate_in_eager", "value_in_double"]

GROUP_BYTES = 256 * 1024**2
"""The size of the values, and of the weights, that are compared at once. Both sides hold this much."""


@dataclass(frozen=True)
class ComparedPart:
    """One value that the ONNX nodes of a part computed from PyTorch's values.

    Attributes:
        part: the ONNX nodes.
        difference: the difference from PyTorch's value.
        inside: the FX nodes that PyTorch computed the value with; empty unless the values differ.
        inputs: what the ONNX nodes read, by name; empty unless the values differ.
        expected: PyTorch's value; None unless the values differ.
        errors: the errors of PyTorch's and of the ONNX value, compared with float64; None if they are unknown.
        is_tie: whether both are indices of equal elements, among which PyTorch may select any.
    """

    part: Part
    difference: Difference
    inside: tuple[Node, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict)
    expected: Any = None
    errors: tuple[float, float] | None = None
    is_tie: bool = False


class PartComparison:
    """Compares the values of an ONNX model with those of its captured program, part by part.

    Attributes:
        program: the captured program without writes in place.
        parts: the parts of the model.
        results: what the program returns, after the last part: the results, then the new values of what it writes.
        failures: why the nodes of a part could not run alone, by the name of the value.
    """

    def __init__(self, sides: Sides, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        exported = cast("ExportedProgram", sides.program.exported_program)
        self.program: AtenProgram = functional_program(exported)
        self.parts = ModelParts(sides.program.model, self.program, sides.provider)
        self.results: list[Any] = []
        self.failures: dict[str, str] = {}
        self._tolerance = sides.tolerance
        self._inputs: dict[str, Any] = dict(bind(sides.program.model.graph, exported, tuple(args), dict(kwargs)))
        self._arguments = lifted_arguments(self.program.exported_program, args, kwargs)
        placeholders = self.program.graph.find_nodes(op="placeholder", sort=True)
        self._placeholders = dict(zip(placeholders, self._arguments, strict=True))

    @property
    def is_complete(self) -> bool:
        """True if every output of the model was compared, and so was every part that it depends on."""
        compared = {part.name for part in self.parts.parts}
        return not self.failures and all(name in compared for name in self.parts.output_names)

    def named_results(self) -> dict[str, Any]:
        """Returns what the program returned, by the names of the outputs of the model; empty if they do not match."""
        return self._named(self.results)

    def exact_results(self) -> dict[str, Any]:
        """Returns what the program returns in float64; empty if it cannot run so."""
        return self._named(value_in_double(graph_module(self.program), self._arguments) or ())

    def _named(self, results: Sequence[Any]) -> dict[str, Any]:
        values, names = [result for result in results if result is not None], self.parts.output_names
        return dict(zip(names, values, strict=True)) if len(values) == len(names) else {}

    def __iter__(self) -> Iterator[ComparedPart]:
        """Yields the comparison of each part, in groups in the order of execution."""
        module = graph_module(self.program)
        parts = {part.node: part for part in self.parts.parts}
        readers = Counter(read.name for part in self.parts.parts for read in part.reads)
        values: dict[str, Any] = {}
        group: list[Part] = []
        size = 0
        total = len(module.graph.nodes)
        for index, (node, value) in enumerate(executed(module, self._arguments)):
            report_progress(index, total)
            if node.op == "output":
                self.results = list(value)
            if node not in parts:
                continue
            values[parts[node].name] = value
            group.append(parts[node])
            size += value_bytes(value) + parts[node].weight_bytes
            if size >= GROUP_BYTES:
                # A part may read a value that comes later in the graph of PyTorch; then it waits for that value.
                ready = [part for part in group if all(read.name in values for read in part.reads)]
                yield from self._compared(ready, values)
                _forget(ready, values, readers)
                group, size = [part for part in group if part not in ready], 0
        yield from self._compared(group, values)

    def _compared(self, group: list[Part], values: dict[str, Any]) -> Iterator[ComparedPart]:
        """Runs a group of parts and compares their values."""
        for part, actual in self._run(group, values):
            expected = values[part.name]
            difference = compare(part.name, expected, actual, self._tolerance)
            if difference.ok:
                yield ComparedPart(part, difference)
                continue
            inputs = {read.name: values[read.name] for read in part.reads}
            boundary = {read.node: values[read.name] for read in part.reads}
            module, arguments, inside = slice_to(self.program, part.node, boundary)
            given = [boundary.get(node, self._placeholders.get(node)) for node in arguments]
            inputs |= {str(value.name): self._inputs[str(value.name)] for value in part.inputs}
            judged, errors = self._judged(difference, expected, actual, value_in_double(module, given))
            is_tie = _is_tie(part.node, boundary, expected, actual)
            yield ComparedPart(part, judged, tuple(inside), inputs, expected, errors, is_tie)

    def _judged(
        self, difference: Difference, expected: Any, actual: torch.Tensor, exact: Any
    ) -> tuple[Difference, tuple[float, float] | None]:
        """Returns the difference, and the errors of both sides; None if the value in float64 is unknown.

        It is no error of the ONNX model if its value is nearer to the float64 value than PyTorch's, and agrees with the
        float64 value within the tolerance.
        """
        if exact is None:
            return difference, None
        eager, onnx = errors_in_double(expected, actual, exact)
        rounded = exact.to(expected.dtype) if isinstance(expected, torch.Tensor) else exact
        accurate = onnx < eager and compare(difference.name, rounded, actual, self._tolerance).ok
        return (inaccurate_in_eager(difference, eager, onnx) if accurate else difference), (eager, onnx)

    def _run(self, parts: Sequence[Part], values: dict[str, Any]) -> Iterator[tuple[Part, torch.Tensor]]:
        """Runs parts in one session, or one by one if ONNX Runtime does not take them together."""
        given = {**self._inputs, **values}
        results = attempt(lambda: self.parts.run(parts, given)) if parts else []
        if isinstance(results, Exception) and len(parts) == 1:
            self.failures[parts[0].name] = first_line(results)
            return
        if isinstance(results, Exception):
            half = len(parts) // 2
            yield from self._run(parts[:half], values)
            yield from self._run(parts[half:], values)
            return
        yield from zip(parts, results, strict=True)


def _forget(done: Sequence[Part], values: dict[str, Any], readers: Counter[str]) -> None:
    """Drops the values of these parts, and those that they read, if no later part reads them."""
    readers.subtract(read.name for part in done for read in part.reads)
    names = {part.name for part in done} | {read.name for part in done for read in part.reads}
    for name in names:
        if readers[name] <= 0:
            values.pop(name, None)


_SELECTING = {
    aten.topk.default: 2, aten.kthvalue.default: 2, aten.mode.default: 1, aten.sort.default: 1, aten.sort.stable: 2,
}  # fmt: skip
"""An operator that returns indices too → the position of its argument ``dim``."""


def _is_tie(node: Node, values: Mapping[Any, Any], expected: Any, actual: torch.Tensor) -> bool:
    """Returns whether two results are different indices of equal elements."""
    call: Any = node.args[0] if node.target is operator.getitem else node
    if call.target not in _SELECTING or actual.dtype != torch.int64 or actual.shape != expected.shape:
        return False
    arguments = [*call.args, *[-1] * 3]  # no other default is before dim
    dim, x = call.kwargs.get("dim", arguments[_SELECTING[call.target]]), values.get(call.args[0])
    if x is None or x.ndim == 0:
        return False
    pair = [index if index.ndim == x.ndim else index.unsqueeze(dim) for index in (expected, actual)]
    are_unique = bool(pair[1].sort(dim).values.diff(dim=dim).all())
    return are_unique and torch.equal(*(x.gather(dim, index) for index in pair))


def inaccurate_in_eager(difference: Difference, error_of_eager: float, error_of_onnx: float) -> Difference:
    """Returns a difference as one that is no error of the ONNX program."""
    nearer = "nearer to float64 than" if error_of_onnx < error_of_eager else "about as near to float64 as"
    note = (
        f"the ONNX result is {nearer} PyTorch's own: its error is {error_of_onnx:.2g}, PyTorch's {error_of_eager:.2g}"
    )
    return replace(difference, problem="", note=note)


# ---------------------------------------------------------------- values in float64

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


class _DoubleInterpreter(Interpreter):
    """Computes every float in float64. A weight is widened where a call reads it, so no second copy of all weights
    is in memory.
    """

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = super().placeholder(target, args, kwargs)
        # The graph may write to its inputs and buffers, so these are widened once. It does not write to parameters.
        return value if isinstance(value, torch.nn.Parameter) else _widened(value)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        return result if n.op == "placeholder" else _widened(result)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(target, _widened(args), _widened(kwargs))


def value_in_double(module: GraphModule, arguments: Sequence[Any]) -> Any:
    """Returns the results of an FX graph in float64; None if it cannot run so.

    An operator may lack a kernel for float64, or the graph may depend on the dtypes of its values.

    Args:
        module: the graph, which does not change.
        arguments: the values of the placeholders.
    """
    with torch.no_grad():
        value = attempt(lambda: _DoubleInterpreter(_widened_module(module)).run(*arguments))
    return None if isinstance(value, Exception) else value


def _widened_module(module: GraphModule) -> GraphModule:
    """Returns a copy of a graph module, also of its bodies, whose dtype arguments are the wide dtypes."""
    tensors: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    widened: GraphModule = copy.deepcopy(module, tensors)
    for submodule in widened.modules():
        if isinstance(submodule, GraphModule):
            for node in submodule.graph.nodes:
                if node.op == "call_function":
                    node.args, node.kwargs = _widened_dtypes(node.args), _widened_dtypes(node.kwargs)
            submodule.recompile()
    return widened


def _widened(tree: Any) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(_WIDE[tensor.dtype]) if tensor.dtype in _WIDE else tensor, tree
    )


def _widened_dtypes(arguments: Any) -> Any:
    return torch.fx.node.map_aggregate(
        arguments, lambda value: _WIDE.get(value, value) if isinstance(value, torch.dtype) else value
    )
