"""Patterns of real models that transformers patches for torch.onnx: exported unpatched, and compared at two sizes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close

Make = Callable[[int], Tensor]  # returns an input whose dynamic axes are larger by the argument


class Pattern(nn.Module):
    """A function of tensors, and the modules that it uses."""

    def __init__(self, function: Callable[..., Any], modules: tuple[nn.Module, ...]) -> None:
        super().__init__()
        self.function, self.used = function, nn.ModuleList(modules)

    def forward(self, *tensors: Tensor) -> Any:
        """Returns the result of the function."""
        return self.function(*tensors, *self.used)


PATTERNS: dict[str, tuple[Callable[..., Any], tuple[Make, ...], tuple[nn.Module, ...]]] = {}


def pattern(*makes: Make, modules: tuple[nn.Module, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as a pattern, with factories of its inputs."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PATTERNS[function.__name__] = function, makes, modules
        return function

    return add


def numbers(*shape: int) -> Make:
    """Returns a factory of random numbers, whose first two axes are dynamic."""
    return lambda k: torch.randn([size + k * (axis < 2) for axis, size in enumerate(shape)])


def integers(*shape: int) -> Make:
    """Returns a factory of random integers around 0, whose first two axes are dynamic."""
    return lambda k: torch.randint(-3, 4, [size + k * (axis < 2) for axis, size in enumerate(shape)])


def booleans(*shape: int) -> Make:
    """Returns a factory of random booleans, whose first two axes are dynamic."""
    return lambda k: torch.rand([size + k * (axis < 2) for axis, size in enumerate(shape)]) > 0.5


@pattern(numbers(3, 4), integers(3, 4))
def where_of_two_dtypes(x: Tensor, i: Tensor) -> Any:
    return torch.where(x > 0, i, x.to(torch.float64)), torch.where(x > 0, 2.5, i), torch.where(x > 0, i, 1)


@pattern(integers(3, 4))
def integers_and_python_floats(i: Tensor) -> Any:
    return 1.0 - i, i * 2.0, i - 0.5, 2.0 / (i * i + 1), i**2.0


@pattern(numbers(3, 4))
def sizes_as_floats(x: Tensor) -> Any:
    return x * (x.shape[0] / x.shape[1]), x / (x.shape[1] / 2), torch.mul(x, x.shape[0])


@pattern(integers(3, 4))
def remainders_of_sizes(i: Tensor) -> Any:
    return i % i.shape[0], torch.remainder(i, i.shape[1]), i // i.shape[0], torch.fmod(i, i.shape[1])


@pattern(numbers(4, 5))
def negative_floor_division(x: Tensor) -> Any:
    return x[: -(-x.shape[0] // 3)], x.new_zeros(-(-x.shape[1] // 3)), x.new_zeros((-x.shape[1]) % 4 + 1)


@pattern(numbers(3, 4))
def full_of_integers(x: Tensor) -> Any:
    return torch.full((x.shape[0],), 3), torch.full((x.shape[1], 2), True), torch.full((2,), x.shape[0])


@pattern(numbers(3, 4))
def complex_exponential(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.exp(torch.complex(x, x)).unsqueeze(1) * torch.polar(x.abs(), x).unsqueeze(1))


@pattern(numbers(3, 4, 8))
def inverse_transform(x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * 2, n=8) + torch.fft.irfft(torch.fft.rfft(x, n=9), n=9)[..., :8]


@pattern(numbers(2, 5, 8), booleans(2, 5))
def rows_masked_at_every_key(x: Tensor, keep: Tensor) -> Tensor:
    pairs = keep[:, None, :, None] & keep[:, None, None, :]
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=pairs)


@pattern(numbers(2, 5, 8), modules=(nn.RMSNorm(8, elementwise_affine=False),))
def norm_without_weight(x: Tensor, norm: nn.Module) -> Tensor:
    return norm(x)


@pattern(lambda k: torch.randn(3 + k, 4 + 2 * k, 2))
def chunks_of_a_dynamic_axis(x: Tensor) -> Tensor:
    first, second = x.chunk(2, 1)
    return first * second


@pattern(numbers(3, 4, 2))
def roll_then_write(x: Tensor) -> Tensor:
    y = x.roll((1, -2), (1, 0))
    y[..., 0] = 0
    return y + x.roll(x.shape[0] // 2, 0)


@pattern(lambda k: torch.randn(2 + k, 3 + k, 5), lambda k: torch.tensor([1, 3]))
def writes_on_the_last_axis(x: Tensor, i: Tensor) -> Tensor:
    y = x * 1
    y[:, :, i] = torch.finfo(torch.float32).min
    y[:, 1:, i] = 2
    return y


@pattern(numbers(3, 4, 2), booleans(3, 4))
def writes_by_a_mask(x: Tensor, mask: Tensor) -> Any:
    y, z = x.clone(), x.clone()
    y[mask] = 0.5
    z[mask] = z[mask] * 2
    z[~mask] += 1
    return y, z


@pattern(numbers(3, 4, 2), booleans(3, 4), lambda k: torch.randn((3 + k) * (4 + k), 2))
def images_among_tokens(x: Tensor, mask: Tensor, images: Tensor) -> Tensor:
    return x.masked_scatter(mask[..., None].expand_as(x), images)


@pattern(numbers(3, 4))
def diagonal_and_triangle(x: Tensor) -> Any:
    scores = x @ x.mT
    scores.fill_diagonal_(0)
    return scores, x.clone().triu_(1)


@pattern(booleans(3, 4), booleans(3, 4))
def masks_filled_by_masks(m: Tensor, n: Tensor) -> Any:
    return m.masked_fill(n, True), m.masked_fill(n, False), m.masked_fill(n, torch.tensor(True))


@pattern(numbers(3, 4), lambda k: torch.arange((3 + k) * (4 + k)).reshape(3 + k, 4 + k) % 3 > 0)
def masked_statistics(x: Tensor, mask: Tensor) -> Any:
    mean, var = torch.masked.mean(x, mask=mask, dim=1), torch.masked.var(x, mask=mask, dim=1, keepdim=True)
    return mean, var, torch.masked.std(x, mask=mask, dim=1, unbiased=False)


@pattern(numbers(3, 4))
def mask_by_vmap(x: Tensor) -> Tensor:
    causal = torch.vmap(torch.vmap(torch.ge, in_dims=(None, 0)), in_dims=(0, None))
    return causal(torch.arange(x.shape[0]), torch.arange(x.shape[1])) * x


@pattern(numbers(3, 4, 2))
def view_of_a_noncontiguous_tensor(x: Tensor) -> Tensor:
    return x.transpose(0, 1).reshape(-1) + x.permute(1, 0, 2).contiguous().view(-1)


@pattern(numbers(3, 4))
def operators_that_torch_onnx_lacks(x: Tensor) -> Any:
    ordered = torch.sort(x, stable=True).values
    places = torch.searchsorted(ordered, x), torch.bucketize(x, torch.tensor([-1.0, 0, 1]), right=True)
    return *places, *x.cummax(1), *x.cummin(0), x.histc(5), torch.randperm(x.shape[0]).sort().values


@pattern(lambda k: torch.randn(2 + k, 4, 9 + k), modules=(nn.Conv1d(4, 4, 3).bfloat16(),))
def bfloat16_convolution(x: Tensor, conv: nn.Module) -> Tensor:
    return conv(x.bfloat16())


@pattern(integers(3, 4))
def counts(i: Tensor) -> Any:
    return torch.bincount(i.abs().flatten(), minlength=9), i[:, 0].abs().repeat_interleave(i.shape[1])


@pattern(numbers(6, 5), modules=(nn.Embedding(16, 8),))
def resized_positions(x: Tensor, positions: nn.Module) -> Tensor:
    table = positions.weight.reshape(1, 4, 4, 8).permute(0, 3, 1, 2)
    return F.interpolate(table, size=(x.shape[0], x.shape[1]), mode="bicubic", align_corners=False)


@pattern(numbers(3, 4), lambda k: torch.tensor(3 - 10 * k))
def numbers_from_item(x: Tensor, n: Tensor) -> Any:
    k, f = n.item(), (n * 0.5).item()
    limited = torch.sym_min(torch.sym_max(k, 0), x.shape[0])
    signs = torch.sym_ite(n.item() > 0, x.shape[0], 2)
    return x * (k // 2), x * (k % 3), x * (k // -2), x * (k % -3), x * f, x * (f // 2), x[:2] * limited, x * signs


@pattern(numbers(3, 4))
def sizes_as_results(x: Tensor) -> Any:
    rows, columns = x.shape
    return x + 1, rows, -rows // 2, rows % -columns, rows * columns > 12


@pattern(numbers(5, 4), lambda k: torch.tensor([2 + k, 3]))
def pieces_of_given_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.cat([piece.sum(0, keepdim=True) * piece.shape[0] for piece in x.split(lengths.tolist())])


@pattern(numbers(3, 4))
def data_dependent_sizes(x: Tensor) -> Any:
    rows, columns = torch.where(x > 0)
    values, inverse, counts = torch.unique((x * 2).long(), return_inverse=True, return_counts=True)
    some = x[x[:, 0] > 0]
    return x[rows, columns], some @ x.mT, some.shape[0], x[x > 9], values, inverse, counts


@pattern(lambda k: torch.randn(6 + k, 4), modules=(nn.Linear(4, 3),))
def tokens_to_experts(x: Tensor, router: nn.Module) -> Tensor:
    chosen = router(x).argmax(-1)
    result = torch.zeros_like(x)
    for expert in range(3):
        (tokens,) = torch.where(chosen == expert)
        result.index_add_(0, tokens, x[tokens].tanh() * (expert + 1))
    return result


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str) -> None:
    """Exports the pattern with dynamic axes, and compares it with eager at the exported size and at a larger one."""
    torch.manual_seed(0)
    function, makes, modules = PATTERNS[name]
    small, large = ([make(k) for make in makes] for k in (0, 2))
    shapes = tuple(
        {axis: Dim.AUTO for axis in range(x.ndim) if x.shape[axis] != y.shape[axis]}
        for x, y in zip(small, large, strict=True)
    )
    module = Pattern(function, modules).eval()
    program = fx_onnx.export(module, tuple(small), dynamic_shapes=(shapes,), verbose=False)
    for inputs in (small, large):
        with torch.no_grad():
            want = module(*(x.clone() for x in inputs))
        assert_close(program(*inputs), pytree.tree_map_only((int, float), torch.tensor, want))


# ---------------------------------------------------------------- results of decompositions


def test_a_result_of_another_precision_is_cast() -> None:
    """torch's decomposition of native_layer_norm computes the mean of a bfloat16 tensor in float32."""
    x = torch.randn(2, 3).bfloat16()
    program = fx_onnx.export(Function(lambda x: torch.native_layer_norm(x, [3], None, None, 1e-5)), (x,))
    assert [result.dtype for result in program(x)] == [torch.bfloat16] * 3


def test_a_result_of_another_shape_that_nothing_uses_is_ignored() -> None:
    """torch's decomposition of log_sigmoid_forward returns an empty buffer, as on a GPU."""
    log_sigmoid_forward = torch.ops.aten.log_sigmoid_forward
    x = torch.randn(3)
    program = fx_onnx.export(Function(lambda x: log_sigmoid_forward(x)[0]), (x,))
    assert_close(program(x), (torch.nn.functional.logsigmoid(x),))
    with pytest.raises(fx_onnx.TranslationError, match=r"returns float32\[0\] where the operator returns float32\[3\]"):
        fx_onnx.export(Function(lambda x: log_sigmoid_forward(x)[1]), (x,))
