"""Finds what happened to each dim that was requested as dynamic: its name, and whether and why it became static.

torch.export captures the model for one example. Where the forward, or torch itself, branches on a symbolic
size, torch records the outcome for the example as a guard. A guard such as `s0 == 3` makes the dim static. Guards that
only exclude some sizes are the subject of ``proof/size_proof.py``.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from fx_onnx.messages.arguments import is_dim_word
from fx_onnx.messages.source_lines import is_internal, line_text
from fx_onnx.onnx_model.names import Names
from fx_onnx.requests.dim_expressions import DefinedDim, dim_expression
from fx_onnx.requests.dynamic_shapes import TensorRequest
from fx_onnx.requests.request import Request
from fx_onnx.sizes.size_text import expression_text
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.guard_private import (
    guard_location,
    guard_origin,
    guard_script_line,
    is_from_file,
    names_of_sources,
    symbols_of_sources,
)
from fx_onnx.torch_internals.torch_private import pytree, symbolic_expression


@dataclass(frozen=True)
class SpecializedDim:
    """A dim that was requested as dynamic but is static in the captured program.

    Attributes:
        input: The name of the graph input: the user's name, or torch's if there is none.
        axis: The axis of the input's shape.
        name: The user's name for the dim, if it has one.
        size: The static size.
        reason: A clause that says what made the dim static.
        line: The line that did, as ``(file:line: code)``; empty if none is known.
        is_bound: Whether the model raises an exception for other sizes.
    """

    input: str
    axis: int
    name: str | None
    size: int
    reason: str
    line: str = ""
    is_bound: bool = False

    def __str__(self) -> str:
        name, line = f" ({self.name!r})" if self.name else "", f" {self.line}" if self.line else ""
        return f"Axis {self.axis}{name} of input {self.input!r} is static with size {self.size}: {self.reason}{line}."


@dataclass(frozen=True)
class CapturedInput:
    """A tensor among the graph's inputs.

    Attributes:
        name: The name of the graph input: the user's name, or torch's if there is none.
        request: The axes that the user requested as dynamic.
        value: The fake tensor, whose dynamic sizes are symbols.
    """

    name: str
    request: TensorRequest
    value: torch.Tensor

    def dim(self, axis: int) -> Any:
        """Returns the size of an axis: an int if it is static, or else a sympy expression."""
        # A dim that torch specialized late in the capture is still a SymInt, but its expression is a number.
        size = expression(self.value.shape[axis])
        return int(size) if size.is_number else size

    def axis_text(self, axis: int) -> str:
        """Returns an axis as ``x.shape[0]``."""
        return f"{self.name}.shape[{axis}]"

    def symbol(self, axis: int) -> Any:
        """Returns the symbol that torch gave the size of an axis, before any replacement; None if there is none."""
        return symbols_of_sources(self.shape_env).get(source_of_size(self, axis))

    @property
    def shape_env(self) -> Any:
        """torch's ShapeEnv, which holds the symbols and guards of the capture; None if there is none."""
        return shape_env_of(self.value)


def shape_env_of(value: Any) -> Any:
    """Returns torch's ShapeEnv of a fake tensor; None for any other value."""
    return getattr(getattr(value, "fake_mode", None), "shape_env", None)


def shape_env_of_inputs(program: ExportedProgram) -> Any:
    """Returns torch's ShapeEnv of the inputs of a program; None without a fake tensor."""
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    return next(filter(None, map(shape_env_of, values)), None)


def captured_inputs(request: Request, program: ExportedProgram) -> list[CapturedInput]:
    """Returns the tensors among the graph's inputs, in order."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    inputs = [nodes[arg.name] for arg in specs if not isinstance(arg, ConstantArgument)]
    names = [*request.input_names, *(node.name for node in inputs[len(request.input_names) :])]
    values = [(name, node.meta["val"]) for name, node in zip(names, inputs, strict=True)]
    tensors = [(name, value) for name, value in values if isinstance(value, torch.Tensor)]
    captured = [CapturedInput(name, asked, value) for (name, value), asked in zip(tensors, request.inputs, strict=True)]
    return list(map(_with_captured_axes, captured)) if isinstance(request.model, ExportedProgram) else captured


def _with_captured_axes(captured: CapturedInput) -> CapturedInput:
    """Returns an input with the axes for which the user's own capture had ``Dim.AUTO`` or ``Dim.DYNAMIC``.

    torch makes such an axis static, or restricts it to some sizes, without a message. It checks a named Dim. A program
    from a file does not tell which axes they were, so that each of its dynamic axes is one.
    """
    shape_env, asked = captured.shape_env, captured.request
    named, symbols = names_of_sources(shape_env), symbols_of_sources(shape_env)
    sources = {axis: source_of_size(captured, axis) for axis in range(captured.value.ndim)}
    axes = {axis: None for axis, source in sources.items() if source in symbols and source not in named}
    if is_from_file(shape_env):
        axes = {axis: None for axis in sources if not isinstance(captured.dim(axis), int)}
    return replace(captured, request=replace(asked, axes={**axes, **asked.axes}))


def example_tensors(request: Request) -> list[torch.Tensor]:
    """Returns the tensors among the example arguments, in the order of ``request.inputs``."""
    leaves = pytree.tree_leaves((request.args, request.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def dims_and_sizes(request: Request, inputs: list[CapturedInput]) -> list[tuple[Any, int]]:
    """Returns each dim of the inputs, as ``CapturedInput.dim`` returns it, with its size in the user's example."""
    pairs = zip(inputs, example_tensors(request), strict=True)
    return [(captured.dim(axis), size) for captured, tensor in pairs for axis, size in enumerate(tensor.shape)]


