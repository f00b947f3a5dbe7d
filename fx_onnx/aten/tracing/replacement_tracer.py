"""Tracing of the functions that replace a call: function and fake inputs → a functional graph of ATen operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.functional_graph import functional_graph
from fx_onnx.aten.fx_nodes import describe, fake_mode, set_origin
from fx_onnx.aten.tracing.guard_check import refuse_guards
from fx_onnx.aten.tracing.tracer import Trace, trace
from fx_onnx.messages.errors import TranslationError, first_line
from fx_onnx.torch_internals.torch_private import FakeTensorMode, OpOverload


@dataclass
class ReplacementTracer:
    """Traces the functions that replace calls of a program.

    Attributes:
        constants: receives the tensors that the functions create, under new names.
        bodies: receives the bodies of the functions' control flow, under new names.
        fake_mode: the mode of the program's fake tensors.
        size_relations: receives the equations of sizes that the traces rely on (see ``AtenProgram``).
    """

    constants: dict[str, torch.Tensor]
    bodies: dict[str, Graph]
    fake_mode: FakeTensorMode
    size_relations: dict[sympy.Eq, str]

    @classmethod
    def of(cls, program: AtenProgram) -> ReplacementTracer:
        """Returns a tracer that adds constants and bodies to a program."""
        return cls(program.constants, program.bodies, fake_mode(program.graph), program.size_relations)

    def trace(
        self, function: Callable[..., Any], values: Sequence[Any], node: Node, keeps_composites: bool
    ) -> Graph | None:
        """Traces ``function(*values)`` to a functional graph.

        Args:
            function: the function that computes the results of ``node``.
            values: its arguments: fake tensors and numbers.
            node: the call that the graph replaces. The graph's nodes get its module stack and stack trace.
            keeps_composites: whether composite operators (CompositeImplicitAutograd) such as linear stay whole.

        Returns:
            the graph, or None if it needs operators of torch's ``prims``, which have no translations.

        Raises:
            TranslationError: the function fails, or specializes a symbolic size.
        """
        with refuse_guards(self.fake_mode, node) as relations:
            try:
                traced = trace(function, _distinct(values), self.fake_mode, keeps_composites)
            except Exception as error:
                raise TranslationError(f"{describe(node)} cannot be decomposed: {first_line(error)}") from error
        for relation in relations:
            self.size_relations.setdefault(relation, describe(node))
        return self._adopt(traced, node)

    def _adopt(self, traced: Trace, node: Node) -> Graph | None:
        """Returns a trace's graph, made functional, and adds its attributes to the program under new names."""
        graph = traced.graph
        if any(getattr(inner.target, "namespace", "") == "prims" for inner in graph.nodes):
            return None
        if any(isinstance(n.target, OpOverload) and n.target._schema.is_mutable for n in graph.nodes):
            graph = functional_graph(graph)
        graph.eliminate_dead_code()
        for inner in graph.find_nodes(op="get_attr"):
            value = traced.attributes[str(inner.target)]
            if isinstance(value, Trace):
                body = self._adopt(value, node)
                if body is None:
                    return None
                inner.target = f"body_{len(self.bodies)}"
                self.bodies[inner.target] = body
            else:
                inner.target = f"constant_tensor_{len(self.constants)}"
                self.constants[inner.target] = value
        set_origin(graph, node)
        return graph


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Returns the values with a copy of each repeated tensor, because a trace identifies its inputs by object.

    A tensor made in inference mode is copied too, because it lacks the dispatch keys at which torch composes operators.
    Copies of one traced graph share their fake tensors, so two inputs of a call may be the same object. No returned
    tensor is lazily conjugated or negated, because ``view_as_real``, for example, refuses such tensors.
    """
    distinct: list[Any] = []
    known: set[int] = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            if id(value) in known or value.is_inference():
                value = value.new_empty_strided(value.shape, value.stride())
            value = value.resolve_conj().resolve_neg()
            known.add(id(value))
        distinct.append(value)
    return distinct
