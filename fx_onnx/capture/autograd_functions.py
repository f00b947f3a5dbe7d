"""Captures the call of a torch.autograd.Function as one operator, for functions that define their own translation.

torch.export traces through ``apply``, so the captured program usually contains the operators of the forward. A function
with a static ``symbolic`` method, or with an entry in custom_translation_table, must become one node instead. While a
model is traced, ``apply`` of such a function calls a custom operator that is created for it. The operator's fake kernel
is the function's forward.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.export import ExportedProgram
from torch.fx import GraphModule

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.threads import CAPTURE_LOCK
from fx_onnx.core.torch_private import OpOverload, pytree, storage_id

NAMESPACE = "autograd_function"


def has_symbolic(function: type[Function]) -> bool:
    """Returns whether the function has a ``symbolic`` method, as defined by torch.onnx's TorchScript exporter.

    A method that calls the translations of that exporter (``symbolic_opset9.softmax``) does not count. Those
    translations accept only the exporter's own values. They implement ATen operators, and tracing the forward yields
    the same ones.
    """
    method = getattr(function, "symbolic", None)
    names = getattr(getattr(inspect.unwrap(method), "__code__", None), "co_names", ()) if callable(method) else ()
    return callable(method) and not any("symbolic_opset" in name for name in names)


@contextmanager
def trace_as_operators(
    functions: Iterable[type[Function]] = (), *, every: bool = False, where_possible: bool = False
) -> Iterator[None]:
    """Makes torch trace each function in ``functions``, and each one with ``symbolic``, as one operator.

    Other threads are not affected. Where torch traces bytecode (strict mode, the branches of ``torch.cond``), it does
    not call ``apply``. There such a function raises NotImplementedError, because otherwise torch would trace through
    its forward without a warning.

    Args:
        functions: the functions that the user wants whole.
        every: traces all functions so, but those of torch itself, such as activation checkpointing.
        where_possible: the same, but torch traces through the forward where it traces bytecode, and where an argument
            cannot be an argument of an operator.
    """
    named = frozenset(functions)

    def is_kept(cls: type[Function]) -> bool:
        return cls in named or has_symbolic(cls) or (every and not _is_of_torch(cls))

    descriptor = vars(Function)["apply"]
    original_apply = getattr(descriptor, "__func__", descriptor)  # torch 2.14 defines the class method in C

    def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        if is_kept(cls) or (where_possible and can_be_operator(cls, args, kwargs)):
            return _call(cls, args, kwargs)
        return original_apply(cls, *args, **kwargs)

    with CAPTURE_LOCK, ExitStack() as stack:
        stack.enter_context(replace_attribute(Function, "apply", classmethod(apply)))
        for function in _all_subclasses(Function):
            if is_kept(function):
                stack.enter_context(replace_attribute(function, "forward", staticmethod(_eager_only(function))))
        yield


def _is_of_torch(function: type[Function]) -> bool:
    return function.__module__.partition(".")[0] == "torch"


def apply_parameters(function: type[Function]) -> list[inspect.Parameter]:
    """Returns the parameters of ``apply``: the parameters of the forward without ``ctx``."""
    found = list(inspect.signature(function.forward).parameters.values())
    return found if _has_setup_context(function) else found[1:]


def _has_setup_context(function: type[Function]) -> bool:
    """Returns whether the class defines ``setup_context``; its forward then has no ``ctx`` parameter."""
    return function.setup_context is not Function.setup_context


def _all_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _all_subclasses(subclass)


def _eager_only(function: type[Function]) -> Callable[..., Any]:
    """Returns the forward wrapped so that it raises an error where torch traces its bytecode."""
    forward = function.forward
    message = (
        f"{function.__name__} cannot be one ONNX operator in strict mode or in the body of a control-flow operator "
        "such as torch.cond; call it outside, or remove its symbolic method and its entry in custom_translation_table"
    )

    @functools.wraps(forward)
    def eager_forward(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            raise NotImplementedError(message)
        return forward(*args, **kwargs)

    return eager_forward


# --- operators --------------------------------------------------------------------------------------------------------


def _call(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Computes ``function.apply(*args, **kwargs)`` by a call of the function's operator."""
    formals = apply_parameters(function)
    if _has_setup_context(function) or kwargs:
        bound = inspect.Signature(formals).bind(*args, **kwargs)
        bound.apply_defaults()
        args = (*bound.args, *bound.kwargs.values())
    names = [p.name for p in formals if p.kind is not p.VAR_POSITIONAL]
    names += [f"argument_{place}" for place in range(len(names), len(args))]
    for value in args:
        if _schema_type(value) is None:
            raise NotImplementedError(
                f"{function.__name__}.apply got {value!r}, which cannot be an argument of an operator; pass tensors, "
                "numbers, strings, dtypes, devices or flat lists of them"
            )
    schema = ", ".join(f"{_schema_type(value)} {name}" for name, value in zip(names, args, strict=False))
    operator = _operator(function, f"({schema}) -> Tensor[]")
    return operator.restructure(operator.opoverload(*args))


