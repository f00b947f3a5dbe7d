"""Tests of TorchScript models in export(): names, arguments, buffers, traced, frozen and loaded models, refusals."""

import inspect
import io

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, CaptureError
from fx_onnx.requests.export_modes import TrainingMode
from fx_onnx.torchscript.scripted_module import is_script, scripted_module
from tests.torchscript.agreement import agree

torch.manual_seed(0)
X = torch.randn(4, 3)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2))

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.norm(self.convolution(image)))


IMAGE = torch.randn(2, 3, 8, 8)


def saved_and_loaded(script):
    file = io.BytesIO()
    torch.jit.save(script, file)
    file.seek(0)
    return torch.jit.load(file)


MAKERS = {
    "scripted": torch.jit.script,
    "traced": lambda model: torch.jit.trace(model, IMAGE),
    "loaded": lambda model: saved_and_loaded(torch.jit.script(model)),
    "traced and loaded": lambda model: saved_and_loaded(torch.jit.trace(model, IMAGE)),
    "frozen": lambda model: torch.jit.freeze(torch.jit.script(model)),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_each_kind_of_script(maker):
    script = MAKERS[maker](Network().eval())
    program = fx_onnx.export(script, (IMAGE,), dynamic_shapes=({0: "batch"},), verify=True)
    assert [value.name for value in program.model.graph.inputs] == ["image"]
    agree(script, program, torch.randn(5, 3, 8, 8))
    weight = "head_3_weight" if maker == "frozen" else "head.3.weight"
    assert weight in program.model.graph.initializers


@pytest.mark.parametrize("opset", [12, 17, 23])
def test_opsets(opset):
    script = torch.jit.script(Network().eval())
    agree(script, fx_onnx.export(script, (IMAGE,), opset_version=opset, verify=True), IMAGE)


def test_weights_are_shared_and_named_as_in_the_state_dict():
    script = torch.jit.script(Network().eval())
    module = scripted_module(script)
    assert list(module.state_dict()) == list(script.state_dict())
    assert module.convolution.weight is script.convolution.weight
    assert [name for name, _ in module.named_modules()] == [name for name, _ in script.named_modules()]
    loaded = scripted_module(saved_and_loaded(script))
    assert all(isinstance(parameter, nn.Parameter) for parameter in loaded.parameters())


def test_tied_parameters_of_a_file_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.a(x) + self.b(x)

    module = scripted_module(saved_and_loaded(torch.jit.script(Tied())))
    assert module.a.weight is module.b.weight


def test_metadata_names_modules_and_lines():
    program = fx_onnx.export(torch.jit.script(Network().eval()), (IMAGE,))
    node = next(node for node in program.model.graph if node.op_type == "Relu")
    assert "head.0: torch.nn.modules.activation.ReLU" in node.metadata_props["namespace"]
    assert "functional.py" in node.metadata_props["pkg.torch.onnx.stack_trace"]


class Arguments(nn.Module):
    def forward(self, x: Tensor, pair: tuple[Tensor, int], scale: float = 2.0, y: Tensor | None = None) -> Tensor:
        z = x * scale + pair[0] * pair[1]
        return z if y is None else z + y


def test_arguments_are_those_of_the_schema():
    script = torch.jit.script(Arguments())
    assert str(inspect.signature(scripted_module(script).forward)) == "(x, pair, scale=2.0, y=None)"
    program = fx_onnx.export(script, (X, (X, 3)), kwargs={"scale": 5, "y": X}, verify=True)
    assert [value.name for value in program.model.graph.inputs] == ["x", "pair_0", "y"]
    with pytest.raises(ArgumentError, match="do not fit"):
        fx_onnx.export(script, (X,))


def test_functions():
    @torch.jit.script
    def half(x: Tensor, n: int = 2) -> Tensor:
        return x / n

    assert is_script(half)
    program = fx_onnx.export(half, (X,), dynamic_shapes={"x": {0: "n"}}, verify=True)
    agree(half, program, torch.randn(7, 3))
    agree(torch.relu, fx_onnx.export(torch.jit.trace(torch.relu, X), (X,), verify=True), X)


class Structures(nn.Module):
    def __init__(self):
        super().__init__()
        self.tensors = [torch.ones(3), torch.zeros(3)]
        self.sizes = {"a": 2}

    def forward(self, d: dict[str, Tensor], items: list[Tensor]) -> dict[str, Tensor]:
        d["sum"] = d["x"] + items[0] + self.tensors[0]
        items.append(d["sum"])
        d["all"] = torch.stack(items) * self.sizes["a"]
        return d


def test_structures():
    script = torch.jit.script(Structures())
    program = fx_onnx.export(script, ({"x": X}, [X]), verify=True)
    assert {"tensors_0"} <= set(program.model.graph.initializers)


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(3))
        self.last = torch.zeros(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total.add_(x.sum(0))
        before = self.last
        self.last = x * 1.0
        return x * 0 + self.total + before if self.calls > 2 else x * self.calls


def test_state_is_kept_from_call_to_call():
    program = fx_onnx.export(torch.jit.script(State()), (X,), verify=True)
    assert [value.name for value in program.model.graph.outputs][1:] == ["total_out", "last_out", "calls_out"]
    script = torch.jit.script(State())
    program.state = {}
    for number in range(4):
        agree(script, program, X + number)


def test_export_and_verify_leave_the_script_unchanged():
    script = torch.jit.script(State())
    fx_onnx.export(script, (X,), verify=True)
    assert script.calls == 0
    assert not script.total.any()
    assert not script.last.any()


def test_batch_norm_in_training():
    script = torch.jit.script(Network())
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="Network is in training mode"):
        program = fx_onnx.export(script, (IMAGE,), verify=True)
    names = [value.name for value in program.model.graph.outputs]
    assert {"norm.running_mean_out", "norm.num_batches_tracked_out"} <= set(names)


