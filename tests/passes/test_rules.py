"""Rules of a user in an export, and the checks of all rules."""

from collections.abc import Callable

import pytest
import torch
from onnx_ir import Value

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.rows import ROWS
from fx_onnx.passes.optimize import PASSES
from fx_onnx.passes.rules import Result, Rule, rule
from fx_onnx.targets.known_targets import find_target
from tests.passes.checking import with_swiglu

X = torch.randn(2, 3)


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) * 2


@rule("2.0 * Sigmoid(x)")
def as_tanh(f: NodeBuilder, x: Value) -> Result:
    return f.Add(f.Tanh(f.Mul(x, 0.5)), 1.0)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("opset", [11, 20])
def test_a_rule_of_a_user(optimize: bool, opset: int) -> None:
    x = torch.randn(2, 3)
    options = {"optimize": optimize, "opset_version": opset, "verify": True}
    program = fx_onnx.export(Model(), (x,), rules=[as_tanh], dynamic_shapes=({0: "n"},), **options)
    assert [node.op_type for node in program.model.graph] == ["Mul", "Tanh", "Add"]
    assert [[*value.shape] for node in program.model.graph for value in node.outputs] == [["n", 3]] * 3
    torch.testing.assert_close(program(x)[0], Model()(x))
    assert "rewrite" in program.timings


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (as_tanh, "rules must be a list of rules"),
        ([len], "is not a rule"),
        ([rule("x +")(lambda x: x)], "is no expression of Python"),
        ([rule("x")(lambda x: x)], "does not end at a node"),
        ([rule("Sigmod(x)")(lambda x: x)], r"ONNX has no operator Sigmod; did you mean 'Sigmoid' or"),
        ([rule("Tanh(Erff(x)) | Erf(x)")(lambda x: x)], r"ONNX has no operator Erff; did you mean 'Erf'\?"),
        ([rule("Elu(x, alhpa=1.0)")(lambda x: x)], r"Elu of ONNX has no attribute alhpa; did you mean 'alpha'\?"),
        ([rule("x * Sigmoid(x, alpha=a)")(lambda x: x)], r"Sigmoid of ONNX has no attribute alpha\."),
        ([rule("Sigmoid(x)")(lambda f, y: y)], "no pattern has the name y"),
        ([rule("Sigmoid(x)", where={"z": bool})(lambda x: x)], "no pattern has the name z"),
        ([rule("Sum(*xs)", where={"xs": bool})(lambda xs: xs[0])], "xs is no value"),
        ([rule("Elu(x, alpha=alpha)", where={"alpha": bool})(lambda x: x)], "alpha is no value"),
    ],
)
def test_rules_that_are_not_valid(rules: object, sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence) as caught:
        fx_onnx.export(Model(), (torch.randn(2),), rules=rules)
    assert "\n" not in str(caught.value)


def unset(f: NodeBuilder, x: Value) -> Result:
    return f.Sin(x)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            rule("Tanh(x) | Sigmoid(y)")(unset),
            "rule unset fails at the node .*: ONNX Sin needs a value for its input",
        ),
        (rule("Sigmoid(x)")(lambda f, x: f.Thresh(x)), "fails at the node .*: ONNX opset 20 has no operator Thresh"),
        (rule("Sigmoid(x)")(lambda x: 3), "fails at the node .*: TypeError: 'int' object is not iterable"),
        (rule("Sigmoid(x)")(lambda f, x: f.Sigmoid(x)), "rewrites its own results without end"),
        (rule("Sigmoid(x)")(lambda f, x: f.Cast(x, to=11)), r"replaces FLOAT\[2,3\] by DOUBLE\[2,3\] at the node sigm"),
        (rule("Sigmoid(x)")(lambda f, x: f.Unsqueeze(x, [0])), r"replaces FLOAT\[2,3\] by FLOAT\[1,2,3\] at the node"),
        (rule("Sigmoid(x)")(lambda f, x: f.Transpose(x)), r"replaces FLOAT\[2,3\] by FLOAT\[3,2\] at the node"),
        (rule("Sigmoid(x)")(lambda f, x: [f.Tanh(x), x]), "replaces 1 results by 2 at the node"),
    ],
)
def test_an_error_of_a_rule_names_the_rule(made: Rule, sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        fx_onnx.export(Model(), (torch.randn(2, 3),), rules=[made], opset_version=20)


@pytest.mark.parametrize("opset", [10, 20])
@pytest.mark.parametrize(("build", "operator"), [(lambda f, x: f.Tanh(x), "sigmoid"), (lambda x: x, "mul.Tensor")])
def test_a_difference_names_the_rule(build: Callable[..., Result], operator: str, opset: int) -> None:
    """The rule made the node, or another node reads what the rule put in its place."""
    with pytest.raises(fx_onnx.VerificationError) as caught:
        fx_onnx.export(Model(), (X,), rules=[rule("Sigmoid(x)")(build)], opset_version=opset, verify=True)
    assert f"= aten.{operator}, rewritten by the rule <lambda> (tests/passes/test_rules.py:" in str(caught.value)


@with_swiglu
def test_the_rules_of_the_package_are_valid() -> None:
    target = find_target("onnxruntime")
    passes = [*PASSES, *LEGALIZATIONS, *target.legalizations, *target.fusions]
    rules = [*ROWS, *(each for each in passes if isinstance(each, Rule))]
    for each in rules:
        each.check()
    assert rules
