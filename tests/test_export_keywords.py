"""The keywords of torch.onnx.export: what each of them does to the model or the file, one test a keyword."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError, OnnxExporterWarning
from tests.compare import assert_close

X = torch.randn(3, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(self.linear(x))
        return result


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fx_onnx.export"]


def operators(program: fx_onnx.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


# ---------------------------------------------------------------- the signature


def test_the_parameters_are_those_of_torch() -> None:
    """The order, the kinds and the defaults are equal, but for two keywords and two defaults; see docs/migrate.md."""
    own, of_torch = (dict(inspect.signature(f).parameters) for f in (fx_onnx.export, torch.onnx.export))
    assert own.pop("positional").kind is inspect.Parameter.VAR_POSITIONAL
    assert own.pop("removed").kind is inspect.Parameter.VAR_KEYWORD
    for name in ("target", "metadata", "progress", "rules", "max_data_paths"):
        assert own.pop(name).kind is inspect.Parameter.KEYWORD_ONLY
    assert list(own) == list(of_torch)
    assert [p.kind for p in own.values()] == [p.kind for p in of_torch.values()]
    differ = {
        name: parameter.default
        for name, parameter in own.items()
        if getattr(parameter.default, "name", parameter.default)
        != getattr(of_torch[name].default, "name", of_torch[name].default)
    }
    assert differ == {"external_data": None, "training": None}


def test_arguments_after_f_are_given_by_keyword() -> None:
    with pytest.raises(
        ArgumentError, match=r"give the others by keyword, such as export_params=True\. \[fx-onnx explain FX\d+\]$"
    ):
        fx_onnx.export(Net().eval(), (X,), None, True)  # type: ignore[arg-type]


def test_an_unknown_keyword_is_a_type_error_as_in_python() -> None:
    with pytest.raises(TypeError, match="'opset_versions'; did you mean 'opset_version'"):
        fx_onnx.export(Net().eval(), (X,), opset_versions=17)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("function", "name", "like"),
    [
        (fx_onnx.text_generation_arguments, "max_lenght", "max_length"),
        (fx_onnx.export_pretrained, "precisions", "precision"),
        (fx_onnx.verify, "r_tol", "rtol"),
    ],
)
def test_an_unknown_keyword_of_other_functions(function: Callable[..., Any], name: str, like: str) -> None:
    with pytest.raises(
        ArgumentError, match=rf"^{function.__name__}\(\) has no argument '{name}'; did you mean '{like}'"
    ):
        function(None, **{name: 1})


def test_args_may_be_a_list() -> None:
    model = Net().eval()
    assert_close(fx_onnx.export(model, [X])(X)[0], model(X))


# ---------------------------------------------------------------- training and dynamo


@pytest.mark.parametrize("mode", [torch.onnx.TrainingMode.EVAL, 0, False])
def test_training_eval(mode: Any) -> None:
    model = Net().train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = fx_onnx.export(model, (X,), training=mode)
    assert operators(program) == ["Gemm"]
    assert model.training
    assert model.dropout.training


def test_training_preserve_keeps_the_training_forms_and_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        programs = [fx_onnx.export(Net().train(), (X,), training=mode) for mode in fx_onnx.TrainingMode]
    of_eval, preserved, trained = map(operators, programs)
    assert preserved == trained != of_eval


def test_training_of_an_exported_program_is_refused() -> None:
    exported = torch.export.export(Net().eval(), (X,))
    with pytest.raises(ArgumentError, match="training=EVAL is not possible for an ExportedProgram"):
        fx_onnx.export(exported, training=torch.onnx.TrainingMode.EVAL)
    assert operators(fx_onnx.export(exported, training=torch.onnx.TrainingMode.PRESERVE)) == ["Gemm"]


def test_dynamo_false_warns_and_exports_in_evaluation_mode() -> None:
    model = Net().train()
    with pytest.warns(OnnxExporterWarning, match="exported through torch.export all the same") as caught:
        program = fx_onnx.export(model, (X,), dynamo=False)
    assert len(caught) == 1
    assert operators(program) == ["Gemm"]
    assert model.training


# ---------------------------------------------------------------- constants


class Folds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.exp(self.weight) + torch.arange(2) * 2


def test_do_constant_folding() -> None:
    model = Folds().eval()
    folded, plain = (fx_onnx.export(model, (X,), do_constant_folding=fold) for fold in (True, False))
    assert not {"Exp", "Range"} & set(operators(folded))
    assert {"Exp", "Mul"} <= set(operators(plain))
    assert_close(plain(X)[0], model(X))
    assert_close(folded(X)[0], model(X))


# ---------------------------------------------------------------- weights as inputs


class Normalized(nn.Module):
    """A convolution with batch norm, whose state_dict is not in the order of the parameters, and a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm.running_mean.uniform_()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.first(self.norm(x))) + torch.arange(4.0)
        return result


