"""Captures the call of a torch.autograd.Function as one operator, for functions that define their own translation.

torch.export traces through ``apply``, so the captured program usually contains the operators of the forward. A function
with a static ``symbolic`` method, or with an entry in custom_translation_table, must become one node instead. While a
model is traced, ``apply`` of such a function calls a custom operator that is created for it. The operator's fake kernel
is the function's forward.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from fx_onnx.capture.kept_functions import KeptOperator, schema_of
from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.torch_internals.threads import CAPTURE_LOCK

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
    names = [p.name for p in formals if p.kind is not p.VAR_POSITIONAL][: len(args)]
    operator = _operator(function, schema_of(f"{function.__name__}.apply", names, args))
    return operator.restructure(operator.opoverload(*args))


def can_be_operator(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether a function is not torch's own, and all arguments of a call can be arguments of an operator."""
    if _is_of_torch(function):
        return False
    try:
        schema_of(function.__name__, (), (*args, *kwargs.values()))
    except NotImplementedError:
        return False
    return True


@functools.cache
def _operator(function: type[Function], schema: str) -> KeptOperator:
    return KeptOperator(NAMESPACE, function, functools.partial(_forward, function), schema)


def _forward(function: type[Function], *args: Any) -> Any:
    """Runs the forward of a function."""
    context = FunctionCtx()
    context.needs_input_grad = (False,) * len(args)  # type: ignore[attr-defined]
    results = function.forward(*(args if _has_setup_context(function) else (context, *args)))
    if getattr(context, "dirty_tensors", ()):
        raise NotImplementedError(
            f"{function.__name__} writes to its inputs, so it cannot be one ONNX operator; return a new tensor"
        )
    return results
