"""Keeps symbolic sizes symbolic where torch would replace them by the sizes of the example during the capture.

There are two causes:

- Some operators compute their results, or branch on sizes, to find the shapes of their results. Here they get kernels
  that only compute shapes.
- Some functions accept plain Python numbers only. Here functions that accept symbols replace them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fx_onnx.capture.patches import dynamic_floats
from fx_onnx.capture.patches.data_conditions import Redirected, current_path
from fx_onnx.capture.patches.indexing import INDEXING, index_tensor
from fx_onnx.capture.patches.patching import Added, Patch, Way, exchange_attribute, replace_attribute
from fx_onnx.capture.patches.rounded_sizes import constant_pad, pooled_size
from fx_onnx.capture.patches.symbolic_forms import symbolic_form, view_forms
from fx_onnx.decompositions import load
from fx_onnx.decompositions.covariance import WITHOUT_VALUES
from fx_onnx.decompositions.registry import DECOMPOSITIONS
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.source_lines import call_site, line_text, user_frame
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.threads import is_current
from fx_onnx.torch_internals.torch_differences import older_fake_kernels, older_kernels
from fx_onnx.torch_internals.torch_private import (
    FakeTensor,
    OpOverload,
    compiled_kernel,
    free_unbacked_symbols,
    kernel_keys,
    python_kernels,
    pytree,
    replaced_kernels,
    reshape_from_tensor,
    storage_id,
)
from fx_onnx.torch_internals.trace_private import replaced_fake_kernels

__all__ = [
    "CHUNKS", "PATCHES", "SPLITS", "TraceMode", "empty_recurrence_results", "pieces_as_slices", "replace_kernels",
]  # fmt: skip


# --- kernels that only compute shapes ---------------------------------------------------------------------------------


@contextmanager
def replace_kernels() -> Iterator[None]:
    """Gives a few operators kernels that compute only the shapes of their results within the context.

    torch.export keeps an RNN, LSTM or GRU as one operator, but it finds the shapes by unrolling it, which specializes
    the sequence length. Pooling in one dimension, ``fill_diagonal_``, ``take_along_dim`` and ``tensor_split``
    specialize sizes in the same way. For fake quantization torch has only kernels for static shapes. For the gradient
    of ``unfold``, which is in istft, torch adds the windows one by one to find a shape that is an argument.
    """
    (composite, meta), pad = kernel_keys(), aten.constant_pad_nd.default
    recurrent = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    fake_quantizing = (
        aten.fake_quantize_per_tensor_affine_cachemask.default,
        aten.fake_quantize_per_channel_affine_cachemask.default,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    )
    kernels: dict[Any, Any] = {
        **{(o, meta): _fake_quantize for o in fake_quantizing if meta not in python_kernels(o)},
        **{(o, composite): partial(_recurrence, python_kernels(o)[composite]) for o in recurrent},
        (aten.unfold_backward.default, meta): lambda grad, input_size, *_: grad.new_empty(input_size),
        (pad, meta): partial(constant_pad, python_kernels(pad)[meta]),
        (aten.max_pool1d.default, composite): _max_pool1d,
        (aten.batch_norm.default, composite): _batch_norm,
        (aten.fill_diagonal_.default, composite): lambda tensor, *_, **__: tensor,  # which it writes to
        (aten.take_along_dim.default, composite): _take_along_dim,
        (aten.cdist.default, composite): _cdist,
        (aten.tensor_split.sections, composite): _tensor_split,
        **{(o, composite): partial(_decomposed, o) for o in _READING_SIZES},
        **older_kernels(),
    }
    with replaced_kernels(kernels), replaced_fake_kernels(older_fake_kernels()):
        yield


_GRADIENTS = aten.gradient.torch_operator
_READING_SIZES = (
    *(getattr(_GRADIENTS, name) for name in (_GRADIENTS.overloads() if _GRADIENTS else ())), aten.kron.default,
    aten.linalg_multi_dot.default, aten.chain_matmul.default, aten.linalg_norm.default, aten.linalg_matrix_norm.default,
    aten.linalg_cond.default, aten.linalg_matrix_rank.atol_rtol_tensor, aten.linalg_matrix_rank.atol_rtol_float,
)  # fmt: skip
"""Operators that torch composes of others with sizes that are plain numbers."""


def _decomposed(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the decomposition of an operator, which keeps symbolic sizes."""
    load(operator._schema.name)
    return DECOMPOSITIONS[operator](*args, **kwargs)


