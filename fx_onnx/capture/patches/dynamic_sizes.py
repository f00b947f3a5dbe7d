"""What torch is told while it captures a module, so that dims which are dynamic stay dynamic.

Some of torch's operators find their shapes by computing, or take sizes as plain numbers only; a symbolic size then
becomes the example's, without a word. In here torch knows the shapes of the former, and others say the latter.
"""

from __future__ import annotations

import builtins
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from fx_onnx.capture.export_flag import replaced
from fx_onnx.core.torch_private import (
    FakeTensor,
    free_unbacked_symbols,
    kernel_keys,
    list_python_builtins,
    python_kernels,
    replaced_kernels,
)
from fx_onnx.decompositions.vision import affine_grid_generator

__all__ = ["dynamic_sizes"]


@contextmanager
def dynamic_sizes(strict: bool = False) -> Iterator[None]:
    """Keeps symbolic sizes symbolic where torch itself would fix them, for as long as this lasts.

    Args:
        strict: whether torch.export traces in strict mode, which sees Python's own arithmetic for itself.
    """
    if strict:
        with _shapes_of_operators():
            yield
        return
    list_python_builtins()
    sqrt = replaced(math, "sqrt", partial(_sqrt, math.sqrt))
    length = replaced(builtins, "len", partial(_len, len))
    both = replaced(torch.SymInt, "__divmod__", _divmod)
    with sqrt, length, both, _shapes_of_operators(), _SizesAsNumbers():
        yield


# --- operators whose shapes torch finds by computing ------------------------------------------------------------------


@contextmanager
def _shapes_of_operators() -> Iterator[None]:
    """Lets torch know the shapes of a few operators without running them.

    torch.export keeps an RNN, LSTM or GRU whole, but finds its shapes by unrolling it, which fixes the sequence length;
    likewise 1-D pooling and the writing of a diagonal. Of fake quantisation it knows static shapes only.
    """
    aten, (composite, meta) = torch.ops.aten, kernel_keys()
    recurrences = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    fakes = (
        aten.fake_quantize_per_tensor_affine_cachemask.default,
        aten.fake_quantize_per_channel_affine_cachemask.default,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    )
    kernels: dict[Any, Any] = {(o, meta): _fake_quantize_shapes for o in fakes if meta not in python_kernels(o)}
    kernels |= {(o, composite): partial(_recurrence_shapes, python_kernels(o)[composite]) for o in recurrences}
    kernels[aten.max_pool1d.default, composite] = _max_pool1d_shapes
    kernels[aten.batch_norm.default, composite] = _batch_norm_shapes
    kernels[aten.fill_diagonal_.default, composite] = _written
    with replaced_kernels(kernels), warnings.catch_warnings():
        # torch takes the list of weights that a recurrent module keeps for a mutation
        flat = r"The tensor attributes? (self\.[\w.]*_flat_weights\[\d+\](, )?)+ (was|were) assigned during export"
        warnings.filterwarnings("ignore", flat)
        yield


def _fake_quantize_shapes(self: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results: the values, and where nothing was cut off."""
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def _recurrence_shapes(
    kernel: Callable[..., Any], input: torch.Tensor, hx: Any, params: Any, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """Empty results of a recurrence: the outputs of all steps, then the last states, shaped like the first ones."""
    if not isinstance(input, FakeTensor):
        return kernel(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    states = [hx] if isinstance(hx, torch.Tensor) else hx
    output = input.new_empty([*input.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1)])
    return (output, *(torch.empty_like(state) for state in states))


def _written(self: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """What is written to, itself."""
    return self


def _batch_norm_shapes(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> torch.Tensor:  # fmt: skip
    """An empty result; torch's own asks whether there is anything, which a count found in the data does not say."""
    if isinstance(input, FakeTensor):
        for each in (weight, bias, running_mean, running_var):
            if each is not None and input.dim() > 1:
                torch._check(each.shape[0] == input.shape[1])  # one each for the channels
        return torch.empty_like(input)
    norm = torch.ops.aten.native_batch_norm.default
    result: torch.Tensor = norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]
    return result


