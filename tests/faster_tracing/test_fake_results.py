"""The cache of results on fake tensors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fx_onnx.faster_tracing.exact_replacements import faster_tracing
from fx_onnx.faster_tracing.replacement import replaced
from tests.faster_tracing.adversarial_modules import MODULES


def _values(program: ExportedProgram) -> list[torch.Tensor]:
    return [node.meta["val"] for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]


def _traced(name: str) -> tuple[Any, ...]:
    """Returns what the caches did, and the keys, results and guards of the symbolic sizes."""
    module, args, shapes = MODULES[name]
    FakeTensorMode.cache_clear()
    ShapeEnv._inner_evaluate_expr.cache_clear()
    program = torch.export.export(module, args, dynamic_shapes=shapes, strict=False)
    info = FakeTensorMode.cache_info()
    values = _values(program)
    env = values[0].fake_mode.shape_env
    keys = Counter(str(torch._C._dispatch_key_set(each)) for each in values)
    entries = [str(each) for each in env.fake_tensor_cache.values()]
    return (
        info.hits,
        info.misses,
        info.bypasses,
        ShapeEnv._inner_evaluate_expr.cache_info().misses,  # of a cache that forgets
        keys,
        entries,
        [(str(each.expr), str(each.sloc)) for each in env.guards],
    )


@pytest.mark.parametrize("name", ["sizes", "chunks", "data", "encoder", "complex", "modes", "vmap"])
def test_the_cache_has_the_same_entries(name: str) -> None:
    _traced(name)
    expected = _traced(name)
    with faster_tracing():
        assert _traced(name) == expected
    assert expected[1] > 0


def test_memory_without_elements_is_not_resized() -> None:
    class Empty(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            empty = x[:, :0]
            return empty.T.expand(2, *empty.T.shape)

    sizes = []
    for replacements in ((), None):
        with replaced(replacements) if replacements is not None else faster_tracing():
            program = torch.export.export(Empty(), (torch.ones(3, 4),), dynamic_shapes=({0: Dim.AUTO},))
        sizes.append([str(each.untyped_storage().nbytes()) for each in _values(program)])
    assert sizes[0] == sizes[1]
