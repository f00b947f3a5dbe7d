"""Forms of operators that take symbolic numbers where torch's schema declares plain ones, such as a diagonal.

Each computes with sizes, positions of ``arange`` and comparisons. Decompositions that do so are listed at the end.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.decompositions import load, unary, vision
from fx_onnx.decompositions._sizes import at_least
from fx_onnx.decompositions._torch_private import depends_on_data
from fx_onnx.decompositions.pooling import adaptive_max_of_windows, average_pool, max_pool
from fx_onnx.decompositions.registry import DECOMPOSITIONS, SYMBOLIC, Operator, aten, takes_symbols

Number = int | float


def _scalar(number: Number, like: Tensor) -> Tensor:
    """Returns a number as a 0-d tensor with the dtype and device of another tensor."""
    return like.new_full((), number)


# ---------------------------------------------------------------- diagonals and positions


@takes_symbols(aten.diagonal.default)
def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Returns the elements whose column minus row is the offset, on a new last axis: a view, as of the operator."""
    matrix = self.movedim((dim1, dim2), (-2, -1))
    return matrix[..., at_least(-offset, 0) :, at_least(offset, 0) :].diagonal(0, -2, -1)


@takes_symbols(aten.linalg_diagonal.default)
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns ``diagonal`` of the last two axes."""
    return diagonal(A, offset, dim1, dim2)


@takes_symbols(aten.diag_embed.default)
def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns zeros, with the last axis of self where column minus row of two new axes is the offset."""
    size = self.shape[-1] + at_least(-offset, offset)
    position = torch.arange(size, device=self.device)
    source = (position - at_least(-offset, 0)).clamp(0, self.shape[-1] - 1)
    inside = position - position.unsqueeze(1) == offset
    return torch.where(inside, self.index_select(-1, source).unsqueeze(-1), 0).movedim((-2, -1), (dim1, dim2))


@takes_symbols(aten.diag.default)
def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """Returns the diagonal of a matrix, or the matrix with a vector on the diagonal."""
    return torch.diagonal(self, diagonal) if self.dim() == 2 else torch.diag_embed(self, diagonal)


@takes_symbols(aten.tril_indices.default)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: torch.dtype = torch.int64, **options: Any) -> Tensor:
    """Returns the rows and columns of the elements on and below a diagonal, in order."""
    return torch.ones(row, col, device=options.get("device")).tril(offset).nonzero().T.to(dtype)


@takes_symbols(aten.triu_indices.default)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: torch.dtype = torch.int64, **options: Any) -> Tensor:
    """Returns the rows and columns of the elements on and above a diagonal, in order."""
    return torch.ones(row, col, device=options.get("device")).triu(offset).nonzero().T.to(dtype)


@takes_symbols(aten.one_hot.default)
def one_hot(self: Tensor, num_classes: int) -> Tensor:
    """Returns 1 where the number of the class is that of the element, on a new last axis."""
    zeros = torch.zeros([*self.shape, num_classes], dtype=torch.int64, device=self.device)
    return zeros.scatter(-1, self.unsqueeze(-1), 1)  # which refuses a class that is too large


