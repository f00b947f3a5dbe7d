"""The emitter: the object that translations use to create ONNX nodes.

``op.CamelCase(...)`` emits one ONNX node (node_emitter.py) and ``op.snake_case(...)`` is a helper (tensor_helpers.py).
This file adds the graphs inside nodes: branches, loop bodies, and the bodies of higher-order operators. The emitter is
an onnxscript ``BuilderBase``, so a translation can call a function written with onnxscript.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.constant_pool import Input, Operand, Scalar
from fx_onnx.translation.known_sizes import record_sizes
from fx_onnx.translation.node_emitter import as_tuple
from fx_onnx.translation.size_values import SymbolTable
from fx_onnx.translation.tensor_helpers import TensorHelpers

__all__ = ["Emitter", "Input", "Operand", "Scalar", "as_tuple"]


class Emitter(TensorHelpers):
    """Creates the nodes of one graph and of the graphs inside its nodes.

    Attributes:
        root: the emitter of the model's graph.
        translate_body: emits the body of a higher-order operator from (emitter, name of the body, operands) and returns
            its results; ``translate`` sets it on the root.
    """

    def __init__(self, graph: ir.Graph, opset: int, symbol_table: SymbolTable, parent: Emitter | None = None) -> None:
        super().__init__(graph, opset, symbol_table, parent)
        self.root: Emitter = self if parent is None else parent.root
        self.translate_body: Callable[[Emitter, str, Sequence[Any]], list[Any]] | None = None

    def enter(self, name: str, metadata: dict[str, str], out: tuple[Any, ...]) -> None:
        """Begins an FX node: the nodes emitted from now on are named after it and carry its metadata."""
        self.names.enter(name, metadata)
        self.out = out

    @contextmanager
    def body_scope(self) -> Iterator[None]:
        """Gives the body of a higher-order operator its own symbols; returns to the present FX node at the end."""
        scope, metadata, out, symbols = self.names.scope, self.names.metadata, self.out, self.symbols
        self.symbols = SymbolTable(parent=symbols)
        try:
            yield
        finally:
            self.enter(scope, metadata, out)
            self.symbols = symbols

    def nested(self, inputs: Sequence[Value] = ()) -> Emitter:
        """Returns an emitter for a graph that becomes an attribute of a node: a branch or a loop body.

        The graph may read the values of the graphs around it.
        """
        graph = ir.Graph(
            inputs, (), nodes=(), opset_imports=dict(self.graph.opset_imports), name=self.names.fresh("graph")
        )
        return Emitter(graph, self.opset, SymbolTable(parent=self.symbols), parent=self)

    def graph_input(self, name: str, dtype: DataType, sizes: Sequence[Size] | None = None) -> Value:
        """Returns a new value to be an input of a ``nested`` graph; ``sizes`` is None if the rank is not known."""
        value = Value(name=f"{self.names.scope}.{self.names.fresh(name)}", type=ir.TensorType(dtype))
        if sizes is not None:
            value.shape = ir.Shape([self.symbols.dim(size) for size in sizes])
            record_sizes(value, sizes)
        return value

    def finish(self, outputs: Sequence[Any]) -> ir.Graph:
        """Returns the nested graph with these outputs.

        An output that no node of this graph computes, or that is repeated, gets an Identity.
        """
        for output in outputs:
            value: Value = output if isinstance(output, Value) else self.number(output, None)
            producer = value.producer()
            if producer is None or producer.graph is not self.graph or value in self.graph.outputs:
                source, value = value, self.Identity(value)
                value.shape, value.type = source.shape, source.type
            self.graph.outputs.append(value)
        return self.graph

    def inline(self, body: str, operands: Sequence[Any]) -> list[Any]:
        """Emits the body of a higher-order operator into this graph, with ``operands`` for its placeholders.

        Raises:
            LookupError: no program is being translated.
        """
        if self.root.translate_body is None:
            raise LookupError(f"the body {body} can only be emitted while a program is translated")
        return self.root.translate_body(self, body, operands)
