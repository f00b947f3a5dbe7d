"""The first module is found whose result the captured program does not compute."""

from __future__ import annotations

import pytest
import torch

from fx_onnx.verification import diagnosis
from fx_onnx.verification.diagnosis import first_uncaptured
from fx_onnx.verification.model_parts import functional_program
from fx_onnx.verification.tensor_comparison import Tolerance
from tests.verification.sample_models import Encoder, X


@pytest.mark.parametrize("group_bytes", [1, 10**9])
def test_the_first_module_that_differs(group_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_GROUP_BYTES", group_bytes)
    module = Encoder(2)
    program = functional_program(torch.export.export(module, (X,)))
    assert first_uncaptured(module, program, (X,), {}, Tolerance()) is None
    module.enc[1] = torch.nn.SiLU()
    found = first_uncaptured(module, program, (X,), {}, Tolerance())
    assert found is not None and (found.path, found.module_class) == ("enc.1", "SiLU")
    assert found.nearest is not None and found.nearest.max_abs > 0.01


def test_a_second_call() -> None:
    class Changes(Encoder):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.enc[0](x)
            return self.enc[0](y if torch.compiler.is_exporting() else y + 1)

    module = Changes()
    program = functional_program(torch.export.export(module, (X,)))
    found = first_uncaptured(module, program, (X,), {}, Tolerance())
    assert found is not None and (found.path, found.module_class) == ("enc.0@1", "Linear")


def test_nested_tensors_are_left_out() -> None:
    layer = torch.nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
    module, x = torch.nn.TransformerEncoder(layer, 1).eval(), torch.ones(1, 3, 4)
    padding = {"src_key_padding_mask": torch.tensor([[False, False, True]])}
    program = functional_program(torch.export.export(module, (x,), padding))
    assert first_uncaptured(module, program, (x,), padding, Tolerance()) is None
