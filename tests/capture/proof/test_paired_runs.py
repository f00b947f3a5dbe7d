"""A module and a captured program compare equal for sizes if each of their results has the same value number."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.nn import functional as F

import fx_onnx
from fx_onnx.capture.proof.paired_runs import Outcome, PairedRuns
from fx_onnx.torch_internals.torch_private import size_oblivious
from tests.capture.sample_modules import Function, t

EQUAL, DIFFERENT, RENUMBERED = Outcome.EQUAL, Outcome.DIFFERENT, Outcome.RENUMBERED
RAISES, UNKNOWN = Outcome.RAISES, Outcome.UNKNOWN


def outcome(function: object, rows: int, example: int = 4, on_meta: bool = False) -> Outcome:
    """Captures a function of (rows, 2) for an example, and compares both for another number of rows."""
    module = function if isinstance(function, nn.Module) else Function(function)
    with size_oblivious():
        program = torch.export.export(module, (t(example, 2),), dynamic_shapes={"x": {0: Dim.AUTO}}, strict=False)
        return PairedRuns(module, program).compare(lambda: ((torch.empty(rows, 2),), {}), on_meta)


def both(one: Callable[[Tensor], object], more: Callable[[Tensor], object]) -> Callable[[Tensor], object]:
    """Returns a function that computes something else for one row than for more rows."""
    return lambda x: one(x) if x.shape[0] == 1 else more(x)


def under_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.T


TABLE, LARGE = torch.ones(2), torch.ones(70, 70)


def through_a_view(first: float) -> Callable[[Tensor], Tensor]:
    def write(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, :1].add_(first)
        return y * 2

    return write


def written(write: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        y = x * 1
        write(y[:, :1])
        return y

    return forward


def read_before_the_write(x: Tensor) -> Tensor:
    y = x * 1
    z = y + 1
    y.mul_(2)
    return z


def read_after_the_write(x: Tensor) -> Tensor:
    y = x * 1
    y.mul_(2)
    return y + 1


def drops(x: Tensor) -> Tensor:
    return F.dropout(x, training=True)


@pytest.mark.parametrize(
    ("one", "more", "expected"),
    [
        (torch.relu, torch.relu, EQUAL),
        (torch.relu, torch.tanh, RENUMBERED),
        (lambda x: x + 1, lambda x: x + 2, RENUMBERED),
        (lambda x: x + x.exp(), lambda x: x.exp() + x, EQUAL),
        (lambda x: x - x.exp(), lambda x: x.exp() - x, RENUMBERED),
        (lambda x: torch.add(x, x.exp(), alpha=2), lambda x: torch.add(x.exp(), x, alpha=2), RENUMBERED),
        (lambda x: (x, x * 2), lambda x: (x * 2, x), RENUMBERED),
        (lambda x: (x, x), lambda x: (x, x, x), DIFFERENT),
        # layout
        (lambda x: x.contiguous(), lambda x: x.clone(), EQUAL),
        (lambda x: x.reshape(-1), lambda x: x.flatten(), EQUAL),
        (lambda x: x.reshape(-1), lambda x: x, DIFFERENT),
        (lambda x: x[0], lambda x: x.sum(0), EQUAL),
        (lambda x: x.expand(1, 2), lambda x: x[:1], EQUAL),
        (lambda x: x[:, :1], lambda x: x[:, 1:], RENUMBERED),
        (lambda x: x.double(), lambda x: x.double() * 1, RENUMBERED),
        (lambda x: x.long(), lambda x: x.bool(), DIFFERENT),
        (lambda x: (x.exp().unsqueeze_(0), x.exp()), lambda x: (x.exp().unsqueeze_(0), x.exp()), EQUAL),
        # writes
        (through_a_view(1), through_a_view(1), EQUAL),
        (through_a_view(1), through_a_view(2), RENUMBERED),
        (through_a_view(1), lambda x: x * 2, RENUMBERED),
        (read_before_the_write, lambda x: x * 1 + 1, EQUAL),
        (read_after_the_write, lambda x: x * 1 + 1, RENUMBERED),
        (lambda x: x.add_(1), lambda x: x + 1, RENUMBERED),
        (written(lambda y: y.fill_(2)), written(lambda y: y.__setitem__(slice(None), 2)), EQUAL),
        (written(lambda y: y.fill_(2)), written(lambda y: y.copy_(torch.tensor(2.0))), EQUAL),
        (written(lambda y: y.fill_(2)), written(lambda y: y.__setitem__(slice(None), 2.5)), RENUMBERED),
        (written(lambda y: y.fill_(2)), written(lambda y: y.copy_(torch.tensor(3))), RENUMBERED),
        # random numbers
        (drops, drops, EQUAL),
        (lambda x: drops(x) + 1, lambda x: drops(drops(x)) + 1, RENUMBERED),
        (lambda x: torch.rand_like(x) - torch.rand_like(x), lambda x: x * 0, RENUMBERED),
        # constants
        (lambda x: x + torch.tensor([1.0, 2.0]), lambda x: x + torch.tensor([1.0, 2.0]), EQUAL),
        (lambda x: x + torch.tensor([1.0, 2.0]), lambda x: x + torch.tensor([1.0, 3.0]), RENUMBERED),
        (lambda x: x + TABLE, lambda x: x + TABLE, EQUAL),
        (lambda x: x @ LARGE[:2], lambda x: x @ LARGE[:2], EQUAL),
        (lambda x: x @ LARGE[:2], lambda x: x @ LARGE[2:4], RENUMBERED),
        (lambda x: x * 2, lambda x: x * 2.0, RENUMBERED),
        # the rank
        (lambda x: x.squeeze(0), lambda x: x.squeeze(0), DIFFERENT),
        (lambda x: x[..., None].squeeze(-1), lambda x: x, EQUAL),
    ],
)
def test_a_branch_at_size_1(
    one: Callable[[Tensor], object], more: Callable[[Tensor], object], expected: Outcome
) -> None:
    for on_meta in (True, False):
        assert outcome(both(one, more), rows=1, on_meta=on_meta) is expected
        assert outcome(both(one, more), rows=5, on_meta=on_meta) is EQUAL


def branches_on_the_device(x: Tensor) -> Tensor:
    """Computes something else for one row, on the device of the example only."""
    return x + 1 if x.shape[0] == 1 and x.is_cpu and x.device.type == "cpu" and not x.is_meta else x


@pytest.mark.parametrize(
    ("function", "on_meta", "elsewhere"),
    [
        (branches_on_the_device, RENUMBERED, RENUMBERED),
        (lambda x: x + torch.zeros(2, device=x.device) + torch.arange(2, device="cpu"), EQUAL, EQUAL),
        (lambda x: x + TABLE.to(x.device), EQUAL, EQUAL),
        (lambda x: x[x > 0], UNKNOWN, EQUAL),
        (torch.nonzero, UNKNOWN, EQUAL),
        (lambda x: x[torch.tensor([0])], EQUAL, EQUAL),
        (lambda x: x * torch.tensor(2).item(), UNKNOWN, EQUAL),
        (under_autocast, UNKNOWN, EQUAL),
        (both(under_autocast, lambda x: x @ x.T), UNKNOWN, DIFFERENT),
        (both(lambda x: x @ x.T, under_autocast), UNKNOWN, DIFFERENT),
    ],
)
def test_what_the_meta_device_leaves_open(function: Callable[..., Any], on_meta: Outcome, elsewhere: Outcome) -> None:
    assert [outcome(function, 1, on_meta=True), outcome(function, 1)] == [on_meta, elsewhere]


@pytest.mark.parametrize(("rows", "expected"), [(0, EQUAL), (1, EQUAL), (2, RENUMBERED)])
def test_empty_results_are_equal_if_their_shapes_are(rows: int, expected: Outcome) -> None:
    assert outcome(lambda x: x[1:] * 2 if x.shape[0] > 2 else x[1:] * 3, rows) is expected
    assert outcome(lambda x: x * 2 if x.shape[0] else x.new_ones(2, 0), 0) is DIFFERENT


def refuses(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        raise ValueError("too short")
    return x.reshape(-1, 2)


def test_a_module_that_raises() -> None:
    assert [outcome(refuses, rows) for rows in (1, 2)] == [RAISES, EQUAL]
    assert outcome(lambda x: x + torch.ones(4, 2)[: x.shape[0]], 5) is RAISES


def test_a_program_that_refuses_what_the_module_accepts_is_different() -> None:
    assert outcome(both(lambda x: x, lambda x: x.narrow(0, 1, 1)), 1) is DIFFERENT


def mapped(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def looped(x: Tensor) -> Tensor:
    return while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,))[0]


BRANCHES = (lambda x: x + 1, lambda x: x - 1)


def branching(on_true: bool) -> Callable[[Tensor], Tensor]:
    """Returns a function one of whose branches computes something else for one row."""

    def other(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 1 else x * 3

    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, *((other, torch.neg) if on_true else (torch.neg, other)), (x,))

    return function


@pytest.mark.parametrize(
    ("function", "expected"), [(lambda x: x[x > 0], EQUAL), (torch.nonzero, EQUAL), (mapped, EQUAL), (looped, UNKNOWN)]
)
def test_sizes_that_depend_on_data_have_numbers(function: Callable[[Tensor], Tensor], expected: Outcome) -> None:
    assert outcome(function, 1) is expected


@pytest.mark.parametrize(
    "function",
    [
        branching(True),
        branching(False),
        both(lambda x: torch.cond(x.sum() > 1, *BRANCHES, (x,)), lambda x: torch.cond(x.sum() > 0, *BRANCHES, (x,))),
    ],
)
def test_a_condition_differs_in_a_branch_or_in_what_it_asks(function: Callable[[Tensor], Tensor]) -> None:
    assert outcome(function, 1) is RENUMBERED
    assert outcome(function, 3) is EQUAL


@pytest.mark.parametrize(
    ("one", "expected", "seen"),
    [
        (lambda x: x + x, EQUAL, ""),
        (lambda x: x * 3, DIFFERENT, "result 0: the "),
        (lambda x: x[:, :1], DIFFERENT, "result 0: the "),
        (lambda x: (x * 2, x), DIFFERENT, "the program has 1 results, and the module 2"),
        (lambda x: torch.ones(3)[x.shape[0] + 2 :][5], RAISES, "the module raises IndexError: "),
    ],
)
def test_numbers_tell_whether_other_operators_compute_the_same(
    one: Callable[[Tensor], Any], expected: Outcome, seen: str
) -> None:
    module = Function(both(one, lambda x: x * 2))
    with size_oblivious():
        program = torch.export.export(module, (t(4, 2),), dynamic_shapes={"x": {0: Dim.AUTO}}, strict=False)
        runs = PairedRuns(module, program)
        assert runs.compare_numbers((t(1, 2),), {}) is expected
    assert runs.seen.startswith(seen) and bool(runs.seen) == bool(seen)


class Counting(nn.Module):
    """Writes its buffer in each call: by another step for one row."""

    def __init__(self, step: float, reads: bool) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.step, self.reads = step, reads

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 2) to (rows, 2)."""
        self.total.add_(self.step if x.shape[0] == 1 else 2.0)
        return x + self.total if self.reads else x * 1


