"""The operator tests of PyTorch that fail, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.opinfo.sweep import Entry
from tests.torch_versions import NEEDS, has


@dataclass(frozen=True)
class Failure:
    """Operators that fail for one reason.

    Attributes:
        names: the operators' names in ``Entry``.
        reason: one sentence.
        dtypes: the dtypes in which they fail; if empty, all dtypes.
        dynamic: True if they fail with dynamic dims only, False with static dims only, None with both.
        strict: False if the result depends on rounding, on the order of equal elements, on the version of torch or on
            inputs for which the operator is not defined. Then the test passes on some processors and not on others.
    """

    names: tuple[str, ...]
    reason: str
    dtypes: tuple[torch.dtype, ...] = ()
    dynamic: bool | None = None
    strict: bool = True

    def covers(self, entry: Entry) -> bool:
        """Returns whether the entry is one of these."""
        return (
            entry.name in self.names
            and (not self.dtypes or entry.dtype in self.dtypes)
            and self.dynamic in (None, entry.dynamic)
        )


_HALF = (torch.float16, torch.bfloat16)
_ROUNDED = (
    "torch rounds to half precision after every step, so it overflows or loses accuracy; the model is more accurate."
)

FAILURES: tuple[Failure, ...] = (
    Failure(("to_sparse",), "The operators of ONNX do not accept sparse tensors.", dynamic=False),
    Failure(
        ("native_group_norm",),
        "The call has the sizes of its input as numbers, and is refused for others, with FX1301.",
        dynamic=True,
        strict=False,
    ),
    Failure(
        ("hash_tensor",),
        "The operator hashes the bits of numbers, which no ONNX operator reads below opset 26.",
    ),
    Failure(
        ("broadcast_shapes",),
        "The model would have no inputs and only constant outputs, and ONNX Runtime does not load such a model.",
        dynamic=False,
    ),
    Failure(
        ("nn.functional.scaled_dot_product_attention",),
        "One sample has dropout, which draws different random numbers; the other samples are right.",
        dtypes=(torch.float32, torch.float64, *_HALF),
    ),
    Failure(
        ("matrix_exp", "nn.functional.soft_margin_loss", "histc", "grid_sampler_2d", "grid_sampler_3d"),
        _ROUNDED,
        dtypes=(torch.float16,),
        strict=False,
    ),
    Failure(
        ("matrix_exp", "nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d"),
        _ROUNDED,
        dtypes=(torch.bfloat16,),
        strict=False,
    ),
    Failure(
        ("sort", "argsort"),
        "If elements are equal, the model returns the first, and torch any of them unless a stable order is requested.",
        dtypes=(*_HALF, torch.uint8, torch.bool),
        strict=False,
    ),
    Failure(
        ("topk", "kthvalue"),
        "If elements are equal, the model returns the first, and torch any of them.",
        dtypes=(torch.int64, torch.int32, torch.uint8),
        strict=False,
    ),
    Failure(
        ("topk",),
        "If elements are equal, the model returns the first, and torch any of them.",
        dtypes=(torch.bfloat16,),
        strict=False,
    ),
    Failure(
        ("nn.functional.grid_sample", "grid_sampler_2d"),
        "ONNX Runtime below 1.32 has no float64 GridSample kernel below opset 20.",
        dtypes=(torch.float64,),
        strict=False,
    ),
    Failure(
        ("resize_",),
        "A dynamic size may leave fewer elements, which is refused with FX1302; torch below 2.15 does not capture it.",
        dynamic=True,
        strict=False,
    ),
    Failure(
        ("special.bessel_j0", "special.bessel_y1"),
        "The special functions have the accuracy of float32; the relative error here is 2e-7.",
        dtypes=(torch.float64,),
        strict=False,
    ),
    Failure(
        ("bucketize", "searchsorted", "linalg.ldl_solve", "nn.functional.embedding_bag"),
        "The operator is not defined for the larger inputs of the test: unsorted boundaries, pivots and offsets that "
        "do not fit.",
        dynamic=True,
        strict=False,
    ),
    Failure(
        ("cross", "multinomial", "_segment_reduce/lengths", "_segment_reduce/offsets"),
        "The decomposition depends on a symbolic size, such as which axis has size 3, so the export fails with an "
        "error.",
        dynamic=True,
    ),
    Failure(
        ("nn.functional.interpolate/area",),
        "torch converts the scaled size to a constant; the export warns about it.",
        dynamic=True,
    ),
    Failure(
        ("abs",),
        "The model computes a complex magnitude as the root of a sum of squares, which overflow above 1e19 and vanish "
        "below 1e-19.",
        dtypes=(torch.complex64,),
        strict=False,
    ),
    Failure(
        ("linalg.pinv/hermitian",),
        "The larger matrix is nearly singular, so rounding errors of the processor's products decide: the difference "
        "is 0.0015 of the largest element where 0.001 is allowed.",
        dtypes=(torch.float32,),
        dynamic=True,
        strict=False,
    ),
)


OLDER = tuple(
    Failure((name,), NEEDS[need].reason, dynamic=dynamic)
    for need, name, dynamic in (
        ("decomposition of max_pool2d_with_indices_backward", "max_pool2d_with_indices_backward", None),
        ("nuclear norm of any size", "norm/nuc", True),
    )
    if not has(need)
)
"""What fails because the installed torch is older; see ``tests/torch_versions.py``."""


def expected_failure(entry: Entry) -> Failure | None:
    """Returns the known failure of the entry, or None if the entry must pass."""
    return next((failure for failure in (*FAILURES, *OLDER) if failure.covers(entry)), None)


def reason(entry: Entry) -> str | None:
    """Returns why the entry fails, or None if it must pass."""
    failure = expected_failure(entry)
    return None if failure is None else failure.reason
