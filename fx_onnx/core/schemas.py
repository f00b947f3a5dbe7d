"""ONNX operator schemas in the form the emitter asks them in: plain tuples, looked up once per operator and opset."""

import functools
from typing import NamedTuple, cast

import onnx
from onnx_ir import AttributeType, DataType

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


class Parameter(NamedTuple):
    """One formal input or output: ``type`` is a type variable ("T") or a concrete type ("tensor(int64)").

    A variable that admits one type only (the "T1" of Shape's output) is given as that type.
    """

    name: str
    type: str
    required: bool
    variadic: bool
    homogeneous: bool


class OperatorSchema(NamedTuple):
    """What an ONNX operator takes and gives, and which element types each of its type variables admits.

    ``required_outputs`` is how many outputs a node has that asks for no optional one.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: dict[str, AttributeType]
    required_attributes: frozenset[str]
    types: dict[str, frozenset[DataType]]
    required_outputs: int


@functools.cache
def tensor_type(text: str) -> DataType | None:
    """The element type of a concrete ONNX type string such as "tensor(int64)"; None of sequences and variables."""
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
def operator_schema(name: str, opset: int, domain: str = "") -> OperatorSchema | None:
    """The schema of an operator in an opset (Source: onnx.defs); None where that opset has no such operator."""
    try:
        schema = onnx.defs.get_schema(name, opset, domain)
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


# To these an opset gave another meaning; all other changes since opset 18 only add types, attributes or inputs.
_CHANGED_MEANING = {"DFT": 20, "GridSample": 20, "GroupNormalization": 21}


def check_meaning(op_type: str, written_in: int, opset: int) -> None:
    """Refuses an operator that was written down for one opset and means something else in another.

    Raises:
        TypeError: the operator does not exist in the opset, or means something else there.
    """
    if operator_schema(op_type, opset) is None:
        raise TypeError(f"ONNX opset {opset} has no operator {op_type}, which was written for opset {written_in}")
    changed = _CHANGED_MEANING.get(op_type, 0)
    if min(written_in, opset) < changed <= max(written_in, opset):
        raise TypeError(f"ONNX {op_type} of opset {written_in} means something else in opset {opset}")
