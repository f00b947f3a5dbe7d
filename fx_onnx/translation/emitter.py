"""The emitter: the only place that creates ONNX nodes.

``op.CamelCase(...)`` emits one ONNX node; ``op.snake_case(...)`` helps to write translations and emits what it needs.
A translation gets one as its first parameter. It is onnxscript's ``BuilderBase`` with its hooks overridden, so a
function written with onnxscript can be called from it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value
from onnxscript import BuilderBase, BuilderFeature

from fx_onnx.core import dtypes, promotion, symbolic_sizes
from fx_onnx.core.names import Names
from fx_onnx.core.schemas import OperatorSchema, operator_schema
from fx_onnx.core.symbolic_sizes import Size
from fx_onnx.core.type_inference import bind_type_variables, infer_output_dtypes, parameter_dtype
from fx_onnx.translation.constant_pool import SIZES, Constants, dtype_of_number, refuse_fractions
from fx_onnx.translation.size_values import SymbolTable

# What a translation may take for a tensor: an ONNX value, or a number that becomes a constant.
Scalar = bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool
Operand = Value | Scalar


class Emitter(BuilderBase):
    """Creates the ONNX nodes of one graph.

    Attributes:
        opset: the version of the default ONNX domain.
        out: what the FX node under translation gives: its fake tensors and symbolic numbers, flattened.
    """

    def __init__(self, graph: ir.Graph, opset: int, symbol_table: SymbolTable, parent: Emitter | None = None) -> None:
        super().__init__(
            features=BuilderFeature.SCHEMA_PARTITION
            | BuilderFeature.CAST_INPUTS
            | BuilderFeature.CAST_ATTRIBUTES
            | BuilderFeature.INFER_SHAPES
        )
        self.graph = graph
        self.opset = opset
        self.symbols = symbol_table
        self.out: tuple[Any, ...] = ()
        self.root: Emitter = self if parent is None else parent.root
        self._names: Names = Names() if parent is None else parent._names
        self._constants: Constants = Constants(graph, self.unique) if parent is None else parent._constants
        self.functions: dict[ir.OperatorIdentifier, ir.Function] = {} if parent is None else parent.functions
        # Set by translate on the root: (emitter, body, operands) -> results of the body translated in place.
        self.translate_body: Callable[[Emitter, str, Sequence[Any]], list[Any]] | None = None
        self.scope_name: str = "" if parent is None else parent.scope_name
        self._scope_metadata: dict[str, str] = {} if parent is None else parent._scope_metadata
        self._scope_count: dict[str, int] = {} if parent is None else parent._scope_count

    def enter(self, name: str, metadata: dict[str, str], out: tuple[Any, ...]) -> None:
        """Begins an FX node: what is emitted from now on is named after it and bears its metadata."""
        self.scope_name, self._scope_metadata, self.out = name, metadata, out

    def unique(self, name: str) -> str:
        """``name``, with a number if the model has given it to another value."""
        return self._names.unique(name)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A body's own symbols; comes back to the present FX node when the nodes of the body are done."""
        before, outer = (self.scope_name, self._scope_metadata, self.out), self.symbols
        self.symbols = SymbolTable(parent=outer)
        try:
            yield
        finally:
            self.enter(*before)
            self.symbols = outer

    # ---------------------------------------------------------------- graphs inside nodes

    def nested(self, inputs: Sequence[Value] = ()) -> Emitter:
        """An emitter for a graph that becomes an attribute of a node: a branch, a loop body.

        It may read the values of the graphs around it.
        """
        graph = ir.Graph(
            inputs, (), nodes=(), opset_imports=dict(self.graph.opset_imports), name=self._fresh_name("graph")
        )
        inner = Emitter(graph, self.opset, SymbolTable(parent=self.symbols), parent=self)
        inner.out = self.out
        return inner

    def graph_input(self, name: str, dtype: DataType, sizes: Sequence[Size] | None = None) -> Value:
        """A new value to be an input of a ``nested`` graph; ``sizes`` None where even the rank is not known."""
        value = Value(name=f"{self.scope_name}.{self._fresh_name(name)}", type=ir.TensorType(dtype))
        if sizes is not None:
            value.shape = ir.Shape([self.symbols.dim(size) for size in sizes])
            self.with_sizes(value, sizes)
        return value

    def inline(self, body: str, operands: Sequence[Any]) -> list[Any]:
        """Emits the body of a higher-order operator here, with ``operands`` in the place of its placeholders."""
        if self.root.translate_body is None:
            raise LookupError(f"the body {body} can only be emitted while a program is translated")
        return self.root.translate_body(self, body, operands)

    def finish(self, outputs: Sequence[Any]) -> ir.Graph:
        """The nested graph with these outputs; what it does not compute itself goes through Identity."""
        for output in outputs:
            value: Value = output if isinstance(output, Value) else self._number(output, None)
            producer = value.producer()
            if producer is None or producer.graph is not self.graph or value in self.graph.outputs:
                source, value = value, self.Identity(value)
                value.shape, value.type = source.shape, source.type
            self.graph.outputs.append(value)
        return self.graph

    # ---------------------------------------------------------------- one ONNX node

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """``op.Add(a, b)`` emits one Add node; ``outputs=n`` asks for a number of outputs beyond the required ones.

        Inputs are values, numbers or lists of numbers; an attribute that is None is left out. Gives one value, or a
        tuple where the operator has several outputs.
        """
        if not op_type[0].isupper():
            raise AttributeError(f"the emitter has no helper {op_type!r}")
        return functools.partial(self.emit, op_type)

    def emit(
        self,
        op_type: str,
        *inputs: Any,
        domain: str = "",
        version: int | None = None,
        outputs: int | None = None,
        **attributes: Any,
    ) -> Any:
        """Emits one node of any domain; ``op.CamelCase`` is this for the default domain.

        ``version`` is the opset of another domain that the model imports, 1 where none is given.
        """
        version = version if domain else self.opset
        if outputs is None:
            schema = self._get_schema(op_type, domain, version)
            outputs = max(1, schema.required_outputs) if schema is not None else 1
        return self.call_op(op_type, inputs, attributes, domain=domain, version=version, outputs=outputs)

    def define(self, function: ir.Function) -> None:
        """Makes a model-local function part of the model."""
        self.functions[function.identifier()] = function
        for domain, version in function.opset_imports.items():
            self._record_opset(domain, version)

    def call(self, function: ir.Function, *inputs: Any, outputs: int | None = None, **attributes: Any) -> Any:
        """Emits a call of a model-local function, which becomes part of the model; ``version`` is its domain's."""
        self.define(function)
        count = len(function.outputs) if outputs is None else outputs
        return self.emit(function.name, *inputs, domain=function.domain, outputs=count, **attributes)

    # ---------------------------------------------------------------- hooks of BuilderBase

    def _get_schema(self, op_type: str, domain: str, version: int | None) -> OperatorSchema | None:  # type: ignore[override]
        if domain:
            return None
        schema = operator_schema(op_type, version or self.opset)
        if schema is None:
            raise TypeError(f"ONNX opset {version or self.opset} has no operator {op_type}")
        return schema

    def _partition_inputs_attributes(  # type: ignore[override]
        self, schema: OperatorSchema | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Inputs may be given by name; what is neither an input nor an attribute of the operator is refused."""
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
                raise TypeError(f"ONNX {schema.name} of opset {self.opset} has no attribute {sorted(unknown)[0]!r}")
        if missing := schema.required_attributes - attributes.keys():
            raise TypeError(f"ONNX {schema.name} needs the attribute {sorted(missing)[0]!r}")
        while len(args) and args[-1] is None:
            args = args[:-1]
        return args, attributes

    def _cast_inputs(self, schema: OperatorSchema | None, inputs: Sequence[Any]) -> Sequence[Value | None]:  # type: ignore[override]
        """Numbers become constants of the dtype that the other inputs bind to their type variable."""
        if schema is None or all(x is None or isinstance(x, Value) for x in inputs):
            return [self._input_to_value(x, None) for x in inputs] if schema is None else list(inputs)
        bound = bind_type_variables(schema, [x.dtype if isinstance(x, Value) else None for x in inputs])
        return [self._input_to_value(x, parameter_dtype(schema.input(i), bound)) for i, x in enumerate(inputs)]

    def _input_to_value(self, value: Any, dtype: DataType | None) -> Value | None:
        return value if value is None or isinstance(value, Value) else self._number(value, dtype)

    def _number(self, value: Any, dtype: DataType | None) -> Value:
        """A number, symbolic or not, as a value."""
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            scalar = self.symbols.value(self, value, rank=0)
            return scalar if dtype is None else self.cast(scalar, dtype)
        return self.constant(value, dtype)

    def _promote_constant(self, value: Any, dtype: DataType | None) -> Value:
        return self.constant(value, dtype)

    def _cast_attributes(self, schema: OperatorSchema | None, attributes: dict[str, Any]) -> dict[str, ir.Attr]:  # type: ignore[override]
        kinds = schema.attributes if schema is not None else {}
        return {
            name: ir.convenience.convert_attribute(name, _plain(value), kinds.get(name))
            for name, value in attributes.items()
        }

    def _adapt_outputs(self, outputs: int | Sequence[str | Value], op_type: str) -> Sequence[Value]:
        if not isinstance(outputs, int):
            return super()._adapt_outputs(outputs, op_type) or ()
        return [Value(name=self._fresh_name(op_type)) for _ in range(outputs)]

    def _fresh_name(self, op_type: str) -> str:
        """``fx_name.OnnxOp_n``: n counts within the FX node."""
        count = self._scope_count.get(self.scope_name, 0)
        self._scope_count[self.scope_name] = count + 1
        return f"{self.scope_name}.{op_type}_{count}" if self.scope_name else f"{op_type}_{count}"

    def _annotate_node(self, node: ir.Node) -> None:
        node.name = node.outputs[0].name if node.outputs else None
        node.metadata_props.update(self._scope_metadata)

    def _add_node(self, node: ir.Node) -> None:
        self.graph.append(node)

    def _add_initializer(self, value: Value) -> None:
        self.root.graph.register_initializer(value)

    def _record_opset(self, domain: str, version: int | None) -> None:
        if not domain:
            return
        known = self.root.graph.opset_imports.setdefault(domain, version or 1)
        if version is not None and known != version:
            raise ValueError(f"a model imports one opset of {domain}, but {known} and {version} are asked for")

    def _infer_shapes(self, node: ir.Node) -> None:
        """Sets the element types of the outputs."""
        if node.domain:
            return
        schema = operator_schema(node.op_type, self.opset)
        if schema is None:
            return
        inputs = [None if x is None else x.dtype for x in node.inputs]
        found = infer_output_dtypes(schema, inputs, node.attributes, len(node.outputs))
        for output, dtype in zip(node.outputs, found, strict=True):
            if dtype is not None:
                output.type = ir.TensorType(dtype)

    # ---------------------------------------------------------------- facts about values

    def sizes(self, value: Value) -> tuple[Size, ...]:
        """The sizes of a value in torch's terms: ints and SymInts. Known of FX results and of what helpers made."""
        found: tuple[Size, ...] | None = value.meta.get(SIZES)
        if found is None:
            raise LookupError(f"the sizes of the intermediate value {value.name} are not known")
        return found

    def rank(self, value: Value) -> int:
        """The number of dimensions, where it is known (see ``sizes``)."""
        return len(self.sizes(value))

    def with_sizes(self, value: Value, sizes: Sequence[Size]) -> Value:
        """Says which sizes an intermediate value has, for the helpers that come after."""
        value.meta[SIZES] = tuple(map(symbolic_sizes.static, sizes))
        return value

    @property
    def out_dtype(self) -> DataType:
        """The ONNX dtype of the (first) result of the FX node under translation."""
        return dtypes.onnx_dtype(self.out[0].dtype)

    @property
    def out_sizes(self) -> tuple[Size, ...]:
        """The sizes of the (first) result of the FX node under translation."""
        return tuple(map(symbolic_sizes.static, self.out[0].shape))

    # ---------------------------------------------------------------- constants and casts

    def constant(self, value: Any, dtype: DataType | torch.dtype | None = None) -> Value:
        """A constant (an initializer of the root graph) from a number, nested lists of numbers or a NumPy array.

        Without a dtype: INT64 for ints, FLOAT for floats, BOOL for bools, the array's own for arrays.
        """
        if isinstance(dtype, torch.dtype):
            dtype = dtypes.onnx_dtype(dtype)
        if isinstance(value, (list, tuple)) and any(isinstance(x, torch.SymInt) for x in value):
            return self.shape(value)
        if dtype is None:
            dtype = DataType.from_numpy(value.dtype) if isinstance(value, np.ndarray) else dtype_of_number(value)
        if dtypes.is_integer(dtype) and not isinstance(value, np.ndarray):
            refuse_fractions(value)
        return self._constants.get(np.asarray(value, dtype=dtype.numpy()), dtype)

    def cast(self, value: Operand, dtype: DataType | torch.dtype) -> Value:
        """The value in another dtype, itself if it has that; a number as a constant, an integer wrapped as in torch."""
        target = dtypes.onnx_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            value = self.symbols.value(self, value, rank=0)
        if not isinstance(value, Value):
            if target == DataType.BOOL or dtypes.is_integer(target):
                value = bool(value) if target == DataType.BOOL else dtypes.wrapped(int(value), target)
            return self.constant(value, target)
        if value.dtype == target:
            return value
        if target == DataType.FLOAT8E8M0:
            raise NotImplementedError("torch's cast to float8_e8m0fnu drops the sign, which ONNX's does not")
        result: Value = self.Cast(value, to=target, saturate=0 if dtypes.overflows(target) else None)
        return self._same_sizes(result, value)

    def promote(self, *operands: Operand, dtype: torch.dtype | None = None) -> tuple[Value, ...]:
        """The operands in the dtype in which torch would compute with them (its type promotion), or in ``dtype``."""
        if dtype is None:
            dtype = self.result_type(*operands)
        return tuple(self.cast(x, dtype) for x in operands)

    def result_type(self, *operands: Operand) -> torch.dtype:
        """``torch.result_type`` of values and numbers."""
        return promotion.result_type(
            (dtypes.torch_dtype(_known_dtype(x)), self.rank(x))
            if isinstance(x, Value)
            else (promotion.number_dtype(x), None)
            for x in operands
        )

    # ---------------------------------------------------------------- shapes

    def shape(self, sizes: Sequence[Size]) -> Value:
        """A 1-D INT64 value of sizes; runs of known sizes are constants, symbolic ones are read once per graph."""
        sizes = [symbolic_sizes.static(size) for size in sizes]
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes), DataType.INT64)
        parts: list[Value | list[int]] = []
        for size in sizes:
            if not isinstance(size, int):
                parts.append(self.symbols.value(self, size))
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(size)
            else:
                parts.append([size])
        if len(parts) == 1:
            return parts[0] if isinstance(parts[0], Value) else self.constant(parts[0])
        return self.with_sizes(self.Concat(*parts, axis=0), (len(sizes),))

    def scalar(self, number: Scalar, dtype: DataType | torch.dtype) -> Value:
        """A number, symbolic or not, as a 0-d value of ``dtype``."""
        return self.cast(number, dtype)

    def reshape(self, value: Value, sizes: Sequence[Size]) -> Value:
        """The value in new sizes, whose product is known to be right; a constant shape wherever ONNX can say it."""
        sizes = [symbolic_sizes.static(size) for size in sizes]
        old: tuple[Size, ...] | None = value.meta.get(SIZES)
        if old is not None and len(old) == len(sizes) and all(map(symbolic_sizes.same_size, old, sizes)):
            return value
        target = symbolic_sizes.constant_shape(old, sizes)
        if target is None:  # a size that is 0 at run time is not "copy this dim"
            return self.with_sizes(self.Reshape(value, self.shape(sizes), allowzero=1), sizes)
        empty = any(isinstance(size, int) and size == 0 for size in sizes)
        return self.with_sizes(self.Reshape(value, target, allowzero=1 if empty else None), sizes)

    def expand(self, value: Value, sizes: Sequence[Size]) -> Value:
        """The value broadcast to ``sizes``."""
        sizes = [symbolic_sizes.static(size) for size in sizes]
        old: tuple[Size, ...] | None = value.meta.get(SIZES)
        if old is not None and len(old) == len(sizes) and all(map(symbolic_sizes.same_size, old, sizes)):
            return value
        return self.with_sizes(self.Expand(value, self.shape(sizes)), sizes)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """The value with axis ``perm[i]`` at place ``i``."""
        perm = [axis % len(perm) for axis in perm] if perm else []
        if list(perm) == list(range(len(perm))):
            return value
        result: Value = self.Transpose(value, perm=perm)
        old = value.meta.get(SIZES)
        return result if old is None else self.with_sizes(result, [old[axis] for axis in perm])

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        """The value with axes of size 1 at ``axes`` of the result (Source: ONNX Unsqueeze)."""
        if not axes:
            return value
        result: Value = self.Unsqueeze(value, list(axes))
        old = value.meta.get(SIZES)
        if old is None:
            return result
        rank, rest = len(old) + len(axes), iter(old)
        places = {axis % rank for axis in axes}
        return self.with_sizes(result, [1 if i in places else next(rest) for i in range(rank)])

    def squeeze(self, value: Value, *axes: int) -> Value:
        """The value without the axes ``axes``, each of size 1."""
        if not axes:
            return value
        result: Value = self.Squeeze(value, list(axes))
        old = value.meta.get(SIZES)
        if old is None:
            return result
        places = {axis % len(old) for axis in axes}
        return self.with_sizes(result, [size for i, size in enumerate(old) if i not in places])

    def _same_sizes(self, value: Value, like: Value) -> Value:
        old = like.meta.get(SIZES)
        return value if old is None else self.with_sizes(value, old)


def _plain(value: Any) -> Any:
    """An attribute's value without torch's types: a dtype as ONNX's number, a symbolic number only if constant."""
    if isinstance(value, torch.dtype):
        return int(dtypes.onnx_dtype(value))
    if isinstance(value, (bool, DataType)):
        return int(value)
    if isinstance(value, symbolic_sizes.SymbolicNumber):
        value = symbolic_sizes.static(value)
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            raise TypeError(f"an ONNX attribute must be constant, but the size {value} is not")
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    return value


def _known_dtype(value: Value) -> DataType:
    if value.dtype is None:
        raise LookupError(f"the dtype of the intermediate value {value.name} is not known")
    return value.dtype
