"""The exports of single operators and short functions, static and dynamic."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.digest_cases import Function, add, add_functions, i, t

ROWS, IMAGE = t(4, 6), t(2, 3, 8, 8)
SQUARE = t(3, 3) @ t(3, 3).mT + 2 * torch.eye(3)
QUERY, KEYS = t(2, 4, 5, 8), t(2, 2, 5, 8)


def _write(x: Any, function: Any) -> Any:
    """Returns a copy of a tensor after a write."""
    x = x.clone()
    function(x)
    return x


add_functions(
    "activation",
    [
        ("gelu", F.gelu, (ROWS,), [1]),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (ROWS,), [1]),
        ("silu_mul", lambda x: F.silu(x) * x, (ROWS,)),
        ("mish_softplus", lambda x: F.mish(x) + F.softplus(x, 2.0), (ROWS,)),
        ("elu_selu_celu", lambda x: F.elu(x) + F.selu(x) + F.celu(x, 0.5), (ROWS,)),
        ("hard", lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.relu6(x) + F.hardtanh(x, -2, 1), (ROWS,)),
        ("glu", F.glu, (ROWS,), [1]),
        ("softmax", lambda x: (F.softmax(x, -1), F.log_softmax(x, 0), F.softmin(x, 1)), (ROWS,), [2]),
        ("shrink", lambda x: F.softshrink(x) + F.hardshrink(x) + F.tanhshrink(x) + F.threshold(x, 0.1, 3), (ROWS,)),
    ],
)
add_functions(
    "arithmetic",
    [
        ("integers", lambda x, y: (x // 3, x % 4, x / 2, x**2, x & y, x << 1), (i(9, 4), i(5, 4)), [1, 1]),
        (
            "division",
            lambda x, y: (torch.div(x, y, rounding_mode="floor"), torch.fmod(x, y), x.remainder(2)),
            (t(4), t(4)),
        ),
        ("clamp", lambda x, y: (x.clamp(-1, 1), x.clamp(min=y), torch.lerp(x, y, 0.3)), (ROWS, ROWS), [1, 1]),
        ("where", lambda x: torch.where(x > 0, x, -1.0).nan_to_num(), (ROWS,), [2]),
        ("round", lambda x: (x.round(), x.round(decimals=2), x.trunc(), x.frac(), x.sign()), (ROWS,)),
        ("promotion", lambda x, n: (x + n, n / 2, n * 1.5, x > n), (t(3), i(5, 3)), [1, 1]),
        (
            "special",
            lambda x: (torch.erf(x), torch.lgamma(x), torch.digamma(x + 3), torch.i0(x), torch.sinc(x)),
            (t(4),),
        ),
        ("comparison", lambda x, y: (x.eq(y), x.isnan(), x.isclose(y), torch.maximum(x, y)), (t(4), t(4)), [1, 1]),
        ("bits", lambda x: (x.bitwise_not(), x.bitwise_xor(5), x.bitwise_right_shift(1)), (i(99, 4),)),
        ("addcmul", lambda x, y: torch.addcmul(x, x, y, value=2).addcdiv(x, y.exp()), (t(4), t(4))),
    ],
)
add_functions(
    "attention",
    [
        ("plain", F.scaled_dot_product_attention, (QUERY, QUERY, QUERY), [3, 3, 3]),
        ("causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3), (QUERY,), [3]),
        ("mask", lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (QUERY, t(5, 5)), ({0: "n"}, None)),
        ("boolean", lambda q, m: F.scaled_dot_product_attention(q, q, q, m > 0), (QUERY, t(5, 5))),
        ("gqa", lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (QUERY, KEYS), [1, 1]),
        ("written_out", lambda q, k: F.softmax(q @ k.mT / 8**0.5, -1) @ k, (QUERY, QUERY), [3, 3]),
        ("float16", lambda q: F.scaled_dot_product_attention(q, q, q), (QUERY.half(),)),
    ],
)
add_functions(
    "norm",
    [
        ("layer", lambda x: F.layer_norm(x, (6,)), (ROWS,), [1]),
        ("layer_two_axes", lambda x, w: F.layer_norm(x, (8, 8), w), (IMAGE, t(8, 8)), ({0: "n"}, None)),
        ("group", lambda x: F.group_norm(x, 3), (IMAGE,), ({0: "n", 2: "h", 3: "w"},)),
        ("instance", F.instance_norm, (IMAGE,), [1]),
        ("rms", lambda x, w: F.rms_norm(x, (6,), w, 1e-5), (ROWS, t(6)), ({0: "n"}, None)),
        ("rms_written_out", lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w, (ROWS, t(6))),
        ("local_response", lambda x: F.local_response_norm(x, 2), (IMAGE,)),
        ("normalize", lambda x: F.normalize(x, dim=1), (ROWS,), [1]),
        ("batch_training", lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,)),
    ],
)
add_functions(
    "convolution",
    [
        ("1d_same", lambda x, w: F.conv1d(x, w, padding="same"), (t(2, 3, 9), t(4, 3, 3)), ({0: "n", 2: "l"}, None)),
        ("2d_groups", lambda x, w: F.conv2d(x, w, groups=3, stride=2, dilation=2), (IMAGE, t(6, 1, 2, 2))),
        ("3d", lambda x, w: F.conv3d(x, w, padding=1), (t(1, 2, 4, 4, 4), t(3, 2, 3, 3, 3)), ({0: "n"}, None)),
        ("transposed", lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1), (IMAGE, t(3, 2, 3, 3))),
        ("unfold_fold", lambda x: F.fold(F.unfold(x, 2, stride=2), (8, 8), 2, stride=2), (IMAGE,), [1]),
    ],
)
add_functions(
    "pooling",
    [
        ("max_indices", lambda x: F.max_pool2d(x, 2, return_indices=True), (IMAGE,), ({0: "n", 2: "h", 3: "w"},)),
        ("average", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (IMAGE,), [1]),
        ("adaptive", lambda x: (F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 4)), (IMAGE,), [1]),
        ("adaptive_of_dynamic", lambda x: F.adaptive_avg_pool2d(x, 3), (IMAGE,), ({2: "h", 3: "w"},)),
        ("lp", lambda x: F.lp_pool2d(x, 3, 2), (IMAGE,)),
        ("unpool", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (IMAGE,)),
        ("3d", lambda x: F.max_pool3d(x, 2) + F.avg_pool3d(x, 2), (t(1, 2, 4, 4, 4),), [1]),
    ],
)
SIZES = ({0: "n", 2: "h", 3: "w"},)
add_functions(
    "resize",
    [
        ("nearest", lambda x: F.interpolate(x, scale_factor=2), (IMAGE,), SIZES),
        ("nearest_exact", lambda x: F.interpolate(x, size=(5, 7), mode="nearest-exact"), (IMAGE,)),
        ("bilinear", lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True), (IMAGE,), SIZES),
        ("bicubic", lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), (IMAGE,), SIZES),
        ("antialias", lambda x: F.interpolate(x, size=(4, 4), mode="bilinear", antialias=True), (IMAGE,)),
        ("area", lambda x: F.interpolate(x, size=(4, 4), mode="area"), (IMAGE,)),
        ("linear", lambda x: F.interpolate(x, size=5, mode="linear"), (t(2, 3, 8),), ({2: "l"},)),
        ("grid", lambda x, g: F.grid_sample(x, g, align_corners=False), (IMAGE, t(2, 4, 4, 2)), [1, 1]),
        ("affine", lambda x, a: F.grid_sample(x, F.affine_grid(a, [2, 3, 4, 4], False)), (IMAGE, t(2, 2, 3))),
        ("shuffle", lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), (t(1, 4, 4, 4),), SIZES),
    ],
)
add_functions(
    "padding",
    [
        ("constant", lambda x: F.pad(x, (1, 2, 0, -1), value=3.0), (IMAGE,), SIZES),
        ("reflect", lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), (IMAGE,), SIZES),
        ("replicate", lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), (IMAGE,)),
        ("circular", lambda x: F.pad(x, (1, 1, 2, 1), mode="circular"), (IMAGE,), SIZES),
    ],
)
add_functions(
    "indexing",
    [
        ("mask", lambda x: x[x > 0], (ROWS,), [2]),
        ("tensors", lambda x, n: (x[n], x[:, n], x[n, None, n]), (ROWS, i(4, 3)), [0, 1]),
        ("slices", lambda x: (x[1:, ::2], x[-2:], x[..., None, 0], x[:, :-1]), (ROWS,), [2]),
        ("gather", lambda x, n: (x.gather(1, n), x.take_along_dim(n, 1), x.take(n)), (ROWS, i(6, 4, 2)), [1, 1]),
        ("select", lambda x, n: (x.index_select(1, n), x.select(0, -1), x.narrow(1, 2, 3)), (ROWS, i(6, 2))),
        ("nonzero", lambda x: ((x > 0).nonzero(), x.masked_select(x < 0)), (ROWS,), [2]),
        ("flip_roll", lambda x: (x.flip(0, 1), x.roll(2, 1), x.rot90()), (ROWS,), [2]),
        ("embedding", lambda n, w: (F.embedding(n, w), F.one_hot(n, 7)), (i(6, 2, 3), t(6, 4)), [2, 0]),
        ("diagonal", lambda x: (x.diagonal(), x.tril(1), x.triu(), torch.diag_embed(x)), (ROWS,), [1]),
    ],
)
add_functions(
    "scatter",
    [
        ("index_put", lambda x, n, v: x.index_put((n,), v, accumulate=True), (ROWS, i(4, 3), t(3, 6)), [1, 1, 0]),
        ("two_indices", lambda x, n: x.index_put((n, n), x.new_tensor(1.0)), (ROWS, i(4, 3)), [1, 1]),
        ("mask", lambda x: _write(x, lambda x: x.__setitem__(x > 0, 0.0)), (ROWS,), [2]),
        ("slice", lambda x, y: _write(x, lambda x: x[:, 1:3].copy_(y)), (ROWS, t(4, 2)), [1, 1]),
        ("add", lambda x, n, v: x.scatter_add(1, n, v), (ROWS, i(6, 4, 2), t(4, 2)), [1, 1, 1]),
        ("reduce", lambda x, n, v: x.scatter_reduce(1, n, v, "amax"), (ROWS, i(6, 4, 2), t(4, 2))),
        ("mean", lambda x, n, v: x.scatter_reduce(1, n, v, "mean", include_self=False), (ROWS, i(6, 4, 2), t(4, 2))),
        ("index_add", lambda x, n, v: x.index_add(0, n, v).index_copy(0, n, v), (ROWS, i(4, 2), t(2, 6))),
        ("masked", lambda x, m: x.masked_fill(m > 0, 1.0).masked_scatter(m > 1, m), (ROWS, t(4, 6))),
        ("diagonal", lambda x, d: x.diagonal_scatter(d).select_scatter(x[0], 0, 1), (SQUARE, t(3))),
        ("in_place", lambda x: _write(x, lambda x: (x[0].mul_(2), x.T[1:].add_(1), x.fill_diagonal_(0))), (ROWS,)),
    ],
)
add_functions(
    "order",
    [
        ("cumsum", lambda x: (x.cumsum(1), x.cumprod(0), x.cummax(1), x.logcumsumexp(0)), (ROWS,), [2]),
        ("diff", lambda x: (x.diff(dim=1), torch.trapezoid(x), torch.cumulative_trapezoid(x)), (ROWS,)),
        ("sort", lambda x: (*x.sort(1, descending=True), torch.argsort(x, dim=0, stable=True)), (ROWS,), [2]),
        ("topk", lambda x: (*x.topk(2), *x.kthvalue(3), *x.median(1)), (ROWS,), [1]),
        ("mode_quantile", lambda x: (*x.mode(1), x.quantile(0.3, 1)), (ROWS,)),
        ("unique", lambda n: torch.unique(n, return_inverse=True, return_counts=True), (i(5, 9),), [1]),
        ("search", lambda x, v: (torch.searchsorted(x.sort().values, v), torch.bucketize(v, x[0])), (ROWS, ROWS)),
        ("bins", lambda x, n: (x.histc(4, -2, 2), torch.bincount(n, minlength=6)), (t(9), i(5, 9)), [1, 1]),
    ],
)
add_functions(
    "reduction",
    [
        ("moments", lambda x: (x.mean(0), x.var(1), x.std((0, 1), correction=0), x.sum()), (ROWS,), [2]),
        ("extremes", lambda x: (x.amax(1), x.argmax(), *x.min(0), x.aminmax()[1]), (ROWS,), [2]),
        ("norms", lambda x: (x.norm(), x.norm(3, 1), torch.linalg.vector_norm(x, float("inf"), 0)), (ROWS,), [1]),
        ("logic", lambda x: ((x > 0).any(1), (x > 0).all(), x.count_nonzero(0), x.prod(1)), (ROWS,)),
        ("logsumexp", lambda x: (x.logsumexp(1), x.nansum(), x.nanmean(1)), (ROWS,), [2]),
    ],
)
add_functions(
    "complex",
    [
        ("product", lambda x: torch.view_as_real(torch.view_as_complex(x) ** 2), (t(4, 2),), [1]),
        (
            "polar",
            lambda x, y: (torch.polar(x, y).real, torch.complex(x, y).abs(), torch.complex(x, y).angle()),
            (t(4), t(4)),
        ),
        ("inputs", lambda z: (z * z.conj(), z.exp(), z.sum()), (t(4, dtype=torch.complex64),), [1]),
        ("fft", lambda x: (torch.fft.fft(x).abs(), torch.fft.rfft(x, norm="ortho").real), (ROWS,), [1]),
        ("fft_of_dynamic", lambda x: torch.fft.rfft(x).abs(), (ROWS,), ({1: "length"},)),
        ("fft2", lambda x: torch.fft.ifft2(torch.fft.fftshift(torch.fft.fft2(x))).real, (SQUARE,)),
        ("irfft", lambda x: torch.fft.irfft(torch.fft.rfft(x), n=6), (ROWS,)),
        (
            "stft",
            lambda x, w: torch.stft(x, 8, 4, window=w, return_complex=True).abs(),
            (t(1, 32), t(8).abs()),
            ({1: "n"}, None),
        ),
        (
            "istft",
            lambda x, w: torch.istft(torch.stft(x, 8, 2, window=w, return_complex=True), 8, 2, window=w),
            (t(1, 32), torch.ones(8)),
        ),
        (
            "rotary",
            lambda x: torch.view_as_real(
                torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.polar(torch.ones(3), torch.ones(3))
            ).flatten(-2),
            (ROWS,),
            [1],
        ),
    ],
)
add_functions(
    "linear_algebra",
    [
        ("determinant", lambda x: (torch.linalg.det(x), torch.linalg.slogdet(x).logabsdet), (SQUARE,)),
        ("inverse", lambda x: (torch.linalg.inv(x), torch.linalg.pinv(x)), (SQUARE,)),
        ("solve", torch.linalg.solve, (SQUARE, t(3, 2))),
        ("cholesky", torch.linalg.cholesky, (SQUARE,), [0]),
        ("qr", torch.linalg.qr, (SQUARE,)),
        ("svd", torch.linalg.svdvals, (SQUARE,)),
        ("eigh", torch.linalg.eigvalsh, (SQUARE,)),
        ("exponential", lambda x: (torch.linalg.matrix_exp(x), torch.linalg.matrix_power(x, 3)), (SQUARE,)),
        ("triangular", lambda x, y: torch.linalg.solve_triangular(x, y, upper=True), (SQUARE, t(3, 2))),
        ("products", lambda x, y: (torch.linalg.cross(x, y), torch.kron(x, y), torch.cdist(x, y)), (SQUARE, SQUARE)),
        ("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y), (t(2, 3, 4), t(2, 5, 4)), [1, 1]),
        ("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (t(3), t(2, 4), t(4, 3)), [0, 1, 0]),
        ("bmm", lambda x, y: torch.baddbmm(x, x, y) + torch.bmm(x, y), (t(2, 3, 3), t(2, 3, 3)), [1, 1]),
    ],
)
CLASSES = i(6, 4)
add_functions(
    "loss",
    [
        ("cross_entropy", F.cross_entropy, (ROWS, CLASSES), [1, 1]),
        ("smoothing", lambda x, n: F.cross_entropy(x, n, label_smoothing=0.1, reduction="none"), (ROWS, CLASSES)),
        ("weights", lambda x, n, w: F.cross_entropy(x, n, w, ignore_index=2), (ROWS, CLASSES, t(6).abs())),
        ("binary", F.binary_cross_entropy_with_logits, (ROWS, (ROWS > 0).float()), [1, 1]),
        ("distances", lambda x, y: (F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y)), (ROWS, ROWS + 1)),
        ("divergence", lambda x, y: F.kl_div(x, y.softmax(1), reduction="batchmean"), (ROWS, ROWS)),
        ("margins", lambda x, y: (F.triplet_margin_loss(x, y, -x), F.cosine_similarity(x, y)), (ROWS, ROWS + 1)),
    ],
)
add_functions(
    "random",
    [
        ("uniform", lambda x: x + torch.rand(3) + torch.rand_like(x), (t(3),), [1]),
        ("normal", lambda x: torch.randn_like(x) + torch.normal(x, 1.0), (ROWS,), [2]),
        ("bernoulli", lambda x: (torch.bernoulli(x.sigmoid()), x.bernoulli(0.3)), (ROWS,), [1]),
        ("multinomial", lambda x: torch.multinomial(x.softmax(1), 2), (ROWS,), [1]),
        ("integers", lambda x: x + torch.randint(0, 5, (3,)), (t(3),)),
        ("permutation", lambda x: x[torch.randperm(4)], (ROWS,)),
        ("dropout", lambda x: F.dropout(x, 0.4, training=True), (ROWS,), [2]),
    ],
)
HIGHER = torch.ops.higher_order
add_functions(
    "control_flow",
    [
        ("cond", lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)), (ROWS,), [2]),
        (
            "nested_cond",
            lambda x: torch.cond(
                x.sum() > 0, lambda x: torch.cond(x.mean() > 1, torch.sin, torch.cos, (x,)), torch.exp, (x,)
            ),
            (ROWS,),
            [1],
        ),
        (
            "while",
            lambda n, x: torch._higher_order_ops.while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 2), (n, x)),
            (torch.tensor(3), ROWS),
            (None, {0: "d0"}),
        ),
        (
            "scan",
            lambda s, x: torch._higher_order_ops.scan(lambda s, x: (s + x, s * x), s, x),
            (t(6), ROWS),
            (None, {0: "d0"}),
        ),
        (
            "map",
            lambda x, y: torch._higher_order_ops.map(lambda x, y: x * y + 1, x, y),
            (ROWS, t(6)),
            ({0: "d0"}, None),
        ),
        (
            "associative_scan",
            lambda x: torch._higher_order_ops.associative_scan(torch.add, x, 0, combine_mode="generic"),
            (ROWS,),
        ),
    ],
)
add_functions(
    "sizes",
    [
        ("view", lambda x: x.view(x.shape[0] * 2, -1), (ROWS,), [1]),
        ("arange", lambda x: torch.arange(x.shape[0]) + torch.zeros(x.shape[0]), (ROWS,), [1]),
        ("branch", lambda x: x + 1 if x.shape[0] > 3 else x - 1, (ROWS,), [1]),
        ("divisible", lambda x: x.view(-1, 2, x.shape[1]), (ROWS,), [1]),
        ("constant", lambda x: x if x.shape[0] == 4 else x + 1, (ROWS,), [1]),
        ("equal", lambda x, y: x + y, (ROWS, ROWS), ({0: "n"}, {0: "m"})),
        ("squeeze", lambda x: (x.squeeze(), x.squeeze(1), x.unsqueeze(-1)), (t(4, 1, 3),), ({0: "n", 2: "m"},)),
        ("unfold", lambda x: x.unfold(1, 3, 2), (ROWS,), [2]),
        ("split", lambda x: (*x.split(2, 1), *x.chunk(3, 1), *x.tensor_split(4, 1), *x.unbind(1)[:2]), (ROWS,), [1]),
        ("split_of_dynamic", lambda x: x.chunk(2), (ROWS,), [1]),
        ("repeat", lambda x: (x.repeat(2, 1), x.tile(3), x.repeat_interleave(2, 0), x.expand(2, 4, 6)), (ROWS,), [1]),
        ("repeat_interleave", lambda x, n: x.repeat_interleave(n, 0), (ROWS, i(3, 4)), [1, 1]),
        ("join", lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y]), torch.hstack([x, y])), (ROWS, ROWS), [1, 1]),
        ("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), (t(3), t(4)), ({0: "n"}, {0: "m"})),
        ("arithmetic", lambda x: x.new_zeros((x.shape[0] // 2 + 1, max(x.shape[1], 3))), (ROWS,), [2]),
        ("as_results", lambda x: (x.shape[0] * 2, x.numel(), torch.tensor(x.shape[0] / 2)), (ROWS,), [2]),
        ("of_data", lambda x: x.nonzero().shape[0] * x.sum() + x[x > 0].mean(), (ROWS,), [1]),
        ("item", lambda x, n: x[: n.item()] * 2, (ROWS, torch.tensor(2))),
        ("permute", lambda x: x.permute(2, 0, 3, 1).reshape(x.shape[3], -1).contiguous(), (IMAGE,), SIZES),
        ("full", lambda x: (torch.full_like(x, 2), torch.eye(x.shape[0]), torch.linspace(0, 1, 5)), (ROWS,), [1]),
        ("strided", lambda x: torch.as_strided(x, (2, 3), (6, 1)), (ROWS,)),
    ],
)
add_functions(
    "transform",
    [
        ("vmap", torch.vmap(lambda x: x.softmax(0) * x.sum()), (ROWS,), [1]),
        ("vmap_two", torch.vmap(lambda x, y: x @ y, in_dims=(0, None)), (t(4, 3, 3), t(3))),
        ("vmap_random", torch.vmap(lambda x: x + torch.rand(6), randomness="different"), (ROWS,)),
        ("jvp", lambda x: torch.func.jvp(torch.sin, (x,), (x,)), (ROWS,)),
        ("grad", torch.func.grad(lambda x: x.sin().sum()), (ROWS,)),
    ],
)


class Autocast(nn.Module):
    """A layer in a context of autocast."""

    def __init__(self, dtype: torch.dtype, size: int = 6) -> None:
        super().__init__()
        self.layer, self.dtype = nn.Linear(size, size), dtype

    def forward(self, x: Tensor) -> Any:
        """Returns the product in the smaller dtype, and a softmax."""
        with torch.autocast("cpu", self.dtype):
            y = self.layer(x)
            return y, y.softmax(-1), x + 1


for _dtype in (torch.bfloat16, torch.float16):
    add(f"autocast/{str(_dtype)[6:]}", lambda d=_dtype: Autocast(d), (ROWS,), dynamic_shapes=({0: "n"},))
for _dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int8, torch.uint8, torch.bool):
    _name = str(_dtype)[6:]
    add(
        f"dtype/{_name}",
        lambda: Function(lambda x: (x.cumsum(0), x.flip(0), x.to(torch.float32).exp(), x.sort().values)),
        (t(5).abs().to(_dtype),),
    )
    if _dtype.is_floating_point:
        add(
            f"dtype/{_name}/layers",
            lambda d=_dtype: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU()).to(d),
            (ROWS.to(_dtype),),
        )