def defined_sizes(inputs: list[CapturedInput]) -> dict[sympy.Symbol, Any]:
    """Returns the sizes of the dims that the caller defines by an expression over other dims, by symbol."""
    dims = [
        (name, captured.dim(axis))
        for captured in inputs
        for axis, name in captured.request.axes.items()
        if name is not None
    ]
    sizes = {name: dim for name, dim in dims if is_dim_word(name) and not isinstance(dim, int)}
    defined = {}
    for name, dim in dims:
        value = dim_expression(name.definition if isinstance(name, DefinedDim) else name, sizes)
        if value is not None and isinstance(dim, sympy.Symbol):
            defined[dim] = value
    return defined


def symbol_names(inputs: list[CapturedInput], is_given: bool = False) -> tuple[dict[str, str], list[str]]:
    """Returns the user's names by expression, and one sentence for each expression that is not the dim's.

    If two names turn out to be one dim, the first one is kept. A name that is an expression over other names, such as
    ``past + new``, is kept where it is equal to the dim, or where the model relates the dim to no other one. It is
    dropped where the dim is another expression.

    A dim without a name of the user's gets one if the user captured the program: the name of its Dim. A file does not
    keep it, so that the dim is named after the first input that has it: ``x_dim_0``.

    Args:
        inputs: The tensors among the inputs of the graph.
        is_given: Whether the user captured the program.
    """
    names: dict[str, str] = {}
    sizes: dict[str, sympy.Expr] = {}
    conflicts: dict[tuple[str, str], str] = {}
    requested = [
        (captured.axis_text(axis), name, dim)
        for captured in inputs
        for axis, name in captured.request.axes.items()
        if name is not None and not isinstance(dim := captured.dim(axis), int)
    ]
    for axis_text, name, dim in sorted(requested, key=lambda item: not is_dim_word(item[1])):  # expressions come last
        stated = sizes.get(str(name)) if is_dim_word(name) else dim_expression(name, sizes)
        is_free = isinstance(dim, sympy.Symbol) and str(dim) not in names
        if stated is not None and stated != dim and (is_dim_word(name) or not is_free):
            own = _own_names(inputs, names)[str(dim)] if is_free else names.get(str(dim)) or expression_text(dim, names)
            conflicts[own, name] = f"{axis_text} is {own!r}, not {name!r} as the call names it; it keeps its own name."
            continue
        sizes.setdefault(names.setdefault(str(dim), str(name)), dim)
    if is_given:
        names = {**_own_names(inputs, names), **names}
    return names, list(conflicts.values())


def _own_names(inputs: list[CapturedInput], names: Mapping[str, str]) -> dict[str, str]:
    """Returns names for the symbols of the inputs that have none yet."""
    unique, new_names = Names(names.values()), dict[str, str]()
    for captured in inputs:
        for axis in range(captured.value.ndim):
            symbol = captured.dim(axis)
            if isinstance(symbol, sympy.Symbol) and str(symbol) not in (*names, *new_names):
                own = _name_of_dim(captured.shape_env, symbol)
                word = re.sub(r"\W", "_", captured.name)
                new_names[str(symbol)] = unique.unique(own if own and is_dim_word(own) else f"{word}_dim_{axis}")
    return new_names


def dim_names(inputs: list[CapturedInput]) -> dict[sympy.Symbol, str]:
    """Returns a name for the symbol of each dynamic dim: the user's name if it is a word, or `input.shape[axis]`."""
    names: dict[sympy.Symbol, str] = {}
    for captured in inputs:
        for axis, name in captured.request.axes.items():
            dim = captured.dim(axis)
            if isinstance(dim, sympy.Symbol):
                names.setdefault(dim, name if name and is_dim_word(name) else captured.axis_text(axis))
    return names


def dim_labels(inputs: list[CapturedInput]) -> dict[sympy.Symbol, str]:
    """Returns what messages call the symbol of each dynamic dim, also of those that the user's own capture has."""
    labels = {dim: captured.axis_text(axis) for captured in inputs[::-1] for axis in range(captured.value.ndim)
              if isinstance(dim := captured.dim(axis), sympy.Symbol)}  # fmt: skip
    for shape_env in (captured.shape_env for captured in inputs):
        names = names_of_sources(shape_env)
        labels |= {symbol: names[source] for source, symbol in symbols_of_sources(shape_env).items() if source in names}
    return {**labels, **dim_names(inputs)}


