"""``find_mismatch``: bisects a captured graph to find the operators whose ONNX translation differs from PyTorch.

Each half of a graph is exported alone and runs on the values that PyTorch computed, so errors do not accumulate.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node

from fx_onnx import pipeline
from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.compat.module_verification import VerificationOptions, check_outputs, checked_options
from fx_onnx.compat.utils import select_model_mode_for_export
from fx_onnx.export import export
from fx_onnx.onnx_model import opsets
from fx_onnx.program.export_log import ExportLog
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.program.input_binding import call_arguments
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.requests.export_modes import TrainingMode
from fx_onnx.requests.request import parse_request
from fx_onnx.translation.symbolic_registry import registered
from fx_onnx.verification.model_parts import attributes_of, executed
from fx_onnx.verification.reference_runs import lifted_arguments

__all__ = ["GraphInfo", "find_mismatch"]


# ---------------------------------------------------------------- the captured graph and its values


@dataclass
class _Program:
    """A captured program in functional form, with the value of each node.

    Attributes:
        attributes: the constants and the bodies of control flow that ``get_attr`` nodes name.
        values: the values that PyTorch computed from the example arguments.
        weights: the placeholders of parameters and buffers.
        opset_version: the opset of the exports; None is the default.
    """

    attributes: dict[str, Any]
    values: dict[Node, Any]
    weights: set[Node]
    opset_version: int | None

    @classmethod
    def of(cls, aten: AtenProgram, args: Sequence[Any], kwargs: Mapping[str, Any], opset: int | None) -> _Program:
        """Computes the value of each node."""
        attributes = attributes_of(aten, aten.graph)
        module = GraphModule(attributes, aten.graph)
        values: dict[Node, Any] = dict(executed(module, lifted_arguments(aten.exported_program, args, kwargs)))
        placeholders = aten.graph.find_nodes(op="placeholder", sort=True)
        specs = aten.exported_program.graph_signature.input_specs
        kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        weights = {node for node, spec in zip(placeholders, specs, strict=True) if spec.kind in kinds}
        return cls(attributes, values, weights, opset)


def _groups(graph: Graph) -> list[list[Node]]:
    """Returns the calls of a graph in order, each with the nodes that take one of its results."""
    groups: dict[Node, list[Node]] = {}
    leaders: dict[Node, Node] = {}
    for node in graph.find_nodes(op="call_function", target=operator.getitem, sort=True):
        source: Any = node.args[0]
        leaders[node] = leaders.get(source, source)
    for node in graph.nodes:
        if node.op == "call_function":
            groups.setdefault(leaders.get(node, node), []).append(node)
    return list(groups.values())


def _part(program: _Program, groups: Sequence[Sequence[Node]]) -> tuple[GraphModule, list[torch.Tensor]]:
    """Returns the calls of some groups as a module, and the example values of its inputs.

    The inputs are the tensors that the calls take from other calls and from the user. The module holds the weights. It
    returns the tensors that are used elsewhere.
    """
    nodes = [node for group in groups for node in group]
    inside = set(nodes)
    outside = [node for node in dict.fromkeys(n for user in nodes for n in user.all_input_nodes) if node not in inside]
    graph, attributes = Graph(), dict(program.attributes)
    env: dict[Node, Any] = {node: program.values[node] for node in outside}  # numbers stay as they are
    inputs = [node for node in outside if node.op != "get_attr" and node not in program.weights]
    inputs = [node for node in inputs if isinstance(program.values[node], torch.Tensor)]
    env |= {node: graph.placeholder(node.name) for node in inputs}
    for node in outside:
        if node.op == "get_attr":
            env[node] = graph.get_attr(str(node.target))
        elif node in program.weights:
            attributes[node.name] = program.values[node]
            env[node] = graph.get_attr(node.name)
    for node in nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
    used = [n for n in nodes if isinstance(program.values[n], torch.Tensor) and not inside.issuperset(n.users)]
    graph.output(tuple(env[node] for node in used))
    return GraphModule(attributes, graph).eval(), [program.values[node].detach().clone() for node in inputs]


# ---------------------------------------------------------------- the tree


@dataclass
class GraphInfo:
    """A part of a captured graph, whether its ONNX program agrees with PyTorch, and its two halves.

    Attributes:
        id: the place in the tree: "" for the whole graph; "0" and "1" for its halves, "00" and "01" for those of "0".
        module: the part as a module.
        graph: its FX graph.
        input_args: the values of its inputs.
        mismatch_error: why the outputs differ; None if they agree.
        pt_outs: the outputs that PyTorch computed.
        upper_graph_info: the first half; None if the part agrees or has one call only.
        lower_graph_info: the second half.
    """

    id: str
    module: GraphModule
    input_args: tuple[torch.Tensor, ...]
    mismatch_error: AssertionError | None = None
    upper_graph_info: GraphInfo | None = None
    lower_graph_info: GraphInfo | None = None
    _program: _Program = field(repr=False, kw_only=True)
    _groups: list[list[Node]] = field(repr=False, kw_only=True)

    @property
    def graph(self) -> Graph:
        """The FX graph of the part."""
        return self.module.graph

    @property
    def pt_outs(self) -> tuple[torch.Tensor, ...]:
        """The outputs that PyTorch computes from ``input_args``."""
        with torch.no_grad():
            outputs: tuple[torch.Tensor, ...] = self.module(*self.input_args)
        return outputs

    @classmethod
    def _of(cls, program: _Program, groups: list[list[Node]], id: str) -> GraphInfo:
        module, inputs = _part(program, groups)
        return cls(id, module, tuple(inputs), _program=program, _groups=groups)

    def find_mismatch(self, options: VerificationOptions | None = None) -> None:
        """Compares the part with its ONNX program, and if they differ, both halves of it.

        A part without inputs is a constant, and a part whose results nobody uses computes nothing; both agree.
        """
        self.clear()
        options = checked_options(options)
        if not self.input_args or not self.graph.output_node().args[0]:
            return
        try:
            check_outputs(self.export(), self.module, self.input_args, {}, options)
        except AssertionError as error:
            self.mismatch_error = error
        if self.mismatch_error is None or self.essential_node_count() < 2:
            return
        middle = len(self._groups) // 2
        self.upper_graph_info = GraphInfo._of(self._program, self._groups[:middle], f"{self.id}0")
        self.lower_graph_info = GraphInfo._of(self._program, self._groups[middle:], f"{self.id}1")
        for half in (self.upper_graph_info, self.lower_graph_info):
            half.find_mismatch(options)

    def export(self) -> ONNXProgram:
        """Exports the part alone."""
        return export(self.module, self.input_args, opset_version=self._program.opset_version)

    def clear(self) -> None:
        """Removes the result and both halves."""
        self.mismatch_error = self.upper_graph_info = self.lower_graph_info = None

    def has_mismatch(self) -> bool:
        """Returns whether the part differs from its ONNX program."""
        return self.mismatch_error is not None

    def essential_node_count(self) -> int:
        """Returns the number of calls of operators."""
        return len(self._groups)

    def essential_node_kinds(self) -> set[str]:
        """Returns the operators that the part calls."""
        return {str(group[0].target) for group in self._groups}

    def all_mismatch_leaf_graph_info(self) -> list[GraphInfo]:
        """Returns the smallest parts that differ: both halves of each agree, or it has one call."""
        return [part for part in self._parts() if part.has_mismatch() and not part._half_differs()]

    def find_partition(self, id: str) -> GraphInfo | None:
        """Returns the part at a place in the tree."""
        return next((part for part in self._parts() if part.id == id), None)

    def _halves(self) -> list[GraphInfo]:
        return [half for half in (self.upper_graph_info, self.lower_graph_info) if half is not None]

    def _half_differs(self) -> bool:
        return any(half.has_mismatch() for half in self._halves())

    def _parts(self) -> Iterator[GraphInfo]:
        """Yields this part and, recursively, its halves."""
        yield self
        for half in self._halves():
            yield from half._parts()

    def pretty_print_tree(self) -> None:
        """Prints one line for each part: its id, its calls or their number, and whether it agrees."""
        for part in self._parts():
            verdict = "differs" if part.has_mismatch() else "agrees"
            indent = "  " * (len(part.id) - len(self.id))
            count = part.essential_node_count()
            calls = f"{count} calls" if count > 1 else ", ".join(part.essential_node_kinds())
            sys.stdout.write(f"{indent}{part.id or 'whole'}: {calls}, {verdict}\n")

    def pretty_print_mismatch(self, graph: bool = False) -> None:
        """Prints the smallest parts that differ: the operators, the difference and, if ``graph``, the FX graph."""
        leaves = self.all_mismatch_leaf_graph_info()
        sys.stdout.write("" if leaves else "No part differs.\n")
        for part in leaves:
            operators = ", ".join(sorted(part.essential_node_kinds()))
            sys.stdout.write(f"{part.id or 'whole'}: {operators}\n{part.mismatch_error}\n")
            sys.stdout.write(f"{part.graph}\n" if graph else "")

    def export_repro(self, repro_dir: str | os.PathLike[str] | None = None, name: str | None = None) -> str:
        """Writes the part in the layout of ONNX's backend tests, and returns the folder.

        The folder ``test_<name>`` has ``model.onnx``, and ``test_data_set_0`` with ``input_0.pb``, ``output_0.pb`` and
        so on. The outputs are those of PyTorch.

        Args:
            repro_dir: where to write the folder; None is the working directory.
            name: the name of the test; None is ``part_<id>``.
        """
        folder = Path(repro_dir or ".") / f"test_{name or f'part_{self.id}'.rstrip('_')}"
        data = folder / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        self.export().save(folder / "model.onnx")
        for kind, tensors in (("input", self.input_args), ("output", self.pt_outs)):
            for index, tensor in enumerate(tensors):
                proto = ir.serde.serialize_tensor(TorchTensor(tensor.detach().contiguous(), name=f"{kind}_{index}"))
                (data / f"{kind}_{index}.pb").write_bytes(proto.SerializeToString())
        return str(folder)


def find_mismatch(
    model: torch.nn.Module | torch.export.ExportedProgram,
    input_args: torch.Tensor | tuple[Any, ...],
    do_constant_folding: bool = True,
    training: TrainingMode | torch.onnx.TrainingMode = TrainingMode.EVAL,
    opset_version: int | None = None,
    keep_initializers_as_inputs: bool = True,
    verbose: bool = False,
    options: VerificationOptions | None = None,
) -> GraphInfo:
    """Captures a model, compares it with its ONNX program, and bisects it if they differ.

    Args:
        model: as for ``export``.
        input_args: the positional arguments.
        do_constant_folding: has no effect: constants are folded, as in an export.
        training: as for ``export``.
        opset_version: as for ``export``.
        keep_initializers_as_inputs: has no effect, because no file is written.
        verbose: prints the tree of parts.
        options: how to compare.

    Returns:
        the whole graph. ``pretty_print_tree`` shows its parts, ``all_mismatch_leaf_graph_info`` the smallest that
        differ.

    Raises:
        ArgumentError: an argument is not valid.
        CaptureError: torch.export could not capture the model.
        OnnxExporterError: a part cannot be exported.
    """
    args, kwargs = call_arguments(input_args, None)
    opset = opsets.check(opset_version)
    with select_model_mode_for_export(model, training):  # type: ignore[arg-type]
        request = parse_request(model, args, kwargs)
        settings = ExportOptions(opset=opset, registered_symbolics=registered(opset))
        job = pipeline.run_until("functionalize", request, settings, ExportLog())
        program = _Program.of(job.aten, request.args, request.kwargs, opset_version)
    info = GraphInfo._of(program, _groups(job.aten.graph), "")
    info.find_mismatch(options)
    if verbose:
        info.pretty_print_tree()
    return info
