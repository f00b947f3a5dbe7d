"""Convolution and pooling of float64 by gathered windows: the results are torch's."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import fx_onnx

F64 = torch.float64
WITHOUT_KERNELS = {"Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool"}


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Conv1d(4, 6, 3, stride=2, padding=1),
        torch.nn.Conv2d(4, 8, (3, 2), padding=(2, 1), dilation=(2, 1), groups=2, bias=False),
        torch.nn.Conv3d(4, 4, 2, groups=4),
        torch.nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        torch.nn.ConvTranspose2d(4, 3, (3, 2), stride=(1, 3), dilation=(2, 1), padding=(3, 0)),
        torch.nn.AvgPool1d(3, 2, padding=1),
        torch.nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
        torch.nn.AvgPool3d(2),
        torch.nn.AdaptiveAvgPool2d(1),
    ],
    ids=lambda module: type(module).__name__,
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_modules(module: torch.nn.Module, dynamic: bool) -> None:
    """Strides, dilations, groups and padding, with fixed and with dynamic spatial sizes."""
    rank = int(type(module).__name__[-2])
    module, x = module.to(F64).eval(), torch.randn(2, 4, *[9, 8, 7][:rank], dtype=F64)
    shapes = (dict.fromkeys((0, *range(2, 2 + rank)), torch.export.Dim.AUTO),) if dynamic else None
    program = fx_onnx.export(module, (x,), dynamic_shapes=shapes, verbose=False)
    assert not WITHOUT_KERNELS & {node.op_type for node in program.model.graph}
    for each in [x, torch.randn(3, 4, *[10, 11, 6][:rank], dtype=F64)][: 1 + dynamic]:
        torch.testing.assert_close(program(each)[0], module(each))


class _Convolved(torch.nn.Module):
    """A convolution whose weight is an input."""

    def __init__(self, function: Callable[..., torch.Tensor], groups: int) -> None:
        super().__init__()
        self.function, self.groups = function, groups

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return self.function(x, weight, bias, padding=1, groups=self.groups)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d])
def test_dynamic_channels(function: Callable[..., torch.Tensor], groups: int) -> None:
    """The numbers of input and output channels are dims, for one group; of two groups the output channels are."""

    def arguments(batch: int, into: int, out: int) -> tuple[torch.Tensor, ...]:
        shape = (into, out // groups) if function is F.conv_transpose2d else (out, into // groups)
        tensors = torch.randn(batch, into, 5, 4), torch.randn(*shape, 3, 2), torch.randn(out)
        return tuple(tensor.to(F64) for tensor in tensors)

    free = torch.export.Dim.AUTO
    channels = {0: free, 1: free} if groups == 1 else {int(function is F.conv_transpose2d): free}
    shapes = ({0: "n", 1: free} if groups == 1 else {0: "n"}, channels, {0: free})
    model, into = _Convolved(function, groups).eval(), 4
    program = fx_onnx.export(model, arguments(2, into, 6), dynamic_shapes=shapes, verbose=False)
    assert not WITHOUT_KERNELS & {node.op_type for node in program.model.graph}
    for example in (arguments(2, into, 6), arguments(3, into if groups > 1 else 3, 8)):
        torch.testing.assert_close(program(*example)[0], model(*example))


def test_convolution_of_integers() -> None:
    """The translation of a convolution of int64 casts to float64; the pass finds the weight behind the Cast."""

    class Convolved(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x, weight, padding=1)

    x, weight = torch.arange(48).reshape(1, 3, 4, 4), torch.arange(54).reshape(2, 3, 3, 3)
    program = fx_onnx.export(Convolved().eval(), (x, weight), verbose=False)
    assert program(x, weight)[0].equal(Convolved()(x, weight))
