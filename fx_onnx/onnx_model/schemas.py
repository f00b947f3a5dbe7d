"""ONNX operator schemas as plain tuples, which are read once for each operator and opset."""

import functools
from typing import NamedTuple, cast

import onnx
from onnx_ir import Attr, AttributeType, DataType, Node, serde

from fx_onnx.messages.arguments import did_you_mean
from fx_onnx.onnx_model.opsets import MINIMUM_NATIVE_OPSET

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


class Parameter(NamedTuple):
    """A formal input or output of an operator.

    Attributes:
        name: its name in the schema, such as "X".
        type: a type variable ("T") or a concrete type ("tensor(int64)"). A variable that admits only one type, such as
            "T1" of Shape's output, appears as that type.
        required: whether a node must have it; a variadic parameter is not required.
        variadic: whether it takes any number of values, as the inputs of Concat do.
        homogeneous: whether all values of a variadic parameter have the same type.
    """

    name: str
    type: str
    required: bool
    variadic: bool
    homogeneous: bool


class OperatorSchema(NamedTuple):
    """The inputs, outputs and attributes of an ONNX operator.

    Attributes:
        name: the operator's name.
        inputs: the formal inputs in order.
        outputs: the formal outputs in order.
        attributes: the type of each attribute by name.
        required_attributes: the attributes that a node must have.
        types: the tensor element types that each type variable admits.
        required_outputs: the number of outputs that are not optional.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: dict[str, AttributeType]
    required_attributes: frozenset[str]
    types: dict[str, frozenset[DataType]]
    required_outputs: int

    def input(self, index: int) -> Parameter:
        """Returns the formal input at a position; a variadic last input also covers all later positions.

        Raises:
            TypeError: the operator has fewer inputs.
        """
        if index < len(self.inputs):
            return self.inputs[index]
        if self.inputs and self.inputs[-1].variadic:
            return self.inputs[-1]
        raise TypeError(f"ONNX {self.name} takes {len(self.inputs)} inputs at most")

    def check_node(self, node: Node) -> None:
        """Checks the numbers of inputs and outputs of a node.

        Raises:
            TypeError: a required input is absent, or there are more inputs or outputs than the operator has.
        """
        for index, parameter in enumerate(self.inputs):
            if parameter.required and (index >= len(node.inputs) or node.inputs[index] is None):
                raise TypeError(f"ONNX {self.name} needs the input {parameter.name!r}")
        if node.inputs:
            self.input(len(node.inputs) - 1)
        if len(node.outputs) > len(self.outputs) and not self.outputs[-1].variadic:
            raise TypeError(f"ONNX {self.name} has {len(self.outputs)} outputs at most, not {len(node.outputs)}")


@functools.cache
def tensor_type(text: str) -> DataType | None:
    """Returns the element type of a type string such as "tensor(int64)"; None for a type variable or a sequence."""
    if not text.startswith("tensor("):
        return None
    name = text[len("tensor(") : -1].upper()
    return DataType[name] if name in DataType.__members__ else None


def _parameter(formal: onnx.defs.OpSchema.FormalParameter) -> Parameter:
    variadic = formal.option == _VARIADIC
    types = list(formal.types)
    kind = types[0] if len(types) == 1 else formal.type_str
    return Parameter(formal.name, kind, formal.option == _SINGLE, variadic, formal.is_homogeneous)


@functools.cache
def operator_schema(name: str, opset: int) -> OperatorSchema | None:
    """Returns the schema of an operator in an opset; None if that opset has no such operator (Source: onnx.defs)."""
    try:
        schema = onnx.defs.get_schema(name, opset)
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    constraints = {
        c.type_param_str: frozenset(t for t in map(tensor_type, c.allowed_type_strs) if t is not None)
        for c in schema.type_constraints
    }
    outputs = tuple(map(_parameter, schema.outputs))
    return OperatorSchema(
        name=name,
        inputs=tuple(map(_parameter, schema.inputs)),
        outputs=outputs,
        attributes={a.name: AttributeType(cast(int, a.type)) for a in schema.attributes.values()},
        required_attributes=frozenset(a.name for a in schema.attributes.values() if a.required),
        types=constraints,
        required_outputs=sum(parameter.required for parameter in outputs),
    )


@functools.cache
def attribute_names(name: str) -> frozenset[str]:
    """Returns the names of the attributes that an operator of ONNX's default domain has in any opset."""
    schemas = [operator_schema(name, opset) for opset in range(1, onnx.defs.onnx_opset_version() + 1)]
    return frozenset(attribute for schema in schemas if schema is not None for attribute in schema.attributes)


def operator_names() -> frozenset[str]:
    """Returns the names of the operators of ONNX's default domain."""
    return frozenset(schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain)


@functools.cache
def default_attribute(name: str, attribute: str, opset: int, domain: str = "") -> Attr | None:
    """Returns the default of an operator's attribute; None if it has none, or the opset has no such operator."""
    try:
        declared = onnx.defs.get_schema(name, opset, domain).attributes.get(attribute)
    except onnx.defs.SchemaError:
        return None
    if declared is None or not declared.default_value.name:
        return None
    return serde.deserialize_attribute(declared.default_value)


@functools.cache
def moved_inputs(name: str, opset: int, newer: int = MINIMUM_NATIVE_OPSET) -> tuple[tuple[int, str], ...]:
    """Returns the inputs of an operator of a newer opset that are attributes in ``opset``: position and attribute.

    They are the further inputs whose names are those of attributes there, such as the axes of Squeeze below opset 13.
    """
    older, later = (operator_schema(name, version) for version in (opset, newer))
    if older is None or later is None:
        return ()
    names = [(index, later.inputs[index].name.lower()) for index in range(len(older.inputs), len(later.inputs))]
    return tuple((index, attribute) for index, attribute in names if attribute in older.attributes)


def missing_operator(name: str, opset: int) -> str:
    """Returns the message that an opset has no operator of a name, and which name or opset may be meant."""
    schemas = [schema for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain]
    later = min((schema.since_version for schema in schemas if schema.name == name), default=0)
    known = {schema.name for schema in schemas if schema.since_version <= opset and not schema.deprecated}
    hint = f"; it begins with opset {later}" if later > opset else did_you_mean(name, known)
    return f"ONNX opset {opset} has no operator {name}{hint}"


# The opset in which the meaning of an operator changed. All other changes since opset 18 only add element types,
# attributes or inputs, or define what was undefined; ReduceLogSum and ReduceLogSumExp lose the integers at opset 28.
_CHANGED_MEANING = {"DFT": 20, "GridSample": 20, "GroupNormalization": 21}


def has_meaning(node: Node, opset: int, other: int) -> bool:
    """Returns whether a node of one opset is valid, and means the same, in another one."""
    try:
        check_meaning(node.op_type, opset, other)
    except TypeError:
        return False
    schema = operator_schema(node.op_type, other)
    if schema is None or not schema.attributes.keys() >= set(node.attributes):
        return False
    return len(node.inputs) <= len(schema.inputs) or schema.inputs[-1].variadic


def check_meaning(op_type: str, written_for: int, opset: int) -> None:
    """Checks that an operator written for one opset has the same meaning in another opset.

    Raises:
        TypeError: the operator does not exist in the other opset, or its meaning changed between the two.
    """
    if operator_schema(op_type, opset) is None:
        raise TypeError(f"ONNX opset {opset} has no operator {op_type}, which was written for opset {written_for}")
    changed = _CHANGED_MEANING.get(op_type, 0)
    if min(written_for, opset) < changed <= max(written_for, opset):
        raise TypeError(f"ONNX {op_type} of opset {written_for} means something else in opset {opset}")
