"""``InputObserver`` compares the programs of fx_onnx."""

from __future__ import annotations

import torch

import fx_onnx


def test_a_wrong_program_differs_from_what_was_observed() -> None:
    model, observer = torch.nn.Linear(3, 2).eval(), fx_onnx.InputObserver()
    with observer(model):
        model(torch.randn(2, 3))
        model(torch.randn(4, 3))
    program = fx_onnx.export(model, observer.infer_arguments(), dynamic_shapes=observer.infer_dynamic_shapes())
    assert max(float(row["abs"]) for row in observer.check_discrepancies(program)) < 1e-5
    program.apply_weights({"bias": torch.full((2,), 9.0)})
    assert min(float(row["abs"]) for row in observer.check_discrepancies(program)) > 1
