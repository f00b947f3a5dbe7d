"""The cache of results of operators on fake tensors: results are made, and new entries checked, in fewer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from fx_onnx.faster_tracing.plain_tensors import call_kernel
from fx_onnx.faster_tracing.replacement import Replacement
from fx_onnx.torch_internals.torch_private import FakeTensor

__all__ = ["REPLACEMENTS"]


def _make(original: Callable[..., Any], describe: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns the method that makes a tensor of an entry, and the method that makes an entry.

    torch's first method suppresses guards, of which numbers have none. It makes a tensor of the size of the entry, and
    a result of a view then takes the size, the strides and the memory that its argument has, so the first tensor needs
    no size; torch 2.15 does the same. Where the events of symbolic sizes are recorded, torch's method runs.

    To check a new entry, torch makes a tensor of it, compares its dispatch keys, and drops it. The size does not change
    these keys. But to make it, torch asks about its symbolic sizes, and the caches of the answers forget what was not
    asked for long, so that a later question leaves another guard. So the questions of the first check of a size are
    noted. The next check of this size asks the same ones, without the arithmetic between them, and its tensor has no
    size. If an answer is another one, torch's method runs. It also runs where a trace would record the arithmetic.
    """
    proxy_mode = import_module("torch.fx.experimental.proxy_tensor").get_proxy_mode
    keys: list[Any] = []  # of the entries that are checked
    questions: dict[Any, list[Any]] = {}

    def result(self: Any, state: Any, entry: Any, key: Any, *rest: Any) -> Any:
        metadata, env, index = entry.metadata, self.shape_env, entry.view_idx
        if (
            metadata is None
            or entry.inplace_idx is not None
            or metadata.layout is not torch.strided
            or metadata.is_conj
            or metadata.is_neg
            or (env is not None and env.should_record_events)
            or (index is not None and type(rest[-1][index]) is not FakeTensor)
        ):
            return original(self, state, entry, key, *rest)
        storage = None if index is None else rest[-1][index].untyped_storage()
        sizes = (*metadata.shape, *metadata.stride, metadata.storage_offset)
        if {*map(type, sizes)} <= _NUMBERS:
            if storage is None or type(storage.nbytes()) is int:  # else torch asks about it
                return _tensor(self, metadata, metadata.shape, metadata.stride, storage)
        elif (
            keys
            and keys[-1] is key
            and state.shape_env is env
            and not env._translation_validation_enabled
            and proxy_mode() is None
        ):
            terms = (size if type(size) is int else _term(size.extract(key, env)) for size in sizes)
            checked = (
                env,
                env._version_counter,
                metadata.dtype,
                *terms,
                None if storage is None else _term(storage.nbytes()),
            )
            if checked not in questions:
                with _noted(env) as asked:
                    made = original(self, state, entry, key, *rest)
                if storage is None or _term(storage.nbytes()) == checked[-1]:  # a view may enlarge its memory
                    questions[checked] = asked
                return made
            with env.suppress_guards():
                is_same = all(ask(*given, **named) == answer for ask, given, named, answer in questions[checked])
            if is_same:
                return _tensor(self, metadata, (), (), None)
        return original(self, state, entry, key, *rest)

    return result, _noting_keys(describe, keys)


def _noting_keys(describe: Callable[..., Any], keys: list[Any]) -> Callable[..., Any]:
    """Returns the method that makes an entry; its key is the last one of the list while the entry is checked."""

    def described(self: Any, state: Any, key: Any, *rest: Any) -> Any:
        keys.append(key)
        try:
            return describe(self, state, key, *rest)
        finally:
            keys.pop()

    return described


def _tensor(mode: Any, metadata: Any, shape: Sequence[int], stride: Sequence[int], storage: Any) -> FakeTensor:
    """Returns a fake tensor with the kind of an entry, in a memory of its own or in that of a viewed tensor."""
    options = {"dtype": metadata.dtype, "device": "meta", "requires_grad": metadata.requires_grad}

    def view() -> Any:
        return torch.empty_strided((), (), **options).set_(storage, metadata.storage_offset, shape, stride)

    made = (
        call_kernel(mode, torch.empty_strided, shape, stride, **options) if storage is None else call_kernel(mode, view)
    )
    return FakeTensor(mode, made, metadata.device)


def _term(size: Any) -> Any:
    """Returns a number, or what decides how torch computes with a symbolic size."""
    return size if type(size) is int else (size.node._expr, size.node._optimized_summation)


@contextmanager
def _noted(env: Any) -> Iterator[list[Any]]:
    """Yields the list of what the caches that forget are asked: the method, its arguments, and the answer."""
    asked: list[Any] = []

    def noting(ask: Any) -> Any:
        def noted(*given: Any, **named: Any) -> Any:
            asked.append((ask, given, named, answer := ask(*given, **named)))
            return answer

        return noted

    methods = {name: getattr(env, name) for name in ("_inner_evaluate_expr", "guard_or_defer_runtime_assert")}
    vars(env).update({name: noting(method) for name, method in methods.items()})
    try:
        yield asked
    finally:
        for name in methods:
            del vars(env)[name]


_NUMBERS = frozenset({int})
_MODE = "torch._subclasses.fake_tensor:FakeTensorMode"
REPLACEMENTS = (
    Replacement(
        (f"{_MODE}._get_output_tensor_from_cache_entry", f"{_MODE}._get_output_info_for_cache_entry"),
        _make,
        "Each result is made in contexts that are generators, and that of a new entry only to be checked.",
        repeats=(
            "torch._subclasses.fake_tensor:in_kernel_invocation_manager",
            "torch._subclasses.meta_utils:is_sparse_any",
            f"{_MODE}._output_from_cache_entry",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv._evaluate_expr",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv._suppress_guards_enter",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_expr",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_sym_node",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.guard_or_defer_runtime_assert",
            "torch.fx.experimental.symbolic_shapes:_guard_or",
            "torch.fx.experimental.sym_node:SymNode.expect_true",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv._suppress_guards_exit",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.suppress_guards",
            "torch.fx.experimental.symbolic_shapes:_suppress_guards",
        ),
    ),
)
