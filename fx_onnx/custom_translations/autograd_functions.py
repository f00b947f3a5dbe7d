"""Captures the call of a torch.autograd.Function as one operator, for functions that define their own translation.

torch.export traces through ``apply``, so the captured program usually contains the operators of the forward. A function
with a static ``symbolic`` method, or with an entry in custom_translation_table, must become one node instead. While a
model is traced, its forward calls a custom operator that is created for it, because a model may call ``apply``
by another name, and ``apply`` looks the forward up in each call. The operator's fake kernel is the original forward.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from operator import is_
from threading import get_ident
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from fx_onnx.capture.patches.patching import exchange_attribute, replace_attribute
from fx_onnx.custom_translations.kept_functions import KeptOperator, RefusedWrites, schema_of
from fx_onnx.torch_internals.threads import CAPTURE_LOCK, is_current
from fx_onnx.torch_internals.torch_private import is_context_of
from fx_onnx.translation.symbolic_registry import autograd_functions

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

    Other threads are not affected. Where torch traces bytecode (strict mode, the branches of ``torch.cond``), such a
    function raises NotImplementedError, because otherwise torch would trace through its forward without a warning.

    Args:
        functions: the functions that the user wants whole.
        every: traces all functions so, but those of torch itself, such as activation checkpointing.
        where_possible: the same, but torch traces through the forward where it traces bytecode, and where an argument
            cannot be an argument of an operator.
    """
    named = frozenset(functions)
    originals: dict[Any, Callable[..., Any]] = {}  # of the forwards that are replaced

    def is_kept(cls: type[Function]) -> bool:
        return cls in named or has_symbolic(cls) or (every and not _is_of_torch(cls))

    def replace_forward(cls: type[Function]) -> None:
        original = replacement = originals.get(cls.forward, cls.forward)  # a class may inherit a replaced one
        if is_kept(cls) or (where_possible and not _is_of_torch(cls)):
            replacement = _caller(cls, original, is_kept(cls))
        if replacement is not cls.forward:
            method = _with_parameters_of(cls.forward, replacement)
            stack.enter_context(exchange_attribute(cls, "forward", staticmethod(method)))
            originals[cls.forward] = original

    def define(cls: type[Function], *args: Any, **kwargs: Any) -> None:
        initialize(cls, *args, **kwargs)
        replace_forward(cls)

    metaclass: Any = type(Function)
    initialize = metaclass.__init__
    with CAPTURE_LOCK, ExitStack() as stack:
        # A model may define a class in its forward.
        stack.enter_context(replace_attribute(metaclass, "__init__", define))
        for function in autograd_functions():
            replace_forward(function)
        yield


def _is_of_torch(function: type[Function]) -> bool:
    return function.__module__.partition(".")[0] == "torch"


def apply_parameters(function: type[Function]) -> list[inspect.Parameter]:
    """Returns the parameters of ``apply``: the parameters of the forward without ``ctx``."""
    parameters = list(inspect.signature(function.forward).parameters.values())
    return parameters if _has_setup_context(function) else parameters[1:]


def _has_setup_context(function: type[Function]) -> bool:
    """Returns whether the class defines ``setup_context``; its forward then has no ``ctx`` parameter."""
    return function.setup_context is not Function.setup_context


# --- operators --------------------------------------------------------------------------------------------------------


def _caller(function: type[Function], forward: Callable[..., Any], is_required: bool) -> Callable[..., Any]:
    """Returns the replacement of a function's forward: it calls the operator of the function.

    Args:
        function: The function.
        forward: Its forward.
        is_required: Whether an error is raised where that is not possible; otherwise torch traces through the forward.
    """
    has_context = not _has_setup_context(function)
    message = (
        f"{function.__name__} cannot be one ONNX operator in strict mode or in the body of a control-flow operator "
        "such as torch.cond; call it outside, or remove its symbolic method and its entry in custom_translation_table"
    )

    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            if is_required:
                raise NotImplementedError(message)
            return forward(*args, **kwargs)
        values = args[has_context:]
        # Python code may call a forward with another context, or with keywords; ``apply`` does neither.
        is_applied = not kwargs and (not has_context or is_context_of(args[0], function))
        if not is_applied or not (is_required or _can_be_arguments(values)):
            return forward(*args, **kwargs)
        names = [p.name for p in apply_parameters(function) if p.kind is not p.VAR_POSITIONAL][: len(values)]
        operator = _operator(function, forward, schema_of(f"{function.__name__}.apply", names, values))
        if has_context:  # its backward may read what the forward saves, which another context has
            args[0].apply = args[0].apply_jvp = functools.partial(_refuse_gradient, function)
        return operator.restructure(operator.opoverload(*values))

    return call


def _refuse_gradient(function: type[Function], *_: Any) -> Any:
    """Replaces ``apply`` of a context."""
    name = function.__name__
    raise NotImplementedError(
        f"{name} is one ONNX operator, so its gradient cannot be calculated in the model; define setup_context, or "
        "remove its symbolic method and its entry in custom_translation_table"
    )


def _with_parameters_of(forward: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function with the parameters of a forward: for keywords, ``apply`` reads their names in its code.

    It calls ``function`` in the current thread. In others it calls the forward, and no other function of the package.
    """
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [parameter.name for parameter in inspect.signature(forward).parameters.values() if parameter.kind in kinds]
    declared = ", ".join([*(f"{name}=__absent" for name in names), "*__rest"])
    called = "(__function if __is_current(__thread) else __forward)"
    # By position up to the first parameter that is not given, and the given ones after it by name.
    by_place = f"*(__given := [{', '.join(names)}])[: (__count := [*map(__is_absent, __given), True].index(True))]"
    by_name = "**{k: v for k, v in [*zip(__names, __given)][__count:] if v is not __absent}"
    made: Callable[..., Any] = eval(
        f"lambda {declared}, **__keywords: {called}({by_place}, *__rest, {by_name}, **__keywords)",
        {
            "__absent": _ABSENT,
            "__is_absent": functools.partial(is_, _ABSENT),
            "__names": names,
            "__forward": forward,
            "__function": function,
            "__is_current": is_current,
            "__thread": get_ident(),
        },
    )
    return functools.wraps(forward)(made)


_ABSENT = object()


def _can_be_arguments(values: tuple[Any, ...]) -> bool:
    """Returns whether all values can be arguments of an operator."""
    try:
        schema_of("", (), values)
    except NotImplementedError:
        return False
    return True


@functools.cache
def _operator(function: type[Function], forward: Callable[..., Any], schema: str) -> KeptOperator:
    return KeptOperator(NAMESPACE, function, functools.partial(_compute, function, forward), schema)


def _compute(function: type[Function], forward: Callable[..., Any], *args: Any) -> Any:
    """Runs the forward of a function."""
    context = FunctionCtx()
    context.needs_input_grad = (False,) * len(args)  # type: ignore[attr-defined]
    with RefusedWrites(function.__name__, args):
        return forward(*(args if _has_setup_context(function) else (context, *args)))
