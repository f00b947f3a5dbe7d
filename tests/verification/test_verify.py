"""Tests that verification finds differences, measures them, and names the node and the module."""

import onnx
import onnx_ir as ir
import pytest
import torch
from torch.export import Dim, export

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, VerificationError
from fx_onnx.onnx_model.weights import weight
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.verification.verify import verify


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        return x * self.factor


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale()
        self.second = Scale()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        y = self.first(x)
        return self.second(y) + 1, None, x.shape[0]


TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 3] x) => (float[n, 3] add, int64 sym_size_int_1) {
    shape = Shape <start = 0, end = 1> (x)
    sym_size_int_1 = Squeeze(shape)
    mul = Mul(x, first)
    mul_1 = Mul(mul, second)
    add = OPERATOR(mul_1, one)
}"""


def make_program(operator="Add", second=(1.0, 2.0, 3.0), exported=None):
    model = ir.serde.deserialize_model(onnx.parser.parse_model(TEXT.replace("OPERATOR", operator)))
    tensors = {"first": torch.tensor([1.0, 2.0, 3.0]), "second": torch.tensor(second), "one": torch.ones(())}
    free = {value.name: value for node in model.graph for value in node.inputs if value.producer() is None}
    for name, tensor in tensors.items():
        free[name].const_value = weight(tensor, name)
        model.graph.register_initializer(free[name])
    return ONNXProgram(model, exported)


@pytest.fixture(scope="module")
def exported():
    return export(Net(), (torch.ones(2, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))


X = torch.tensor([[1.0, -2.0, 3.0]] * 4)


def test_equal(exported):
    program = make_program(exported=exported)
    result = verify(program, (X,))
    assert result.ok and result
    assert [(d.name, d.dtype, d.shape, d.problem) for d in result.outputs] == [
        ("add", "float32", (4, 3), ""),
        ("sym_size_int_1", "int64", (), ""),
    ]
    assert result.max_rel < 1e-6
    result.check()
    assert result.cause is None
    assert all(value.ok for value in result.values)


def test_a_wrong_node_is_found_with_its_module(exported):
    program = make_program(second=(1.0, 2.0, 3.5), exported=exported)
    result = verify(program, (X,))
    assert not result.ok and not result
    assert result.outputs[0].max_abs == 0.5 * 9
    with pytest.raises(VerificationError, match=r"'add': the largest difference is 4\.5, but at most 0\.0028"):
        result.check()
    assert (result.cause.node, result.cause.module) == ("mul_1", "second")
    # the addition after it is right, because it is computed from PyTorch's values
    assert [(path, d.ok) for path, d in result.modules.items()] == [("", True), ("first", True), ("second", False)]
    assert verify(program, (X,), rtol=0.5).ok


def test_renamed_values_are_matched_by_their_fx_name(exported):
    program = make_program(second=(1.0, 2.0, 3.5), exported=exported)
    value = program.model.graph[3].outputs[0]
    value.name = "renamed"
    value.metadata_props["pkg.torch.onnx.original_node_name"] = "mul_1"
    assert verify(program, (X,)).cause.difference.name == "renamed"


def test_verification_does_not_change_buffers_and_inputs(exported):
    module = Net()
    program = make_program(exported=exported)
    x = X.clone()
    assert verify(program, (x,), module=module).ok
    assert module.count.item() == 0
    verify(program, (x,))
    assert verify(program, (x,)).values
    assert exported.state_dict["count"].item() == 0
    assert torch.equal(x, X)


def test_without_an_exported_program():
    program = make_program()
    with pytest.raises(ArgumentError, match="no exported_program to compare with"):
        verify(program, (X,))
    result = verify(program, (X,), module=lambda x: (x * torch.tensor([1.0, 4.0, 9.0]) + 1,))
    assert result.ok
    with pytest.raises(ArgumentError, match="no FX values to compare with"):
        _ = result.values
    with pytest.raises(VerificationError, match="returns 3 values, the ONNX program 2"):
        verify(program, (X,), module=lambda x: (x, x, x))


def test_arguments_of_another_structure(exported):
    with pytest.raises(ArgumentError, match="structure with which the model was exported"):
        verify(make_program(exported=exported), (X, X))


# --- new values of buffers and arguments ------------------------------------------------------------------------------


class Writes(torch.nn.Module):
    """Writes a buffer and an argument, and assigns another buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.ones(3))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        self.total.mul_(3)
        self.last = x.exp()
        x.mul_(2)
        return x.sin()


def wrong(name):
    """Returns a translation that adds 1 to the operator's result where the first operand is the named value."""

    def translation(op, x, y):
        result = op.Mul(x, op.constant(y, dtype=x.dtype) if not isinstance(y, ir.Value) else y)
        return op.Add(result, op.constant(1.0, dtype=x.dtype)) if x.name == name else result

    return translation