class Growing(nn.Module):
    names: list[str]

    def __init__(self):
        super().__init__()
        self.memory = torch.zeros(0, 3)
        self.names = ["a"]
        self.mode = "first"

    def forward(self, x: Tensor, grow: bool, name: str) -> Tensor:
        if grow:
            self.memory = torch.cat([self.memory, x])
        if name == "list":
            self.names.append(name)
        if name == "mode":
            self.mode = "second"
        return x


@pytest.mark.parametrize(
    ("grow", "name", "message"),
    [
        (
            True,
            "",
            r"memory of Growing from a tensor of float32 with shape \(0, 3\) to .* \(4, 3\); call the model once",
        ),
        (False, "list", "changes the attribute names of Growing, list of length 1, to list of length 2"),
        (False, "mode", "changes the attribute mode of Growing, 'first', to 'second'"),
    ],
)
def test_state_that_cannot_be_a_buffer_is_refused(grow, name, message):
    with pytest.raises(CaptureError, match=message):
        fx_onnx.export(torch.jit.script(Growing()), (X, grow, name))


def test_the_model_of_optimize_for_inference_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    script = torch.jit.optimize_for_inference(torch.jit.script(model))
    with pytest.raises(CaptureError, match=r"before torch\.jit\.optimize_for_inference"):
        fx_onnx.export(script, (IMAGE,))


def test_a_module_without_forward_is_refused():
    with pytest.raises(CaptureError, match="ModuleList has no forward"):
        fx_onnx.export(torch.jit.script(nn.ModuleList([nn.ReLU()])), (X,))


def test_training_selects_the_mode():
    script = torch.jit.script(Network().eval())
    program = fx_onnx.export(script, (IMAGE,), training=TrainingMode.TRAINING, verify=True)
    assert "norm.running_mean_out" in {value.name for value in program.model.graph.outputs}
    assert not script.training
    assert not any(module.training for module in script.modules())
    with pytest.raises(ArgumentError, match="is frozen in evaluation mode"):
        fx_onnx.export(torch.jit.freeze(script), (IMAGE,), training=TrainingMode.TRAINING)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(State())
        self.linear = nn.Linear(3, 3)
        self.head = torch.jit.trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(4, 3))

    def forward(self, x):
        return self.head(self.linear(self.inner(x)))


