"""Translation of an AtenProgram to an ``onnx_ir.Model``: binds the inputs, then translates the FX nodes in order."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import onnx_ir as ir
import torch
import torch.fx
from onnx_ir import DataType, Value
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.decompose import find_translation
from fx_onnx.aten.fx_nodes import describe, fake_mode, is_effect, is_symbolic
from fx_onnx.aten.tracing.guard_check import refuse_guards, refuse_numbers
from fx_onnx.extension_points.translation_table import TranslationTable
from fx_onnx.messages.errors import OnnxExporterError, TranslationError, first_line
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.progress import report_progress
from fx_onnx.messages.source_lines import function_place
from fx_onnx.onnx_model import dtypes, metadata
from fx_onnx.onnx_model.opsets import ir_version
from fx_onnx.onnx_model.type_inference import UnequalDtypesError
from fx_onnx.onnx_model.weights import memory_key, real_view, weight
from fx_onnx.requests.user_outputs import is_graph_output
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.size_text import shape_text
from fx_onnx.torch_internals.version import version
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.inferred_types import inferred_types, nodes_after
from fx_onnx.translation.io_names import inputs_in_caches
from fx_onnx.translation.known_sizes import known_sizes
from fx_onnx.translation.node_emitter import SizeAttributeError
from fx_onnx.translation.size_values import SymbolTable

PRODUCER = "fx_onnx"

_REMEDIES = {
    UnequalDtypesError: ("convert the inputs or the module to one dtype", MessageId.UNEQUAL_DTYPES),
    SizeAttributeError: ("make the dim static, or compute the number without a size", MessageId.SIZE_IN_ATTRIBUTE),
}
"""Errors of calls that ONNX cannot express → the remedy, and the id of the message."""


def translate(
    program: AtenProgram,
    table: TranslationTable,
    symbol_names: Mapping[str, str] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    *,
    keeps_unread: bool = False,
) -> ir.Model:
    """Returns the ONNX model of a program whose nodes all have a translation in ``table``.

    Args:
        program: a functionalized and decomposed program.
        table: the translations of the opset of the model.
        symbol_names: the name in the model of each of torch's expressions of a dim, such as "s17".
        custom_opsets: the versions of domains of custom operators, for the domains that nodes use.
        keeps_unread: whether a weight that no node reads is an initializer too.

    Raises:
        TranslationError: a translation failed, and the message names the FX node, its arguments and the source line;
            or a dim of ``symbol_names`` has become a number.
    """
    exported = program.exported_program
    imports = {"": table.opset, **(custom_opsets or {})}  # scripts read the first import
    graph = ir.Graph((), (), nodes=(), opset_imports=imports, name="main_graph")
    emitter = Emitter(graph, table.opset, SymbolTable(symbol_names))
    walker = Walker(emitter, table, program)
    emitter.translate_body = walker.walk_body
    placeholders = program.graph.find_nodes(op="placeholder", sort=True)
    _bind_inputs(walker, placeholders, exported, keeps_unread)
    results = walker.walk(program.graph)
    refuse_numbers(fake_mode(program.graph), symbol_names or {})
    _bind_outputs(walker, results, (*exported.graph_signature.output_specs, *program.mutations))
    for value in graph.initializers.values():
        if value.uses() and value.dtype is not None:  # a weight that others are computed from may be in any dtype
            walker.known(value.dtype, value.name or "")
    _remove_unused_imports(graph, emitter.functions.values())
    graph.metadata_props[metadata.GRAPH_SIGNATURE] = str(exported.graph_signature)
    graph.metadata_props[metadata.RANGE_CONSTRAINTS] = str(exported.range_constraints)
    model = ir.Model(
        graph,
        ir_version=ir_version(max(table.opset, *(dtypes.since_opset(dtype) for dtype in _dtypes(graph)))),
        producer_name=PRODUCER,
        producer_version=version(),
        functions=list(emitter.functions.values()),
    )
    model.meta[metadata.DATA_DEPENDENT_DIMS] = frozenset(emitter.symbols.data_dependent_dims)
    return model


class Walker:
    """Translates the nodes of one FX graph in order.

    Attributes:
        env: the ONNX value of each FX node, or a tuple of values, or a plain Python object.
        prefix: precedes all names in the body of a higher-order operator, because FX reuses names across graphs.
    """

    def __init__(self, op: Emitter, table: TranslationTable, program: AtenProgram) -> None:
        self.op, self.table, self.program = op, table, program
        self.env: dict[Node, Any] = {}
        self.prefix = ""

    def walk_body(self, op: Emitter, body: str, operands: Sequence[Any]) -> list[Any]:
        """Translates the body of a higher-order operator into the graph of ``op``, with ``operands`` for its inputs."""
        walker = Walker(op, self.table, self.program)
        walker.prefix = f"{op.names.scope}.{body}."
        graph = self.program.bodies[body]
        with op.body_scope():
            for placeholder, operand in zip(graph.find_nodes(op="placeholder", sort=True), operands, strict=True):
                walker.bind(placeholder, operand)
            results = walker.walk(graph)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            return [op.symbols.value(op, result, rank=0) if _is_symbol(result) else result for result in results]

    def bind(self, placeholder: Node, operand: Any) -> None:
        """Binds the placeholder of a body to an operand, which may be a number that changes in every iteration."""
        number = placeholder.meta.get("val")
        if isinstance(operand, Value) and _is_symbol(number):
            self.op.symbols.bind(number, lambda op: op.Reshape(operand, [1]))
            self.env[placeholder] = number
            return
        self.env[placeholder] = operand
        if isinstance(operand, Value):
            self._stamp(placeholder, (operand,))

    def walk(self, graph: torch.fx.Graph) -> Any:
        """Translates every node of a graph and returns the graph's results, as ONNX values instead of FX nodes."""
        total = len(graph.nodes)
        for index, node in enumerate(graph.nodes):
            if not self.prefix:  # bodies are steps of the node that has them
                report_progress(index, total)
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                self.env[node] = self._attribute(node)
            elif node.op == "output":
                return map_aggregate(node.args[0], self._value)
        return None

    def _value(self, argument: Any) -> Any:
        """Returns the operand for an FX argument: a symbolic number if the node computes one, else a value."""
        if not isinstance(argument, Node):
            return argument
        if argument in self.env:
            return self.env[argument]
        return symbolic_sizes.static(argument.meta.get("val"))

    def _call(self, node: Node) -> None:
        if node.target is operator.getitem and not is_symbolic(node):
            self._take(node)
            return
        entry = find_translation(node, self.table) or self.table.fall_back(node.target)
        if entry is None:
            if is_symbolic(node) or is_effect(node):
                return
            raise TranslationError(f"{node.target} has no translation in opset {self.table.opset}.")
        meta = node.meta.get("val")
        self.op.enter(
            self.prefix + _scope(node),
            metadata.of_fx_node(node),
            tuple(meta) if isinstance(meta, (list, tuple)) else (meta,),
        )
        args, kwargs = map_aggregate(node.args, self._value), map_aggregate(dict(node.kwargs), self._value)
        is_stated = entry.is_custom or getattr(node.target, "namespace", "") == "onnx_symbolic"
        last = self.op.graph[-1] if is_stated and len(self.op.graph) else None
        try:
            with refuse_guards(fake_mode(node.graph), node, "translated") if entry.is_custom else nullcontext():
                result = entry.function(self.op, *args, **kwargs)
            if is_stated:
                self._check_stated(node, result, last)
            self._bind(node, result)
        except OnnxExporterError:
            raise
        except tuple(_REMEDIES) as error:
            remedy, id = _REMEDIES[type(error)]
            raise TranslationError(f"{describe(node)} has no ONNX form: {error}; {remedy}.", id=id) from error
        except Exception as error:
            if node.meta.get("val") is None and getattr(getattr(node.target, "_schema", None), "returns", None):
                raise _failed_in_forward(node) from error
            by = f" by {function_place(entry.function)}" if entry.is_custom else ""
            raise TranslationError(f"The translation of {describe(node)}{by} failed: {first_line(error)}") from error

    def _check_stated(self, node: Node, result: Any, last: ir.Node | None) -> None:
        """Compares results that the user states with what ONNX infers from the nodes after ``last``.

        The user states them by a translation, or as the shapes and dtypes of ``torch.onnx.ops.symbolic``.
        """
        results = result if isinstance(result, (list, tuple)) else (result,)
        fakes = [fake for fake in self.op.out if fake is not None]
        values = [value for value in results if isinstance(value, Value)]
        new = nodes_after(self.op.graph, last)
        inferred = inferred_types(new, values, self.op.functions, self.op.root_graph.opset_imports)
        for value, fake in zip(results, fakes, strict=False):
            if value in inferred and isinstance(fake, torch.Tensor):
                self._compare(node, *inferred[value], fake, _dtype_of_result(value, fake))

    def _compare(
        self, node: Node, dtype: DataType | None, sizes: Sequence[Any] | None, fake: torch.Tensor, expected: DataType
    ) -> None:
        """Compares what is known of a result with the operator's own result: dtype, rank and static sizes.

        Raises:
            TranslationError: they differ.
        """
        if (dtype is None or dtype == expected) and (
            sizes is None or symbolic_sizes.same_where_static(sizes, fake.shape)
        ):
            return
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            node = node.args[0]
        entry = find_translation(node, self.table)
        name = "fx_onnx" if entry is None else function_place(entry.function)
        actual = _type_text(dtype or expected, fake.shape if sizes is None else sizes)
        raise TranslationError(
            f"The translation of {describe(node)} by {name} returns {actual} where the operator returns "
            f"{_type_text(expected, fake.shape)}."
        )

    def _take(self, node: Node) -> None:
        """Takes one of several results; a translation may leave out the last ones if ONNX cannot express them."""
        (source, index), results = node.args, self._value(node.args[0])
        if isinstance(source, Node) and isinstance(index, int) and index >= len(results):
            if node.users:
                raise TranslationError(
                    f"The forward uses the result {index} of {describe(source)}, which has no ONNX form; compute it "
                    "with other operators."
                )
            return
        self.env[node] = results[index]
        self._stamp(node, (results[index],))

    def _bind(self, node: Node, result: Any) -> None:
        if isinstance(result, Value):
            meta = node.meta.get("val")
            if isinstance(meta, (list, tuple)):  # the operator returns a list, which has one element here
                result = (result,)
        if not is_symbolic(node):  # a number stays symbolic; `_stamp` defines its value
            self.env[node] = result
        self._stamp(node, result if isinstance(result, (list, tuple)) else (result,))

    def _stamp(self, node: Node, results: Sequence[Any]) -> None:
        """Sets the dtype, the sizes and the name of the results of an FX node."""
        meta = node.meta.get("val")
        metas = meta if isinstance(meta, (list, tuple)) else (meta,)
        for index, (value, fake) in enumerate(zip(results, metas, strict=False)):
            if not isinstance(value, Value):
                continue
            if index in node.meta.get(metadata.OPEN_SHAPES, ()):
                value.type = ir.TensorType(_dtype_of_result(value, fake))
            elif isinstance(fake, torch.Tensor):
                self._stamp_tensor(node, value, fake)
            elif isinstance(fake, symbolic_sizes.SymbolicNumber):
                self._stamp_number(value, fake)
                self.op.symbols.define(fake, lambda op, value=value: op.Reshape(value, [1]))  # type: ignore[misc]
            if value.producer() is not None and _scope(node) == node.name and not value.meta.get("named"):
                value.meta["named"] = isinstance(fake, torch.Tensor) and len(results) == 1
                name = self.prefix + node.name
                value.name = self.op.names.unique(name if len(results) == 1 else f"{name}.{index}")

    @staticmethod
    def _stamp_number(value: Value, fake: Any) -> None:
        """Sets the type of a number that a loop or a branch returns, because the schema does not decide it."""
        if value.type is None:
            value.type, value.shape = ir.TensorType(symbolic_sizes.number_dtype(fake)), ir.Shape([])

    def _stamp_tensor(self, node: Node, value: Value, fake: torch.Tensor) -> None:
        dtype, producer = _dtype_of_result(value, fake), value.producer()
        if producer is None or not producer.domain:  # an operator of another domain may have any dtype
            self.known(dtype, node.name)
        self._compare(node, value.dtype, known_sizes(value), fake, dtype)
        value.type = ir.TensorType(dtype)
        sizes = known_sizes(self.op.with_sizes(value, fake.shape)) or ()
        if value.shape is None:
            value.shape = ir.Shape(map(self.op.symbols.dim, sizes))
        self.op.symbols.define_sizes(value, sizes)

    def _attribute(self, node: Node) -> Any:
        """Returns the operand for a ``get_attr`` node: a constant, or the name of a higher-order operator's body."""
        target = str(node.target)
        if target in self.program.constants:
            value = self.initializer(target, self.program.constants[target])
            if metadata.FOLDED in node.meta:
                value.meta[metadata.FOLDED] = True
            return value
        return target  # the name of a body

    def known(self, dtype: DataType, name: str) -> DataType:
        """Returns the dtype after checking that the opset has it.

        Raises:
            TranslationError: the opset is too old.
        """
        since = dtypes.since_opset(dtype)
        if since > self.table.opset:
            raise TranslationError(
                f"{name} is {dtype.name.lower()}, which ONNX has from opset {since} on: "
                f"export with opset_version={since} or above, not {self.table.opset}.",
                id=MessageId.OPSET_LACKS_DTYPE,
            )
        return dtype

    def initializer(self, name: str, tensor: torch.Tensor) -> Value:
        """Registers a weight of the root graph; its data is a view of the tensor's storage."""
        name = self.op.names.unique(name)
        data = weight(real_view(tensor), name)
        sizes = data.shape.numpy()
        value = Value(name=name, shape=ir.Shape(sizes), type=ir.TensorType(data.dtype), const_value=data)
        self.op.with_sizes(value, sizes)
        self.op.root_graph.register_initializer(value)
        return value