def can_be_operator(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether a function is not torch's own, and all arguments of a call can be arguments of an operator."""
    return not _is_of_torch(function) and None not in map(_schema_type, (*args, *kwargs.values()))


_SCHEMA_TYPES: dict[type[Any], str] = {
    bool: "bool", int: "SymInt", torch.SymInt: "SymInt", float: "float", torch.SymFloat: "float", str: "str",
    torch.dtype: "ScalarType", torch.device: "Device", type(None): "Tensor?",
}  # fmt: skip


def _schema_type(value: Any) -> str | None:
    """Returns the type of an argument in the operator's schema, such as ``SymInt[]``; None if it has none."""
    if isinstance(value, torch.Tensor):
        return "Tensor"
    if isinstance(value, (list, tuple)):
        types = {_schema_type(item) or "[]" for item in value} or {"SymInt"}
        types = types - {"Tensor"} if "Tensor?" in types else types
        types = {"float"} if types == {"float", "SymInt"} else types
        kind = types.pop()
        return None if types or kind.endswith("]") else f"{kind}[]"
    return _SCHEMA_TYPES.get(type(value))


class _Operator:
    """The operator for the calls of one function with arguments of certain types.

    Attributes:
        function: The autograd.Function.
        opoverload: The operator that the captured program calls. It returns a list of the tensors among the forward's
            results.
    """

    def __init__(self, function: type[Function], schema: str) -> None:
        self.function = function
        self._last = threading.local()  # the structure of the results of the last run in each thread
        base = re.sub(r"\W+", "_", function.__qualname__.replace(".<locals>", ""))
        numbered = (f"{base}_{number}" for number in itertools.count(1))
        name = next(n for n in itertools.chain([base], numbered) if n not in _operators)
        definition = torch.library.custom_op(f"{NAMESPACE}::{name}", self.run, mutates_args=(), schema=schema)
        definition.register_fake(self.run)
        self.opoverload = getattr(getattr(torch.ops, NAMESPACE), name).default
        _operators[name] = self

    def run(self, *args: Any) -> list[torch.Tensor]:
        """Runs the forward on fake or real tensors; clones each result that shares its storage with an input."""
        context = FunctionCtx()
        context.needs_input_grad = (False,) * len(args)  # type: ignore[attr-defined]
        results = self.function.forward(*(args if _has_setup_context(self.function) else (context, *args)))
        if getattr(context, "dirty_tensors", ()):
            raise NotImplementedError(
                f"{self.function.__name__} writes to its inputs, so it cannot be one ONNX operator; return a new tensor"
            )
        leaves, self._last.spec = pytree.tree_flatten(results)
        self._last.leaves = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        input_storages = {storage_id(t) for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)}
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return [t.clone() if storage_id(t) in input_storages else t for t in tensors]

    def restructure(self, tensors: list[torch.Tensor]) -> Any:
        """Puts the tensors into the structure that the forward returned in the last run in this thread."""
        rest = iter(tensors)
        leaves = [next(rest) if leaf is _TENSOR else leaf for leaf in self._last.leaves]
        return pytree.tree_unflatten(leaves, self._last.spec)


_TENSOR = object()
_operators: dict[str, _Operator] = {}  # by name in torch.library; custom operators stay registered


@functools.cache
def _operator(function: type[Function], schema: str) -> _Operator:
    return _Operator(function, schema)


def functions_by_operator(program: ExportedProgram) -> dict[Any, type[Function]]:
    """Returns the operators of autograd.Functions that a captured program calls, each with its function."""
    modules = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    operators = (target for target in targets if getattr(target, "namespace", None) == NAMESPACE)
    return {target: function_of(target) for target in operators}


def function_of(target: OpOverload) -> type[Function]:
    """Returns the autograd.Function that an operator of the namespace ``NAMESPACE`` calls."""
    return _operators[target._schema.name.split("::")[1]].function


def forwards_by_operator(program: ExportedProgram) -> dict[Any, Callable[..., list[torch.Tensor]]]:
    """Returns the operators of autograd.Functions that a captured program calls, each with what computes it."""
    return {target: _operators[target._schema.name.split("::")[1]].run for target in functions_by_operator(program)}
