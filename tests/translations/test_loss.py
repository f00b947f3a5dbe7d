"""Losses."""

from torch.nn import functional as F

from tests.harness import Case, cases, check, f32, i64

classes = i64(4, low=0, high=4, values=(0, 2, 1, 4))


@cases(
    [
        Case(F.cross_entropy, f32(4, 5), classes, emits=["SoftmaxCrossEntropyLoss"]),
        Case(F.cross_entropy, f32(4, 5), classes, f32(5, low=0.1), reduction="none", ignore_index=2),
        Case(F.cross_entropy, f32(4, 5), classes, f32(5, low=0.1), reduction="mean", ignore_index=2),
        Case(F.cross_entropy, f32(4, 5, 2, 3), i64(4, 2, 3, low=0, high=4, values=(0, 2, 1, 4, -100))),
        Case(F.cross_entropy, f32(4, 5), classes, label_smoothing=0.3),
        Case(F.cross_entropy, f32(4, 5), f32(4, 5, low=0.0)),
        Case(F.nll_loss, f32(4, 5), classes, emits=["NegativeLogLikelihoodLoss"]),
        Case(F.nll_loss, f32(4, 5), classes, f32(5, low=0.1), reduction="sum"),
        Case(F.nll_loss, f32(5), i64(values=(3,))),
        Case(F.mse_loss, f32(4, 5), f32(4, 5), emits=["Sub", "Mul", "ReduceMean"]),
        Case(F.l1_loss, f32(4, 5), f32(4, 5), reduction="sum", emits=["Sub", "Abs", "ReduceSum"]),
        Case(F.smooth_l1_loss, f32(4, 5), f32(4, 5)),
        Case(F.kl_div, f32(4, 5), f32(4, 5, low=0.0), reduction="batchmean"),
        Case(F.binary_cross_entropy_with_logits, f32(4, 5), f32(4, 5, low=0.0, high=1.0)),
    ]
)
def test_loss(case: Case) -> None:
    check(case)
