"""Lowering of complex tensors to pairs of real tensors: structure, names, inputs, outputs, weights, whole models."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.complex_tensors.complex_to_real import lower_complex
from fx_onnx.messages.errors import UnsupportedOperatorError
from tests.compare import assert_close
from tests.harness import Case, b8, c64, c128, cases, check, f32, f64, i64
from tests.modules import FunctionModule


def _export(model: nn.Module, *args: Tensor, dynamic: Any = None, **options: Any) -> fx_onnx.ONNXProgram:
    return fx_onnx.export(model.eval(), args, dynamic_shapes=dynamic, **options)


# ---------------------------------------------------------------- the stage


def test_a_real_program_is_returned_as_it_is() -> None:
    program = functionalize(AtenProgram.captured(torch.export.export(FunctionModule(torch.sin), (torch.randn(2),))))
    before = list(program.graph.nodes)
    assert lower_complex(program) is program
    assert list(program.graph.nodes) == before


def test_no_node_is_complex_after_lowering() -> None:
    z = torch.randn(2, 3, dtype=torch.complex64)
    exported = torch.export.export(FunctionModule(lambda z: (z * z).exp().abs()), (z,))
    program = lower_complex(functionalize(AtenProgram.captured(exported)))
    program.graph.lint()
    assert not any(n.meta["val"].is_complex() for n in program.graph.nodes if "val" in n.meta)


def test_inputs_and_outputs_are_real_views_under_their_names() -> None:
    z = torch.randn(2, 3, dtype=torch.complex64)
    program = _export(FunctionModule(lambda z: z * 2), z, output_names=["result"])
    (given,), (result,) = program.model.graph.inputs, program.model.graph.outputs
    assert list(given.shape) == [2, 3, 2] and list(result.shape) == [2, 3, 2] and result.name == "result"
    assert_close(program.call_structured(z), z * 2)


def test_a_complex_view_of_a_real_view_is_eliminated() -> None:
    x = torch.randn(3, 2)
    program = _export(FunctionModule(lambda x: torch.view_as_real(torch.view_as_complex(x)) + 1), x)
    assert [node.op_type for node in program.model.graph] == ["Add"]


class _Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4, dtype=torch.complex64))
        self.register_buffer("b", torch.randn(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w + self.b


def test_complex_weights_are_real_views_that_can_be_replaced() -> None:
    model, x = _Weight(), torch.randn(2, 3, dtype=torch.complex64)
    program = _export(model, x, optimize=False)
    assert list(program.model.graph.initializers["w"].shape) == [3, 4, 2]
    assert_close(program.call_structured(x), model(x))
    other = _Weight()
    program.apply_weights(other.state_dict())
    assert_close(program.call_structured(x), other(x))


def test_an_input_can_be_an_output() -> None:
    z = torch.randn(2, dtype=torch.complex64)
    program = _export(FunctionModule(lambda z: (z, z.conj())), z)
    assert_close(program.call_structured(z), (z, z.conj().resolve_conj()))


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, dtype=torch.complex64))

    def forward(self, z: Tensor) -> Tensor:
        self.state.add_(z)
        return self.state.abs()


def test_a_complex_buffer_can_be_written() -> None:
    z = torch.randn(2, dtype=torch.complex64)
    found = _export(_Counter(), z)(z)
    assert_close(found, (z.abs(), torch.view_as_real(z)))


def test_results_of_equal_calls_are_distinct() -> None:
    """Equal calls are traced once, so their results share fake tensors, but they are two inputs of a later call."""
    z = torch.randn(4, dtype=torch.complex64)
    function = FunctionModule(lambda z: torch.cat([z[:2].exp(), z[2:].exp()]) * (z[:2].exp() - z[2:].exp()).sum())
    assert_close(_export(function, z).call_structured(z), function(z))


def test_half_complex_is_a_pair_of_float16() -> None:
    scale = torch.randn(2).chalf()
    call, z = FunctionModule(lambda z: (z + scale).real), torch.randn(2).chalf()
    assert_close(_export(call, z).call_structured(z), call(z))
    assert _export(FunctionModule(lambda x: x.chalf()), torch.randn(2))(torch.ones(2))[0].dtype == torch.float16


@torch.library.custom_op("tests::turned", mutates_args=())
def _without_decomposition(z: Tensor) -> Tensor:
    return z * 1j


_without_decomposition.register_fake(torch.empty_like)


def test_an_operator_without_decomposition_is_named() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"tests\.turned"):
        _export(FunctionModule(_without_decomposition), torch.randn(3, 3, dtype=torch.complex64))


class Loop(nn.Module):
    """A loop that carries and reads complex tensors, and computes with complex numbers inside its body."""

    def forward(self, z: Tensor, factor: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        def more(k: Tensor, z: Tensor, x: Tensor) -> Tensor:
            return (k < 3) & (z.abs().max() < 1e3)

        def body(k: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return k + 1, z * factor + 1j, (x + 1j).abs()

        _, z, x = torch.while_loop(more, body, (torch.tensor(0), z, x))
        return z * z, x


def test_control_flow() -> None:
    def example(n: int) -> tuple[Tensor, ...]:
        return torch.randn(n, 2, dtype=torch.complex64), torch.randn(2, dtype=torch.complex64), torch.randn(n)

    program = _export(Loop(), *example(3), dynamic=({0: "n"}, None, {0: "n"}))
    for n in (3, 4):
        inputs = example(n)
        assert_close(program.call_structured(*inputs), Loop()(*inputs))


# ---------------------------------------------------------------- structure


@cases(
    [
        Case(torch.reshape, c64(2, 6), (3, 4), dynamic=False),
        Case(torch.transpose, c64(2, 3), 0, 1),
        Case(torch.cat, [c64(2, 3), f32(2, 3)], 1),
        Case(torch.cat, [c64(2, 3), f64(2, 3)], 1, dynamic=False),
        Case(torch.stack, [c64(2, 3), c64(2, 3)]),
        Case(torch.split, c64(4, 3), 2, dynamic=False),
        Case(torch.unbind, c64(2, 3), 0, dynamic=False),
        Case(torch.index_select, c64(4, 3), 0, i64(2, low=0, high=3)),
        Case(torch.where, b8(2, 3), c64(2, 3), f32(2, 3)),
        Case(torch.where, b8(2, 3), c64(2, 3), 1.5),
        Case(torch.where, b8(2, 3), 1.5, c64(2, 3)),
        Case(torch.masked_fill, c64(2, 3), b8(2, 3), 1 + 2j),
        Case(torch.nn.functional.pad, c64(2, 3), (1, 2)),
        Case(torch.flip, c64(2, 3), (1,)),
        Case(torch.tril, c64(3, 3)),
        Case(torch.roll, c64(2, 3), 1, 1),
        Case(torch.full_like, c64(2, 3), 1 - 1j),
        Case(torch.zeros_like, f32(2, 3), dtype=torch.complex64),
        Case(torch.Tensor.to, f32(2, 3), torch.complex64),
        Case(torch.Tensor.to, c64(2, 3), torch.complex128),
        Case(torch.Tensor.to, c64(2, 3), torch.float32),
        Case(torch.Tensor.to, c64(2, 3), torch.bool),
        Case(torch.masked_select, c64(2, 3), b8(2, 3)),
        Case(torch.einsum, "ij,jk->ik", c64(2, 3), c64(3, 4)),
        Case(torch.add, c128(2, 3), c64(3)),
    ]
)
def test_structure(case: Case) -> None:
    check(case)


# ---------------------------------------------------------------- models


class Rotary(nn.Module):
    """Rotary position embedding with complex numbers, as in the original code of Llama."""

    def __init__(self, dim: int = 16, length: int = 64) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(float(length)), 1 / 10000 ** (torch.arange(0, dim, 2) / dim))
        self.turns = torch.polar(torch.ones_like(angles), angles)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turns = self.turns[: x.shape[1]].view(1, x.shape[1], 1, x.shape[-1] // 2)
        return torch.view_as_real(z * turns).flatten(3).type_as(x)


class Spectrogram(nn.Module):
    def __init__(self, n_fft: int, hop: int, **options: Any) -> None:
        super().__init__()
        self.n_fft, self.hop, self.options = n_fft, hop, options
        self.register_buffer("window", torch.hann_window(n_fft))

    def stft(self, x: Tensor) -> Tensor:
        return torch.stft(x, self.n_fft, self.hop, window=self.window, return_complex=True, **self.options)

    def forward(self, x: Tensor) -> Tensor:
        return self.stft(x).abs()


class RoundTrip(Spectrogram):
    def forward(self, x: Tensor) -> Tensor:
        return torch.istft(self.stft(x) * 0.5, self.n_fft, self.hop, window=self.window, **self.options)


class RealStft(Spectrogram):
    """An operator with complex numbers inside and real arguments and results."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten.stft.default(x, self.n_fft, self.hop, None, self.window, False, True, False)


