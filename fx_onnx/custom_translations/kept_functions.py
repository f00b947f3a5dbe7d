"""Captures the call of a Python function as one operator, for functions that have an entry in custom_translation_table.

torch.export traces through a function, so a loop over tokens would be unrolled for the example. While a model is
traced, a kept function is replaced by a custom operator that is created for it. The function computes the operator for
real tensors, and is traced where the translation declines a call. The fake kernel runs the function at two sizes of
each dynamic dim, and finds each size of the results among the sizes of the arguments. A function that branches on
values runs with zeros and with ones there, and its results must have the same sizes.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from fx_onnx.capture.patches.patching import KEPT_MARK, Around, Patch, apply_patches
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.guard_private import example_size
from fx_onnx.torch_internals.operators import nodes_of
from fx_onnx.torch_internals.threads import CAPTURE_LOCK
from fx_onnx.torch_internals.torch_private import (
    DataDependentOutputException,
    FakeTensorMode,
    OpOverload,
    TorchDispatchMode,
    free_unbacked_symbols,
    pytree,
    skip_undecided,
    storage_id,
    storage_ids,
    symbolic_expression,
    unset_fake_temporarily,
)

__all__ = [
    "KeptOperator", "RefusedWrites", "computations", "keep_functions", "kept_by_operator", "kept_parameters",
    "operator_of_call", "schema_of",
]  # fmt: skip

_NAMESPACE = "kept_function"
_UNKNOWN_SIZE = 8  # of a dim for which torch has no example


# --- functions --------------------------------------------------------------------------------------------------------


@contextmanager
def keep_functions(functions: Iterable[Callable[..., Any]]) -> Iterator[None]:
    """Makes torch trace each call of these functions as one operator, in the current thread.

    A function is replaced in its own module, and in every module that imported it. Where torch traces bytecode (strict
    mode, the branches of ``torch.cond``), such a function raises NotImplementedError.
    """
    reason = "The user wants the function whole."
    patches = [
        Patch(f"{func.__module__}:{func.__qualname__}", Around(_caller), reason, in_torch=True) for func in functions
    ]
    with CAPTURE_LOCK, apply_patches(patches):
        _copies.clear()
        yield
        for name in dict.fromkeys(name for copy, version, name in _copies if copy._version > version):
            warn(
                f"The model writes to a result of {name} that shares its memory with an argument, and the exported "
                "model changes the result only; copy the result before you write to it.",
                MessageId.WRITE_IN_PLACE,
            )


def kept_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Returns the parameters that become arguments of the operator: all but ``**kwargs``."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]


def _caller(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls the operator of ``function``."""
    name, formals = function.__qualname__, kept_parameters(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            raise NotImplementedError(
                f"{name} cannot be one ONNX operator in strict mode or in the body of a control-flow operator such as "
                "torch.cond; call it outside, or remove its entry in custom_translation_table"
            )
        kwargs = {key: value for key, value in kwargs.items() if value is not None or key in _names(formals)}
        bound = inspect.Signature(formals).bind(*args, **kwargs)
        bound.apply_defaults()
        values = [*bound.args, *bound.kwargs.values()]
        operator = _operator(function, schema_of(name, _names(formals), values))
        return operator.restructure(operator.opoverload(*values))

    vars(call)[KEPT_MARK] = True
    return call


def _names(formals: Iterable[inspect.Parameter]) -> list[str]:
    return [parameter.name for parameter in formals if parameter.kind is not parameter.VAR_POSITIONAL]


@functools.cache
def _operator(function: Callable[..., Any], schema: str) -> KeptOperator:
    return KeptOperator(_NAMESPACE, function, functools.partial(_call_in_order, function), schema, infers_sizes=True)


class RefusedWrites(TorchDispatchMode):
    """Raises NotImplementedError if an operator writes to a tensor among the arguments of a function."""

    def __init__(self, function: str, args: Sequence[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._function, self._storages = function, storage_ids(args)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the operator."""
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable:
            given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | (kwargs or {})
            written = [
                argument.name
                for argument in schema.arguments
                if argument.alias_info is not None and argument.alias_info.is_write
            ]
            if storage_ids([given.get(name) for name in written]) & self._storages:
                raise NotImplementedError(
                    f"{self._function} writes to its arguments, so it cannot be one ONNX operator; return a new tensor"
                )
        return func(*args, **(kwargs or {}))


def _call_in_order(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function with the arguments of its operator."""
    by_name = [parameter.name for parameter in kept_parameters(function) if parameter.kind is parameter.KEYWORD_ONLY]
    count = len(args) - len(by_name)
    with RefusedWrites(function.__qualname__, args):
        return function(*args[:count], **dict(zip(by_name, args[count:], strict=True)))


# --- operators --------------------------------------------------------------------------------------------------------

_SCHEMA_TYPES: dict[type[Any], str] = {
    bool: "bool", int: "SymInt", torch.SymInt: "SymInt", float: "float", torch.SymFloat: "float", str: "str",
    torch.dtype: "ScalarType", torch.device: "Device", type(None): "Tensor?",
}  # fmt: skip


def schema_of(function: str, names: Sequence[str], args: Sequence[Any]) -> str:
    """Returns the schema of the operator for a call; arguments beyond the names are numbered.

    Raises:
        NotImplementedError: an argument cannot be that of an operator.
    """
    names = [*names, *(f"argument_{index}" for index in range(len(names), len(args)))]
    typed = (f"{_schema_type(value, function)} {name}" for name, value in zip(names, args, strict=True))
    return f"({', '.join(typed)}) -> Tensor[]"


def _schema_type(value: Any, function: str) -> str:
    """Returns the type of an argument in the operator's schema, such as ``SymInt[]``."""
    if isinstance(value, torch.Tensor):
        return "Tensor"
    if isinstance(value, (list, tuple)):
        types = {_schema_type(item, function) for item in value} or {"SymInt"}
        types = types - {"Tensor"} if "Tensor?" in types else types
        types = {"float"} if types == {"float", "SymInt"} else types
        if len(types) == 1 and not next(iter(types)).endswith("]"):
            return f"{types.pop()}[]"
    elif type(value) in _SCHEMA_TYPES:
        return _SCHEMA_TYPES[type(value)]
    raise NotImplementedError(
        f"{function} got {value!r}, which cannot be an argument of an operator; pass tensors, numbers, strings, "
        "dtypes, devices or flat lists of them"
    )


class KeptOperator:
    """The operator for the calls of one callable with arguments of certain types.

    Attributes:
        callable: What the user named: a function, or an autograd.Function.
        opoverload: The operator that the captured program calls. It returns a list of the tensors among the results.
    """

    def __init__(
        self, namespace: str, callable: Any, compute: Callable[..., Any], schema: str, infers_sizes: bool = False
    ) -> None:
        """Creates the operator.

        Args:
            namespace: Its namespace.
            callable: See the attribute.
            compute: Computes the results from the arguments.
            schema: Its schema without a name.
            infers_sizes: Whether the sizes of the results are inferred from those at static sizes.
        """
        self.callable, self._compute, self._infers_sizes = callable, compute, infers_sizes
        self._last = threading.local()  # the structure of the results of the last run in each thread
        base = re.sub(r"\W+", "_", callable.__qualname__.replace(".<locals>", ""))
        numbered = (f"{base}_{number}" for number in itertools.count(1))
        name = next(n for n in itertools.chain([base], numbered) if (namespace, n) not in _operators)
        definition = torch.library.custom_op(f"{namespace}::{name}", self.run, mutates_args=(), schema=schema)
        definition.register_fake(self._run_fake)
        self.opoverload = getattr(getattr(torch.ops, namespace), name).default
        _operators[namespace, name] = self

    def run(self, *args: Any) -> list[torch.Tensor]:
        """Returns the results for fake or real tensors; clones each one that shares its storage with an input."""
        leaves, self._last.spec = pytree.tree_flatten(self._compute(*args))
        self._last.leaves = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        input_storages = storage_ids(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._last.is_copy = [storage_id(t) in input_storages for t in tensors]
        return [t.clone() if copied else t for t, copied in zip(tensors, self._last.is_copy, strict=True)]

    def restructure(self, tensors: list[torch.Tensor]) -> Any:
        """Returns the tensors in the structure that the callable returned in the last run in this thread."""
        copies = itertools.compress(tensors, self._last.is_copy)
        _copies.extend((copy, copy._version, self.callable.__qualname__) for copy in copies)
        rest = iter(tensors)
        leaves = [next(rest) if leaf is _TENSOR else leaf for leaf in self._last.leaves]
        return pytree.tree_unflatten(leaves, self._last.spec)

    def _run_fake(self, *args: Any) -> list[torch.Tensor]:
        """Returns fake results.

        Sizes are inferred from runs at two sizes of each dynamic dim, also where the callable branches on values. A
        size that differs between the two runs is that of an argument, plus a number.
        """
        leaves = pytree.tree_leaves(args)
        given = [size for leaf in leaves for size in (leaf.shape if isinstance(leaf, torch.Tensor) else [leaf])]
        sizes = {symbolic_expression(size): size for size in given if isinstance(size, torch.SymInt)}
        if not (self._infers_sizes and sizes):
            with skip_undecided():
                return self.run(*args)
        known = {
            expression: example_size(size)
            for expression, size in sizes.items()
            if expression.is_symbol and not free_unbacked_symbols(size)
        }
        symbols = sorted({symbol for expression in sizes for symbol in expression.free_symbols}, key=str)
        first = {symbol: known.get(symbol, _UNKNOWN_SIZE) for symbol in symbols}
        second = {symbol: first[symbol] + 2**index for index, symbol in enumerate(symbols)}
        runs = [self._run_static(args, values) for values in (first, second)]

        def find(one: int, other: int) -> Any:
            if one == other:
                return one
            differences = {
                expression: one - int(expression.xreplace(first))
                for expression in sizes
                if one - expression.xreplace(first) == other - expression.xreplace(second)
            }
            if not differences:
                raise NotImplementedError(
                    f"the sizes of the results of {self.callable.__qualname__} are not sizes of its arguments; make it "
                    "a custom operator of torch.library with a fake implementation"
                )
            best = min(differences, key=lambda expression: abs(differences[expression]))
            return sizes[best] + differences[best]

        source = next(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        return [
            source.new_empty(list(map(find, one.shape, other.shape)), dtype=one.dtype, device=one.device)
            for one, other in zip(*runs, strict=True)
        ]

    def _run_static(self, args: Any, values: dict[sympy.Symbol, int]) -> list[torch.Tensor]:
        """Returns the results for fake arguments whose symbols have values.

        A callable that branches on values gets real tensors, first of zeros, then of ones.

        Raises:
            DataDependentOutputException: the two have results of different sizes or dtypes.
        """

        def static(value: Any, element: int = 0) -> Any:
            if isinstance(value, torch.SymInt):
                return int(symbolic_expression(value).xreplace(values))
            if isinstance(value, torch.Tensor):
                sizes = [static(size) for size in value.shape]
                return torch.full(sizes, element, dtype=value.dtype, device=value.device)
            return value

        with unset_fake_temporarily():
            try:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    return self.run(*pytree.tree_map(static, args))
            except DataDependentOutputException:
                zeros, ones = (self.run(*pytree.tree_map(lambda v, e=e: static(v, e), args)) for e in (0, 1))
                if [(value.shape, value.dtype) for value in zeros] != [(value.shape, value.dtype) for value in ones]:
                    raise
                return ones


_TENSOR = object()
_copies: list[tuple[torch.Tensor, int, str]] = []  # of arguments among results in this capture, with their versions
_operators: dict[tuple[str, str], KeptOperator] = {}  # by name in torch.library; custom operators stay registered


def kept_by_operator(program: ExportedProgram) -> dict[Any, Any]:
    """Returns the operators that a captured program calls for callables, each with its callable."""
    return {target: operator.callable for target, operator in _called(program).items()}


def computations(program: ExportedProgram) -> dict[Any, Callable[..., list[torch.Tensor]]]:
    """Returns the operators that a captured program calls for callables, each with what computes it."""
    return {target: operator.run for target, operator in _called(program).items()}


def operator_of_call(target: OpOverload) -> KeptOperator:
    """Returns the record of an operator."""
    namespace, name = target._schema.name.split("::")
    return _operators[namespace, name]


def _called(program: ExportedProgram) -> dict[Any, KeptOperator]:
    targets: set[Any] = {node.target for node in nodes_of(program) if node.op == "call_function"}
    names = {namespace for namespace, _ in _operators}
    return {target: operator_of_call(target) for target in targets if getattr(target, "namespace", None) in names}