@takes_symbols(aten.unfold.default)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Returns the windows along an axis, whose elements are on a new last axis."""
    torch._check(size <= self.shape[dimension])
    begin = torch.arange(0, self.shape[dimension] - size + 1, step, device=self.device).unsqueeze(1)
    places = begin + torch.arange(size, device=self.device)
    last = self.movedim(dimension, -1)
    windows = last.index_select(-1, places.flatten()).reshape([*last.shape[:-1], *places.shape])
    return windows.movedim(-2, dimension if dimension >= 0 else dimension - 1)


@takes_symbols(aten.vander.default)
def vander(x: Tensor, N: int, increasing: bool = False) -> Tensor:
    """Returns the powers of x from N - 1 to 0, or from 0 to N - 1 if ``increasing``, on a new last axis."""
    powers = torch.where(torch.arange(N, device=x.device) == 0, 1, x.unsqueeze(-1)).cumprod(-1)
    return powers if increasing else powers.flip(-1)


# ---------------------------------------------------------------- ranges


@takes_symbols(aten.linspace.default)
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """Returns numbers with equal distances. Integers are float64 numbers without their fractions, as in torch.

    torch rounds once after the product and the sum. The products with both halves of the step's digits are exact.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype.is_floating_point:
        return _between(start, end, steps, (steps + 1) // 2, dtype, options)
    start, end = math.trunc(start), math.trunc(end)
    step = torch.full((), (end - start) / at_least(steps - 1, 1), dtype=torch.float64, device=options.get("device"))
    scaled = step * (2**27 + 1)
    high = scaled - (scaled - step)
    index = torch.arange(steps, dtype=torch.float64, **options)
    back = steps - 1 - index
    up, down = start + high * index + (step - high) * index, end - high * back - (step - high) * back
    return torch.where(index < at_least(steps // 2, 1), up, down).to(dtype)


@takes_symbols(aten.logspace.default)
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    """Returns the base to the powers of ``linspace``. For integers, torch computes the exponents in float32."""
    if dtype is None or dtype.is_floating_point:
        return torch.pow(base, linspace(start, end, steps, dtype=dtype, **options))
    exponents = _between(math.trunc(start), math.trunc(end), steps, at_least(steps // 2, 1), torch.float32, options)
    return torch.pow(float(int(base)), exponents.to(torch.float64)).to(dtype)


def _between(start: Any, end: Any, steps: int, half: float, dtype: torch.dtype, options: Any) -> Tensor:
    """Returns numbers with equal distances, computed from ``start`` for the first half, else from ``end``."""
    index = torch.arange(steps, dtype=dtype, **options)
    step = (end - start) / at_least(steps - 1, 1)
    return torch.where(index < half, start + step * index, end - step * (steps - 1 - index))


def _cosine_window(size: int, periodic: bool, weights: Sequence[float], options: dict[str, Any]) -> Tensor:
    """Returns Σ weights[k] cos(2π k i / period); 1 for a window of one element."""
    period = at_least(size if periodic else size - 1, 1)
    angle = torch.arange(size, dtype=options.pop("dtype", None) or torch.get_default_dtype(), **options) * (
        2 * math.pi / period
    )
    total: Any = weights[0]
    for order, weight in enumerate(weights[1:], 1):
        total = total + weight * torch.cos(angle * order)
    return torch.where(torch.full((), size) == 1, 1.0, total)


@takes_symbols(aten.hann_window.default, aten.hann_window.periodic)
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Returns 0.5 - 0.5 cos."""
    return _cosine_window(window_length, periodic, (0.5, -0.5), options)


@takes_symbols(
    aten.hamming_window.default,
    aten.hamming_window.periodic,
    aten.hamming_window.periodic_alpha,
    aten.hamming_window.periodic_alpha_beta,
)
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """Returns alpha - beta cos."""
    return _cosine_window(window_length, periodic, (alpha, -beta), options)


@takes_symbols(aten.blackman_window.default, aten.blackman_window.periodic)
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Returns 0.42 - 0.5 cos + 0.08 cos of the double angle."""
    return _cosine_window(window_length, periodic, (0.42, -0.5, 0.08), options)


# ---------------------------------------------------------------- pooling


def _average(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Returns the means of windows of a symbolic size or step."""
    return average_pool(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _maximum(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """Returns the largest elements of windows of a symbolic size or step."""
    return max_pool(self, kernel_size, stride, padding, dilation, ceil_mode)[0]


takes_symbols(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)(_average)
takes_symbols(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default)(_maximum)
takes_symbols(
    aten.max_pool1d_with_indices.default, aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default
)(max_pool)


# ---------------------------------------------------------------- normalizations


def _normalize(input: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """Returns the input, normalized by the mean and the variance over the axes, in float32 or float64."""
    exact = input if input.dtype == torch.float64 else input.float()
    var, mean = torch.var_mean(exact, list(axes), correction=0, keepdim=True)
    return (exact - mean) / torch.sqrt(var + eps)


def _per_channel(vector: Tensor, like: Tensor) -> Tensor:
    """Returns a vector of channels, shaped to broadcast with ``like``."""
    return vector.reshape([-1] + [1] * (like.dim() - 2))


@takes_symbols(aten.layer_norm.default)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """Returns (input - mean) / √(var + eps) * weight + bias over the last axes."""
    result = _normalize(input, range(-len(normalized_shape), 0), eps)
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).to(input.dtype)


@takes_symbols(aten.group_norm.default)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Returns the input, normalized over groups of channels, times weight plus bias for each channel."""
    channels = input.shape[1]
    torch._check(channels % num_groups == 0)
    groups = input.reshape(input.shape[0], num_groups, channels // num_groups * math.prod(input.shape[2:]))
    result = _normalize(groups, [-1], eps).reshape(input.shape)
    result = result if weight is None else result * _per_channel(weight, input)
    return (result if bias is None else result + _per_channel(bias, input)).to(input.dtype)


@takes_symbols(aten.batch_norm.default)
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Returns the input, normalized by the running statistics: those plus eps, by torch's function with eps 0."""
    if training or running_var is None:
        return torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
    return torch.batch_norm(input, weight, bias, running_mean, running_var + eps, False, momentum, 0.0, cudnn_enabled)


# ---------------------------------------------------------------- elementwise functions


@takes_symbols(aten.scaled_dot_product_attention.default)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float = 1.0,
    enable_gqa: bool = False,
) -> Tensor:
    """Returns the attention of a query that is multiplied by the scale."""
    options: dict[str, Any] = {"scale": 1.0, "enable_gqa": enable_gqa}
    return F.scaled_dot_product_attention(query * scale, key, value, attn_mask, dropout_p, is_causal, **options)


@takes_symbols(aten.linalg_vector_norm.default)
def linalg_vector_norm(
    self: Tensor, ord: Number = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Returns (Σ |self|^ord)^(1/ord), the number of elements that are not 0 for order 0, the extremes for ±∞."""
    axes, order = [] if dim is None else dim, self.abs().new_full((), ord)
    powers = self.abs().pow(order).sum(axes, keepdim=keepdim, dtype=dtype)
    count = (self != 0).sum(axes, keepdim=keepdim, dtype=powers.dtype)
    norm = torch.where(order == 0, count, powers.pow(order.reciprocal()))
    if isinstance(ord, float) or depends_on_data(ord):  # no size is infinite
        for limit, extreme in ((math.inf, self.abs().amax), (-math.inf, self.abs().amin)):
            norm = torch.where(order == limit, extreme(axes, keepdim=keepdim).to(norm.dtype), norm)
    return norm


@takes_symbols(aten.float_power.Tensor_Scalar)
def float_power(self: Tensor, exponent: Number) -> Tensor:
    """Returns the power in double precision."""
    return self.to(torch.complex128 if self.is_complex() else torch.float64).pow(exponent)


@takes_symbols(aten.dropout.default)
def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Returns the input in inference; in training the probability is a constant."""
    return torch.dropout(input, p, True) if train else input.clone()


@takes_symbols(aten.softshrink.default)
def softshrink(self: Tensor, lambd: Number = 0.5) -> Tensor:
    """Returns self, moved by ``lambd`` towards 0; NaN stays NaN."""
    return torch.where(torch.abs(self) > lambd, self - torch.sign(self) * lambd, self * 0)


@takes_symbols(aten.pad.default)
def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Returns self, padded with a symbolic number: it fills the places that a padded mask has."""
    inside = F.pad(torch.ones_like(self, dtype=torch.bool), pad)
    return torch.where(inside, F.pad(self, pad, mode), _scalar(0 if value is None else value, self))


@takes_symbols(aten.nan_to_num.default)
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Returns self with numbers in place of NaN and the infinities; by default 0 and the limits of the dtype."""
    if not self.dtype.is_floating_point:
        return self.clone()
    limits = torch.finfo(self.dtype)
    result = torch.where(torch.isnan(self), 0.0 if nan is None else _scalar(nan, self), self)
    result = torch.where(self == math.inf, _scalar(limits.max if posinf is None else posinf, self), result)
    return torch.where(self == -math.inf, _scalar(limits.min if neginf is None else neginf, self), result)


@takes_symbols(aten.round.decimals)
def round_decimals(self: Tensor, *, decimals: int) -> Tensor:
    """Returns self, rounded to a multiple of a power of ten."""
    unit = 10.0 ** at_least(-decimals, decimals)
    smaller, larger = torch.round(self * unit) / unit, torch.round(self / unit) * unit
    return torch.where(torch.full((), decimals) < 0, larger, smaller)


def _of_distance(integral: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns an integral over steps of dx: that over steps of 1, times dx."""
    return lambda y, *, dx=1, dim=-1: integral(y, dim=dim) * dx


takes_symbols(aten.trapezoid.dx)(_of_distance(torch.trapezoid))
takes_symbols(aten.cumulative_trapezoid.dx)(_of_distance(torch.cumulative_trapezoid))


# ---------------------------------------------------------------- functions of torch that are not operators


@takes_symbols(torch.as_tensor)
def as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    """Returns a number or a list of numbers as a tensor."""
    numbers = data if isinstance(data, (list, tuple)) else [data]
    if dtype is None and any(isinstance(number, (float, torch.SymFloat)) for number in numbers):
        dtype = torch.get_default_dtype()
    filled = [torch.full((), number, dtype=dtype, device=device) for number in numbers]
    return torch.stack(filled) if isinstance(data, (list, tuple)) else filled[0]


@takes_symbols(torch.Tensor.new_tensor)
def new_tensor(self: Tensor, data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    """Returns a number or a list of numbers as a tensor; dtype and device default to those of ``self``."""
    return as_tensor(data, dtype or self.dtype, device or self.device)


@takes_symbols(F.affine_grid)
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Returns a grid that torch composes of ``linspace``."""
    return vision.affine_grid_generator(theta, size, bool(align_corners))


@takes_symbols(torch.istft, torch.Tensor.istft)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Returns the whole signal, padded and cut. With ``center``, it starts in the middle of the first frame."""
    options = (hop_length, win_length, window, False, normalized, onesided, None, return_complex)
    signal = torch.istft(input, n_fft, *options)[..., n_fft // 2 if center else 0 :]
    return signal if length is None else F.pad(signal, (0, length))[..., :length]


@takes_symbols(torch.sym_ite)
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """Returns one of a symbolic and a plain number, which torch does not accept together."""
    return torch.sym_ite(b, t + 0 * f, f + 0 * t)


@takes_symbols(F.hardtanh)
def hardtanh(input: Tensor, min_val: Number = -1.0, max_val: Number = 1.0, inplace: bool = False) -> Tensor:
    """Returns the input, clamped to the limits, which torch compares."""
    return (torch.clamp_ if inplace else torch.clamp)(input, min_val, max_val)


_INTERPOLATIONS: dict[str, tuple[Any, ...]] = {
    "nearest": (aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d),
    "nearest-exact": (aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d),
    "linear": (aten.upsample_linear1d,),
    "bilinear": (None, aten.upsample_bilinear2d),
    "trilinear": (None, None, aten.upsample_trilinear3d),
    "bicubic": (None, aten.upsample_bicubic2d),
}
_ANTIALIASED = {"bilinear": aten._upsample_bilinear2d_aa, "bicubic": aten._upsample_bicubic2d_aa}


@takes_symbols(F.interpolate)
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Returns the input, resized by symbolic factors, of which torch's argument parser makes constants."""
    axes = input.dim() - 2
    factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * axes
    if not any(isinstance(factor, (torch.SymInt, torch.SymFloat)) for factor in factors):
        return F.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    factors = [torch.sym_float(factor) for factor in factors]
    sizes = [torch.sym_int(length * factor) for length, factor in zip(input.shape[2:], factors, strict=True)]
    for length in sizes:
        torch._check(length > 0)
    if recompute_scale_factor or mode == "area":
        return F.interpolate(input, sizes, None, mode, align_corners, None, antialias)
    operator = _ANTIALIASED[mode] if antialias else _INTERPOLATIONS[mode][axes - 1]
    flags = [] if mode.startswith("nearest") else [bool(align_corners)]
    result: Tensor = DECOMPOSITIONS[operator.default](input, sizes, *flags, *factors)
    return result


# ---------------------------------------------------------------- decompositions that take symbolic numbers

_DECOMPOSED: tuple[Operator, ...] = (
    aten.adaptive_avg_pool1d.default,
    aten.addmm.default,
    aten.addmv.default,
    aten.addr.default,
    aten.cdist.default,
    aten.cosine_embedding_loss.default,
    aten.cosine_similarity.default,
    aten.cross_entropy_loss.default,
    aten.hinge_embedding_loss.default,
    aten.histc.default,
    aten.huber_loss.default,
    aten.instance_norm.default,
    aten.isclose.default,
    aten.margin_ranking_loss.default,
    aten.multi_margin_loss.default,
    aten.nanquantile.scalar,
    aten.pairwise_distance.default,
    aten.pdist.default,
    aten.poisson_nll_loss.default,
    aten.quantile.scalar,
    aten.rms_norm.default,
    aten.rrelu.default,
    aten.smooth_l1_loss.default,
    aten.std.correction,
    aten.std_mean.correction,
    aten.triplet_margin_loss.default,
    aten.var.correction,
    aten.var_mean.correction,
)
takes_symbols(aten.im2col.default)(vision.im2col)
takes_symbols(
    aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default
)(adaptive_max_of_windows)  # fmt: skip
takes_symbols(aten.logit.default)(unary.logit)
for _target in _DECOMPOSED:
    load(_target._schema.name)
    SYMBOLIC[_target] = DECOMPOSITIONS[_target]
