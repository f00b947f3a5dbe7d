"""The guards of a capture become bounds and findings; a program is wrong nowhere without a finding."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.capture.capture import Capture, capture
from fx_onnx.capture.proof.paired_runs import PairedRuns
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.capture.proof.size_words import described
from fx_onnx.messages.errors import OnnxExporterWarning
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import Function, t
from tests.compare import assert_close

BRANCH = "takes another branch for other sizes"


def captured(function: object, *args: Tensor, dim: object = "n") -> tuple[Capture, list[str]]:
    """Returns a capture in which axis 0 of each input is dynamic, and its warnings; the names are n, n1, n2."""
    module = function if isinstance(function, nn.Module) else Function(function)
    spec = tuple({0: f"{dim}{number or ''}" if isinstance(dim, str) else dim} for number in range(len(args)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OnnxExporterWarning)
        found = capture(parse_request(module.eval(), args, dynamic_shapes=spec))
    return found, [str(each.message) for each in caught if each.category is OnnxExporterWarning]


def conditions(function: object, *args: Tensor, dim: object = "n") -> list[tuple[str, str]]:
    """Returns the conditions and their kinds; each finding has one warning, and a bound has none."""
    found, messages = captured(function, *args, dim=dim)
    listed = [(each.condition, each.kind) for each in found.dims.conditions]
    assert len(messages) == [kind for _, kind in listed].count("finding"), messages
    return listed


@pytest.mark.parametrize(("least", "expected"), [(7, []), (8, ["batch != 1"])])
def test_a_dim_may_be_a_multiple(least: int, expected: list[str]) -> None:
    """The sizes of the other dims are tried with that of the multiple, whose symbol is no dim of an input."""
    spec = ({0: Dim("batch"), 1: 2 * Dim("rows")},)
    module = Function(lambda x: x + 1 if x.shape[0] * x.shape[1] > least else x - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxExporterWarning)
        found = capture(parse_request(module, (t(3, 8),), dynamic_shapes=spec))
    assert [each.condition for each in found.dims.conditions] == expected


# --- findings ---------------------------------------------------------------------------------------------------------


def above(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] > 4 else x - 1


def parity(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] % 2 else x - 1


def below(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] < 8 else x - 1


def logarithm(x: Tensor) -> Tensor:
    return x / math.log(x.shape[0] + 1.0)


def rotated(x: Tensor) -> Tensor:
    return x.rot90(x.shape[0] // 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum() if x.shape[0] else x.sum() + 1,
        lambda x: x.sum() if not x.shape[0] else x.sum() + 1,
        lambda x: x.sum() + (3 if x.shape[0] > 0 and x.shape[1] > 0 else 2),
        lambda x: x.sum() + bool(x.numel()),
    ],
)
def test_a_comparison_with_0_has_its_line(function: Callable[..., object]) -> None:
    found, _ = captured(function, t(4, 2))
    (listed,) = found.dims.conditions
    assert listed.condition == "n != 0" and f"{__file__}:{function.__code__.co_firstlineno}: " in listed.place


@pytest.mark.parametrize(
    ("function", "limit"),
    [
        (lambda x: x.split(5)[1], [("n >= 6", "bound")]),
        (lambda x: x.split(5)[0], []),
        (lambda x: x.split(3)[1], [("n >= 4", "bound")]),
        (lambda x: x.chunk(3)[0], []),
        (lambda x: torch.chunk(x, dim=0, chunks=3)[1], [("n != 1", "bound")]),
        (lambda x: x.split(4)[-1], [("(n + 3) // 4 == 3", "finding")]),
    ],
)
def test_the_pieces_that_are_read_limit_the_sizes(
    function: Callable[..., object], limit: list[tuple[str, str]]
) -> None:
    assert conditions(function, t(9, 2)) == limit


def longer(x: Tensor, y: Tensor) -> Tensor:
    return x.sum() if x.shape[0] < 2 * y.shape[0] else y.sum()


FINDINGS: list[tuple[Callable[..., object], int, str]] = [
    (lambda x: x if x.shape[0] == 1 else x + 1, 4, "n != 1"),
    (lambda x: x if x.shape[0] in (1, 77) else x + 1, 4, "n != 1"),
    (lambda x: x * (2 if x.shape[0] != 1 else 3), 4, "n != 1"),
    (lambda x: x[1:] * 2 if x.shape[0] > 1 else x, 4, "n != 1"),
    (lambda x: x if x.shape[0] else x.new_ones(2), 4, "n != 0"),
    (lambda x: x if x.numel() == 0 else x.sum(), 4, "n != 0"),
    (lambda x: x if x.shape[0] > 0 else x.new_ones(2), 4, "n != 0"),
    (lambda x: x.squeeze(), 4, "n != 1"),
    (lambda x: x.squeeze(0), 4, "n != 1"),
    (lambda x: x[..., :1].squeeze((0, 1)), 4, "n != 1"),
    (lambda x: torch.cond(x.sum() > 1e9, torch.exp, lambda x: x + 1 if x.shape[0] > 3 else x * 2, (x,)), 5, "n >= 4"),
    (lambda x: torch.cond(x.sum() < 1e9, lambda x: x + 1 if x.shape[0] > 3 else x * 2, torch.exp, (x,)), 5, "n >= 4"),
    (lambda x: torch.cat([piece * k for k, piece in enumerate(x.split(2))]), 5, "(n + 1) // 2 == 3"),
]
RIGHT: list[Callable[..., object]] = [
    torch.relu,
    lambda x: x.new_zeros(max(x.shape[0], 3)),
    lambda x: x[7:],
    lambda x: x[-10:10],
    lambda x: (x[:3], x[2:], x[-2:]),
    lambda x: (x[-9:], x[:9], x[:-3], x[3:-1]),
    lambda x: (torch.cat([x, x])[-12:], torch.cat([x, x])[:12]),
    lambda x: x.reshape(-1, 2, 1),
    lambda x: x @ x.T + x.sum(),
    lambda x: torch.cat([x, x[: x.shape[0] // 2]]),
    lambda x: x[: x.shape[0] // 4 * 4].reshape(-1, 4, 2),
    lambda x: x + 1 if x.shape[0] > 1 else 1 + x,
    lambda x: x.sum(0) if x.shape[0] != 1 else x[0],
    lambda x: x * x.exp() if x.shape[0] != 1 else x.exp() * x,
    lambda x: x if x.numel() == 0 else x * 1,
    lambda x: torch.cat([x, x]) if x.shape[0] > 0 else x,
    lambda x: x[..., None].squeeze(-1),
    lambda x: x.squeeze(0).flatten(),
    lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),
    lambda x: x.contiguous() if x.shape[0] > 3 else x.clone(),
    lambda x: x.tensor_split(3)[0],
    lambda x: (torch.combinations(x[:, 0], 1), torch.combinations(x[:, 0], 2)),
    lambda x: torch.hann_window(x.shape[0])[:, None] * x,
]


@pytest.mark.parametrize(("function", "rows", "condition"), FINDINGS)
def test_another_result_is_a_finding(function: Callable[..., object], rows: int, condition: str) -> None:
    assert (condition, "finding") in conditions(function, t(rows, 2))


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("function", RIGHT)
def test_no_condition_where_both_compute_the_same(function: Callable[..., object], rows: int) -> None:
    assert conditions(function, t(rows, 2)) == []


@pytest.mark.parametrize("dim", [Dim.AUTO, Dim.DYNAMIC, Dim("k")])
def test_a_dim_without_a_name_is_called_by_its_place(dim: object) -> None:
    name = "k" if isinstance(dim, Dim) else "x.shape[0]"
    assert conditions(FINDINGS[0][0], t(4, 2), dim=dim) == [(f"{name} != 1", "finding")]


def test_two_dims() -> None:
    assert conditions(longer, t(5, 4), t(5, 4)) == [("n < 2*n1", "finding")]


def test_an_exception_that_another_dim_of_size_1_avoids_is_no_bound() -> None:
    function = Function(lambda x, y: x * 2 if x.shape[0] < 6 else y + torch.ones(2))
    assert conditions(function, t(4), t(3)) == [("n <= 5", "finding")]


def test_a_condition_of_three_dims() -> None:
    def every_other(x: Tensor) -> Tensor:
        rows = (x * 1).view(-1)[::2].reshape(-1, x.shape[1]).flatten()
        rows[0] = 7
        return rows

    shapes = ({0: "n", 1: "m", 2: "k"},)
    program = fx_onnx.export(Function(every_other), (t(6, 2, 4),), dynamic_shapes=shapes, verbose=False)
    assert not program.findings
    for sizes in ((2, 3, 4), (4, 5, 2), (6, 3, 8), (1, 1, 2), (2, 1, 1)):
        x = t(*sizes)
        assert_close(program(x)[0], every_other(x))


def test_a_requested_range_is_no_condition() -> None:
    assert conditions(below, t(5, 4), dim=Dim("n", min=2, max=7)) == []
    assert conditions(below, t(5, 4), dim=Dim("n", min=2, max=9)) == [("n <= 7", "finding")]


def test_an_excluded_size_that_is_not_requested_is_none() -> None:
    assert conditions(FINDINGS[0][0], t(4, 2), dim=Dim("n", min=2)) == []
    assert conditions(FINDINGS[4][0], t(4, 2), dim=Dim("n", min=1)) == []


# --- bounds -----------------------------------------------------------------------------------------------------------


def even(x: Tensor) -> Tensor:
    assert x.shape[0] % 2 == 0
    return x * 2


def refuses_long_odd(x: Tensor) -> Tensor:
    if x.shape[0] % 2 and x.shape[0] > 4:
        raise ValueError("odd")
    return x * 2


def more_than_one(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        raise ValueError("one row")
    return x * 2


def two_or_more(x: Tensor) -> Tensor:
    if x.shape[0] < 2:
        raise ValueError("too short")
    return x + 1


@pytest.mark.parametrize(
    ("function", "bound", "words"),
    [
        (even, "n % 2 == 0", "even"),
        (two_or_more, "n >= 2", "2 or more"),
        (more_than_one, "n != 1", "not 1"),
        (lambda x: x + torch.ones(16, 2)[: x.shape[0]], "n <= 16", "at most 16"),
        (lambda x: x + torch.ones(16, 2)[torch.arange(16)][: x.shape[0]], "n <= 16", "at most 16"),
        (lambda x: F.conv1d(x.T[None], torch.ones(1, 2, 3)), "n >= 3", "3 or more"),
        (lambda x: x * (1 / (x.shape[0] // 3)), "n >= 3", "3 or more"),
    ],
)
def test_a_condition_whose_violation_raises_is_a_bound(function: Callable[..., object], bound: str, words: str) -> None:
    found, messages = captured(function, t(4, 2))
    assert [(each.condition, each.kind) for each in found.dims.conditions] == [(bound, "bound")]
    assert messages == []
    assert found.dims[0].sizes == words


def test_the_program_is_right_for_all_sizes_that_the_model_does_not_refuse() -> None:
    assert conditions(refuses_long_odd, t(4, 2)) == []


def test_a_difference_that_a_later_branch_explains_is_no_finding() -> None:
    """The first branch makes no difference, and is false for 9 rows, for which the second one does."""
    found = conditions(
        lambda x: (x.contiguous() if x.shape[0] > 9 else x.clone()) * (2 if x.shape[0] % 4 == 0 else 3), t(12, 2)
    )
    assert found == [("n % 4 == 0", "finding")]


def test_a_question_about_a_layout_is_no_condition() -> None:
    """A fake convolution asks whether it changes the layout, which for 2 rows of one number is so."""
    assert conditions(lambda x: F.conv1d(x[None].mT, torch.ones(1, 1, 2)), t(2, 1)) == [("n >= 2", "bound")]


# --- the user's own example -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "rows", "condition"),
    [
        (FINDINGS[0][0], 1, "n == 1"),
        (FINDINGS[3][0], 1, "n <= 1"),
        (lambda x: torch.cat([x[row] for row in range(x.shape[0])]), 1, "n == 1"),
    ],
)
def test_a_branch_of_a_small_example(function: Callable[..., Any], rows: int, condition: str) -> None:
    x = t(rows, 2)
    assert conditions(function, x) == [(condition, "finding")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxExporterWarning)
        program = fx_onnx.export(Function(function).eval(), (x,), dynamic_shapes=({0: "n"},), verbose=False)
    assert_close(program(x), function(x))


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (FINDINGS[0][0], 1),
        (FINDINGS[4][0], 0),
        (FINDINGS[7][0], 1),
        (FINDINGS[9][0], 1),
        (lambda x: x.squeeze(0) if x.shape[0] == 1 else x * 2, 1),
    ],
)
def test_the_program_is_right_for_the_example(function: Callable[..., Any], size: int) -> None:
    x = t(size, 2)
    with pytest.warns(OnnxExporterWarning, match="n == |is static with size"):
        program = fx_onnx.export(Function(function).eval(), (x,), dynamic_shapes=({0: "n"},), verbose=False)
    assert_close(program(x), function(x))


# --- a program is wrong nowhere without a finding ---------------------------------------------------------------------


def chunks(x: Tensor, size: int = 4) -> Tensor:
    count = (x.shape[0] + size - 1) // size
    return x[:count] + torch.zeros(count, x.shape[1])


def written(x: Tensor) -> Tensor:
    y = torch.zeros(x.shape[0], 2)
    (y[1:] if x.shape[0] > 1 else y).add_(x[0])
    return y


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        *((function, rows) for function, rows, _ in FINDINGS),
        *((function, 3) for function in RIGHT),
        *((function, 4) for function in (above, parity, even, two_or_more, rotated, chunks, written)),
        (lambda x: x.split([2, x.shape[0] - 2]), 3),
        (lambda x: x[: x.shape[0] // 2] + 1, 3),
        (lambda x: x.new_zeros(int(x.shape[0] * 0.7)), 5),
        (lambda x: x * int(x.shape[0] ** 0.5), 5),
    ],
)
def test_a_program_is_right_where_its_conditions_hold(function: Callable[..., Any], rows: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = fx_onnx.export(Function(function).eval(), (t(rows, 2),), dynamic_shapes=({0: "n"},), verbose=False)
    right = {size: _equal(program, function, t(size, 2)) for size in (0, 1, 2, 3, 5, 8, 17)}
    for size, equal in right.items():
        if equal is not None and all(each.holds({"n": size}) for each in program.dims.conditions):
            assert equal, f"wrong at {size}"
    for each in program.dims.conditions:
        if each.kind == "finding":
            assert not all(right[size] for size in right if not each.holds({"n": size})), f"{each} is untrue"


def _equal(program: Any, function: Callable[..., Any], x: Tensor) -> bool | None:
    """Returns whether the program computes what the function computes; None if the function raises."""
    try:
        want = function(x)
    except Exception:
        return None
    try:
        assert_close(program(x), want)
    except Exception:
        return False
    return True


def views() -> Sequence[tuple[Callable[..., Any], tuple[int, int], bool]]:
    """Views of (rows, columns), sizes to try, and whether eager mode accepts them."""
    return [
        (lambda x: x.view(x.shape[0] // 2, 2, -1).mean(1), (3, 6), True),
        (lambda x: x.reshape(-1, 4).sum(1), (2, 2), True),
        (lambda x: x.reshape(-1, 4).sum(1), (3, 5), False),
    ]


@pytest.mark.parametrize("opset", [11, 20])
@pytest.mark.parametrize(("function", "shape", "fits"), views())
def test_a_view_that_divides_the_elements(
    function: Callable[..., Any], shape: tuple[int, int], fits: bool, opset: int
) -> None:
    """torch declares a size of the result that holds for some sizes only; a wrong number of elements fails."""
    shapes = ({0: "rows", 1: "columns"},)
    program = fx_onnx.export(
        Function(function).eval(), (t(4, 6),), dynamic_shapes=shapes, opset_version=opset, verbose=False
    )
    assert {each.kind for each in program.dims.conditions} == {"bound"}
    x = t(*shape)
    assert all(each.holds({"rows": shape[0], "columns": shape[1]}) for each in program.dims.conditions) == fits
    if fits:
        assert_close(program(x), function(x))
    else:
        with pytest.raises(Exception, match="reshape"):
            program(x)


@pytest.mark.parametrize(
    ("function", "accepted"),
    [
        (above, [5, 8]),
        (lambda x: x + 1 if x.shape[0] > 1 else 1 + x, [1, 3, 5, 8]),
        (lambda x: x.sum(0) if x.shape[0] != 1 else x[0], [1, 3, 5, 8]),
        (lambda x: x + 1 if x.shape[0] > 4 else 1 + x, [1, 3, 5, 8]),
    ],
)
def test_the_captured_program_accepts_the_sizes_of_its_conditions(
    function: Callable[..., Any], accepted: list[int]
) -> None:
    found, _ = captured(function, t(5, 2))
    module = found.exported_program.module()
    inputs = {size: t(size, 2) for size in (1, 3, 5, 8)}
    for x in (inputs[size] for size in accepted):
        assert_close(module(x), function(x))
    for x in (inputs[size] for size in inputs if size not in accepted):
        with pytest.raises(AssertionError, match="Guard failed"):
            module(x)


def test_a_defect_of_the_package_is_no_error_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def defective(*_: object) -> object:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(PairedRuns, "compare", defective)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        captured(above, t(5, 2))


# --- what the module has ----------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Writes a buffer and an attribute in each call, and branches on the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.weight = nn.Parameter(torch.ones(2))
        self.calls, self.doubled = [], self.weight * 2

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 2) to (batch, 2)."""
        if x.shape[0] == 1:
            self.calls.append(1)
            self.total.add_(1)
        self.total.add_(1)
        return x * self.weight + self.total + self.doubled.detach()


