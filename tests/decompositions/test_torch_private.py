"""The private names of torch that decompositions use, with and without the name."""

import importlib
from typing import Any

import pytest
import torch

from fx_onnx.decompositions import _torch_private


def test_comparisons_of_sizes_add_no_guard() -> None:
    asked = []

    class Compare(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            size = x.shape[0]
            asked.extend(_torch_private.statically_known_true(c) for c in (size == size, size == 4, True, False))
            return x + 1

    program = torch.export.export(Compare(), (torch.ones(4),), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert asked[:4] == [True, False, True, False]
    assert not isinstance(program.graph_module.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0], int)


def test_numbers_of_sizes_do_not_depend_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    class Counts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.extend(map(_torch_private.depends_on_data, (x.shape[0] // 2, x.nonzero().shape[0])))
            return x + 1

    torch.export.export(Counts(), (torch.ones(4),), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert found[:2] == [False, True]
    monkeypatch.delattr("torch.fx.experimental.symbolic_shapes.free_unbacked_symbols")
    assert _torch_private.depends_on_data(3)


def test_without_symbolic_shapes_only_plain_booleans_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> Any:
        raise ImportError(name)

    _torch_private._statically_known_true.cache_clear()
    monkeypatch.setattr(importlib, "import_module", gone)
    try:
        assert _torch_private.statically_known_true(True)
        assert not _torch_private.statically_known_true(False)
        assert not _torch_private.statically_known_true("a symbolic comparison")
        _torch_private.register_quantized_decomposed()
    finally:
        _torch_private._statically_known_true.cache_clear()


def test_a_loop_runs_while_its_condition_is_true() -> None:
    (count,) = _torch_private.while_loop_operator(
        lambda k, end: k < end, lambda k, end: (k + 1,), _scalars(0), _scalars(7)
    )
    assert int(count) == 7


def test_a_loop_without_the_operator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "higher_order", object())
    with pytest.raises(NotImplementedError, match=r"has no operator higher_order\.while_loop"):
        _torch_private.while_loop_operator(lambda k: k < 1, lambda k: (k + 1,), _scalars(0), ())


def test_quantized_operators_are_registered() -> None:
    _torch_private.register_quantized_decomposed()
    assert hasattr(torch.ops.quantized_decomposed, "quantize_per_tensor")


def test_schemas() -> None:
    assert _torch_private.schema_name(torch.ops.aten.add.Tensor) == "aten::add"
    assert _torch_private.schema_argument_names(torch.ops.aten.add.Tensor) == ["self", "other", "alpha"]
    assert _torch_private.schema_name(torch.sin) == ""
    assert _torch_private.schema_argument_names(torch.sin) == []


def _scalars(*numbers: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(number) for number in numbers)
