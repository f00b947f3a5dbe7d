"""Forms for Qualcomm's NPUs, which need static sizes."""

import pytest
import torch

import fx_onnx
from fx_onnx.backends.legalization import static_shapes as rows
from tests.passes.checking import check, check_equal, model, run

ROW = "int64[2,1,3,2] i"
ORDER = "{0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2}"
OTHER = "{0, 0, 0, 1, 0, -1, 1, 0, 1, 0, 1, 2}"


@pytest.mark.parametrize(("places", "operators"), [(ORDER, ["Reshape"]), (OTHER, ["Reshape", "Gather", "Reshape"])])
def test_constant_selections(places: str, operators: list[str]) -> None:
    text = f"g (bool[2,3] x) => (bool[2,1,3] y) <{ROW} = {places}> {{ y = GatherND(x, i) }}"
    check(
        model(text),
        rows.legalize_constant_selections,
        [torch.tensor([[True, False, True], [False, True, True]])],
        operators,
    )


def test_selections_of_rows() -> None:
    text = "g (float[2,3,4] x) => (float[2,4] y) <int64[2,2] i = {1, 2, 0, -1}> { y = GatherND(x, i) }"
    check_equal(model(text), rows.legalize_constant_selections, [torch.randn(2, 3, 4)])


@pytest.mark.parametrize(
    "text", ["GatherND<batch_dims=1>(x, i)", "GatherND(x, j)"], ids=["axes of the batch", "computed indices"]
)
def test_other_selections_stay(text: str) -> None:
    program = model(f"g (float[2,3] x, int64[2,1] j) => (float[2] y) <int64[2,1] i = {{1, 0}}> {{ y = {text} }}")
    rows.legalize_constant_selections(program)
    assert [node.op_type for node in program.graph] == ["GatherND"]


WINDOWS = """g (float[2,4,6,3] x) => (float[8,6,3] y)
<int64[6] s = {2, 2, 2, 2, 3, 3}, int64[3] t = {8, 6, 3}>
{ a = Reshape(x, s) b = Transpose<perm=[0, 1, 3, 2, 4, 5]>(a) y = Reshape(b, t) }"""


def test_windows_have_at_most_five_axes() -> None:
    program = model(WINDOWS)
    check(program, rows.legalize_moves_of_many_axes, [torch.randn(2, 4, 6, 3)], ["Reshape", "Transpose", "Reshape"])
    (transpose,) = (node for node in program.graph if node.op_type == "Transpose")
    assert transpose.attributes["perm"].as_ints() == (0, 2, 1, 3)


def test_axes_of_one_element_do_not_count() -> None:
    text = """g (float[2,3,2,3] x) => (float[3,2,3,2] y) <int64[7] s = {1, 2, 1, 3, 2, 1, 3}, int64[4] t = {3, 2, 3, 2}>
    { a = Reshape(x, s) b = Transpose<perm=[6, 4, 0, 2, 3, 5, 1]>(a) y = Reshape(b, t) }"""
    check(model(text), rows.legalize_moves_of_many_axes, [torch.randn(2, 3, 2, 3)], ["Reshape", "Transpose", "Reshape"])


def test_six_axes_that_all_move_stay() -> None:
    text = """g (float[64] x) => (float[64] y) <int64[6] s = {2, 2, 2, 2, 2, 2}, int64[1] t = {64}>
    { a = Reshape(x, s) b = Transpose<perm=[5, 4, 3, 2, 1, 0]>(a) y = Reshape(b, t) }"""
    program = model(text)
    check_equal(program, rows.legalize_moves_of_many_axes, [torch.randn(64)])
    assert len(next(node for node in program.graph if node.op_type == "Transpose").attributes["perm"].as_ints()) == 6


