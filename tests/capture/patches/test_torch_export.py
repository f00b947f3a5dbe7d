"""What torch.export replaces while it traces a forward acts in the thread that traces only."""

import builtins
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from fx_onnx.capture.patches import torch_export
from fx_onnx.capture.patches.patching import apply_patches

HERE: dict[str, Any] = {}
ELSEWHERE: dict[str, Any] = {}


class Probe(nn.Module):
    """Looks at the state of torch in its own thread and in another thread, while it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def look(self) -> dict[str, Any]:
        is_compiling = torch.compiler.is_compiling()
        return {
            "pow": math.pow(2, 3),
            "compiling": is_compiling,
            "exporting": torch.compiler.is_exporting(),
            "weight": type(self.inner.weight),
            "result": None if is_compiling else type(self.inner(torch.ones(1, 2))),
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        with ThreadPoolExecutor() as threads:
            ELSEWHERE.update(threads.submit(self.look).result())
        HERE.update(pow=math.pow(2, 3), compiling=torch.compiler.is_compiling(), weight=type(self.inner.weight))
        return y + 1


def test_another_thread_sees_nothing() -> None:
    probe = Probe()
    replaced = [(nn.Module, "__call__"), (nn.Module, "__getattr__"), (builtins, "max"), (math, "pow")]
    before = [getattr(*each) for each in replaced]
    with apply_patches(torch_export.PATCHES):
        program = torch.export.export(probe, (torch.ones(1, 2),))
    assert {
        "pow": 8.0, "compiling": False, "exporting": False, "weight": nn.Parameter, "result": torch.Tensor,
    } == ELSEWHERE  # fmt: skip
    assert type(ELSEWHERE["pow"]) is float
    assert (type(HERE["pow"]), HERE["compiling"]) == (int, True)
    assert HERE["weight"] is not nn.Parameter
    assert [node.name for node in program.graph.nodes if node.op == "call_function"] == ["linear", "add"]
    assert [getattr(*each) for each in replaced] == before
    assert torch.equal(program.module()(torch.ones(1, 2)), probe(torch.ones(1, 2)))
