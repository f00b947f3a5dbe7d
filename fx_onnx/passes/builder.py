"""The node builder: creates the nodes that a pass inserts, as the emitter does for translations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.schemas import OperatorSchema, missing_operator, moved_inputs, operator_schema
from fx_onnx.onnx_model.type_inference import bind_type_variables, infer_output_dtypes, parameter_dtype
from fx_onnx.passes.editor import Editor, attributes_of
from fx_onnx.passes.matchers import attribute, is_value
from fx_onnx.passes.shape_inference import infer_shapes

__all__ = ["NewNode", "NodeBuilder", "undo_float32_rounding"]


class NodeBuilder:
    """Creates ONNX nodes for a pass: ``f.Add(x, 1.0)`` inserts an Add node and returns its output.

    The operator's schema decides the element types of the outputs, and those of numbers among the inputs. Shapes are
    inferred; ``f.Expand(x, target, sizes=[1, "n"])`` gives one that inference cannot find: the docstring of
    ``fx_onnx/passes/shape_inference.py`` names these. Each new node gets its name and its metadata from ``node``.

    Attributes:
        node: the node that the pass rewrites.
        editor: the editor of the graph.
        dtype: the element type that is used where no input binds a type variable, as with the two numbers in
            ``f.Where(condition, 1.0, 0.0)``.
        created: the new nodes.
    """

    def __init__(self, node: ir.Node, editor: Editor, dtype: DataType | None, *, after: Value | None = None) -> None:
        """Inserts new nodes before ``node``, or right after the producer of the value ``after`` if it is given."""
        self.node, self.editor, self._dtype = node, editor, dtype
        self._after = after
        self.created: list[NewNode] = []

    @property
    def dtype(self) -> DataType:
        """See the attributes; by default that of the node's first result."""
        return self._dtype or self.node.outputs[0].dtype or DataType.DOUBLE

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)

        def create(
            *inputs: Any, sizes: Sequence[int | str | None] | None = None, domain: str = "", **attributes: Any
        ) -> Value:
            result = self.emit(op_type, inputs, attributes, domain=domain)[0]
            if sizes is not None:
                result.shape = ir.Shape(sizes)
            return result

        return create

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        *,
        outputs: int = 1,
        domain: str = "",
    ) -> Sequence[Value]:
        """Inserts a node and returns its outputs, with the dtypes and shapes that follow from the operator's schema.

        Args:
            op_type: the operator.
            inputs: values; numbers, lists of integers and arrays, which become constants; None for an absent input. A
                list for an input that is an attribute in the model's opset becomes this attribute, as the axes of a
                Squeeze below opset 13.
            attributes: the attributes; None for one that the node does not get.
            outputs: the number of outputs.
            domain: the domain of the operator, of which the model imports version 1; empty for ONNX's default domain.
                Results of another domain have the builder's dtype.

        Raises:
            TypeError: the model's opset has no such operator, or the operator takes fewer inputs or needs one that is
                None.
        """
        schema = None if domain else operator_schema(op_type, self.editor.opset)
        if schema is None and not domain:
            raise TypeError(missing_operator(op_type, self.editor.opset))
        if domain:
            self.editor.model.graph.opset_imports.setdefault(domain, 1)
        if schema is not None and len(inputs) > len(schema.inputs):
            moved = moved_inputs(op_type, self.editor.opset)
            attributes = {**attributes, **{name: inputs[index] for index, name in moved if index < len(inputs)}}
            inputs = inputs[: len(schema.inputs)] if moved else inputs
        bound: dict[str, DataType] | None = None
        values: list[Value | None] = []
        for index, x in enumerate(inputs):
            if x is None:
                if schema is not None and schema.input(index).required:
                    raise TypeError(f"ONNX {op_type} needs a value for its input {schema.input(index).name}")
            elif not is_value(x):
                if bound is None and schema is not None and isinstance(x, (int, float)):
                    bound = bind_type_variables(schema, [_dtype(value) for value in inputs])
                x = self.constant(
                    x, None if schema is None or bound is None else parameter_dtype(schema.input(index), bound)
                )
            values.append(x)
        if schema is not None and len(values) > len(schema.inputs):
            schema.input(len(values) - 1)
        new = NewNode(op_type, values, attributes, domain, outputs, functools.partial(self._infer, schema))
        self.created.append(new)
        self._add(new)
        return new.results

    def _infer(self, schema: OperatorSchema | None, node: ir.Node) -> Iterator[tuple[DataType, ir.Shape | None]]:
        """Yields the dtype and the shape of each result of a node."""
        dtypes = [self.dtype] * len(node.outputs)
        if schema is not None:
            inferred = infer_output_dtypes(schema, list(map(_dtype, node.inputs)), node.attributes, len(dtypes))
            dtypes = [dtype or self.dtype for dtype in inferred]
        return zip(dtypes, infer_shapes(node, self.editor.opset), strict=True)

    def _add(self, new: NewNode) -> None:
        self._place(new)

    def _place(self, new: NewNode) -> None:
        """Inserts a new node with its name, its metadata, and the types and shapes of its results."""
        node = new.node
        node.metadata_props.update(self.node.metadata_props)
        node.name = self.editor.unique_name(f"{self.node.name or self.node.outputs[0].name}.{node.op_type}")
        for index, result in enumerate(node.outputs):
            if result.name is None:
                result.name = node.name if len(node.outputs) == 1 else self.editor.unique_name(f"{node.name}_{index}")
        new.resolve()
        if self._after is None:
            self.editor.insert_before(node, self.node)
        else:
            self.editor.insert_after(node, self._after)
            self._after = node.outputs[0]

    def random_mask(self, x: Value) -> Value:
        """Returns a BOOL tensor of x's shape: each element is true with probability 1/2, drawn again at every run."""
        return self.emit("Dropout", [x, 0.5, np.array(True)], {}, outputs=2)[1]

    def constant(self, value: Any, dtype: DataType | None = None) -> Value:
        """Returns a constant: a number in ``dtype`` (else the builder's), a list of integers as INT64, or an array."""
        if isinstance(value, (int, float)):
            value = np.array(value, dtype=(dtype or self.dtype).numpy())
        return self.editor.constant(value, self.node)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Returns the value of an attribute of the node that the pass rewrites, or ``default`` if it is absent."""
        return attribute(self.node, name, default)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluates a polynomial by Horner's scheme; the first coefficient is the constant term."""
        result: Value = self.Add(self.Mul(x, coefficients[-1]), coefficients[-2])
        for coefficient in coefficients[-3::-1]:
            result = self.Add(self.Mul(result, x), coefficient)
        return result

    def log1p(self, x: Value) -> Value:
        """Computes log(1 + x) for x ≥ 0 accurately near zero too.

        With u = 1 + x rounded, x / (u - 1) corrects log(u) for the rounding of u.
        """
        u = self.Add(x, 1.0)
        log = self.Log(u)
        correction = self.Div(x, self.Sub(u, 1.0))
        small = self.Where(self.Equal(u, 1.0), x, self.Mul(log, correction))
        return self.Where(self.Less(x, 1.0), small, log)

    def odd(self, x: Value, of_magnitude: Value) -> Value:
        """Completes an odd function f: returns ``of_magnitude``, which is f(|x|), negated where x is negative."""
        return self.Where(self.Less(x, 0.0), self.Neg(of_magnitude), of_magnitude)