@pytest.mark.parametrize(("device", "verb"), [("cpu", "is"), ("meta", "may be")])
def test_the_trial_leaves_the_module_unchanged(device: str, verb: str) -> None:
    """Only an eager run makes the difference certain."""
    with torch.device(device):
        module, x = Counting(), torch.ones(3, 2)
    _, messages = captured(module, x)
    assert [message.partition(",")[0] for message in messages] == [f"The exported model {verb} wrong where n == 1"]
    assert module.calls == []
    assert module.total.is_meta or module.total.tolist() == [0, 0]


class Masked(nn.Module):
    def __init__(self, masks_one: bool) -> None:
        super().__init__()
        self.masks_one = masks_one

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return mask * x if self.masks_one else x * 1
        return x * mask


@pytest.mark.parametrize("mask", [torch.ones(4, 2), torch.ones(4, 2).long(), torch.ones(4, 2).bool()])
@pytest.mark.parametrize("masks_one", [True, False])
def test_a_mask_of_ones_does_not_hide_a_difference(mask: Tensor, masks_one: bool) -> None:
    spec = ({0: "n"}, {0: "n"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OnnxExporterWarning)
        capture(parse_request(Masked(masks_one).eval(), (torch.ones(4, 2), mask), dynamic_shapes=spec))
    assert ["wrong where n == 1, because" in str(each.message) for each in caught] == [True] * (not masks_one)


def test_a_size_that_depends_on_data() -> None:
    def depends_on_data(x: Tensor) -> Tensor:
        kept = x[x > 0]
        return kept if x.shape[0] == 1 else kept * 2

    _, (message,) = captured(depends_on_data, t(4, 2).abs())
    assert "is wrong where n == 1, because the code takes another branch for this size (" in message
    _, (message,) = captured(depends_on_data, t(4, 2) - 9)  # no element is left to compare
    assert "may be wrong where n == 1, because the code takes another branch for this size (" in message


# --- facts ------------------------------------------------------------------------------------------------------------


def test_a_program_without_guards_has_no_conditions() -> None:
    program = torch.export.export(Function(torch.relu), (torch.rand(3, 4),))
    facts = SizeProof(parse_request(program), program, PairedRuns(None, program))
    assert facts.conditions == list(described(facts.conditions, facts.sizes)) == []
    assert not facts.exclude_example()
    assert facts.fixes(0, 0)


def test_the_conditions_of_a_given_program_are_found_from_its_guards() -> None:
    program = torch.export.export(Function(parity), (torch.rand(5, 4),), dynamic_shapes={"x": {0: Dim.AUTO}})
    with pytest.warns(OnnxExporterWarning, match=r"may be correct only where x\.shape\[0\] % 2 == 1, "):
        found = capture(parse_request(program))
    assert [each.holds({"x.shape[0]": 4}) for each in found.dims.conditions] == [False]
