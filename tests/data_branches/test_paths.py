"""A branch on data is captured on each of its paths; what differs between paths and has no If is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.passes.traversal import subgraphs
from tests.compare import assert_close
from tests.data_branches.branching_modules import POSITIVE, Branching, check, export, operators
from tests.torch_versions import has


def straight(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if x.sum() > 0 else m.b(x)


def equal(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if torch.equal(x, x.relu()) else m.b(x)


def close(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if torch.allclose(x, x.relu(), atol=0.1) else m.b(x)


def nonzero(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if torch.is_nonzero(x.relu().sum()) else m.b(x)


def length(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if len(x.relu().nonzero()) > len((x < 0).nonzero()) else m.b(x)


def some_rows(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if len(x.relu().nonzero()) else m.b(x)


def truth_of_a_number(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if (x > 0).sum().item() else m.b(x)


def nested(m: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        return m.a(x) if x[0, 0] > 0.5 else m.b(x)
    return x.softmax(-1)


def in_a_loop(m: Any, x: Tensor) -> Tensor:
    for i, layer in enumerate((m.a, m.b)):
        if (x[i] > 0).all():
            continue
        x = layer(x)
        if x.sum() > 3:
            break
    return x


def returns_early(m: Any, x: Tensor) -> Tensor:
    if x.min() < 0:
        return x
    y = m.a(x)
    return y.relu() if y.sum() > 0 else m.b(y)


def writes_a_buffer(m: Any, x: Tensor) -> Tensor:
    m.count += 1
    if x.sum() > 0:
        m.count.mul_(3)
    return x + m.count


def writes_a_buffer_on_one_path(m: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        m.count.add_(1)
    return x + m.count


def writes_a_view(m: Any, x: Tensor) -> Any:
    y = x.clone()
    row = y[0]
    if x.sum() > 0:
        row.mul_(5)
    if y.amax() > 2:
        y[:, 1] = 0
    return y, row + 1


def writes_the_input(m: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        x.add_(1)
    return x * 2


def number(m: Any, x: Tensor) -> Any:
    count = (x > 0).sum().item()
    return (x + count, 3) if count > 3 else (x - count, 4)


def size(m: Any, x: Tensor) -> Tensor:
    rows = x[x[:, 0] > 0]
    return rows.mean(0) if rows.shape[0] > 1 else x.sum(0)


def size_that_a_branch_fixes(m: Any, x: Tensor) -> Tensor:
    rows = x[x[:, 0] > 0]
    return (rows.T @ torch.ones(2, 1)).T if rows.shape[0] == 2 else x.sum(0, keepdim=True)


def unlike_sizes(m: Any, x: Tensor) -> Tensor:
    return x[x[:, 0] > 0] if (x[:, 0] > 0).any() else x


def handles_its_exception(m: Any, x: Tensor) -> Tensor:
    try:
        if x.sum() < 0:
            raise ValueError
        return x + 1
    except ValueError:
        return x - 1


def python_functions(m: Any, x: Tensor) -> Tensor:
    y = max(x[0], x[1], key=lambda row: row.sum())
    return y + 1 if any(row.sum() > 0 for row in x) and 3.0 in x else y


def weight_and_data(m: Any, x: Tensor) -> Tensor:
    if m.flag:
        x = x + 1
    return x * 2 if x.sum() > 0 else x


def draws(m: Any, x: Tensor) -> Tensor:
    noise = torch.rand_like(x)
    return x + 0 * noise if noise.sum() > 100 or x.sum() > 0 else x - 0 * torch.rand(4)


def without_gradients(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = m.a(x)
        if y.sum() > 0:
            y = y + 1
    return y * 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x * 2


def in_a_function_of_autograd(m: Any, x: Tensor) -> Any:
    return Doubled.apply(x)


FUNCTIONS = [
    straight, nested, in_a_loop, returns_early, writes_a_buffer, writes_a_buffer_on_one_path, writes_a_view,
    writes_the_input, number, size, size_that_a_branch_fixes, unlike_sizes, handles_its_exception, python_functions,
    weight_and_data, draws, without_gradients, in_a_function_of_autograd, equal, close, nonzero, length, some_rows,
    truth_of_a_number,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_outcome_is_that_of_the_module(function: Callable[..., Any]) -> None:
    program = export(function)
    assert "If" in operators(program.model.graph) and not program.findings
    check(program, function)


@pytest.mark.parametrize(
    ("function", "opset"), [(nested, 15), (size, 23), (unlike_sizes, 18), (number, 15), (equal, 18)]
)
def test_rows_are_dynamic(function: Callable[..., Any], opset: int) -> None:
    program = export(function, dynamic=True, opset_version=opset)
    assert str(program.dims) == "n: any" and not program.findings
    check(program, function, [-POSITIVE[:2], torch.randn(5, 4), POSITIVE[:2]])


def test_a_dynamic_float() -> None:
    class Guided(nn.Module):
        def forward(self, x: Tensor, scale: float) -> Tensor:
            return x * scale if scale > 1 else x

    program = fx_onnx.export(Guided().eval(), (POSITIVE, 1.5), dynamic_shapes=(None, torch.export.Dim.DYNAMIC))
    for scale in (2.0, 0.5):
        assert_close(program(POSITIVE, scale), (Guided()(POSITIVE, scale),))


# --- conditions that lead to an exception -----------------------------------------------------------------------------


def asserts(m: Any, x: Tensor) -> Tensor:
    assert (x >= 0).all(), "negative"
    return x.sqrt()


def calls_assert(m: Any, x: Tensor) -> Tensor:
    torch._assert(x.min() >= 0, "negative")
    return x.sqrt()


def raises_in_a_function(m: Any, x: Tensor) -> Tensor:
    if x.min().item() < 0 or bool((x > 100).any()):
        refuse()
    return x.sqrt()


def refuse() -> None:
    raise ValueError("out of range")


def raises_between_comparisons(m: Any, x: Tensor) -> Tensor:
    if not 0 <= x.min() <= x.max():
        raise ValueError
    return x.sqrt()


def checks_in_torch(m: Any, x: Tensor) -> Tensor:
    return nn.functional.gaussian_nll_loss(x, x + 1, x)


def checks_a_distribution(m: Any, x: Tensor) -> Tensor:
    return torch.distributions.Normal(x, x + 1, validate_args=True).log_prob(x)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "function",
    [
        asserts,
        calls_assert,
        raises_in_a_function,
        raises_between_comparisons,
        checks_in_torch,
        checks_a_distribution,
    ],
)
def test_an_exception_is_left_out(function: Callable[..., Any], dynamic: bool) -> None:
    program = export(function, dynamic=dynamic)
    assert {finding.id for finding in program.findings} == {"FX1111"}
    first = function.__code__.co_firstlineno
    places = [finding.place.split("/")[-1] for finding in program.findings]
    if function is not checks_a_distribution or has("a line for each check"):
        assert places == [f"test_paths.py:{first + 1}"]
    check(program, function, [POSITIVE])
    assert not any(name in ("If", "ReduceMin", "Less", "GreaterOrEqual") for name in operators(program.model.graph))


def test_a_model_that_raises_on_each_path_is_refused() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            raise ValueError("positive")
        raise ValueError("not positive")

    with pytest.raises(fx_onnx.CaptureError, match="ValueError: not positive"):
        export(function)


# --- how often the forward runs ---------------------------------------------------------------------------------------


def equal_conditions(m: Any, x: Tensor) -> Tensor:
    m.items.append(0)
    y = x + 1 if (x > 0).any() else x
    y = y * 2 if (x > 0).any() else y
    return y - 3 if not (x > 0).any() else y


def equal_numbers(m: Any, x: Tensor) -> Tensor:
    m.items.append(0)
    is_positive = (x > 0).any().item()
    for _ in range(4):
        x = x + 1 if is_positive else x - 1
    return x


def negations(m: Any, x: Tensor) -> Tensor:
    m.items.append(0)
    condition = (x > 0).all()
    y = x + 1 if condition else x
    y = y * 3 if ~condition else y
    return y - 1 if torch.logical_not(condition) else y


def condition_after_a_write(m: Any, x: Tensor) -> Tensor:
    m.items.append(0)
    y = x.clone()
    row = y[0]
    z = x + 1 if y.sum() > 0 else x
    row.sub_(100)
    return z * 2 if y.sum() > 0 else z


@pytest.mark.parametrize(
    ("function", "paths"), [(equal_conditions, 2), (equal_numbers, 2), (negations, 2), (condition_after_a_write, 4)]
)
def test_equal_conditions_are_decided_once(function: Callable[..., Any], paths: int, capfd: Any) -> None:
    program = export(function, verbose=True)
    assert capfd.readouterr().out.count("path where") == paths
    check(program, function)


def _calls_bool(_: Branching, x: Tensor) -> Tensor:
    is_positive = bool(x.sum() > 0)
    return x * 2 if is_positive else x


@pytest.mark.parametrize("calls", range(3, 6))
def test_a_condition_that_python_specializes_meanwhile(calls: int, recwarn: pytest.WarningsRecorder) -> None:
    """The runs that prove sizes take the path of the trace also where Python 3.11 has moved the call of ``bool``."""

    def condition(m: Branching, x: Tensor) -> Tensor:
        return _calls_bool(m, x)

    condition.__code__ = _calls_bool.__code__.replace()  # a copy that has not run
    for _ in range(calls):
        condition(Branching(condition), POSITIVE)
    check(export(condition, dynamic=True), condition)
    assert not recwarn.list


def test_the_model_is_as_before() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        m.items.append(1)
        m.number += 1
        return x if x.sum() > 0 else torch.rand_like(x)

    module, drawn = Branching(function).eval(), torch.get_rng_state()
    fx_onnx.export(module, (POSITIVE,))
    assert (module.number, module.items) == (0, []) and torch.equal(drawn, torch.get_rng_state())


def test_only_the_first_path_prints(capfd: Any) -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        print("forward")
        return x if x.sum() > 0 else -x

    export(function)
    assert capfd.readouterr().out.split() == ["forward"] * 2  # where torch refuses the condition, too


def changes_a_number(m: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        m.number = 1
    return x + 1


def returns_another_list(m: Any, x: Tensor) -> Any:
    return [x, x] if x.sum() > 0 else [x]


def returns_none(m: Any, x: Tensor) -> Any:
    return (x, None) if x.sum() > 0 else (x, "text")


def returns_another_rank(m: Any, x: Tensor) -> Tensor:
    return x if x.sum() > 0 else x.sum(0)


def returns_another_dtype(m: Any, x: Tensor) -> Tensor:
    return x if x.sum() > 0 else x.long()


def loops_on_data(m: Any, x: Tensor) -> Tensor:
    for row in x:
        for number in row:
            if number > 0.5:
                x = x + 10
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (changes_a_number, r"leaves another 'number' in .* differs \(.*: if x.sum\(\) > 0:\)"),
        (returns_another_list, r"returns another structure where a condition on data differs \(.*: return \[x, x\]"),
        (returns_none, "returns another structure"),
        (returns_another_rank, r"float with 2 axes where a condition on data is true, and float with 1 axes .*x.sum"),
        (returns_another_dtype, "float with 2 axes .* and int64 with 2 axes"),
        (loops_on_data, r"more than 16 paths .* by \(.*: if number > 0.5:\); .* torch.cond, or give a larger max_data"),
    ],
)
def test_what_has_no_if_is_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(fx_onnx.CaptureError, match=message) as error:
        export(function)
    assert error.value.id == "FX1102"


def test_a_graph_module_that_calls_a_module_with_a_branch() -> None:
    """torch.export interprets the graph and does not call the module."""
    module = Branching(straight).eval()
    graph = torch.fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    outer = torch.fx.GraphModule(nn.ModuleDict({"inner": module}), graph)
    program = fx_onnx.export(outer.eval(), (POSITIVE,))
    for x in (POSITIVE, -POSITIVE):
        assert_close(program(x), module(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_behind_a_branch_stand_once(dynamic: bool) -> None:
    def layers(m: Any, x: Tensor) -> Tensor:
        y = x.relu() if x.sum() > 0 else x.sigmoid()
        return m.b(m.a(y[None]).softmax(-1)) + y

    program = export(layers, dynamic=dynamic)
    (node,) = [node for node in program.model.graph if node.op_type == "If"]
    assert [operators(branch) for branch in subgraphs(node)] == [["Relu"], ["Sigmoid"]]
    check(program, layers)


def test_numbers_among_the_results_are_those_of_the_path() -> None:
    def forward(self: nn.Module, x: Tensor) -> tuple[Tensor, bool, float, None]:
        is_zero = torch.equal(x, x * 2)
        return x + 1, is_zero, 0.1 if is_zero else 0.2, None

    program = fx_onnx.export(Branching(forward).eval(), (torch.zeros(3),))
    for x, numbers in ((torch.zeros(3), (True, 0.1)), (torch.ones(3), (False, 0.2))):
        result = program.call_structured(x)
        assert (type(result[1]), type(result[2]), result[3]) == (bool, float, None)
        assert result[1:3] == (numbers[0], pytest.approx(numbers[1]))
