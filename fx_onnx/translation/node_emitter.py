"""Creation of ONNX nodes: the hooks of onnxscript's BuilderBase, and ``op.Add(a, b)`` for each operator."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value
from onnxscript import BuilderBase, BuilderFeature

from fx_onnx.messages.arguments import did_you_mean
from fx_onnx.onnx_model import dtypes
from fx_onnx.onnx_model.names import Names
from fx_onnx.onnx_model.schemas import OperatorSchema, missing_operator, operator_schema
from fx_onnx.onnx_model.type_inference import (
    bind_type_variables,
    check_equal_dtypes,
    infer_output_dtypes,
    parameter_dtype,
)
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.translation.operator_methods import OperatorMethods


class NodeEmitter(OperatorMethods, BuilderBase):
    """Creates nodes at the end of one graph, with names, metadata, output dtypes and constant inputs.

    Attributes:
        graph: the graph that receives the nodes.
        root_graph: the graph of the model, which holds all initializers and opset imports.
        opset: the version of the default ONNX domain.
        functions: the model-local functions.
        names: the names and the metadata of new nodes.
    """

    def __init__(self, graph: ir.Graph, opset: int, parent: NodeEmitter | None = None) -> None:
        super().__init__(
            features=BuilderFeature.SCHEMA_PARTITION
            | BuilderFeature.CAST_INPUTS
            | BuilderFeature.CAST_ATTRIBUTES
            | BuilderFeature.INFER_SHAPES
        )
        self.graph = graph
        self.opset = opset
        self.root_graph: ir.Graph = graph if parent is None else parent.root_graph
        self.functions: dict[ir.OperatorIdentifier, ir.Function] = {} if parent is None else parent.functions
        self.names: ScopedNames = ScopedNames(None if parent is None else parent.names)

    @abstractmethod
    def number(self, value: Any, dtype: DataType | None) -> Value:
        """Returns a number, symbolic or not, or a list or array of numbers as a value of ``dtype``."""

    # ---------------------------------------------------------------- one node

    if not TYPE_CHECKING:  # type checkers see the methods of OperatorMethods

        def __getattr__(self, op_type: str) -> Callable[..., Any]:
            """Returns the function that emits a node of ``op_type``, as in ``op.Add(a, b)``.

            Raises:
                AttributeError: the name does not begin with a capital letter, as the names of operators do.
            """
            if not op_type[0].isupper():
                is_operator = operator_schema(op_type.capitalize(), self.opset) is not None
                hint = f"; the operator of ONNX is {op_type.capitalize()!r}" if is_operator else ""
                raise AttributeError(f"the emitter has no helper {op_type!r}{hint}")
            return functools.partial(self.emit, op_type)

    @overload
    def emit(
        self,
        op_type: str,
        *inputs: Any,
        domain: str = "",
        version: int | None = None,
        outputs: Literal[1],
        **attributes: Any,
    ) -> Value: ...

    @overload
    def emit(
        self,
        op_type: str,
        *inputs: Any,
        domain: str = "",
        version: int | None = None,
        outputs: int | None = None,
        **attributes: Any,
    ) -> Any: ...

    def emit(
        self,
        op_type: str,
        *inputs: Any,
        domain: str = "",
        version: int | None = None,
        outputs: int | None = None,
        **attributes: Any,
    ) -> Any:
        """Emits one node of any domain; ``op.CamelCase(...)`` emits one of the default domain.

        Args:
            op_type: the operator.
            inputs: values, numbers, lists of numbers or arrays; None leaves out an optional input.
            domain: "" is ONNX's default domain.
            version: the opset of another domain that the model imports; None gives 1.
            outputs: the number of outputs; None gives the outputs that the operator requires.
            attributes: the attributes by name; None leaves one out. An input of an ONNX operator may be among them.

        Returns:
            One value, or a tuple if there are several outputs.

        Raises:
            TypeError: the opset has no such operator, or the operator has no such input or attribute.
        """
        version = version if domain else self.opset
        if outputs is None:
            schema = self._get_schema(op_type, domain, version)
            outputs = max(1, schema.required_outputs) if schema is not None else 1
        return self.call_op(op_type, inputs, attributes, domain=domain, version=version, outputs=outputs)

    def define(self, function: ir.Function) -> None:
        """Adds a model-local function to the model."""
        self.functions[function.identifier()] = function
        for domain, version in function.opset_imports.items():
            self._record_opset(domain, version)

    def call(self, function: ir.Function, *inputs: Any, outputs: int | None = None, **attributes: Any) -> Any:
        """Adds a model-local function to the model and emits a call of it; see ``emit`` for the arguments."""
        self.define(function)
        count = len(function.outputs) if outputs is None else outputs
        return self.emit(function.name, *inputs, domain=function.domain, outputs=count, **attributes)

    # ---------------------------------------------------------------- hooks of BuilderBase

    def _get_schema(self, op_type: str, domain: str, version: int | None) -> OperatorSchema | None:  # type: ignore[override]
        if domain:
            return None
        schema = operator_schema(op_type, version or self.opset)
        if schema is None:
            raise TypeError(missing_operator(op_type, version or self.opset))
        return schema

    def _partition_inputs_attributes(  # type: ignore[override]
        self, schema: OperatorSchema | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Separates the inputs that were given by name from the attributes, and checks the attributes."""
        attributes = {name: value for name, value in kwargs.items() if value is not None}
        if schema is None:
            return args, attributes
        named = attributes.keys() - schema.attributes.keys()
        if named:
            inputs = list(args)
            for parameter in schema.inputs[len(inputs) :]:
                inputs.append(attributes.pop(parameter.name, None) if parameter.name in named else None)
            args = inputs
            if unknown := attributes.keys() - schema.attributes.keys():
                name = min(unknown)
                hint = did_you_mean(name, [*schema.attributes, *(parameter.name for parameter in schema.inputs)])
                raise TypeError(f"ONNX {schema.name} of opset {self.opset} has no attribute {name!r}{hint}")
        if missing := schema.required_attributes - attributes.keys():
            raise TypeError(f"ONNX {schema.name} needs the attribute {sorted(missing)[0]!r}")
        while len(args) and args[-1] is None:
            args = args[:-1]
        return args, attributes

    def _cast_inputs(self, schema: OperatorSchema | None, inputs: Sequence[Any]) -> Sequence[Value | None]:  # type: ignore[override]
        """Makes constants of numbers, in the dtype that the other inputs bind to their type variable."""
        if schema is None or all(x is None or isinstance(x, Value) for x in inputs):
            return [self._input_to_value(x, None) for x in inputs] if schema is None else list(inputs)
        bound = bind_type_variables(schema, [x.dtype if isinstance(x, Value) else None for x in inputs])
        return [self._input_to_value(x, parameter_dtype(schema.input(i), bound)) for i, x in enumerate(inputs)]

    def _input_to_value(self, value: Any, dtype: DataType | None) -> Value | None:
        return value if value is None or isinstance(value, Value) else self.number(value, dtype)

    def _promote_constant(self, value: Any, dtype: DataType | None) -> Value:
        return self.number(value, dtype)

    def _cast_attributes(self, schema: OperatorSchema | None, attributes: dict[str, Any]) -> dict[str, ir.Attr]:  # type: ignore[override]
        kinds = schema.attributes if schema is not None else {}
        return {
            name: ir.convenience.convert_attribute(name, _plain(value), kinds.get(name))
            for name, value in attributes.items()
        }

    def _adapt_outputs(self, outputs: int | Sequence[str | Value], op_type: str) -> Sequence[Value]:
        if not isinstance(outputs, int):
            return super()._adapt_outputs(outputs, op_type) or ()
        return [Value(name=self.names.fresh(op_type)) for _ in range(outputs)]

    def _annotate_node(self, node: ir.Node) -> None:
        node.name = node.outputs[0].name if node.outputs else None
        node.metadata_props.update(self.names.metadata)

    def _add_node(self, node: ir.Node) -> None:
        self.graph.append(node)

    def _add_initializer(self, value: Value) -> None:
        self.root_graph.register_initializer(value)

    def _record_opset(self, domain: str, version: int | None) -> None:
        if not domain:
            return
        known = self.root_graph.opset_imports.setdefault(domain, version or 1)
        if version is not None and known != version:
            raise ValueError(f"a model imports one opset of {domain}, but {known} and {version} are asked for")

    def _infer_shapes(self, node: ir.Node) -> None:
        """Sets the element types of the outputs; the shapes come from FX, see translate.py."""
        if node.domain:
            return
        schema = operator_schema(node.op_type, self.opset)
        if schema is None:
            return
        schema.check_node(node)
        inputs = [None if x is None else x.dtype for x in node.inputs]
        check_equal_dtypes(schema, inputs)
        inferred = infer_output_dtypes(schema, inputs, node.attributes, len(node.outputs))
        for output, dtype in zip(node.outputs, inferred, strict=True):
            if dtype is not None:
                output.type = ir.TensorType(dtype)