@pytest.mark.parametrize(
    ("sizes", "later", "is_expanded"),
    [
        ("4,3", "Sigmoid(a)", True),
        ("1,4,3", "LayerNormalization<axis=-1>(a, w)", True),
        ("2,4,3", "Sigmoid(a)", False),
        ("3", "Sigmoid(a)", False),
        ("4,1", "Sigmoid(a)", False),
        ("4,3", "Relu(a)", False),
    ],
)
def test_rows_that_are_repeated(sizes: str, later: str, is_expanded: bool) -> None:
    text = f"""g (float[2,4,3] x, float[{sizes}] z) => (float[2,4,3] y) <float[3] w = {{1, 2, 3}}>
    {{ a = Add(x, z) y = {later} }}"""
    program = model(text)
    check_equal(program, rows.legalize_broadcasts, [torch.randn(2, 4, 3), torch.randn(*map(int, sizes.split(",")))])
    assert ("Expand" in [node.op_type for node in program.graph]) == is_expanded


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [", b, , h, c", ""], ids=["all inputs", "no states"])
def test_steps_of_a_recurrent_layer(direction: str, states: str) -> None:
    n = 2 if direction == "bidirectional" else 1
    text = f"""g (float[3,2,4] x, float[{n},20,4] w, float[{n},20,5] r, float[{n},40] b, float[{n},2,5] h,
    float[{n},2,5] c) => (float[3,{n},2,5] y, float[{n},2,5] yh, float[{n},2,5] yc)
    {{ y, yh, yc = LSTM<hidden_size=5, direction="{direction}">(x, w, r{states}) }}"""
    inputs = [torch.randn(s) for s in ((3, 2, 4), (n, 20, 4), (n, 20, 5), (n, 40), (n, 2, 5), (n, 2, 5))]
    program = model(text)
    wanted = run(program, inputs)
    rows.legalize_recurrent_steps(program)
    assert "LSTM" not in [node.op_type for node in program.graph]
    for result, want in zip(run(program, inputs), wanted, strict=True):
        torch.testing.assert_close(result, want)


@pytest.mark.parametrize(
    ("steps", "options"), [("300", "hidden_size=1"), ("N", "hidden_size=1"), ("3", "hidden_size=1, clip=0.5")]
)
def test_other_recurrent_layers_stay(steps: str, options: str) -> None:
    text = f"g (float[{steps},2,1] x, float[1,4,1] w, float[1,4,1] r) => (float[{steps},1,2,1] y)"
    program = model(f"{text} {{ y = LSTM<{options}>(x, w, r) }}")
    rows.legalize_recurrent_steps(program)
    assert [node.op_type for node in program.graph] == ["LSTM"]


@pytest.mark.parametrize("function", ["Gelu", "Sigmoid", "Tanh"])
@pytest.mark.parametrize(("product", "has_limit"), [("MatMul(x, w)", True), ("Add(m, v)", True), ("Mul(x, v)", False)])
def test_functions_of_products(function: str, product: str, has_limit: bool) -> None:
    text = f"""g (float[2,3] x, float[3,3] w, float[3] v) => (float[2,3] y)
    {{ m = MatMul(x, w) p = {product} y = {function}(p) }}"""
    x = torch.tensor([[-1e9, 0.5, 3.0], [1e-3, -1e5, 7.0]])
    program = model(text, opset=20)
    check_equal(program, rows.legalize_functions_of_products, [x, torch.eye(3), torch.ones(3)])
    assert ("Max" in [node.op_type for node in program.graph]) == has_limit


def test_logarithms_of_exponentials() -> None:
    program = model("g (float[N] x) => (float[N] y) { y = Softplus(x) }")
    check_equal(program, rows.legalize_softplus, [torch.tensor([-100.0, -3.0, -1e-3, 0.0, 1e-3, 3.0, 100.0])])
    assert "Softplus" not in [node.op_type for node in program.graph]


@pytest.mark.parametrize("operands", ["x, s", "s, x"])
def test_silu(operands: str) -> None:
    program = model(f"g (float[N] x) => (float[N] y) {{ s = Sigmoid(x)\n y = Mul({operands}) }}")
    check(program, rows.legalize_silu, [torch.linspace(-20, 20, 41)], ["Mul", "Tanh", "Mul", "Add"])


@pytest.mark.parametrize("opset", [18, 24])
def test_silu_of_a_product(opset: int) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.SiLU())
    program = fx_onnx.export(module, (torch.ones(2, 3),), target="qnn", opset_version=opset, verbose=False)
    assert [node.op_type for node in program.model.graph] == ["Gemm", "Mul", "Tanh", "Mul", "Add"]


def test_other_products_with_a_sigmoid_stay() -> None:
    assert not rows.legalize_silu(
        model("g (float[N] x, float[N] z) => (float[N] y) { s = Sigmoid(x)\n y = Mul(z, s) }")
    ).modified