def _max_pool1d_shapes(
    self: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:  # fmt: skip
    """An empty result of pooling: no window begins beyond the input and the padding before it."""
    window = kernel_size[0]
    step = stride[0] if len(stride) else window
    before, spread = (each if isinstance(each, int) else each[0] for each in (padding, dilation))
    room = self.shape[-1] + 2 * before - spread * (window - 1) - 1
    count = room // step + 1
    if ceil_mode:
        count = torch.sym_min((room + step - 1) // step, (self.shape[-1] + before - 1) // step) + 1
    return self.new_empty([*self.shape[:-1], count])


# --- functions that take sizes as plain numbers -----------------------------------------------------------------------


class _SizesAsNumbers(TorchFunctionMode):
    """Says calls with symbolic sizes, where torch's operator takes plain numbers, by functions that take symbols.

    Attention of tensors with data-dependent sizes is computed by its formula, which has no question about them.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function itself, or the one of ours that stands for it."""
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention and any(map(_has_unknown_size, (*args, *kwargs.values()))):
            with sdpa_kernel(SDPBackend.MATH):  # torch's fused kernels ask whether the batch is 1
                return func(*args, **kwargs)
        instead = _INSTEAD.get(func)
        if instead is not None and any(map(_has_symbol, (*args, *kwargs.values()))):
            return instead(*args, **kwargs)
        return func(*args, **kwargs)


def _has_unknown_size(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor) and bool(free_unbacked_symbols(argument))


def _has_symbol(argument: Any) -> bool:
    parts = argument if isinstance(argument, (list, tuple)) else (argument,)
    return any(isinstance(part, torch.SymInt) for part in parts)


def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    """From both ends to the middle, as torch computes it, so that the last one is the end. Integers are torch's own."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        return torch.linspace(start, end, steps, dtype=dtype, **options)
    place = torch.arange(steps, dtype=dtype, **options)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    return torch.where(place < (steps + 1) // 2, start + step * place, end - step * (steps - 1 - place))


def _as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """A number, or a list of them, each filled in."""
    numbers = data if isinstance(data, (list, tuple)) else [data]
    if dtype is None and any(isinstance(number, (float, torch.SymFloat)) for number in numbers):
        dtype = torch.get_default_dtype()
    filled = [torch.full((), number, dtype=dtype, device=device) for number in numbers]
    return torch.stack(filled) if isinstance(data, (list, tuple)) else filled[0]


def _new_tensor(self: torch.Tensor, data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """Of the dtype and on the device of ``self``."""
    return _as_tensor(data, dtype or self.dtype, device or self.device)


def _affine_grid(theta: torch.Tensor, size: Sequence[Any], align_corners: bool | None = None) -> torch.Tensor:
    """torch composes it of ``linspace``."""
    return affine_grid_generator(theta, size, bool(align_corners))


def _istft(
    input: torch.Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: torch.Tensor | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
    length: Any = None, return_complex: bool = False,
) -> torch.Tensor:  # fmt: skip
    """All of the signal, of which ``length`` samples are taken, then zeros; the centre of a frame is its first."""
    options = (hop_length, win_length, window, False, normalized, onesided, None, return_complex)
    signal = torch.istft(input, n_fft, *options)[..., n_fft // 2 if center else 0 :]
    return torch.nn.functional.pad(signal, (0, length))[..., :length]


def _sym_ite(b: Any, t: Any, f: Any) -> Any:
    """Of a symbolic number and a plain one, which torch takes for two types."""
    return torch.sym_ite(b, t + 0 * f, f + 0 * t)


_INSTEAD: dict[Any, Callable[..., Any]] = {
    torch.istft: _istft,
    torch.Tensor.istft: _istft,
    torch.nn.functional.affine_grid: _affine_grid,
    torch.linspace: _linspace,
    torch.as_tensor: _as_tensor,
    torch.Tensor.new_tensor: _new_tensor,
    torch.sym_ite: _sym_ite,
}


def _sqrt(sqrt: Callable[[Any], float], number: Any) -> Any:
    """``math.sqrt``, which makes a plain number of a symbolic one."""
    return torch.sym_float(number) ** 0.5 if isinstance(number, (torch.SymInt, torch.SymFloat)) else sqrt(number)


def _divmod(number: torch.SymInt, divisor: Any) -> tuple[Any, Any]:
    """``divmod``, which torch's symbolic numbers lack."""
    return number // divisor, number % divisor


def _len(length: Callable[[Any], int], container: Any) -> Any:
    """``len``, which Python makes a plain number of the symbolic size of a tensor."""
    return container.shape[0] if isinstance(container, torch.Tensor) and container.shape else length(container)