def test_rotary_embedding() -> None:
    model, x = Rotary(), torch.randn(2, 7, 3, 16)
    program = _export(model, x, dynamic=({0: "batch", 1: "time"},))
    for example in (x, torch.randn(3, 9, 3, 16)):
        assert_close(program(example)[0], model(example))


@pytest.mark.parametrize(
    "model",
    [
        Spectrogram(400, 160),
        Spectrogram(64, 16, normalized=True),
        Spectrogram(64, 16, center=False),
        Spectrogram(32, 8, onesided=False),
        RoundTrip(400, 100),
        RoundTrip(64, 16),
        RealStft(64, 16),
    ],
)
def test_short_time_transforms(model: nn.Module) -> None:
    x = torch.randn(2, 1600)
    program = _export(model, x, dynamic=({0: "batch", 1: "time"},))
    for example in (x, torch.randn(3, 2003)):
        assert_close(program(example)[0], model(example), tolerance=1e-4)


def test_a_filter_in_the_frequency_domain() -> None:
    """A Fourier transform and its inverse to the original size, as in Fourier neural operators."""

    class Filter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            spectrum = torch.fft.rfft2(x)
            return torch.fft.irfft2(spectrum * torch.exp(torch.complex(x.mean(), x.mean())), s=x.shape[-2:])

    module = Filter().eval()
    program = _export(module, torch.randn(2, 8, 6), dynamic=({0: "batch", 1: "height", 2: "width"},))
    for shape in ((2, 8, 6), (3, 10, 12), (1, 9, 7)):
        x = torch.randn(shape)
        assert_close(program(x), module(x), tolerance=1e-4)


def test_one_tensor_as_both_parts() -> None:
    """The real and the imaginary part are the same node, and the trace needs two inputs."""

    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.view_as_real(torch.exp(torch.complex(x, x)))

    program = _export(Twice().eval(), torch.randn(3, 4), dynamic=({0: "rows"},))
    x = torch.randn(5, 4)
    assert_close(program(x), Twice()(x))
