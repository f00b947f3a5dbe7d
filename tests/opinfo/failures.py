"""What of PyTorch's operator tests does not come out right, and why not."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.opinfo.sweep import Entry


@dataclass(frozen=True)
class Failure:
    """Operators that fail for one reason.

    Attributes:
        names: as ``Entry`` has them.
        reason: one sentence.
        dtypes: those in which they fail; none: all.
        dynamic: whether they fail with dynamic dims only (True), static ones only (False) or both (None).
    """

    names: tuple[str, ...]
    reason: str
    dtypes: tuple[torch.dtype, ...] = ()
    dynamic: bool | None = None

    def covers(self, entry: Entry) -> bool:
        """Whether the entry is one of these."""
        return (
            entry.name in self.names
            and (not self.dtypes or entry.dtype in self.dtypes)
            and self.dynamic in (None, entry.dynamic)
        )


_HALF = (torch.float16, torch.bfloat16)
_ROUNDED = "torch rounds to half precision after every step and overflows or strays; the model is nearer to the truth."

FAILURES: tuple[Failure, ...] = (
    Failure(("resize_",), "It reinterprets the memory of a tensor, which ONNX has no notion of.", dynamic=False),
    Failure(("resize_as_",), "It reinterprets the memory of a tensor, which ONNX has no notion of."),
    Failure(("to_sparse",), "ONNX's operators take no sparse tensors.", dynamic=False),
    Failure(
        ("hash_tensor",),
        "A hash of the bits of numbers, which no ONNX operator reads before opset 26.",
    ),
    Failure(
        ("broadcast_shapes",),
        "The model would have no input and only constants as outputs, which ONNX Runtime does not load.",
        dynamic=False,
    ),
    Failure(
        ("nn.functional.scaled_dot_product_attention",),
        "A sample has dropout, which draws other numbers; the others are right.",
        dtypes=(torch.float32, torch.float64, *_HALF),
    ),
    Failure(
        ("native_layer_norm", "native_batch_norm", "_native_batch_norm_legit"),
        "torch captures the statistics as float32; its kernels on the CPU give them in half precision.",
        dtypes=_HALF,
    ),
    Failure(
        ("matrix_exp", "nn.functional.soft_margin_loss", "histc", "grid_sampler_2d", "grid_sampler_3d"),
        _ROUNDED,
        dtypes=(torch.float16,),
    ),
    Failure(
        ("matrix_exp", "nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d"),
        _ROUNDED,
        dtypes=(torch.bfloat16,),
    ),
    Failure(
        ("sort", "argsort"),
        "Of equal elements the model takes the first, torch any, unless stable order is asked for.",
        dtypes=(*_HALF, torch.uint8, torch.bool),
    ),
    Failure(
        ("topk", "kthvalue"),
        "Of equal elements the model takes the first, torch any.",
        dtypes=(torch.int64, torch.int32, torch.uint8),
    ),
    Failure(("topk",), "Of equal elements the model takes the first, torch any.", dtypes=(torch.bfloat16,)),
    Failure(
        ("nn.functional.grid_sample", "grid_sampler_2d"),
        "ONNX Runtime has no float64 GridSample below opset 20.",
        dtypes=(torch.float64,),
    ),
    Failure(
        ("special.bessel_j0", "special.bessel_y1"),
        "Special functions are computed to the accuracy of float32: two parts in ten million here.",
        dtypes=(torch.float64,),
    ),
    Failure(
        ("bucketize", "searchsorted", "linalg.ldl_solve", "linalg.pinv/hermitian", "nn.functional.embedding_bag"),
        "The larger inputs are none that the operator is defined for: boundaries out of order, pivots and offsets that "
        "do not fit, a matrix that is not Hermitian.",
        dynamic=True,
    ),
    Failure(
        ("cross", "multinomial", "_segment_reduce/lengths", "_segment_reduce/offsets"),
        "The decomposition asks something of a symbolic size, such as which axis has 3; the export is refused.",
        dynamic=True,
    ),
    Failure(
        ("nn.functional.conv1d", "nn.functional.conv_transpose3d"),
        "A symbolic number of channels is not known to divide into the groups; the export is refused.",
        dynamic=True,
    ),
    Failure(
        ("nn.functional.interpolate/area",),
        "torch makes a plain number of the scaled size; the export warns of it.",
        dynamic=True,
    ),
    Failure(
        ("abs",),
        "A complex magnitude is the root of a sum of squares, which beyond 1e19 overflow and below 1e-19 vanish.",
        dtypes=(torch.complex64,),
    ),
)


def reason(entry: Entry) -> str | None:
    """Why the entry fails, or None where it must not."""
    return next((failure.reason for failure in FAILURES if failure.covers(entry)), None)
