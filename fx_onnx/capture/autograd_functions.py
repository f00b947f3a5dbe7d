"""autograd.Function → one operator of the captured program, where the function says what it is in ONNX.

torch.export traces through ``apply``, so that the captured program holds what the forward does. A function with a
static ``symbolic`` method, or with an entry of custom_translation_table, is to be one node instead. While a model is
traced, its ``apply`` calls a custom operator made for it, whose fake result is that of the forward.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.export import ExportedProgram
from torch.fx import GraphModule

from fx_onnx.capture.export_flag import replaced
from fx_onnx.core.torch_private import pytree, storage_id

NAMESPACE = "autograd_function"

# The functions of custom_translation_table; None where no model is traced.
_wanted: ContextVar[frozenset[type[Function]] | None] = ContextVar("fx_onnx_autograd_functions", default=None)


def has_symbolic(function: type[Function]) -> bool:
    """Whether it says what it is in ONNX, as torch.onnx's TorchScript exporter read it.

    One that asks the translations of that exporter (``symbolic_opset9.softmax``) does not: they take its values only,
    and are of ATen operators, as the forward is, which is traced instead.
    """
    method = getattr(function, "symbolic", None)
    names = getattr(getattr(inspect.unwrap(method), "__code__", None), "co_names", ()) if callable(method) else ()
    return callable(method) and not any("symbolic_opset" in name for name in names)


@contextmanager
def kept_whole(functions: Iterable[type[Function]] = ()) -> Iterator[None]:
    """Within it, a function of ``functions``, or one with ``symbolic``, is traced as one operator.

    Other threads run as ever. What torch traces by reading bytecode (strict mode, the branches of ``torch.cond``) does
    not come by ``apply``, so there such a function is refused instead of being taken apart.
    """
    before = vars(Function)["apply"].__func__

    def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        wanted = _wanted.get()
        if wanted is None or not (has_symbolic(cls) or cls in wanted):
            return before(cls, *args, **kwargs)
        return _call(cls, args, kwargs)

    token = _wanted.set(wanted := frozenset(functions))
    try:
        with ExitStack() as stack:
            stack.enter_context(replaced(Function, "apply", classmethod(apply)))
            for function in _all_subclasses(Function):
                if has_symbolic(function) or function in wanted:
                    stack.enter_context(replaced(function, "forward", staticmethod(_refusing(function))))
            yield
    finally:
        _wanted.reset(token)


def parameters(function: type[Function]) -> list[inspect.Parameter]:
    """What ``apply`` takes: the parameters of the forward, without its context."""
    found = list(inspect.signature(function.forward).parameters.values())
    return found if _has_own_setup(function) else found[1:]


def _has_own_setup(function: type[Function]) -> bool:
    """Whether the forward gets no context: ``setup_context`` does."""
    return function.setup_context is not Function.setup_context


def _all_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _all_subclasses(subclass)


def _refusing(function: type[Function]) -> Callable[..., Any]:
    """The forward, which torch may not read the bytecode of."""
    forward = function.forward
    refusal = f"{function.__name__} cannot be one ONNX operator in strict mode or in a body of torch.cond and the like"

    @functools.wraps(forward)
    def forward_unless_compiled(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            raise NotImplementedError(refusal)
        return forward(*args, **kwargs)

    return forward_unless_compiled


# ---------------------------------------------------------------- calls


def _call(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``function.apply(*args, **kwargs)`` gives, by way of its operator."""
    formals = parameters(function)
    if _has_own_setup(function) or kwargs:
        bound = inspect.Signature(formals).bind(*args, **kwargs)
        bound.apply_defaults()
        args = (*bound.args, *bound.kwargs.values())
    names = [p.name for p in formals if p.kind is not p.VAR_POSITIONAL]
    names += [f"argument_{place}" for place in range(len(names), len(args))]
    schema = ", ".join(f"{_kind(value, function)} {name}" for name, value in zip(names, args, strict=False))
    operator = _operator(function, f"({schema}) -> Tensor[]")
    return operator.structured(operator.opoverload(*args))


_KINDS: dict[type[Any], str] = {
    bool: "bool", int: "SymInt", torch.SymInt: "SymInt", float: "float", torch.SymFloat: "float", str: "str",
    torch.dtype: "ScalarType", torch.device: "Device", type(None): "Tensor?",
}  # fmt: skip


def _kind(value: Any, function: type[Function]) -> str:
    """The type of an argument in the operator's schema."""
    if isinstance(value, torch.Tensor):
        return "Tensor"
    if isinstance(value, (list, tuple)):
        kinds = {_kind(item, function) for item in value} or {"SymInt"}
        kinds = kinds - {"Tensor"} if "Tensor?" in kinds else kinds
        kinds = {"float"} if kinds == {"float", "SymInt"} else kinds
        if len(kinds) == 1 and not next(iter(kinds)).endswith("]"):
            return f"{kinds.pop()}[]"
    elif type(value) in _KINDS:
        return _KINDS[type(value)]
    raise NotImplementedError(f"{function.__name__}.apply got {value!r}, which cannot be an argument of an operator")


class _Operator:
    """The operator that stands for the calls of a function whose arguments have certain types.

    Attributes:
        opoverload: what the captured program calls. It gives the tensors among the forward's results, in a list.
    """

    def __init__(self, function: type[Function], schema: str) -> None:
        self.function = function
        self._leaves: list[Any] = []
        self._spec: Any = None
        base = re.sub(r"\W+", "_", function.__qualname__.replace(".<locals>", ""))
        numbered = (f"{base}_{number}" for number in itertools.count(1))
        name = next(n for n in itertools.chain([base], numbered) if n not in _operators)
        definition = torch.library.custom_op(f"{NAMESPACE}::{name}", self._run, mutates_args=(), schema=schema)
        definition.register_fake(self._run)
        self.opoverload = getattr(getattr(torch.ops, NAMESPACE), name).default
        _operators[name] = self

    def _run(self, *args: Any) -> list[torch.Tensor]:
        """The forward, with fake tensors or real ones; a result is never an input."""
        context = FunctionCtx()
        context.needs_input_grad = (False,) * len(args)  # type: ignore[attr-defined]
        results = self.function.forward(*(args if _has_own_setup(self.function) else (context, *args)))
        if getattr(context, "dirty_tensors", ()):
            raise NotImplementedError(
                f"{self.function.__name__} writes to its inputs, so it cannot be one ONNX operator"
            )
        leaves, self._spec = pytree.tree_flatten(results)
        self._leaves = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        given = {storage_id(t) for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)}
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return [t.clone() if storage_id(t) in given else t for t in tensors]

    def structured(self, tensors: list[torch.Tensor]) -> Any:
        """The results of the last run in the forward's structure, with these tensors in it."""
        rest = iter(tensors)
        leaves = [next(rest) if leaf is _TENSOR else leaf for leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._spec)


_TENSOR = object()
_operators: dict[str, _Operator] = {}  # by name: what torch.library cannot tell of them


@functools.cache
def _operator(function: type[Function], schema: str) -> _Operator:
    return _Operator(function, schema)


def functions_called(program: ExportedProgram) -> dict[Any, type[Function]]:
    """The operators that a captured program calls in the place of functions, each with its function."""
    modules = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    ours = (target for target in targets if getattr(target, "namespace", None) == NAMESPACE)
    return {target: _operators[target._schema.name.split("::")[1]].function for target in ours}
