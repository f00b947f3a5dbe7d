"""An expression of a dynamic size as a number of an operator stays dynamic: the results are right at other sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.patches.symbolic_forms import symbolic_form, view_forms
from fx_onnx.decompositions.registry import SYMBOLIC
from fx_onnx.torch_internals.operators import aten
from tests.compare import assert_close

SIZES = (9, 5, 8, 12, 16, 23)
CALLS: dict[str, Callable[[Tensor, Any], Tensor]] = {  # x is [n, 4]
    "avg_pool1d_kernel": lambda x, n: F.avg_pool1d(x.T[None], n // 2),
    "avg_pool2d": lambda x, n: F.avg_pool2d(x[None], (n, 2)),
    "max_pool1d": lambda x, n: F.max_pool1d(x.T[None], n // 2),
    "max_pool2d": lambda x, n: nn.MaxPool2d((n // 2, 1))(x[None]),
    "lp_pool1d": lambda x, n: F.lp_pool1d(x.T[None], 2, n // 3),
    "adaptive_avg_pool1d": lambda x, n: F.adaptive_avg_pool1d(x.T[None], n // 2),
    "adaptive_avg_pool2d": lambda x, n: nn.AdaptiveAvgPool2d((None, n // 2))(x.T[None]),
    "adaptive_max_pool1d": lambda x, n: F.adaptive_max_pool1d(x.T[None], n // 2),
    "adaptive_max_pool2d": lambda x, n: F.adaptive_max_pool2d(x.T[None], (2, n // 2 + 1)),
    "adaptive_avg_pool1d_is_a_copy": lambda x, n: [y := x.T.clone(), F.adaptive_avg_pool1d(y, n).add_(1)][0],
    "unfold_size": lambda x, n: x.unfold(0, n // 2, 1),
    "unfold_step": lambda x, n: x.unfold(0, 2, n // 4),
    "im2col": lambda x, n: F.unfold(x[None, None], (n // 3, 2)),
    "interpolate": lambda x, n: F.interpolate(x.T[None], scale_factor=n / 4),
    "interpolate_linear": lambda x, n: F.interpolate(x.T[None], scale_factor=n / 4, mode="linear"),
    "interpolate_two": lambda x, n: F.interpolate(x[None, None], scale_factor=(n / 4, 2), mode="bilinear"),
    "interpolate_area": lambda x, n: F.interpolate(x.T[None], scale_factor=n / 4, mode="area"),
    "one_hot": lambda x, n: F.one_hot(x.argmax(1), n),
    "diagonal": lambda x, n: x.diagonal(n // 4),
    "diagonal_below": lambda x, n: torch.diagonal(x, offset=-(n // 4)),
    "linalg_diagonal": lambda x, n: torch.linalg.diagonal(x, offset=n // 4),
    "diag_embed": lambda x, n: torch.diag_embed(x, 3 - n),
    "diag": lambda x, n: torch.diag(input=x[:, 0], diagonal=n // 4),
    "tril": lambda x, n: x.tril(n // 4),
    "triu_in_place": lambda x, n: x.new_ones(n, n).triu_(n - 7),
    "tril_indices": lambda x, n: torch.tril_indices(n, n),
    "roll": lambda x, n: x.roll((n // 4, 1), (0, 1)),
    "repeat": lambda x, n: x.repeat(n // 4, 1),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n // 4, 0),
    "clamp": lambda x, n: x.clamp(-1 / n, n // 8),
    "add_alpha": lambda x, n: torch.add(x, x, alpha=n),
    "addmm": lambda x, n: torch.addmm(x, x, torch.eye(4), beta=n, alpha=1 / n),
    "softshrink": lambda x, n: F.softshrink(x, 1 / n),
    "layer_norm": lambda x, n: F.layer_norm(x, (4,), eps=1 / n),
    "rms_norm": lambda x, n: F.rms_norm(x, (4,), eps=1 / n),
    "group_norm": lambda x, n: F.group_norm(x.T[None], 2, eps=1 / n),
    "group_norm_groups": lambda x, n: F.group_norm(x.repeat_interleave(2, 0)[None], n),
    "instance_norm": lambda x, n: F.instance_norm(x[None], eps=1 / n),
    "batch_norm": lambda x, n: F.batch_norm(x, torch.zeros(4), torch.ones(4), eps=1 / n),
    "attention_scale": lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=1 / n),
    "huber_loss": lambda x, n: F.huber_loss(x, x * 0, delta=1 / n),
    "smooth_l1_loss": lambda x, n: F.smooth_l1_loss(x, x * 0, beta=1 / n),
    "cross_entropy": lambda x, n: F.cross_entropy(x, x.argmin(1), label_smoothing=1 / n),
    "triplet_margin_loss": lambda x, n: F.triplet_margin_loss(x, x * 2, x.flip(1), margin=1 / n),
    "cosine_similarity": lambda x, n: F.cosine_similarity(x, x.flip(1), eps=1 / n),
    "pairwise_distance": lambda x, n: F.pairwise_distance(x, x.flip(1), eps=1 / n),
    "logit": lambda x, n: torch.logit(x.sigmoid(), eps=1 / (n + 1)),
    "quantile": lambda x, n: x.quantile(1 / n, dim=0),
    "round": lambda x, n: x.round(decimals=n // 4),
    "nan_to_num": lambda x, n: (x / x.relu()).nan_to_num(nan=1 / n, posinf=n, neginf=-n),
    "norm": lambda x, n: x.norm(p=n // 4, dim=0),
    "normalize": lambda x, n: F.normalize(x, p=n / 4),
    "var": lambda x, n: x.var(0, correction=n // 4),
    "std": lambda x, n: x.std(0, correction=n - 1),
    "dropout": lambda x, n: F.dropout(x, 1 / n, training=False),
    "isclose": lambda x, n: torch.isclose(x, x + 0.1, rtol=1 / n, atol=1 / n),
    "histc": lambda x, n: torch.histc(x, n // 2, -3, 3),
    "vander": lambda x, n: torch.vander(x[:, 0], n // 3),
    "trapezoid": lambda x, n: torch.trapezoid(x, dx=1 / n, dim=0),
    "pad_value": lambda x, n: F.pad(x, (1, 2), value=1 / n),
    "full": lambda x, n: torch.full((n // 2, 3), 1 / n),
    "arange": lambda x, n: torch.arange(0, n, 2),
    "linspace": lambda x, n: torch.linspace(0, n, n // 2),
    "linspace_of_integers": lambda x, n: torch.linspace(-3.7, n / 2, 7, dtype=torch.int32),
    "linspace_of_all_rows": lambda x, n: torch.linspace(n, -9, n, dtype=torch.int64),
    "logspace_of_integers": lambda x, n: torch.logspace(0, n / 3, 5, base=3, dtype=torch.int64),
    "logspace": lambda x, n: torch.logspace(0, 1, n // 2, base=n),
    "hann_window": lambda x, n: torch.hann_window(n // 2),
}


class Call(nn.Module):
    def __init__(self, function: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, x.shape[0])


@pytest.mark.parametrize("name", CALLS)
def test_a_number_from_a_size_stays_dynamic(name: str) -> None:
    module = Call(CALLS[name]).eval()
    program = fx_onnx.export(module, (torch.randn(9, 4),), dynamic_shapes=({0: "n"},), progress=False)
    assert [each for each in program.findings if "==" in each.text or "static" in each.text] == []
    for size in SIZES:
        x = torch.randn(size, 4)
        assert_close(program(x)[0], module(x))


def test_a_condition_on_a_size_as_a_flag_is_that_of_the_example() -> None:
    """torch refuses a symbolic bool."""
    module = Call(lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=n > 1)).eval()
    program = fx_onnx.export(module, (torch.randn(9, 4),), dynamic_shapes=({0: "n"},), progress=False)
    for size in SIZES:
        x = torch.randn(size, 4)
        assert_close(program(x)[0], module(x))


def writes(view: Callable[..., Tensor], to_view: bool) -> Callable[[Tensor, int], object]:
    def write(x: Tensor, n: int) -> object:
        y = x * 1
        part = view(y, n)
        (part if to_view else y).add_(1)
        return y, part

    return write


@pytest.mark.parametrize("to_view", [True, False])
def test_a_write_through_a_view(to_view: bool) -> None:
    """A form of an operator that returns a view is a view, or the write is refused."""
    x, axes = torch.randn(9, 4), ({0: "n"},)
    module = Call(writes(lambda y, n: y.diagonal(-(n // 4)), to_view)).eval()
    for each in (x, torch.randn(12, 4)):
        assert_close(fx_onnx.export(module, (x,), dynamic_shapes=axes, progress=False)(each), module(each))
    copied = Call(writes(lambda y, n: y.unfold(dimension=0, size=n // 4, step=3), to_view)).eval()
    with pytest.raises(fx_onnx.CaptureError, match=r"unfold returns a copy .* size \(.*; write to a clone"):
        fx_onnx.export(copied, (x,), dynamic_shapes=axes, progress=False)


def test_each_form_of_a_view_is_a_view_or_refuses_writes() -> None:
    names = {each for each, form in SYMBOLIC.items() if form in view_forms()}
    assert names == {aten.diagonal.default, aten.linalg_diagonal.default, aten.unfold.default}


def test_the_comparison_of_other_sizes_has_the_same_forms() -> None:
    """A difference is certain, and a branch that changes nothing is none."""

    def form(x: Tensor, n: int) -> Tensor:
        return F.max_pool1d(x.T, n // 4).T.diagonal(n // 8) + x.diagonal(0)[0]

    changed = Call(lambda x, n: form(x, n) if n > 5 else form(x + 1, n))
    program = fx_onnx.export(changed.eval(), (torch.randn(9, 4),), dynamic_shapes=({0: "n"},), progress=False)
    assert ["is correct only where n >= 6" in each.text for each in program.findings] == [True]
    equal = Call(lambda x, n: form(x, n) if n > 5 else form(x, n).clone())
    program = fx_onnx.export(equal.eval(), (torch.randn(9, 4),), dynamic_shapes=({0: "n"},), progress=False)
    assert program.findings == []


def test_plain_numbers_have_no_form() -> None:
    x = torch.randn(3, 4)
    assert symbolic_form(torch.Tensor.diagonal, (x, 1), {}) is None
    assert symbolic_form(torch.diagonal, (x,), {"offset": 1}) is None
    assert symbolic_form(torch.Tensor.diagonal, (x, 1, 0, 1, 5), {}) is None  # one argument too many
    assert symbolic_form(torch.Tensor.add, (x, 1), {}) is None


def test_a_function_in_python_gives_its_body() -> None:
    found = symbolic_form(F.max_pool1d, (), {})
    assert found is not None
    body = found[1]
    x = torch.randn(1, 2, 6)
    assert torch.equal(body(x, 2), F.max_pool1d(x, 2))
    assert torch.equal(body(x, 2, return_indices=True)[1], F.max_pool1d(x, 2, return_indices=True)[1])