def test_numbers_of_written_buffers_count() -> None:
    for step, expected in ((2.0, EQUAL), (3.0, DIFFERENT)):
        module = Counting(step, reads=False)
        with size_oblivious():
            program = torch.export.export(module, (t(4, 2),), dynamic_shapes={"x": {0: Dim.AUTO}}, strict=False)
            assert PairedRuns(module, program).compare_numbers((t(1, 2),), {}) is expected
        assert module.total.tolist() == [0, 0]


# --- the state of a module --------------------------------------------------------------------------------------------


class Stateful(nn.Module):
    """Has tied weights, buffers and containers, which its forward changes for one row."""

    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.register_buffer("total", torch.zeros(2))
        self.writes, self.calls, self.named, self.seen = writes, [], {}, set()
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 2) to (rows, 2)."""
        if x.shape[0] == 1:
            self.calls.append(1)
            self.named["one"], self.last = x, x
            self.seen.add(1)
            if self.writes:
                self.total.add_(1)
            return F.linear(self.first(x), self.second.weight, self.second.bias)
        return self.second(F.linear(x, self.second.weight, self.first.bias))


@pytest.mark.parametrize("on_meta", [True, False])
@pytest.mark.parametrize(("writes", "expected"), [(False, EQUAL), (True, RENUMBERED)])
def test_the_state_of_the_module(writes: bool, expected: Outcome, on_meta: bool) -> None:
    module = Stateful(writes)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    attributes = set(vars(module))
    assert outcome(module, 1, on_meta=on_meta) is expected
    assert (module.calls, module.named, module.seen, module.last) == ([], {}, set(), None)
    assert set(vars(module)) == attributes
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert module.second.weight is module.first.weight
    assert isinstance(module.first.weight, nn.Parameter)


def test_a_buffer_that_both_write() -> None:
    assert [outcome(Counting(step, reads=True), 1) for step in (2.0, 3.0)] == [EQUAL, RENUMBERED]


def test_the_module_gets_fake_tensors_only() -> None:
    seen: list[type] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            seen.extend((type(x), type(self.weight * 1), type(torch.zeros(2))))
            return x * self.weight

    assert outcome(Watched(), 1) is EQUAL
    assert {each.__name__ for each in seen} == {"FakeTensor"}


def test_without_a_module_only_a_refusal_is_known() -> None:
    """The program that a user captured has no module."""
    with size_oblivious():
        program = torch.export.export(
            Function(lambda x: x.view(2, -1, 2) + torch.ones(2)), (t(4, 2),), dynamic_shapes={"x": {0: Dim.AUTO}}
        )
    runs = PairedRuns(None, program)

    def given(rows: int) -> Callable[[], Any]:
        return lambda: ((torch.empty(rows, 2),), {})

    assert [runs.compare(given(rows)) for rows in (6, 5)] == [UNKNOWN, RAISES]


def test_a_program_without_tensors_is_unknown() -> None:
    program = torch.export.export(Function(lambda x: x), (3,))
    assert PairedRuns(Function(lambda x: x), program).compare(lambda: ((3,), {})) is UNKNOWN


def test_an_expanded_axis_of_which_one_place_is_read() -> None:
    """A view has the number of an earlier one with the same elements, such as the tensor before it was expanded."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 1:
                return x.t().expand(-1, 4)[:, 0].unsqueeze(0).exp()
            return x.exp()

    x = torch.empty(3, 2, device="meta")  # nothing runs in eager mode
    program = fx_onnx.export(Model().eval(), (x,), dynamic_shapes=({0: "row"},))
    assert not program.findings


class _Loop(nn.Module):
    """Iterates a product for which torch takes another branch in a batch of one; ``in_python`` outside of a trace."""

    def __init__(self, in_python: bool) -> None:
        super().__init__()
        self.in_python = in_python

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        def body(step: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, (value[:, :, None] @ value[:1].expand(value.shape[0], 4)[:, None]).mean(2).tanh()

        if torch.compiler.is_exporting() or not self.in_python:
            return torch.while_loop(lambda step, _: step < count, body, (torch.zeros_like(count), x))[1]
        for _ in range(int(count)):
            _, x = body(count, x)
        return x


@pytest.mark.parametrize("in_python", [True, False])
def test_numbers_decide_if_the_module_loops_in_python(in_python: bool) -> None:
    model, args = _Loop(in_python).eval(), (torch.randn(3, 4), torch.tensor(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = fx_onnx.export(model, args, dynamic_shapes=({0: "batch"}, None))
    told = [warning for warning in caught if "may be wrong where batch == 1" in str(warning.message)]
    assert bool(told) == bool(program.dims.conditions) == (not in_python)
    x, count = torch.randn(1, 4), torch.tensor(5)
    torch.testing.assert_close(program(x, count)[0], _Loop(True)(x, count))