# torch.export gives a tied weight its last name.
USED = [
    "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "second.weight", "first.bias", "second.bias",
]  # fmt: skip


@pytest.mark.parametrize("external_data", [None, True])
def test_export_params_false_makes_the_weights_inputs(tmp_path: Path, external_data: bool | None) -> None:
    model = Normalized().eval()
    path = tmp_path / "m.onnx"
    fx_onnx.export(model, (X,), path, export_params=False, external_data=external_data)
    onnx.checker.check_model(str(path), full_check=True)
    saved = onnx.load(path)
    assert [value.name for value in saved.graph.input] == ["x", *USED]
    assert not set(USED) & {tensor.name for tensor in saved.graph.initializer}
    state = model.state_dict()
    feeds = {"x": X.numpy(), **{name: state[name].numpy() for name in USED}}
    found = onnxruntime.InferenceSession(str(path)).run(None, feeds)
    assert_close(torch.from_numpy(found[0]), model(X))


def test_keep_initializers_as_inputs_lets_a_caller_override_each_weight(tmp_path: Path) -> None:
    model, path = Normalized().eval(), tmp_path / "m.onnx"
    fx_onnx.export(model, (X,), path, keep_initializers_as_inputs=True)
    assert [value.name for value in onnx.load(path).graph.input][: 1 + len(USED)] == ["x", *USED]
    session = onnxruntime.InferenceSession(str(path))
    weight = torch.randn(4, 4)
    (found,) = session.run(None, {"x": X.numpy(), "second.weight": weight.numpy()})
    with torch.no_grad():
        model.first.weight.copy_(weight)
    assert_close(torch.from_numpy(found), model(X))


def test_keep_initializers_as_inputs_none_means_false(tmp_path: Path) -> None:
    fx_onnx.export(Normalized().eval(), (X,), tmp_path / "m.onnx", keep_initializers_as_inputs=None)
    assert [value.name for value in onnx.load(tmp_path / "m.onnx").graph.input] == ["x"]


def test_a_buffer_that_the_model_writes_has_its_place_among_the_weights(tmp_path: Path) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))
            self.last = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1)
            result: Tensor = self.last(self.linear(x)) * self.calls
            return result

    fx_onnx.export(Counts().eval(), (X,), tmp_path / "m.onnx", export_params=False)
    saved = onnx.load(tmp_path / "m.onnx")
    state = ["calls", "linear.weight", "linear.bias", "last.weight", "last.bias"]
    assert [value.name for value in saved.graph.input] == ["x", *state]


def test_input_names_go_on_into_the_weights(caplog: pytest.LogCaptureFixture) -> None:
    """As in the TorchScript exporter, each entry of the state_dict has a name, also one that the model does not use."""
    model = Normalized().eval()
    with caplog.at_level(logging.DEBUG, "fx_onnx.export"):
        program = fx_onnx.export(model, (X,), input_names=["input", *(f"n{i}" for i in range(7))], optimize=False)
    assert [value.name for value in program.model.graph.inputs] == ["input"]
    named = [name for name in program.model.graph.initializers if name.startswith(("n", "first", "second"))]
    assert named == ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "second.bias"]
    assert program.model.graph.initializers["n5"].const_value.raw is not None
    assert_close(torch.from_numpy(program.model.graph.initializers["n2"].const_value.numpy()), model.norm.running_mean)
    assert said(caplog) == []
    assert_close(program(X)[0], model(X))
    with caplog.at_level(logging.DEBUG, "fx_onnx.export"):
        fx_onnx.export(model, (X,), input_names=["input", *(f"n{i}" for i in range(5))])
    assert said(caplog)[-1:] == ["'n4' in input_names has no effect: the model does not use this weight"]


# ---------------------------------------------------------------- custom domains