@pytest.mark.parametrize("name", ["total", "x"])
@pytest.mark.parametrize("own", [True, False])
def test_new_values_are_compared(name, own):
    table = {torch.ops.aten.mul.Tensor: wrong(name)}
    module = Writes()
    program = fx_onnx.export(module, (torch.ones(3),), custom_translation_table=table, optimize=False)
    found = verify(program, (torch.rand(3),), module=module if own else None)
    assert [output.name for output in found.outputs if not output.ok] == [*(["sin"] * (name == "x")), f"{name}_out"]
    assert module.total.tolist() == [1, 1, 1] and module.last.tolist() == [0, 0, 0]  # restored


def test_arguments_that_share_memory_share_it_in_verification():
    """The model writes an argument; the ONNX program cannot change another input, so verification shows it."""

    class Model(torch.nn.Module):
        def forward(self, x, y):
            x.add_(1)
            return x + y

    program = fx_onnx.export(Model(), (torch.ones(3), torch.ones(3)))
    x = torch.ones(3)
    assert verify(program, (x, x.clone())).ok
    assert [output.ok for output in verify(program, (x, x)).outputs] == [False, True]
    memory = torch.ones(4)
    assert [output.ok for output in verify(program, (memory[:3], memory[1:])).outputs] == [False, True]


def test_arguments_that_the_module_does_not_take() -> None:
    """An ONNX program also takes NumPy arrays and the names of its inputs."""
    program = fx_onnx.export(torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),), input_names=["x"], verbose=False)
    with pytest.raises(fx_onnx.ArgumentError, match="takes tensors, not NumPy arrays"):
        program.verify(torch.ones(2, 4).numpy())
    with pytest.raises(fx_onnx.ArgumentError, match=r"its inputs are input, and the call gives 0 positional .* 'x' by"):
        program.verify(x=torch.ones(2, 4))
    with pytest.raises(fx_onnx.ArgumentError, match="'input' by keyword; give each by position or by keyword as the"):
        program.verify(input=torch.ones(2, 4))
    with pytest.raises(fx_onnx.ArgumentError, match="did you mean 'rtol'"):
        program.verify(torch.ones(2, 4), rtoll=1)
    with pytest.raises(fx_onnx.ArgumentError, match=r"and 'rtoll' by keyword\. "):  # a call has no rtol
        program(torch.ones(2, 4), rtoll=1)


@pytest.mark.parametrize("argument", [None, "s", [torch.ones(2, 4)]])
def test_an_argument_that_is_no_tensor(argument: object) -> None:
    program = fx_onnx.export(torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),), dynamic_shapes=({0: "n"},))
    with pytest.raises(fx_onnx.ArgumentError, match=r"must be float\[n, 4\], but a "):
        program.verify(argument)


def test_a_size_that_a_finding_excludes() -> None:
    """The export warned of the difference, so it is told and is no error. The captured program refuses the size."""

    class Branch(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 4 else x + 1

    x = torch.ones(6, 3)
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="only where batch >= 5"):
        program = fx_onnx.export(Branch(), (x,), dynamic_shapes=({0: "batch"},), verify=True)
    result = verify(program, (x,), module=Branch())
    assert result.ok and [each.sizes for each in result.sizes] == ["batch=7", "batch=5"]
    ((excluded,), (remark,)) = result.excluded, result.remarks
    assert (excluded.finding, excluded.sizes, excluded.ok) == ("batch >= 5", "batch=4", True)
    assert remark == "The finding batch >= 5 excludes batch=4: the ONNX program agrees at batch=4." and remark in str(
        result
    )
    result = verify(program, (x + 1,), module=Branch())
    assert result.ok and "excludes batch=4: the ONNX program differs in 'mul' at batch=4: the largest" in str(result)
    assert "The sizes batch=4 are not compared, because the captured program refuses them" in str(verify(program, (x,)))
    with pytest.raises(ArgumentError, match=r"not take these arguments \(Guard failed: .* > 4\); give verify\(\) the"):
        verify(program, (x[:4],))


def test_a_condition_that_the_export_did_not_tell_is_found() -> None:
    """The sizes follow what the export told, not the guards of the capture, of which it may have dropped one."""

    class Branch(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 4 else x + 1

    x = torch.full((5, 3), 3.0)
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="only where batch >= 5"):
        program = fx_onnx.export(Branch(), (x,), dynamic_shapes=({0: "batch"},))
    assert verify(program, (x,), module=Branch()).ok
    program.dims = DimTable(list(program.dims))
    result = verify(program, (x,), module=Branch())
    assert [each.ok for each in result.sizes] == [True, False] and result.sizes[1].sizes == "batch=4"
    assert result.cause.text.startswith("the program that torch.export captured refuses these sizes: ")


def test_a_model_without_data() -> None:
    """A weight on the meta device, however small, is refused in one sentence, and so is an example input."""
    model, x = torch.nn.Linear(3, 3, device="meta").eval(), torch.randn(2, 3, device="meta")
    with pytest.raises(ArgumentError, match=r"'input' is a tensor without data .*\[fx-onnx explain FX1403\]"):
        fx_onnx.export(model, (x,), verify=True)
