"""A comparison with a target tells what the compiler of the runtime says."""

from dataclasses import replace

from fx_onnx.targets.compilation import Compilation, Refusal
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.target import Lack, Target
from tests.passes.checking import model

TARGET = Target("mine", "firmware 3", lacks=(Lack("Relu", reason="no kernel"),), compiler=lambda model, shapes: None)
MODEL = "g (float[4] x) => (float[4] y) { y = Relu(x) }"


def test_the_compiler_knows_more_than_the_table() -> None:
    compiled = support(model(MODEL), TARGET, Compilation("compiler 1", size=8, kernels=("relu",)))
    assert compiled.missing == () and compiled.is_compiled
    assert str(compiled) == "mine: compiled, 8 bytes (compiler 1)\n  Nothing was run."


def test_refusals_come_before_the_table() -> None:
    refused = support(model(MODEL), TARGET, Compilation("compiler 1", (Refusal("too large", "", "Relu"),)))
    assert [kernel.reason for kernel in refused.missing] == ["too large", "no kernel"]
    assert str(refused).startswith("mine: the compiler refuses the model (compiler 1)\n  does not run: Relu")


def test_what_the_compiler_did_not_see() -> None:
    target = replace(TARGET, table="openvino")
    plugin = Compilation("compiler 1", unjudged="a plug-in")
    for compilation, why in ((None, "its compiler was not called"), (plugin, "a plug-in")):
        unjudged = support(model(MODEL), target, compilation)
        assert not unjudged.is_compiled and unjudged.missing
        assert "by its table, not compiled" in unjudged.source
        assert f"The model was not compiled: {why}." in str(unjudged)


def test_what_a_compiled_model_computes_otherwise() -> None:
    target = replace(TARGET, inexact=lambda node: "rounds" if node.op_type == "Relu" else "")
    compiled = support(model(MODEL), target, Compilation("compiler 1", size=8))
    assert [kernel.reason for kernel in compiled.missing] == ["rounds"] and not compiled
    assert "computed otherwise: Relu" in str(compiled)