def test_custom_opsets() -> None:
    table = {torch.ops.aten.relu.default: lambda op, self: op.emit("Relu2", self, domain="my.domain")}
    model = nn.ReLU().eval()
    program = fx_onnx.export(model, (X,), custom_translation_table=table, custom_opsets={"my.domain": 3})
    assert list(program.model.graph.opset_imports.items()) == [("", 20), ("my.domain", 3)]
    assert [(each.domain, each.version) for each in program.model_proto.opset_import] == [("", 20), ("my.domain", 3)]
    program = fx_onnx.export(model, (X,), custom_translation_table=table)
    assert program.model.graph.opset_imports["my.domain"] == 1


def test_a_custom_opset_that_no_node_uses_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "fx_onnx.export"):
        program = fx_onnx.export(nn.ReLU().eval(), (X,), custom_opsets={"my.domain": 3})
    assert dict(program.model.graph.opset_imports) == {"": 20}
    assert said(caplog) == ["custom_opsets['my.domain'] has no effect: no node of the model has this domain"]


# ---------------------------------------------------------------- text


def test_verbose_prints_the_graph_and_keeps_source_lines(capsys: pytest.CaptureFixture[str]) -> None:
    program = fx_onnx.export(Net().eval(), (X,), verbose=True)
    printed = capsys.readouterr().out
    text = printed[printed.index("<\n") :]
    assert [node.op_type for node in onnx.parser.parse_model(text).graph.node] == ["Gemm"]
    assert "test_export_keywords.py(" in (program.model.graph[0].doc_string or "")
    assert fx_onnx.export(Net().eval(), (X,)).model.graph[0].doc_string is None


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_strip_doc_string_false_keeps_source_lines_in_the_file(tmp_path: Path) -> None:
    for strip, lines in ((False, 1), (True, 0)):
        fx_onnx.export(Net().eval(), (X,), tmp_path / "m.onnx", strip_doc_string=strip)
        (node,) = onnx.load(tmp_path / "m.onnx").graph.node
        assert node.doc_string.count("test_export_keywords.py(") == lines


# ---------------------------------------------------------------- what has no effect


def test_options_of_the_file_without_a_file(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "fx_onnx.export"):
        fx_onnx.export(nn.ReLU().eval(), (X,), metadata="none")
    assert said(caplog) == ["metadata=none has no effect: it concerns the file, and f is None"]


# ---------------------------------------------------------------- removed keywords


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_enable_onnx_checker_runs_the_checker() -> None:
    def wrong(op, self):  # type: ignore[no-untyped-def]
        return op.emit("NoSuchOperator", self, domain="ai.onnx.ml")

    table = {torch.ops.aten.relu.default: wrong}
    model = nn.ReLU().eval()
    fx_onnx.export(model, (X,), custom_translation_table=table, enable_onnx_checker=False)
    with pytest.raises(fx_onnx.CheckerError):
        fx_onnx.export(model, (X,), custom_translation_table=table, enable_onnx_checker=True)


def test_the_warning_of_a_removed_keyword_points_to_the_caller(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="'use_external_data_format' of export\\(\\); use external_data") as caught:
        fx_onnx.export(
            nn.Linear(64, 64).eval(), (torch.randn(2, 64),), tmp_path / "m.onnx", use_external_data_format=True
        )
    assert caught[0].filename == __file__
    assert (tmp_path / "m.onnx.data").exists()


class WrittenSwish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


@pytest.mark.parametrize(
    ("optimize", "expected"),
    [
        (True, ["Swish"]),
        (set(), ["Swish"]),
        (["merge_casts"], ["Swish"]),
        ({"fuse_swish"}, ["Sigmoid", "Mul"]),
        ("fuse_swish", ["Sigmoid", "Mul"]),
        (False, ["Sigmoid", "Mul"]),
    ],
)
def test_optimize_names_the_passes_to_leave_out(optimize: Any, expected: list[str]) -> None:
    program = fx_onnx.export(WrittenSwish().eval(), (X,), opset_version=24, optimize=optimize)
    assert operators(program) == expected
    switched = [each.switch for each in program.export_facts.passes if each.name == "fuse_swish"]
    assert switched == (["optimize={'fuse_swish'}"] if expected == ["Swish"] else [])


def test_optimize_refuses_other_names() -> None:
    with pytest.raises(ArgumentError, match="no optimization pass 'fuse_swhis'; did you mean 'fuse_swish'"):
        fx_onnx.export(WrittenSwish().eval(), (X,), optimize={"fuse_swhis"})
    with pytest.raises(ArgumentError, match="optimize must be True, False or a set of the names"):
        fx_onnx.export(WrittenSwish().eval(), (X,), optimize={"fuse_swish": True})  # type: ignore[arg-type]