def _cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: int | None = None) -> torch.Tensor:
    """Infers the shape without a guard on a dynamic number of rows.

    torch computes the distances of more than 25 rows by a matrix product, for its speed only. The captured operator is
    the same in both cases.
    """
    if compute_mode in (None, 0) and any(isinstance(points.shape[-2], torch.SymInt) for points in (x1, x2)):
        compute_mode = 2
    composite, _ = kernel_keys()
    result: torch.Tensor = compiled_kernel(aten.cdist.default, composite)(x1, x2, p, compute_mode)
    return result


def _tensor_split(self: torch.Tensor, sections: int, dim: int = 0) -> Sequence[torch.Tensor]:
    """Returns the pieces of a dynamic size, whose sizes hold for every remainder.

    torch asks for each piece whether the remainder makes it longer by one.
    """
    if sections < 1 or not any(isinstance(size, torch.SymInt) for size in self.shape):
        composite, _ = kernel_keys()
        split: Sequence[torch.Tensor] = compiled_kernel(aten.tensor_split.sections, composite)(self, sections, dim)
        return split
    pieces, start = [], 0
    for index in range(sections):
        length = (self.shape[dim] + sections - 1 - index) // sections
        pieces.append(self.narrow(dim, start, length))
        start = start + length
    return pieces