def test_a_python_module_may_contain_torchscript_modules():
    model = Outer().eval()
    inner = model.inner
    program = fx_onnx.export(model, (X,), verify=True)
    assert model.inner is inner
    assert {"inner.calls_out", "inner.total_out"} <= {value.name for value in program.model.graph.outputs}
    assert "head.0.weight" in program.model.graph.initializers
    program.state = {}
    for number in range(3):
        agree(model, program, X + number)


class Methods(nn.Module):
    """Has no forward."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.calls = 0

    @torch.jit.export
    def add(self, x: Tensor, factor: int = 2) -> Tensor:
        self.total += x.sum(0) * factor
        self.calls += 1
        return x + self.total + self.calls

    @torch.jit.export
    def reset(self) -> None:
        self.total = torch.zeros_like(self.total)
        self.calls = 0


class Caller(nn.Module):
    def __init__(self, maker):
        super().__init__()
        self.methods = maker(torch.jit.script(Methods()))

    def forward(self, x):
        self.methods.reset()
        return self.methods.add(x, factor=3), self.methods.add(x)


@pytest.mark.parametrize("maker", [lambda script: script, saved_and_loaded], ids=["scripted", "loaded"])
def test_a_python_module_may_call_methods_of_a_torchscript_module(maker):
    model = Caller(maker).eval()
    program = fx_onnx.export(model, (X,), dynamic_shapes=({0: "batch"},), verify=True)
    agree(model, program, torch.randn(5, 3))


class Swapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.a
        self.a, self.b = self.b, self.a + x
        return before, self.b


class Swapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Swapping()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x)


def test_assigned_buffers_keep_the_values_of_the_assignment():
    script = torch.jit.script(Swapped())
    program = fx_onnx.export(script, (torch.ones(3),), verify=True)
    program.state = {}
    for number in range(4):
        agree(script, program, torch.full((3,), float(number)))


def doubled(self, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return output * 2


def increased(self, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0] + 1,)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        for module in (self, self.linear):
            module.register_forward_hook(doubled)
            module.register_forward_pre_hook(increased)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


def test_compiled_hooks_run():
    script = torch.jit.script(Hooked().eval())
    agree(script, fx_onnx.export(script, (X,), verify=True), -X)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.scale = 0, 1.5

    def forward(self, x):
        if bool(x.sum() > 0):
            self.calls += 1
            self.scale = self.scale * 2
        return x * self.scale + self.calls


def test_a_number_that_a_branch_on_data_changes():
    script = torch.jit.script(Counter().eval())
    program = fx_onnx.export(script, (torch.ones(3),), verify=True)
    program.state = {}
    for sign in (1, -1, 1, 1):
        agree(script, program, sign * torch.ones(3))
    assert program.model.graph.inputs[-1].dtype == ir.DataType.DOUBLE


@pytest.mark.filterwarnings("error::fx_onnx.OnnxExporterWarning")
def test_a_function_has_no_mode():
    function = torch.jit.trace(torch.relu, (X,))
    assert len(fx_onnx.export(function, (X,)).model.graph) == 1
    fx_onnx.export(function, (X,), training=TrainingMode.TRAINING, verify=True)


def test_a_0_d_tensor_for_a_number_is_an_input():
    class Rate(nn.Module):
        def forward(self, x, rate: int):
            if rate != 16:
                x = x * 2
            return x + rate

    script, x = torch.jit.script(Rate().eval()), torch.ones(3)
    program = fx_onnx.export(script, (x, torch.tensor(16)))
    for rate in (torch.tensor(16), torch.tensor(8)):
        torch.testing.assert_close(program(x, rate)[0], script(x, rate))


def test_a_traced_function_of_any_number_of_arguments():
    def difference(*tensors: Tensor) -> Tensor:
        halves = [_x / 2 for _x in tensors]
        return halves[0] - halves[1]

    traced = torch.jit.trace(difference, (X, X + 1), check_trace=False)
    program = fx_onnx.export(traced, (X, X + 1), input_names=["a", "b"])
    torch.testing.assert_close(program(X, X * 3)[0], -X)