class SizeAttributeError(TypeError):
    """An attribute of an ONNX node is a size that is not known at export."""


def as_tuple(results: Value | Sequence[Value]) -> tuple[Value, ...]:
    """Returns the results of ``emit`` as a tuple, because ``emit`` returns a single result as a bare value."""
    return (results,) if isinstance(results, Value) else tuple(results)


def _plain(value: Any) -> Any:
    """Returns an attribute's value without torch's types: a dtype as ONNX's number, a symbolic number as its constant.

    Raises:
        SizeAttributeError: a symbolic number is not constant.
    """
    if isinstance(value, torch.dtype):
        return int(dtypes.onnx_dtype(value))
    if isinstance(value, (bool, DataType)):
        return int(value)
    if isinstance(value, symbolic_sizes.SymbolicNumber):
        value = symbolic_sizes.static(value)
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            raise SizeAttributeError(f"ONNX needs a constant where the call has the size {value}")
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    return value


# ---------------------------------------------------------------- names in scopes


class ScopedNames:
    """Names the nodes and values that one FX node becomes: ``relu.Relu_0`` for the FX node ``relu``.

    Attributes:
        scope: the name of the FX node under translation.
        metadata: the metadata properties of the nodes it becomes.
    """

    def __init__(self, parent: ScopedNames | None = None) -> None:
        """Starts the names of a model, or those of a nested graph, which shares the counters of its parent."""
        self.scope: str = "" if parent is None else parent.scope
        self.metadata: dict[str, str] = {} if parent is None else parent.metadata
        self._names: Names = Names() if parent is None else parent._names
        self._counts: dict[str, int] = {} if parent is None else parent._counts

    def enter(self, scope: str, metadata: dict[str, str]) -> None:
        """Begins another FX node."""
        self.scope, self.metadata = scope, metadata

    def unique(self, name: str) -> str:
        """Returns ``name``, with a number appended if another value of the model has it."""
        return self._names.unique(name)

    def fresh(self, op_type: str) -> str:
        """Returns a new name ``scope.OpType_n``, where n counts within the FX node."""
        count = self._counts.get(self.scope, 0)
        self._counts[self.scope] = count + 1
        return f"{self.scope}.{op_type}_{count}" if self.scope else f"{op_type}_{count}"
