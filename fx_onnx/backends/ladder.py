"""The ladder of opsets: a step from each opset to the one below it, and the stage that runs the steps.

Each operator whose version differs between the two opsets is rewritten by the rows of the table, or stays as it is
where the older schema admits the node, or is refused. Constant inputs that are attributes in the older schema become
these.
After the rewrites, Casts are inserted around the nodes whose element types the older schema does not admit. Then each
node whose version differs is checked against the older schema: its attributes, its number of inputs, its types. After
the last step, all nodes are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedOpsetsPass, ShapeInferencePass

from fx_onnx.backends.legalization.rows import ROWS
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.opsets import (
    MINIMUM_NATIVE_OPSET,
    OLDEST_OPSET,
    OLDEST_OPSET_WITH_FUNCTIONS,
    OLDEST_OPSET_WITHOUT_INITIALIZER_INPUTS,
    ir_version,
)
from fx_onnx.onnx_model.schemas import OperatorSchema, default_attribute, has_meaning, moved_inputs, operator_schema
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.cast_insertion import InsertCasts
from fx_onnx.passes.legalization.kernel_tables import since_version
from fx_onnx.passes.legalization.table import Legalization, by_operator
from fx_onnx.passes.matchers import constant_array, dims
from fx_onnx.passes.rules import DeclinedError
from fx_onnx.passes.shape_inference import fill_shapes
from fx_onnx.passes.traversal import all_nodes, all_values, graphs_of, without_new_unread

__all__ = ["LADDER", "OpsetStep", "convert_opset", "differs", "keeps_meaning"]


@dataclass(frozen=True)
class OpsetStep:
    """The step from opset ``opset + 1`` to ``opset``.

    Attributes:
        opset: the opset of the result.
    """

    opset: int

    @functools.cached_property
    def rows(self) -> Mapping[str, Sequence[Legalization]]:
        """The rows of the table for each operator whose nodes may need another form.

        A node of another operator stays as it is if the operator keeps its meaning (see ``keeps_meaning``) and the
        older schema admits the node.
        """
        return by_operator(row for row in ROWS if row.is_of_opset and row.until == self.opset)

    def __call__(self, model: ir.Model) -> None:
        """Rewrites the model in place.

        Raises:
            OnnxExporterError: opset ``opset`` cannot express some node.
        """
        model.graph.opset_imports[""] = self.opset
        for function in (None, *model.functions.values()):
            if function is not None and "" in function.opset_imports:
                function.opset_imports[""] = self.opset
            editor = Editor(model, function)
            for node in list(all_nodes(model.graph if function is None else function)):
                if not node.domain and node.graph is not None:
                    self._rewrite(node, editor)
        InsertCasts()(model)
        self.check(model, lambda node: differs(node.op_type, self.opset))

    def check(self, model: ir.Model, is_concerned: Callable[[ir.Node], bool] = lambda node: True) -> None:
        """Checks that the opset admits the nodes.

        Raises:
            OnnxExporterError: it does not admit one.
        """
        for graph in graphs_of(model):
            for node in all_nodes(graph):
                if not node.domain and is_concerned(node) and (reason := _violation(node, self.opset)):
                    raise self._refusal(node, reason)

    def _rewrite(self, node: ir.Node, editor: Editor) -> None:
        if not differs(node.op_type, self.opset):
            return
        _drop_default_attributes(node, self.opset)
        rows, moved = self.rows.get(node.op_type, ()), moved_inputs(node.op_type, self.opset, self.opset + 1)
        try:
            if any(row.rewrite(node, editor) for row in rows):
                return
            schema = operator_schema(node.op_type, self.opset)
            if moved and schema is not None:
                _inputs_to_attributes(node, moved, schema)
            elif not rows and schema is not None and not keeps_meaning(node.op_type, self.opset):
                raise DeclinedError("the operator has another meaning there")
        except DeclinedError as error:
            raise self._refusal(node, str(error)) from error

    def _refusal(self, node: ir.Node, reason: str) -> OnnxExporterError:
        return OnnxExporterError(
            f"ONNX opset {self.opset} cannot express {node.op_type}{_origin(node)}, because {reason}; "
            f"export with opset_version={self.opset + 1} or above.",
            id=MessageId.OPSET_LACKS_OPERATOR,
        )


@functools.cache
def differs(op_type: str, opset: int) -> bool:
    """Returns whether the operator has different versions in ``opset`` and the opset after it."""
    return since_version(op_type, opset) != since_version(op_type, opset + 1)


_OTHER_MEANING = {
    ("OptionalGetElement", 17): "opset 18 takes a tensor that is no optional too, which no element type tells",
}
"""The operators, and the older opset, whose versions mean different things although their schemas agree, and why."""


@functools.cache
def keeps_meaning(op_type: str, opset: int) -> bool:
    """Returns whether a node of the opset after ``opset`` means the same in ``opset``, if the schema there admits it.

    The schemas tell: the versions have the same inputs, outputs, attributes and defaults. The newer one may admit more
    element types, have an attribute more, and not require one that the older one requires. A test compares what both
    versions compute.
    """
    older, newer = (onnx.defs.get_schema(op_type, version) for version in (opset, opset + 1))
    if (op_type, opset) in _OTHER_MEANING or _parameters(older) != _parameters(newer):
        return False
    return all(
        (other := newer.attributes.get(name)) is not None
        and (other.type, other.default_value.SerializeToString()) == (attr.type, attr.default_value.SerializeToString())
        and attr.required >= other.required
        for name, attr in older.attributes.items()
    )


def _parameters(schema: onnx.defs.OpSchema) -> list[tuple[str, object, bool]]:
    return [
        (parameter.name, parameter.option, parameter.is_homogeneous) for parameter in (*schema.inputs, *schema.outputs)
    ]


def _origin(node: ir.Node) -> str:
    """Returns " of aten.operator at file:line", what the node comes from; without the parts that are unknown."""
    operator, line = metadata.operator_of(node.metadata_props), metadata.source_line(node.metadata_props)
    return (f" of {operator}" if operator else "") + (f" at {line}" if line else "")


def _drop_default_attributes(node: ir.Node, opset: int) -> None:
    """Removes the attributes that the older version does not have, where they have their default."""
    schema = operator_schema(node.op_type, opset)
    for name in [] if schema is None else [name for name in node.attributes if name not in schema.attributes]:
        default = default_attribute(node.op_type, name, opset + 1)
        if default is not None and not node.attributes[name].is_ref() and default.value == node.attributes[name].value:
            del node.attributes[name]


def _inputs_to_attributes(node: ir.Node, moved: Sequence[tuple[int, str]], schema: OperatorSchema) -> None:
    """Makes attributes of constant inputs: op(x, axes) → op<axes>(x).

    Raises:
        DeclinedError: an input is computed at run time.
    """
    for index, name in moved:
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            continue
        if (array := constant_array(value)) is None:
            raise DeclinedError(f"its {name} {'are' if name.endswith('s') else 'is'} computed at run time")
        values, kind = array.reshape(-1).tolist(), schema.attributes[name]
        node.attributes[name] = ir.Attr(name, kind, values if kind.name.endswith("S") else values[0])
    node.resize_inputs(moved[0][0])


def _violation(node: ir.Node, opset: int) -> str | None:
    """Returns why the schema of an opset does not admit a node; None if it does."""
    schema = operator_schema(node.op_type, opset)
    if schema is None:
        return "that opset has no such operator"
    if unknown := sorted(set(node.attributes) - set(schema.attributes)):
        return f"its attribute {unknown[0]} does not exist there"
    if missing := sorted(schema.required_attributes - set(node.attributes)):
        return f"it needs the attribute {missing[0]} there"
    for values, formal in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        if len(values) > len(formal) and not (formal and formal[-1].variadic):
            return f"it has {len(values)} {'inputs' if formal is schema.inputs else 'outputs'}"
        for index, value in enumerate(values):
            kind = None if value is None else value.type
            allowed = schema.types.get(formal[min(index, len(formal) - 1)].type)
            if allowed is None or kind is None:
                continue
            if isinstance(kind, ir.TensorType) and kind.dtype not in allowed:
                return f"it does not admit the element type {kind.dtype.name}"
            if not isinstance(kind, ir.TensorType) and not _admits_sequences(node.op_type, opset):
                return "it admits tensors only"
    return None


@functools.cache
def _admits_sequences(op_type: str, opset: int) -> bool:
    constraints = onnx.defs.get_schema(op_type, opset).type_constraints
    return any("seq(" in text for constraint in constraints for text in constraint.allowed_type_strs)


LADDER = tuple(OpsetStep(opset) for opset in range(MINIMUM_NATIVE_OPSET - 1, OLDEST_OPSET - 1, -1))
"""All steps, each from the opset above to its own."""


def convert_opset(model: ir.Model, version: int) -> ir.Model:
    """Converts the model in place to an older opset, one step after the other.

    A function stays if its body is the same in the older opset. Others are inlined, because the values in their bodies
    have no shapes, which many rewrites need. If the model is in this opset already, or in an older one, it stays as it
    is. Below opset 9, the initializers become inputs too.

    Raises:
        OnnxExporterError: an opset on the way cannot express some node. The message names the operator, its source line
            and the oldest opset that works.
    """
    steps = [step for step in LADDER if version <= step.opset < model.graph.opset_imports[""]]
    if not steps:
        return model
    if model.functions:
        InlinePass(lambda function: not _is_of_opset(function, version))(model)
        RemoveUnusedOpsetsPass()(model)
        for function in model.functions.values():
            function.opset_imports[""] = version
    without_shape = set[ir.Value]()
    with without_new_unread(model.graph):  # such as axes that are attributes now
        for index, step in enumerate(steps):
            # Rewrites need ranks and sizes. Below opset 11, they also need those of the nodes that earlier steps
            # inserted.
            if not index or step.opset < 11:
                model = _with_shapes(model, without_shape)
            step(model)
    steps[-1].check(model)
    model.ir_version = ir_version(version)
    if version < OLDEST_OPSET_WITHOUT_INITIALIZER_INPUTS:
        _initializers_as_inputs(model)
    return model


def _is_of_opset(function: ir.Function, version: int) -> bool:
    """Returns whether the body of a function is valid, and means the same, in an opset below its own."""
    nodes = [node for node in ir.traversal.RecursiveGraphIterator(function.graph) if not node.domain]
    return version >= OLDEST_OPSET_WITH_FUNCTIONS and all(
        has_meaning(node, function.opset_imports[""], version) for node in nodes
    )


def _with_shapes(model: ir.Model, without: set[ir.Value]) -> ir.Model:
    """Infers the shapes of the values that have none, each from its node and, if that is not enough, all together.

    Values for which that did not find all sizes are added to ``without``, and are no reason to infer all again.

    Only the inference of the whole model follows the elements of computed shapes. The names that it gives to sizes are
    unique within one inference only: two inferences could give one name to two different sizes, so these stay unknown.
    """
    for node in all_nodes(model.graph):
        if any(_is_unknown(value) and value not in without for value in node.outputs):
            fill_shapes(node, model.graph.opset_imports[""])
    if without.issuperset(value for value in all_values(model.graph) if _is_unknown(value)):
        return model
    model = ShapeInferencePass(strict_mode=False)(model).model
    for value in all_values(model.graph):
        sizes = list(value.shape or ())
        known = [size if isinstance(size, int) or not str(size.value).startswith("unk__") else None for size in sizes]
        if known != sizes:
            value.shape = ir.Shape(known)
    without.update(value for value in all_values(model.graph) if _is_unknown(value))
    return model


def _is_unknown(value: ir.Value) -> bool:
    return dims(value) is None


def _initializers_as_inputs(model: ir.Model) -> None:
    """Makes all initializers inputs of the main graph, as IR version 3 requires. They keep their values."""
    for graph in model.graphs():
        for name, value in list(graph.initializers.items()):
            if graph is not model.graph:  # a subgraph has no inputs for them
                del graph.initializers[name]
                model.graph.register_initializer(value)
            if not value.is_graph_input():
                model.graph.inputs.append(value)
