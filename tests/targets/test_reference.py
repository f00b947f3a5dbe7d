"""The target reference: models run in onnx's reference evaluator."""

import torch
from onnx.reference import ReferenceEvaluator

from tests.targets.exporting import exported, operators


def test_no_casts_are_inserted() -> None:
    program = exported(lambda x: x.neg(), torch.ones(2, 3, dtype=torch.bfloat16), target="reference")
    assert operators(program) == ["Neg"]


def test_a_model_runs() -> None:
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    program = exported(lambda x: torch.softmax(x, -1).cumsum(0), x, target="reference")
    (found,) = ReferenceEvaluator(program.model_proto).run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), torch.softmax(x, -1).cumsum(0))
