"""The comparison of a model with a table of kernels."""

import pytest
import torch

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from fx_onnx.targets.target import Lack, Target
from tests.exporting import exported
from tests.passes.checking import model


def test_a_node_without_a_kernel_has_its_line() -> None:
    """The text names the target, the share, the node and the version of the table."""
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3))
    found = program.supports("webgpu")
    assert not found
    assert [(each.operator, each.reason) for each in found.missing] == [("NonZero", "no kernel")]
    assert found.missing[0].line.startswith("tests/exporting.py:")
    assert found.share == pytest.approx(1 - 1 / found.nodes)
    for text in (
        "webgpu: 66.7% of 3 nodes have a kernel",
        "NonZero",
        "exporting.py:",
        "1.30",
        "The table does not contain",
    ):
        assert text in str(found)


def test_the_shape_of_an_unknown_input_is_refused() -> None:
    """Also by a target without a compiler."""
    program = exported(lambda x: x + 1, torch.ones(2, 3))
    for target in ("webgpu", "tensorrt"):
        with pytest.raises(ArgumentError, match="The model has no input 'y'; its inputs are x"):
            program.supports(target, {"x": (2, 3), "y": (2, 3)})


def test_the_opset_that_helps() -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.max_pool1d(x, 2)

    x = torch.ones(2, 3, 4)
    found = exported(pooled, x, opset_version=23).supports("onnxruntime-cuda")
    assert [(each.operator, each.reason) for each in found.missing] == [("MaxPool", "no kernel at opset 23")]
    assert found.advice == ("opset_version=21 has kernels for MaxPool",)
    assert exported(pooled, x, opset_version=21).supports("onnxruntime-cuda")


def test_dtypes_domains_and_function_bodies() -> None:
    """ONNX Runtime has Erf of float only, runs HardSwish of float64 through its body, and inserts Casts of float16."""
    runtime = find_target("onnxruntime")
    graphs = {
        "g (float[N] x) => (float[N] y) { y = Erf(x) }": "",
        "g (double[N] x) => (double[N] y) { y = Erf(x) }": "no kernel for double",
        "g (float16[N] x) => (float16[N] y) { y = Erf(x) }": "",
        "g (double[N] x) => (double[N] y) { y = Mish(x) }": "",
        "g (float[N] x) => (float[N] y) { y = local.Thing(x) }": "the domain local is not ONNX's own",
    }
    for text, reason in graphs.items():
        assert [each.reason for each in support(model(text), runtime).missing] == [reason] * bool(reason), text


def test_bodies_and_dtypes_that_the_table_does_not_tell() -> None:
    """The branches of an If count too; its results may differ in dtype. The table has no 8-bit floats."""
    program = exported(
        lambda x: torch.cond(x.sum() > 0, lambda x: (x + 1, x > 0), lambda x: (x - 1, x < 0), (x,)), torch.ones(2, 3)
    )
    found = program.supports("onnxruntime")
    assert (found.share, found.nodes) == (1, 7)
    assert exported(lambda x: x.to(torch.float8_e4m3fn), torch.ones(2, 3)).supports("onnxruntime").share == 1


def test_without_a_table_nothing_is_claimed() -> None:
    text = "g (float[N] x) => (float[N] y) { y = Erf(x) }"
    found = support(model(text), Target("mine", "any"))
    assert (found.share, bool(found), found.missing) == (None, False, ())
    assert str(found).startswith("mine: none of 1 nodes known not to run (any)\n")
    found = support(model(text), Target("mine", "any", lacks=(Lack("Erf", reason="it is slow"),)))
    assert [each.reason for each in found.missing] == ["it is slow"]
    assert "mine: 1 of 1 nodes known not to run (any)\n  does not run: Erf (" in str(found)


def test_what_an_export_for_the_target_replaces() -> None:
    """MNN's Round is wrong, and the target replaces it; nothing replaces a float fmod."""
    found = exported(lambda x: x.round().fmod(3.0), torch.ones(2, 3)).supports("mnn")
    assert ([each.operator for each in found.missing], found.replaceable) == (["Round", "Mod"], ("Round",))
    assert "an export with target='mnn' replaces Round in most cases" in str(found)
    found = exported(lambda x: x.round(), torch.ones(2, 3), target="mnn").supports("mnn")
    assert (found.missing, found.replaceable) == ((), ())


def test_refusal() -> None:
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3))
    with pytest.raises(fx_onnx.UnsupportedOperatorError, match=r"target webgpu cannot run the model: NonZero \(.*py:"):
        program.supports("webgpu").refuse_missing()
    program.supports("onnxruntime").refuse_missing()