def _fake_quantize(self: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns empty results: the quantized values and the mask of the values that were not clamped."""
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def _recurrence(
    kernel: Callable[..., Any], input: torch.Tensor, hx: Any, params: Any, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """Computes only the shapes of an RNN, LSTM or GRU without values; calls torch's kernel for real tensors."""
    if isinstance(input, FakeTensor) or input.is_meta:
        return empty_recurrence_results(input, hx, bidirectional)
    return kernel(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def empty_recurrence_results(input: torch.Tensor, hx: Any, bidirectional: bool) -> tuple[torch.Tensor, ...]:
    """Returns empty results of an RNN, LSTM or GRU: the outputs of all steps, then the last states.

    Args:
        input: The input (step, sequence, feature), or (sequence, step, feature).
        hx: The initial state, or the list of them. The last states have the same shapes.
        bidirectional: Whether the outputs of two directions are concatenated.
    """
    states = [hx] if isinstance(hx, torch.Tensor) else hx
    output = input.new_empty([*input.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1)])
    return (output, *(torch.empty_like(state) for state in states))


def _take_along_dim(self: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Returns an empty result: all axes broadcast but ``dim``, whose size is that of the indices."""
    if dim is None or not self.dim():
        return self.new_empty(indices.numel() if self.dim() else indices.shape)
    axis = dim % self.dim()
    shape = list(torch.broadcast_shapes(_without(self.shape, axis), _without(indices.shape, axis)))
    return self.new_empty([*shape[:axis], indices.shape[axis], *shape[axis:]])


def _without(shape: Sequence[Any], axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _batch_norm(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> torch.Tensor:  # fmt: skip
    """Returns an empty result.

    torch's kernel asks whether the input is empty, which has no answer for a data-dependent size.
    """
    if isinstance(input, FakeTensor):
        for statistic in (weight, bias, running_mean, running_var):
            if statistic is not None and input.dim() > 1:
                torch._check(statistic.shape[0] == input.shape[1])  # one value for each channel
        return torch.empty_like(input)
    norm = aten.native_batch_norm.default
    result: torch.Tensor = norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]
    return result


def _max_pool1d(
    self: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Returns an empty result of pooling."""
    window = kernel_size[0]
    step = stride[0] if len(stride) else window
    pad, spread = (option if isinstance(option, int) else option[0] for option in (padding, dilation))
    count = pooled_size(self.shape[-1], window, pad, pad, step, spread, ceil_mode)
    torch._check(count >= 1)
    return self.new_empty([*self.shape[:-1], count])


# --- functions that accept plain numbers only -------------------------------------------------------------------------


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def _kinds(values: Iterable[Any]) -> tuple[Any, ...]:
    """Returns which arguments are numbers, symbolic or not, which are tensors, and the types of the others."""
    return tuple(
        _kinds(value)
        if isinstance(value, (list, tuple))
        else next((kind for kind in (_NUMBERS, torch.Tensor) if isinstance(value, kind)), type(value))
        for value in values
    )


class TraceMode(Redirected):
    """Redirects calls of the forward that have symbolic numbers to functions that accept them.

    torch's argument parser makes a constant of a symbolic number where the operator's schema declares a plain one. Such
    a call goes to the form of the operator in ``SYMBOLIC``. A symbolic bool is decided as for the example. Where the
    model runs again with plain numbers, the same calls go to the same forms.

    Attention of tensors with data-dependent sizes uses the math backend, which does not branch on sizes. A generator
    that is None is left out, because operators with a generator refuse symbolic sizes.
    """

    def __init__(self, replacements: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__({**_REPLACED, **replacements})
        self.running: set[Any] = set()  # the forms that are computed now: they may call their function
        self._known: dict[Any, dict[Any, Any]] = {}  # the form of each redirected function by the place of its call
        # Tensors that share memory in the model but not in the trace: why they do not, and their versions.
        self._copies: list[tuple[str, torch.Tensor, int]] = []

    def _replaced(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """Returns the function, or one that computes the same of symbolic numbers."""
        if kwargs.get("generator", self) is None and type(func) is not OpOverload:
            del kwargs["generator"]
        if func in INDEXING:
            return partial(index_tensor, func)
        if func is torch.Tensor.__deepcopy__:  # it copies storages, which have no memory in a trace
            return self._deep_copy
        name = getattr(func, "__name__", "")
        if name == _ATTENTION and any(map(_has_data_dependent_size, (*args, *kwargs.values()))):
            return sdpa_kernel(SDPBackend.MATH)(partial(self._redirect, func))  # the fused ones compare sizes with 1
        if func in self._known or _has_symbol(args) or (kwargs and _has_symbol(kwargs.values())):
            return partial(self._redirect, func)
        if name.startswith(_SHAPE):  # an operator that reads memory
            return self._shape_as_tensor
        return func

    def _shape_as_tensor(self, input: torch.Tensor) -> Any:
        return self._redirect(torch.as_tensor, list(input.shape), dtype=torch.int64)

    def _redirect(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls the form of a function that takes symbolic numbers, if it has one."""
        if getattr(func, "__module__", "") == "torch.nn.functional":  # operators refuse a symbolic bool
            args, kwargs = pytree.tree_map_only(torch.SymBool, bool, (args, kwargs))
        frame, given = user_frame(sys._getframe(1)), (*args, *kwargs.values())
        site, is_symbolic = (call_site(frame), _kinds(given)), _has_symbol(given)
        has_numbers = any(type(value) is torch.Tensor and not value.is_meta for value in given)
        known = None if is_symbolic or has_numbers else self._known.get(func, {}).get(site)
        keyed_form = symbolic_form(func, args, kwargs, self.running, known) if is_symbolic or known else None
        if keyed_form is None:
            return func(*args, **kwargs)
        key, form = keyed_form
        self._known.setdefault(func, {})[site] = key
        self.running.add(key)
        try:
            with self:  # the form may call a function that has a form
                result = form(*args, **kwargs)
        finally:
            self.running.remove(key)
        if key in view_forms():
            base = next(value for value in given if isinstance(value, torch.Tensor))
            if storage_id(base) != storage_id(result):
                line = line_text(frame.f_code.co_filename, frame.f_lineno)
                reason = f"{func.__name__} returns a copy where a number is a dynamic size {line}"
                self._copies += [(reason, tensor, tensor._version) for tensor in (base, result)]
        return result

    def _deep_copy(self, tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
        """Returns a clone for ``copy.deepcopy``; its own result shares memory within itself as the tensor does."""
        copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copies = memo.setdefault(("storage", storage_id(tensor)), [])
        copies.append(copy)
        if len(copies) > 1 or 0 in tensor.stride():
            frame = user_frame(sys._getframe(1))
            line = line_text(frame.f_code.co_filename, frame.f_lineno)
            reason = f"copy.deepcopy of tensors that share memory returns separate ones {line}"
            self._copies += [(reason, copied, copied._version) for copied in copies]
        return copy

    def refuse_lost_writes(self) -> None:
        """Raises a CaptureError if the model has written to a copy of what it views, or to what it views."""
        for reason, tensor, version in self._copies:
            if tensor._version != version:
                raise CaptureError(
                    f"The model writes in place to a tensor or its view, but {reason}; write to a clone."
                )


def _squeeze(squeeze: Callable[..., torch.Tensor], input: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """Replaces ``squeeze``: removes a dynamic axis if its size is 1 in the example, and leaves a guard."""
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    dynamic = [index % input.ndim for index in dims if input.ndim and isinstance(input.shape[index], torch.SymInt)]
    removed = [axis for axis in dynamic if not free_unbacked_symbols(input.shape[axis]) and input.shape[axis] == 1]
    if not removed:
        return squeeze(input) if dim is None else squeeze(input, dim)
    for axis in sorted({*removed, *(index % input.ndim for index in dims if input.shape[index] == 1)}, reverse=True):
        input = input.select(axis, 0)
    return input


def pieces_as_slices() -> Mapping[Any, Callable[..., Any]]:
    """Returns replacements of ``split`` and ``chunk`` that slice a dynamic axis.

    The size of a slice is right for any size of the axis. torch knows the sizes of the pieces for one number of pieces.
    """
    call_sites: set[Any] = set()  # of the calls that slice, also where the model runs again with plain numbers

    def pieces(function: Any, is_chunk: bool, *args: Any, dim: int = 0, **kwargs: Any) -> Any:
        given = sorted((*args, *kwargs.values()), key=lambda value: not isinstance(value, torch.Tensor))
        tensor, number, dim = (*given, dim)[:3]
        frame = user_frame(sys._getframe(1))
        site, size = call_site(frame), tensor.shape[dim]
        if isinstance(size, torch.SymInt) and not isinstance(number, (list, tuple)):
            call_sites.add(site)
        if site not in call_sites or (isinstance(size, int) and not size):
            return function(tensor, number, dim)
        length = (size + number - 1) // number if is_chunk else number
        count = range((size + length - 1) // length)  # of the example, which leaves a guard
        return tuple(aten.slice.Tensor(tensor, dim, index * length, (index + 1) * length) for index in count)

    return {function: partial(pieces, function, function in CHUNKS) for function in (*SPLITS, *CHUNKS)}


SPLITS = (torch.split, torch.Tensor.split)
CHUNKS = (torch.chunk, torch.Tensor.chunk)


def _random_(self: torch.Tensor, *limits: int | None, **kwargs: Any) -> torch.Tensor:
    """Replaces ``random_``, whose overload for two limits is named ``from``, which is no name in Python."""
    low = kwargs.pop("from", limits[0] if len(limits) == 2 else 0)
    to = kwargs.pop("to", limits[-1] if limits else None)
    if to is None and not low:
        return self.random_(**kwargs)
    if to is None:
        to = 1 + (int(2 / torch.finfo(self.dtype).eps) if self.is_floating_point() else torch.iinfo(self.dtype).max)
    return self.random_(to - low, **kwargs).add_(low)


def _has_data_dependent_size(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor) and bool(free_unbacked_symbols(argument))


def _has_symbol(arguments: Iterable[Any]) -> bool:
    """Returns whether an argument, or a part of a list, is symbolic; nearly all calls have no such argument."""
    kinds = set(map(type, arguments))
    if kinds.isdisjoint(_SYMBOLS_AND_SEQUENCES):
        return False
    return not kinds.isdisjoint(_SYMBOLS) or any(isinstance(e, (list, tuple)) and _has_symbol(e) for e in arguments)


_SYMBOLS = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})
_SYMBOLS_AND_SEQUENCES = _SYMBOLS | {list, tuple, torch.Size}
_SHAPE = "_shape_as_tensor"
_ATTENTION = "scaled_dot_product_attention"
_REPLACED: Mapping[Any, Callable[..., Any]] = {
    **WITHOUT_VALUES,
    torch.Tensor.random_: _random_,
    reshape_from_tensor: lambda tensor, shape: tensor.reshape(shape.tolist()),  # torch reads the shape's memory
    **{function: partial(_squeeze, function) for function in (torch.squeeze, torch.Tensor.squeeze)},
}


def _xor(number: torch.SymInt, other: Any) -> Any:
    """Replaces ``SymInt.__xor__``: the bits of either number without those of both."""
    return (number | other) - (number & other)


# Most containers have one of these types. ``isinstance`` with Tensor takes several times as long as ``len`` itself.
_PLAIN_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, str, torch.Size})


@contextmanager
def _symbolic_len(owner: Any, name: str) -> Iterator[None]:
    """Replaces ``len`` from the first symbolic size on; Python converts a tensor's symbolic size to a plain number.

    torch calls ``len`` so often that a replacement makes the capture slower by a thirtieth. Where all sizes are plain,
    as in most captures with static shapes, none is needed. On a path through branches on data it acts from the start:
    Python looks up ``len`` before the first such size is computed, as in ``len(x.nonzero())``.
    """
    if current_path() is not None:
        with exchange_attribute(owner, name, _len_in(get_ident())):
            yield
        return
    with ExitStack() as stack, ExitStack() as until_first:

        def create_first(self: torch.SymInt, node: Any) -> None:
            until_first.close()  # the class has its own method again
            torch.SymInt.__init__(self, node)
            stack.enter_context(exchange_attribute(owner, name, _len_in(get_ident())))

        until_first.enter_context(replace_attribute(torch.SymInt, "__init__", create_first))
        yield


def _len_in(thread: int) -> Callable[[Any], Any]:
    """Returns a replacement of ``len`` for one thread.

    A dispatcher around the replacement would be slow, so the replacement itself leaves other threads alone.
    """
    length, plain, tensor = len, _PLAIN_CONTAINERS, torch.Tensor

    def symbolic_len(container: Any) -> Any:
        if type(container) not in plain and is_current(thread) and isinstance(container, tensor) and container.shape:
            return container.shape[0]
        return length(container)

    return symbolic_len


_NO_OPERATOR = "Sizes lack the operator, or torch.export refuses it."
_CONSTANT = "The function makes a constant of a symbolic number."
PATCHES = (
    Patch("torch:SymInt.__divmod__", Added(lambda n, divisor: (n // divisor, n % divisor)), _NO_OPERATOR, strict=False),
    Patch("torch:SymInt.__xor__", Added(_xor), _NO_OPERATOR, strict=False),
    Patch("torch:SymInt.__rxor__", Added(_xor), _NO_OPERATOR, strict=False),
    Patch("torch:SymInt.__invert__", Added(lambda n: -n - 1), _NO_OPERATOR, strict=False),  # in two's complement
    Patch("torch:SymInt.exp", Added(dynamic_floats.FUNCTIONS["exp"]), "np.exp calls it.", strict=False),
    Patch("torch:SymInt.sqrt", Added(dynamic_floats.square_root), "np.sqrt calls it.", strict=False),
    Patch("torch:SymFloat.sqrt", Added(dynamic_floats.square_root), "np.sqrt calls it.", strict=False),
    Patch("builtins:len", Way(_symbolic_len), _CONSTANT, strict=False),
    *(Patch(f"math:{name}", function, _CONSTANT, strict=False) for name, function in dynamic_floats.FUNCTIONS.items()),
)
"""Methods of symbolic numbers, and functions of Python that they are passed to."""
