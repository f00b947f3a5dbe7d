"""The compiler of the target tensorrt; what needs its package is skipped without it."""

import sys
from pathlib import Path

import onnx_ir as ir
import pytest
import torch

import fx_onnx
from fx_onnx.backends import tensorrt_compiler
from fx_onnx.backends.tensorrt_compiler import compile_model, libraries, profile
from fx_onnx.targets.compilation import Refusal
from tests.backends.test_tensorrt_engine import needs_package
from tests.exporting import exported
from tests.passes.checking import model

X = torch.ones(2, 3)


def test_without_the_package_the_table_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_compiler, "libraries", lambda: None)
    support = exported(torch.relu, X, target="tensorrt").supports("tensorrt")
    assert support and not support.is_compiled
    assert "by its table, not compiled" in str(support) and "the extra fx_onnx[tensorrt]" in str(support)


def test_another_version_is_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "onnxruntime_ep_nv_tensorrt_rtx"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    libraries.cache_clear()
    assert libraries() is None
    (package / "libtensorrt_rtx.so.1.7.1").touch()
    libraries.cache_clear()
    assert libraries() == package
    libraries.cache_clear()


def test_shapes() -> None:
    """Twice the size of the example is the largest one; not where a dim follows from others."""
    plain = model("g (float[N,3] x, float[3] w) => (float[N,3] y) { y = Add(x, w) }")
    assert profile(plain, {"x": (2, 3)}) == {"x": [[2, 3], [2, 3], [4, 3]]}
    assert profile(plain, {}) is None
    related = model("g (float[N] x, float[M] z) => (float[K] y) { y = Concat<axis=0>(x, z) }")
    related.graph.inputs[1].shape = ir.Shape(["N + 1"])
    assert profile(related, {"x": (2,), "z": (3,)}) == {"x": [[2]] * 3, "z": [[3]] * 3}


@needs_package
def test_a_model_is_compiled() -> None:
    program = exported(torch.relu, X, target="tensorrt", dynamic_shapes=({0: "n"},))
    support = program.supports("tensorrt")
    assert support and support.is_compiled and support.compilation is not None and support.compilation.size
    assert "tensorrt: compiled" in str(support) and "TensorRT for RTX 1.7.1" in support.source


@needs_package
def test_a_refusal_has_its_node_and_line() -> None:
    program = exported(lambda x: torch.zeros(4).index_add(0, torch.tensor([1, 1]), x), torch.ones(2))
    support = program.supports("tensorrt")
    assert not support and support.missing[0].operator == "ScatterND"
    assert support.missing[0].line.startswith("tests/exporting.py:")
    assert "ScatterND with reduction is not supported" in str(support)


@needs_package
@pytest.mark.parametrize("kind", [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM])
@pytest.mark.parametrize("dims", [None, {0: "steps", 1: "rows"}])
def test_recurrent_layers_of_bfloat16(dims: dict[int, str] | None, kind: type[torch.nn.RNNBase]) -> None:
    layer, x = kind(2, 4).bfloat16().eval(), torch.randn(5, 2, 2, dtype=torch.bfloat16)
    program = exported(lambda x: layer(x)[0], x, target="tensorrt", dynamic_shapes=(dims,))
    assert program.supports("tensorrt").is_compiled and program.supports("tensorrt")


@needs_package
@pytest.mark.parametrize("kind", [torch.nn.Conv1d, torch.nn.ConvTranspose1d])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolutions_whose_weights_are_inputs(dtype: torch.dtype, kind: type[torch.nn.Conv1d]) -> None:
    """A bias that is a Cast is added, and a kernel beside strides is not dilated."""
    layer, x = kind(4, 4, 3, stride=2, dilation=2).to(dtype), torch.ones(2, 4, 9, dtype=dtype)
    weights = dict(layer.named_parameters())
    program = exported(lambda w: torch.func.functional_call(layer, w, (x,)), weights, target="tensorrt")
    assert program.supports("tensorrt").is_compiled and program.supports("tensorrt")


@needs_package
def test_constants_of_uint8() -> None:
    c = torch.arange(3, dtype=torch.uint8)
    program = exported(lambda x: (x + c, c + 0, c[:0] + 0, c == x, c.bool()), c + 1, target="tensorrt")
    assert program.supports("tensorrt").is_compiled and program.supports("tensorrt")


@needs_package
def test_the_column_of_lapack_at_dynamic_sizes() -> None:
    program = exported(torch.linalg.inv_ex, torch.eye(3), target="tensorrt", dynamic_shapes=({0: "n", 1: "n"},))
    assert program.supports("tensorrt").is_compiled and program.supports("tensorrt")


@needs_package
def test_values_of_an_input_that_are_sizes() -> None:
    program = exported(lambda x: x[0].tensor_split(x[1]), (torch.ones(5), torch.tensor([2])), target="tensorrt")
    compilation = program.supports("tensorrt").compilation
    assert compilation is not None and "the values of an input are sizes" in compilation.unjudged


@needs_package
def test_sizes_of_a_saved_model_are_given() -> None:
    text = "g (float[N] x) => (float[N] y) { y = Relu(x) }"
    program = fx_onnx.ONNXProgram(model(text))
    assert "give shapes" in str(program.supports("tensorrt"))
    assert program.supports("tensorrt", {"x": (4,)}).is_compiled


@needs_package
def test_a_plug_in_is_left_to_the_table() -> None:
    compilation = compile_model(model("g (float[4] x) => (int64[1,K] y) { y = NonZero(x) }"), {})
    assert compilation is not None and "NonZero is a plug-in" in compilation.unjudged and not compilation.size


@needs_package
def test_a_compiler_that_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "ends.py"
    program.write_text("raise SystemExit('no library')")
    monkeypatch.setattr(tensorrt_compiler.tensorrt_engine, "__file__", str(program))
    compilation = compile_model(model("g (float[4] x) => (float[4] y) { y = Relu(x) }"), {})
    assert compilation is not None and compilation.refusals == (Refusal("the compiler ended: no library"),)