class NewNode:
    """A new node, which is made when something reads it or one of its results.

    Most that rules create are never made: the node that the rule rewrites becomes what they would be.

    Attributes:
        op_type: the operator.
        inputs: the inputs.
        attributes: the attributes.
        domain: the domain of the operator.
        results: the results.
        is_made: whether the node exists.
    """

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        domain: str,
        outputs: int,
        infer: Callable[[ir.Node], Iterable[tuple[DataType, ir.Shape | None]]],
    ) -> None:
        """See the attributes; ``infer`` yields the dtype and the shape of each result."""
        self.op_type, self.inputs, self.attributes, self.domain = op_type, inputs, attributes, domain
        self.results = tuple([_Result(self) for _ in range(outputs)])
        self.is_made, self._infer = False, infer

    @functools.cached_property
    def node(self) -> ir.Node:
        """The node."""
        self.is_made = True
        attributes = attributes_of(self.attributes)
        return ir.node(self.op_type, self.inputs, attributes, domain=self.domain, outputs=self.results)

    def resolve(self) -> None:
        """Infers the types and the shapes of the results, if that is still to do."""
        if self.results[0].new is None:
            return
        inferred = list(self._infer(self.node))
        for result, (dtype, shape) in zip(self.results, inferred, strict=True):
            result.new = None
            result.type, result.shape = ir.TensorType(dtype), shape


def _inferred(name: str) -> Any:
    """Returns a property of a value that is inferred when it is first read or set."""
    inherited: Any = getattr(Value, name)

    def read(value: _Result) -> Any:
        if value.new is not None:
            value.new.resolve()
        return inherited.fget(value)

    def write(value: _Result, new: Any) -> None:
        if value.new is not None:
            value.new.resolve()
        inherited.fset(value, new)

    return property(read, write, doc=inherited.__doc__)


class _Result(Value):
    """A result of a new node. Its node, its type and its shape are made when they are first read.

    Attributes:
        new: the node; None if the type and the shape are known.
    """

    __slots__ = ("new",)

    def __init__(self, new: NewNode) -> None:
        super().__init__()
        self.new: NewNode | None = new

    def producer(self) -> ir.Node | None:
        """Returns the node."""
        if self.new is not None and not self.new.is_made:
            return self.new.node
        return super().producer()

    type, dtype, shape = map(_inferred, ("type", "dtype", "shape"))


def _dtype(x: Any) -> DataType | None:
    return x.dtype if is_value(x) else None


def undo_float32_rounding(number: float) -> float:
    """Returns the multiple of 1/6, or else the shortest decimal, that rounds to ``number`` in float32.

    A float attribute of ONNX is float32, so an alpha of 1/6 arrives as 0.16666667163372040; a float64 computation
    needs 1/6 again.
    """
    sixths = round(number * 6) / 6
    return sixths if np.float32(sixths) == np.float32(number) else float(str(np.float32(number)))