def _remove_unused_imports(graph: ir.Graph, functions: Iterable[ir.Function]) -> None:
    """Removes the opset imports of domains that no node uses."""
    used = {node.domain for node in ir.traversal.RecursiveGraphIterator(graph)}
    used |= {domain for function in functions for domain in function.opset_imports}
    for domain in set(graph.opset_imports) - used - {""}:
        del graph.opset_imports[domain]


def _dtypes(graph: ir.Graph) -> set[DataType]:
    """Returns the dtypes of the values that nodes compute; BOOL is always there."""
    return {DataType.BOOL, *(value.dtype for node in graph for value in node.outputs if value.dtype is not None)}


def _failed_in_forward(node: Node) -> TranslationError:
    """Returns the error for a call that has no result, because it failed in the forward, which caught the exception."""
    return TranslationError(
        f"The call {describe(node)} fails for the example arguments, and the model catches the exception, which an "
        "ONNX model cannot do; call the operator only where it succeeds."
    )


def _scope(node: Node) -> str:
    """Returns the name of the captured node that this node is, or that it was decomposed from."""
    return str(node.meta.get(metadata.SOURCE_NAME, node.name))


def _bind_inputs(
    walker: Walker, placeholders: Sequence[Node], exported: torch.export.ExportedProgram, keeps_unread: bool
) -> None:
    """Turns the weights into initializers, under their state_dict names, and the user's inputs into graph inputs."""
    known: dict[Any, Value] = {}
    weights = {**exported.constants, **exported.state_dict}
    for placeholder, spec in zip(placeholders, exported.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            constant = isinstance(spec.arg, ConstantArgument)
            walker.env[placeholder] = spec.arg.value if constant else _user_input(walker, placeholder, spec)
            continue
        # A weight of a class with inner tensors is none of the program's: its inner tensors are.
        is_plain = isinstance(spec.arg, TensorArgument) and not hasattr(weights.get(spec.target), "__tensor_flatten__")
        if not placeholder.users and not (keeps_unread and is_plain):
            continue
        if not isinstance(spec.arg, TensorArgument) or spec.target is None:
            raise TranslationError(
                f"The forward reads {spec.target or placeholder.name}, which is a {spec.kind.name} and not a tensor; "
                "an ONNX model holds tensors only, so keep its values in tensors."
            )
        tensor = weights[spec.target]
        key = memory_key(tensor)
        if key not in known:  # tied weights share one initializer, under the first of their names
            value = known[key] = walker.initializer(spec.target, tensor)
            if spec.target in exported.state_dict and value.const_value is not None:
                value.const_value.meta[metadata.OF_STATE_DICT] = True
            value.metadata_props[metadata.INPUT_KIND] = spec.kind.name
            value.metadata_props[metadata.INPUT_PERSISTENT] = str(spec.persistent)
            value.metadata_props[metadata.ORIGINAL_NODE_NAME] = placeholder.name
        walker.env[placeholder] = known[key]


def _user_input(walker: Walker, placeholder: Node, spec: InputSpec) -> Any:
    fake = placeholder.meta["val"]
    op = walker.op
    value = Value(name=op.names.unique(placeholder.name))
    value.metadata_props[metadata.INPUT_KIND] = spec.kind.name
    value.metadata_props[metadata.INPUT_PERSISTENT] = str(spec.persistent)
    op.graph.inputs.append(value)
    if isinstance(fake, torch.Tensor):
        walker._stamp_tensor(placeholder, value, fake)
        return value
    dtype = DataType.FLOAT if isinstance(fake, torch.SymFloat) else DataType.INT64
    value.type, value.shape = ir.TensorType(dtype), ir.Shape([])
    op.with_sizes(value, ())
    op.symbols.define(fake, lambda op: op.Reshape(value, [1]))
    return fake


def _bind_outputs(walker: Walker, results: Any, specs: Sequence[OutputSpec]) -> None:
    """Adds the graph outputs; an input, a weight or a repeated output passes through an Identity node.

    The new value of a cache that the model writes and returns, such as a StaticCache, is one output.
    """
    op, seen, returned = walker.op, set(), set()
    in_caches = inputs_in_caches(walker.program.exported_program)
    pairs = zip(results, specs, strict=True)
    # The new values of mutated inputs and buffers come last.
    for result, spec in sorted(pairs, key=lambda pair: pair[1].kind != OutputKind.USER_OUTPUT):
        if isinstance(result, str):
            warn(f"The model returns the text {result!r}, which the ONNX model leaves out.", MessageId.OUTPUT_CLASS)
        if not is_graph_output(spec) or (spec.target in in_caches and result in returned):
            continue
        name = getattr(spec.arg, "name", None) or "output"
        if not isinstance(result, Value):
            op.enter(name, {}, ())
            value = op.symbols.value(op, result, rank=0) if _is_symbol(result) else op.constant(result)
            result = op.Cast(value, to=DataType.FLOAT) if value.dtype is DataType.DOUBLE else op.Identity(value)
            result.shape = ir.Shape([])
            result.name = op.names.unique(name)
        elif result.producer() is None or result in seen:
            op.enter(name, {metadata.FX_NODE: name}, ())
            source, result = result, op.Identity(result)
            result.shape = source.shape
            result.name = op.names.unique(name)
        seen.add(result)
        if spec.target is None:
            returned.add(result)
        result.metadata_props[metadata.OUTPUT_KIND] = spec.kind.name
        if spec.target is not None:  # a mutated buffer or input gives the output its name
            result.metadata_props[metadata.OUTPUT_TARGET] = spec.target
            result.metadata_props[metadata.ORIGINAL_NODE_NAME] = name
            result.name = op.names.unique(f"{spec.target}_out")
            if spec.kind == OutputKind.BUFFER_MUTATION:
                op.graph.inputs.append(_state(walker, spec.target))
        op.graph.outputs.append(result)
    if not op.graph.outputs:
        raise TranslationError(
            "The model returns nothing and changes no state, so the ONNX model has no output; return a tensor."
        )


def _state(walker: Walker, target: str) -> Value:
    """Returns the initial value of a mutated buffer: an initializer that a caller can override as an input."""
    known = walker.op.root_graph.initializers.get(target)
    if known is not None:
        return known
    exported = walker.program.exported_program
    return walker.initializer(target, {**exported.constants, **exported.state_dict}[target])


def _dtype_of_result(value: Value, fake: torch.Tensor) -> DataType:
    """Returns the dtype that a result has in the model: the declared one, which torch may not have, or the fake's."""
    declared: DataType | None = value.meta.get(metadata.DECLARED_DTYPE)
    return declared or dtypes.onnx_dtype(fake.dtype)


def _type_text(dtype: DataType, sizes: Sequence[Any]) -> str:
    """Returns a dtype and a shape as text, for example ``float[2, ?]``."""
    return f"{dtype.name.lower()}{shape_text(sizes)}"


def _is_symbol(result: Any) -> bool:
    return isinstance(result, symbolic_sizes.SymbolicNumber)
