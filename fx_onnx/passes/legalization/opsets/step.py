"""One step down: rewrites a model from opset n + 1 to opset n, or refuses it in one sentence.

Each operator whose version differs between the two opsets is rewritten, or stays as it is where the older schema admits
the node, or is refused. After the rewrites, Casts are inserted around the nodes whose element types the older schema
does not admit. Then each node whose version differs is checked against the older schema: its attributes, its number of
inputs, its types. After the last step, all nodes are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.kernel_tables import since_version
from fx_onnx.core.messages import MessageId
from fx_onnx.core.schemas import operator_schema
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.cast_insertion import InsertCasts
from fx_onnx.passes.matchers import attribute, constant_integers, producer_of
from fx_onnx.passes.traversal import all_nodes, graphs_of

__all__ = [
    "OpsetStep",
    "Rule",
    "UnsupportedNodeError",
    "axes_to_attribute",
    "keeps_meaning",
    "known_rank",
    "size_of",
    "static_integers",
]

Rule = Callable[[NodeBuilder], None]
"""Rewrites ``f.node``. The builder emits nodes of the older opset. A rule may leave a node as it is."""


class UnsupportedNodeError(Exception):
    """The older opset cannot express a node; the message is a clause such as "its axes are computed at run time"."""


@dataclass(frozen=True)
class OpsetStep:
    """The step from opset ``opset + 1`` to ``opset``.

    Attributes:
        opset: the opset of the result.
        rewrites: the rule for each operator whose nodes may need another form. A node of another operator stays as it
            is if the operator keeps its meaning (see ``keeps_meaning``) and the older schema admits the node.
    """

    opset: int
    rewrites: Mapping[str, Rule]

    @property
    def name(self) -> str:
        """The name in docs/passes.md."""
        return f"opset_{self.opset + 1}_to_{self.opset}"

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
        rule = self.rewrites.get(node.op_type)
        try:
            if rule is not None:
                rule(NodeBuilder(node, editor, node.outputs[0].dtype))
            elif operator_schema(node.op_type, self.opset) is not None and not keeps_meaning(node.op_type, self.opset):
                raise UnsupportedNodeError("the operator has another meaning there")
        except UnsupportedNodeError as error:
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
    older, newer = (onnx.defs.get_schema(op_type, each) for each in (opset, opset + 1))
    if (op_type, opset) in _OTHER_MEANING or _parameters(older) != _parameters(newer):
        return False
    return all(
        (other := newer.attributes.get(name)) is not None
        and (other.type, other.default_value.SerializeToString()) == (attr.type, attr.default_value.SerializeToString())
        and attr.required >= other.required
        for name, attr in older.attributes.items()
    )


def _parameters(schema: onnx.defs.OpSchema) -> list[tuple[str, object, bool]]:
    return [(each.name, each.option, each.is_homogeneous) for each in (*schema.inputs, *schema.outputs)]


def _origin(node: ir.Node) -> str:
    """Returns " of aten.operator at file:line", what the node comes from; without the parts that are unknown."""
    operator, line = metadata.operator_of(node.metadata_props), metadata.source_line(node.metadata_props)
    return (f" of {operator}" if operator else "") + (f" at {line}" if line else "")


@functools.lru_cache(maxsize=2048)
def _default(op_type: str, opset: int, name: str) -> ir.Attr | None:
    """Returns the default of an attribute, or None if it has none or is unknown."""
    try:
        attributes = onnx.defs.get_schema(op_type, opset).attributes
    except onnx.defs.SchemaError:
        return None
    if name not in attributes or not attributes[name].default_value.name:
        return None
    return ir.serde.deserialize_attribute(attributes[name].default_value)


def _drop_default_attributes(node: ir.Node, opset: int) -> None:
    """Removes the attributes that the older version does not have, where they have their default."""
    schema = operator_schema(node.op_type, opset)
    for name in [] if schema is None else [name for name in node.attributes if name not in schema.attributes]:
        default = _default(node.op_type, opset + 1, name)
        if default is not None and not node.attributes[name].is_ref() and default.value == node.attributes[name].value:
            del node.attributes[name]


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
        for place, value in enumerate(values):
            kind = None if value is None else value.type
            allowed = schema.types.get(formal[min(place, len(formal) - 1)].type)
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


# ---------------------------------------------------------------- used by several steps


def static_integers(f: NodeBuilder, index: int, what: str) -> list[int] | None:
    """Returns the integers of an input of the node that must be constant; None if the node does not have the input.

    Raises:
        UnsupportedNodeError: they are computed at run time; ``what`` is for example "axes are".
    """
    value = f.node.inputs[index] if index < len(f.node.inputs) else None
    if value is None:
        return None
    made = producer_of(value, "Constant")
    numbers = attribute(made, "value_ints") if made is not None else None
    numbers = constant_integers(value) if numbers is None else list(numbers)
    if numbers is None:
        raise UnsupportedNodeError(f"its {what} computed at run time")
    return numbers


def known_rank(f: NodeBuilder) -> int:
    """Returns the rank of the first input of a node whose result has the same rank.

    Raises:
        UnsupportedNodeError: the rank is known neither for the input nor for the result.
    """
    for value in (f.node.inputs[0], f.node.outputs[0]):
        if value is not None and value.shape is not None:
            return len(value.shape)
    raise UnsupportedNodeError("the rank of its input is not known")


def size_of(f: NodeBuilder, value: ir.Value, axis: int) -> ir.Value:
    """Returns the size of one axis as a 1-D value of one element: a constant where it is known."""
    dim = None if value.shape is None else value.shape[axis]
    if isinstance(dim, int):
        return f.constant([dim])
    place = axis if axis >= 0 or value.shape is None else axis + len(value.shape)
    result: ir.Value = f.Gather(f.Shape(value), [place], axis=0, sizes=(1,))
    return result


def axes_to_attribute(f: NodeBuilder) -> None:
    """op(x, axes) → op<axes>(x).

    Legal because both mean the same for constant axes. Without axes all are reduced, except that
    ``noop_with_empty_axes`` makes the node an Identity.
    """
    node = f.node
    axes = static_integers(f, 1, "axes are")
    if not axes and f.attribute("noop_with_empty_axes", 0):
        if node.op_type in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"):
            raise UnsupportedNodeError("it has noop_with_empty_axes and no axes")
        f.editor.replace(node, "Identity", node.inputs[:1], {})
        return
    kept = {name: attr for name, attr in node.attributes.items() if name != "noop_with_empty_axes"}
    f.editor.replace(node, node.op_type, node.inputs[:1], {**kept, "axes": axes or None})
