"""Comparisons of sizes in the model's code are recorded, also those that torch decides without a guard."""

from __future__ import annotations

import threading

import torch
from torch import Tensor
from torch._higher_order_ops import while_loop
from torch.export import Dim

from fx_onnx.capture.patches.size_comparisons import SizeComparison, record_size_comparisons
from fx_onnx.core.guard_private import guard_location
from fx_onnx.core.script_private import set_script_line
from tests.capture.sample_modules import Function


def compared(function: object) -> tuple[list[SizeComparison], list[str]]:
    """Returns the comparisons in a capture of 4 dynamic rows, and the functions that made torch record guards."""
    with record_size_comparisons() as found:
        program = torch.export.export(Function(function), (torch.ones(4, 2),), dynamic_shapes={"x": {0: Dim.AUTO}})
    shape_env = next(iter(program.graph.nodes)).meta["val"].fake_mode.shape_env
    return list(found), [guard_location(guard).name for guard in shape_env.guards]


def test_decided_comparisons_are_recorded() -> None:
    def branches(x: Tensor) -> Tensor:
        return x if x.shape[0] == 1 or not x.numel() or 2 * x.shape[0] > 2 else x + 1

    found, guards = compared(branches)
    assert guards == []
    assert all(f"({__file__}:" in each.place and "return x if x.shape[0] == 1" in each.place for each in found)
    (symbol,) = found[0].symbols
    outcomes = [[each.outcome({symbol: size}) for size in (0, 1, 2)] for each in found]
    assert outcomes == [[False, True, False], [False, True, True], [False, False, True]]


def test_a_guard_has_the_place_of_the_forward() -> None:
    def branch(x: Tensor) -> Tensor:
        return x if x.shape[0] > 3 else x + 1

    found, guards = compared(branch)
    assert len(found) == 1
    assert guards == ["branch"]


def test_comparisons_of_other_threads_and_of_torch_are_not_recorded() -> None:
    size = torch.fx.experimental.symbolic_shapes.ShapeEnv().create_unbacked_symint()
    with record_size_comparisons() as found:
        thread = threading.Thread(target=lambda: size == 3)
        thread.start()
        thread.join()
        torch.nn.functional.pad(torch.ones(2), (1, 1))
    assert not found


def test_the_guards_that_dynamo_checks_are_not_recorded() -> None:
    def body(n: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return n + 1, y * 2

    found, _ = compared(lambda x: while_loop(lambda n, _: n < 3, body, (torch.zeros((), dtype=torch.int64), x))[1])
    assert found == []


def test_an_undefined_comparison_has_no_outcome() -> None:
    found, _ = compared(lambda x: x if 8 // x.shape[0] == 2 else x + 1)
    (symbol,) = found[0].symbols
    assert found[0].outcome({symbol: 4})
    assert found[0].outcome({symbol: 0}) is None
    assert found[0].outcome({}) in (None, False)


def test_code_without_a_file_has_no_place() -> None:
    names: dict[str, object] = {}
    exec("def branch(x):\n    return x if x.shape[0] == 1 else x + 1", names)
    found, _ = compared(names["branch"])
    assert [each.place for each in found] == [""]


def test_code_of_torchscript_has_its_own_line() -> None:
    names: dict[str, object] = {}
    exec("def branch(x):\n    return x if x.shape[0] == 1 else x + 1", names)

    def with_line(x: Tensor) -> Tensor:
        set_script_line(__file__, 1)
        return names["branch"](x)

    found, _ = compared(with_line)
    assert [each.place.partition(": ")[0] for each in found] == [f"({__file__}:1"]
