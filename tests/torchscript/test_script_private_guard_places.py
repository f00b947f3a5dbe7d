"""The places of guards in TorchScript's code."""

from __future__ import annotations

import torch

from fx_onnx.torchscript.script_private import set_script_line
from tests.capture.patches.test_guard_places import origins
from tests.capture.sample_modules import Function


def test_code_of_torchscript_has_its_own_line() -> None:
    names: dict[str, object] = {}
    exec("def branch(x):\n    return x if x.shape[0] == 1 else x + 1", names)

    def with_line(x: torch.Tensor) -> torch.Tensor:
        set_script_line(__file__, 1)
        return names["branch"](x)

    found = {place.partition(": ")[0] for place, _ in origins(Function(with_line), strict=False)}
    assert found == {f"({__file__}:1"}
