"""Composite operators in the contexts of a forward: a sample of what ``python -m tools.composites`` sweeps."""

import pytest
import torch

from tools.composites import CONTEXTS, find_call, outcome, sampled_calls

aten = torch.ops.aten
SAMPLE = {
    "inference_mode": (
        aten.meshgrid.indexing,
        aten.cartesian_prod.default,
        aten.tensor_split.sections,
        aten.lstm.input,
    ),
    "no_grad": (aten.einsum.default, aten.stft.center, aten.linalg_pinv.default, aten.repeat_interleave.self_Tensor),
    "autocast": (
        aten.bilinear.default,
        aten.matmul.default,
        aten.linear.default,
        aten.softmax.int,
        aten.repeat_interleave.self_Tensor,
    ),
    "eval": (aten.kron.default, aten.batch_norm.default, aten.outer.default, aten.cdist.default),
    "train": (aten.dropout.default, aten.rrelu.default, aten.group_norm.default, aten.trapezoid.x),
}


@pytest.mark.parametrize(
    ("operator", "context"), [(each, context) for context, operators in SAMPLE.items() for each in operators], ids=str
)
def test_a_composite_operator_is_right(operator: torch._ops.OpOverload, context: str) -> None:
    call = find_call(operator)
    assert call is not None
    assert outcome(call, context) == ("right", "")


def test_a_sample_of_the_tests_of_torch_is_right() -> None:
    calls = list(sampled_calls([aten.trapezoid.x, aten.kron.default], 2))
    assert [str(call) for call in calls] == ["trapezoid 0", "trapezoid 1", "kron 0"]
    assert [outcome(call, "inference_mode") for call in calls] == 3 * [("right", "")]


def test_every_context_has_a_sample() -> None:
    assert SAMPLE.keys() == CONTEXTS.keys()