def integer_inputs(program: ExportedProgram) -> dict[int, tuple[sympy.Symbol, str]]:
    """Returns the symbol and the name of each graph input that is an integer, by its index among the user's inputs."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    users = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    values = [nodes[name].meta.get("val") if name in nodes else None for name in users]
    return {
        index: (symbolic_expression(value), name)
        for index, (name, value) in enumerate(zip(users, values, strict=True))
        if isinstance(value, torch.SymInt)
    }


def has_dim(inputs: list[CapturedInput], symbol: sympy.Symbol) -> bool:
    """Returns whether a symbol of the user's own capture comes from a ``Dim``, whose range the user declares."""
    return any(_name_of_dim(captured.shape_env, symbol) is not None for captured in inputs)


def _name_of_dim(shape_env: Any, symbol: sympy.Symbol) -> str | None:
    """Returns the name of the Dim from which torch made a symbol; None if there is none."""
    names = names_of_sources(shape_env)
    symbols = symbols_of_sources(shape_env).items()
    return next((names[source] for source, other in symbols if other == symbol and source in names), None)


def specialized_dims(
    inputs: list[CapturedInput], is_given: bool = False, raising: Container[tuple[int, int]] = ()
) -> Iterator[SpecializedDim]:
    """Yields the dims that were requested as dynamic but are static.

    Args:
        inputs: The tensors among the inputs of the graph.
        is_given: Whether the user captured the program.
        raising: The axes, by the number of the input, for whose other sizes the model raises an exception.
    """
    for number, captured in enumerate(inputs):
        for axis, name in captured.request.axes.items():
            size = captured.dim(axis)
            if isinstance(size, int):
                is_bound = (number, axis) in raising
                yield SpecializedDim(
                    captured.name, axis, name, size, *_reason(captured, axis, size, is_given), is_bound
                )


def _reason(captured: CapturedInput, axis: int, size: int, is_given: bool) -> tuple[str, str]:
    """Returns a clause that says why a dim is static, and the line, from the guard on it or on a dim equal to it."""
    shape_env = captured.shape_env
    guards = [guard for guard in getattr(shape_env, "guards", ()) if guard.expr.func.__name__ == "Equality"]
    equal_symbols = {captured.symbol(axis)}
    for guard in guards:
        if all(side.is_Symbol for side in guard.expr.args) and equal_symbols.intersection(guard.expr.args):
            equal_symbols.update(guard.expr.args)
    for guard in sorted(guards, key=lambda guard: not any(side.is_number for side in guard.expr.args)):
        symbols = guard.expr.free_symbols & equal_symbols
        if symbols and not all(side.is_Symbol for side in guard.expr.args):
            labels = {str(symbol): label for label, symbol in _sizes_of_inputs(shape_env)}
            labels |= dict.fromkeys(map(str, symbols), f"shape[{axis}]")
            condition = " == ".join(expression_text(side, labels) for side in guard.expr.args)
            return f"the model needs {condition}", guard_place(guard)
    if is_given:
        return "the ExportedProgram was captured with this size; capture it again with dynamic_shapes", ""
    if size in (0, 1):
        cause = f"torch.export fixes a dim whose example size is {size}"
        return f"{cause}, and a larger example fails or takes another branch", ""
    return f"the model's code fixes it to {size}", ""


def source_of_size(captured: CapturedInput, axis: int) -> str:
    """Returns torch's name for the size of an axis of an input: ``L['x'].size()[0]``.

    What a path has as a key, as those of caches have, may be an attribute for torch: ``L['past'][0].key.size()[0]``.
    """
    parameter, bracket, rest = captured.request.path.partition("[")
    keys = [f"{bracket}{rest}", re.sub(r"\['(\w+)'\]", r".\1", f"{bracket}{rest}")]
    sources = [f"L[{parameter!r}]{key}.size()[{axis}]" for key in keys]
    return next((source for source in sources if source in symbols_of_sources(captured.shape_env)), sources[0])


def _sizes_of_inputs(shape_env: Any) -> Iterator[tuple[str, Any]]:
    """Yields the size of each axis of the inputs, such as ``x.shape[0]``, with its symbol."""
    for source, symbol in symbols_of_sources(shape_env).items():
        match = re.fullmatch(r"L\['(\w+)'\](.*)\.size\(\)\[(\d+)\]", source)
        if match is not None:
            yield f"{match[1]}{match[2]}.shape[{match[3]}]", symbol


def guard_place(guard: Any) -> str:
    """Returns the line of the user's or a library's code that made torch add a guard, as ``(file:line: code)``.

    A TorchScript model that does not store its lines has no place. Returns an empty string if only torch's own code had
    a part in it.
    """
    script = guard_script_line(guard)
    if script is not None:
        return line_text(script.filename, script.lineno)
    frame = guard_origin(guard).frame or guard_location(guard)
    return line_text(frame.filename, frame.lineno) if frame is not None and not is_internal(frame.filename) else ""
