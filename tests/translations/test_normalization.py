"""Layer, batch, group, instance and RMS normalization."""

import pytest
import torch
from torch.nn import functional as F

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close
from tests.harness import Case, bf16, cases, check, f16, f32, f64

aten = torch.ops.aten
functional_batch_norm = aten._native_batch_norm_legit_functional.default
inference_batch_norm = aten._native_batch_norm_legit_no_training.default
positive = f32(3, low=0.5, high=2.0, fixed=True)

_GROUPS = ["Reshape", "InstanceNormalization", "Reshape", "Unsqueeze", "Mul", "Unsqueeze", "Add"]
"""What ONNX Runtime runs instead of a GroupNormalization, for which it has no kernel."""


@cases(
    [
        Case(aten.layer_norm.default, f32(2, 5, 3), [3], f32(3), f32(3), emits=["LayerNormalization"]),
        Case(aten.layer_norm.default, f32(2, 5, 3), [3], f32(3), emits=["LayerNormalization"], dynamic=False),
        Case(F.layer_norm, f32(2, 5, 3), [5, 3], eps=0.5, emits=["LayerNormalization"], dynamic=False),
        Case(F.layer_norm, f32(2, 3), [3], f32(3), f32(3)),
        Case(F.layer_norm, f32(0, 3), [3], f32(3), f32(3), dynamic=False),
        Case(F.layer_norm, f32(3, 0), [0], dynamic=False),
        Case(F.layer_norm, f64(2, 3), [3], f64(3), f64(3), dynamic=False),
        Case(F.layer_norm, f16(2, 3), [3], f16(3), f16(3), dynamic=False),
        Case(aten.native_layer_norm.default, f32(2, 5, 3), [3], f32(3), f32(3), 1e-5, dynamic=False),
    ]
)
def test_layer_norm(case: Case) -> None:
    check(case)


@cases(
    [
        Case(F.batch_norm, f32(2, 3, 4, 5), f32(3), positive, f32(3), f32(3), emits=["BatchNormalization"]),
        Case(F.batch_norm, f32(2, 3, 4), f32(3), positive, emits=["BatchNormalization"]),
        Case(F.batch_norm, f32(2, 3), f32(3), positive, f32(3), f32(3), emits=["BatchNormalization"]),
        Case(F.batch_norm, f32(2, 3, 4, 5), None, None, f32(3), f32(3), True, dynamic=False),
        Case(F.batch_norm, f32(2, 3, 4, 5), None, None, training=True),
        Case(F.batch_norm, f64(2, 3, 4), f64(3), f64(3, low=0.5), f64(3), f64(3)),
        Case(F.batch_norm, f16(2, 3, 4), f16(3), f16(3, low=0.5), f16(3), f16(3)),
        Case(F.batch_norm, f16(2, 3, 4), f32(3), f32(3, low=0.5), f32(3), f32(3), tolerance=1e-2),
        Case(
            functional_batch_norm,
            f32(2, 3, 4),
            f32(3),
            f32(3),
            f32(3),
            positive,
            True,
            0.1,
            1e-5,
        ),
        Case(inference_batch_norm, f32(2, 3, 4), f32(3), f32(3), f32(3), positive, 0.1, 1e-5),
    ]
)
def test_batch_norm(case: Case) -> None:
    check(case)


@cases(
    [
        Case(F.group_norm, f32(2, 6, 4, 5), 3, f32(6), f32(6), opsets=[21], emits=_GROUPS, dynamic=False),
        Case(F.group_norm, f32(2, 6, 4, 5), 3, opsets=[21], emits=_GROUPS, dynamic=False),
        Case(
            F.group_norm,
            f32(2, 6, 4, 5),
            3,
            f32(6),
            f32(6),
            opsets=[20],
            emits=["Reshape", "InstanceNormalization", "Reshape", "Reshape", "Mul", "Reshape", "Add"],
            dynamic=False,
        ),
        Case(F.group_norm, f32(2, 6), 3, f32(6), f32(6), opsets=[18, 20, 21], dynamic=False),
        Case(F.group_norm, f32(2, 6, 4), 2, opsets=[18, 20, 21], dynamic=False),
        Case(F.instance_norm, f32(2, 3, 4, 5), emits=["InstanceNormalization"], dynamic=False),
        Case(F.instance_norm, f32(2, 3, 4, 5), None, None, f32(3), f32(3), emits=["InstanceNormalization"]),
        Case(F.instance_norm, f32(2, 3, 4), f32(3), positive, f32(3), f32(3), use_input_stats=False),
        Case(F.rms_norm, f32(2, 5, 3), [3], f32(3), 1e-5, opsets=[22, 23]),
        Case(F.rms_norm, f32(2, 5, 3), [3], f32(3), opsets=[23], emits=["RMSNormalization"]),
        Case(F.rms_norm, f16(2, 5, 3), [5, 3], opsets=[22, 23], dynamic=False),
        Case(F.local_response_norm, f32(2, 6, 4, 5), 3),
        Case(F.normalize, f32(2, 6)),
    ]
)
def test_group_norm(case: Case) -> None:
    check(case)


@cases(
    [
        Case(function, low(*shape), *arguments, opsets=[20, 23], dynamic=function is not F.group_norm)
        for low in (f16, bf16)
        for function, shape, arguments in (
            (F.layer_norm, (2, 5, 4), ([4], f32(4), f32(4))),
            (F.rms_norm, (2, 5, 4), ([4], f32(4))),
            (F.group_norm, (2, 4), (2, f32(4), f32(4))),
            (F.group_norm, (2, 4, 5), (2, f32(4), f32(4))),
        )
    ]
)
def test_float32_weights_of_a_half_precision_input(case: Case) -> None:
    """Tests that the result has the dtype of the input, as in eager mode."""
    check(case)


def test_running_statistics_of_instance_norm_are_not_updated_and_a_warning_says_so() -> None:
    norm = torch.nn.InstanceNorm2d(3, track_running_stats=True).train()
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="does not update the running statistics of instance_norm"):
        fx_onnx.export(norm, (torch.randn(2, 3, 4, 4),))


def test_a_layer_norm_over_an_axis_that_may_be_empty() -> None:
    function = Function(lambda x: F.layer_norm(x[:, : x.shape[1] // 3], (x.shape[1] // 3,)))
    program = fx_onnx.export(function, (torch.randn(2, 7),), dynamic_shapes=({1: "n"},), verbose=False)
    for size in (2, 3, 7, 12):
        x = torch.randn(2, size)
        assert_close(program(x), function(x))
