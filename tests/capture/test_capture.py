"""A capture keeps the requested dims dynamic, records its decisions, and explains its failures."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch
from torch.export import AdditionalInputs, Dim

import fx_onnx
from fx_onnx.capture.capture import capture
from fx_onnx.capture.export_flag import is_in_onnx_export
from fx_onnx.messages.errors import CaptureError, OnnxExporterWarning
from fx_onnx.requests.request import parse_request
from tests.capture.captures import run, shapes
from tests.capture.sample_modules import Function, t

BATCH, SEQ = Dim("batch"), Dim("seq")


@dataclasses.dataclass
class Returned:
    x: torch.Tensor


def test_a_capture_without_dynamic_dims():
    captured = run(torch.relu, t(2, 3))
    assert (captured.strategy, captured.symbol_names, captured.specialized) == ("torch.export(strict=False)", {}, ())


def test_additional_inputs():
    more = AdditionalInputs()
    more.add((t(5, 4),))
    assert shapes(run(torch.relu, t(3, 4), dynamic_shapes=more))[0][1] == "4"


def test_keywords_keep_the_order_of_the_call():
    class Keywords(torch.nn.Module):
        def forward(self, a, b):
            return a[:, None] + b

    captured = run(Keywords(), kwargs={"b": t(4), "a": t(3)}, dynamic_shapes={"a": {0: "m"}, "b": {0: "n"}})
    assert captured.exported_program.graph_signature.user_inputs == ("b", "a")
    assert shapes(captured) == [("n",), ("m",)]


def test_a_tensor_that_is_passed_twice_is_two_inputs():
    x = t(3)
    program = run(torch.sub, x, x).exported_program
    assert torch.equal(program.module()(t(3) * 0 + 5, t(3) * 0 + 2), torch.full((3,), 3.0))


def test_a_dim_that_depends_on_another_dim_becomes_auto():
    model = Function(lambda x, y: x[1:] + y).eval()
    with pytest.warns(OnnxExporterWarning, match="makes the dim 'batch' equal to seq \\+ 1"):
        captured = capture(parse_request(model, (t(5), t(4)), dynamic_shapes=({0: BATCH}, {0: SEQ})))
    assert sorted(captured.symbol_names.values()) == ["batch", "seq"]


def test_a_required_dynamic_dim_that_the_model_fixes_raises():
    with pytest.raises(CaptureError, match=r"specialized it to be a constant \(3\).*change dynamic_shapes") as caught:
        run(lambda x: x.reshape(3, 4), t(3, 4), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("other", [{0: Dim.DYNAMIC}, {}])
def test_a_required_dynamic_dim_of_size_1_that_broadcasts_raises(other):
    with pytest.raises(CaptureError, match=r"shape\[0\] is 1 in the example.*larger there.*explain FX1107\]$"):
        run(lambda x, y: x + y, t(1, 3), t(4, 3), dynamic_shapes=({0: Dim.DYNAMIC}, other))


def test_strict_mode_succeeds_where_non_strict_mode_fails():
    def through_numpy(x):
        return torch.from_numpy(x.numpy() * 2)

    captured = run(through_numpy, t(3))
    assert captured.strategy == "torch.export(strict=True)"


def shape_mismatch(x):
    return x @ torch.ones(7, 7)


def missing_key(x):
    return {"a": x}["b"]


def value_loop(x):
    for _ in range(int(x.sum())):
        x = x + 1
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            shape_mismatch,
            r"Function: \w*Error: .*test_capture.py:\d+: return x @ torch.ones\(7, 7\)\); check that the model",
        ),
        (missing_key, r"KeyError: 'b' \(.*test_capture.py:\d+: return {\"a\": x}\[\"b\"\]\)"),
        (
            value_loop,
            r"known only .*: for _ in range\(int\(x.sum\(\)\)\):\); write x.item.* or write .*torch.cond",
        ),
    ],
)
def test_failures_show_the_users_line(function, message):
    with pytest.raises(CaptureError, match=message) as caught:
        run(function, t(3, 4), dynamic_shapes=({0: "n"},))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_an_exported_program_is_used_as_it_is():
    program = torch.export.export(Function(torch.relu).eval(), (t(3, 4),), dynamic_shapes={"x": {0: Dim.AUTO}})
    captured = run(program, dynamic_shapes=({0: "n"},))
    assert captured.exported_program is program
    assert captured.strategy == "given"
    assert shapes(captured) == [("n", "4")]
    with pytest.warns(OnnxExporterWarning, match=r"Axis 1 \('m'\) of input 'x' is static with size 4"):
        capture(parse_request(program, dynamic_shapes=({1: "m"},)))


def test_training_mode_warns_and_is_not_changed():
    model = torch.nn.Dropout()
    with pytest.warns(OnnxExporterWarning, match="Dropout is in training mode"):
        capture(parse_request(model, t(3, 2)))
    assert model.training


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_modules_stay_one_operator(kind):
    kernel = torch.ops.aten.lstm.input.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch must not warn about the list of weights in the module either
        captured = run(getattr(torch.nn, kind)(4, 5), t(7, 3, 4), dynamic_shapes=({0: "seq", 1: "batch"},))
    assert shapes(captured) == [("seq", "batch", "4")]
    assert torch.ops.aten.lstm.input.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd] is kernel
    calls = [node for node in captured.exported_program.graph.nodes if node.op == "call_function"]
    assert sum("input" in str(node.target) for node in calls) == 1


def test_is_in_onnx_export_in_strict_mode():
    def look(x):
        return torch.from_numpy(x.numpy() * 2) if is_in_onnx_export() else x

    captured = run(look, t(3))
    assert captured.strategy == "torch.export(strict=True)"
    assert any(node.op == "call_function" for node in captured.exported_program.graph.nodes)


def test_is_in_onnx_export():
    seen = []

    def look(x):
        seen.append(is_in_onnx_export())
        return x

    run(look, t(2))
    assert set(seen) == {True}
    assert not is_in_onnx_export()


@pytest.mark.parametrize(
    ("function", "rows", "dim", "decisions"),
    [
        (torch.relu, 3, "n", []),
        (torch.relu, 1, "n", []),
        (lambda x: x.split([2, x.shape[0] - 2]), 3, "n", []),
        (
            lambda x: x + torch.ones(5, 4),
            1,
            "n",
            ["static dims of size 0 and 1, because torch.export fails with dynamic"],
        ),
        (lambda x: x.new_zeros(int(x.shape[0] * 0.7)), 5, "n", ["converts a size to a Python number"]),
        (lambda x: x.split(3)[0], 5, "n", ["repeated with slices in place of pieces"]),
        (lambda x: x.split(2, 1)[0], 5, "n", []),
        (lambda x: torch.cat(x.split(3)[::-1]), 5, "n", []),
        (lambda x: torch.from_numpy(x.numpy() * 2), 3, "n", ["in strict mode, because non-strict mode raised "]),
        (lambda x: x.reshape(3, 4), 3, BATCH, ["Dim.AUTO for each Dim, because the model contradicts"]),
        (lambda x: Returned(x), 3, "n", ["repeated with the classes of the outputs registered"]),
    ],
)
@pytest.mark.filterwarnings("ignore::fx_onnx.messages.errors.OnnxExporterWarning")
def test_decisions_are_recorded_in_words(function, rows, dim, decisions):
    request = parse_request(Function(function).eval(), (t(rows, 4),), dynamic_shapes=({0: dim},))
    found = capture(request).decisions
    assert len(found) == len(decisions)
    assert all(part in sentence for part, sentence in zip(decisions, found, strict=True))


def test_a_skipped_capture_is_a_decision():
    program = torch.export.export(Function(torch.relu).eval(), (t(3, 4),))
    assert run(program).decisions == ("skipped: the model is an ExportedProgram",)


class Sampler(torch.nn.Module):
    def forward(self, logits, options, guidance_scale=1.0):
        scaled = torch.softmax(logits / options["temperature"], -1)
        return torch.lerp(logits, scaled, guidance_scale) * min(guidance_scale, 4.0) ** 0.5


def test_a_dynamic_float_is_a_0d_input():
    args, D = (t(2, 4), {"temperature": 0.7}, 2.5), Dim.DYNAMIC
    spec = {"logits": {0: "n"}, "options": {"temperature": D}, "guidance_scale": D}
    model = Sampler().eval()
    program = fx_onnx.export(model, args, dynamic_shapes=spec, input_names=["x", "t", "g"], verify=True)
    assert [(v.name, v.dtype.name, tuple(v.shape)) for v in program.model.graph.inputs] == [
        ("x", "FLOAT", ("n", 4)),
        ("t", "DOUBLE", ()),
        ("g", "DOUBLE", ()),
    ]
    x = t(3, 4)
    for temperature, scale in ((0.7, 2.5), (1.9, 0.25), (0.3, 7.0)):
        expected = model(x, {"temperature": temperature}, scale)
        torch.testing.assert_close(program(x, {"temperature": temperature}, scale)[0], expected)


def test_a_float_without_a_request_stays_a_constant():
    program = fx_onnx.export(Sampler().eval(), (t(2, 4), {"temperature": 0.7}, 2.5))
    assert [value.name for value in program.model.graph.inputs] == ["logits"]


class Writes(torch.nn.Module):
    """A forward that autograd refuses, because parameters take part."""

    def __init__(self, write):
        super().__init__()
        self.write, self.linear, self.weight = write, torch.nn.Linear(4, 4), torch.nn.Parameter(torch.ones(3, 4))
        self.register_buffer("cache", torch.zeros(2, 2, 8, 4))

    def forward(self, x):
        return self.write(self, x)


def _writes_layers(module, x):
    for layer in range(2):
        keys, values = module.cache[layer, 0], module.cache[layer, 1]
        keys.index_copy_(0, torch.arange(3), module.linear(x))
        values[:3] = x
        x = keys[:3] + values[:3]
    return x


def _scales_a_part(module, x):
    first, second = module.linear(x).split(2, -1)
    first.mul_(2)
    return torch.cat([first, second], -1)


@pytest.mark.parametrize(
    "write",
    [
        _writes_layers,
        _scales_a_part,
        lambda module, x: x * module.weight.mul_(0.5),
        lambda module, x: module.weight[0].add_(x[0]) + x,
        lambda module, x: torch.mul(x, module.weight, out=torch.empty(3, 4)),
    ],
)
def test_a_forward_that_runs_without_autograd_only(write):
    torch.manual_seed(0)
    module, x = Writes(write).eval(), t(3, 4)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.no_grad():
        want = module(x)
    module.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = fx_onnx.export(module, (x,))
    assert torch.allclose(program(x)[0], want, atol=1e-5)
    assert torch.is_grad_enabled()


def test_an_error_of_autograd_that_no_grad_does_not_help_is_the_first_one():
    def write(module, x):
        module.weight.mul_(0.5)
        raise ValueError("never runs")

    with pytest.raises(CaptureError, match="never runs"):
        fx_onnx.export(Writes(write).eval(), (t(3, 4),))


class BreaksNonStrict(torch.nn.Module):
    """Its forward raises an error outside of strict mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_dynamo_compiling():
            raise RuntimeError("only in strict mode")
        return x + 1


def test_the_decisions_are_told() -> None:
    told: list[str] = []
    captured = capture(parse_request(BreaksNonStrict().eval(), (torch.ones(2),)), told.append)
    assert captured.strategy == "torch.export(strict=True)"
    (decision,) = told
    assert decision.startswith("repeated in strict mode, because non-strict mode raised RuntimeError: ")
