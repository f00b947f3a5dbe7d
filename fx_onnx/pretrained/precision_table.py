"""The table of the precisions: a precision is one row of ``PRECISIONS``. It is read without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["PRECISIONS", "Precision"]


@dataclass(frozen=True)
class Precision:
    """One precision.

    Attributes:
        half: whether weights and activations are float16. Inputs and outputs stay float32.
        config: returns torchao's configuration that quantizes the weights of Linear layers; None if they stay floats.
        block: the number of weights that share a scale; the rows of a weight are a multiple of it.
        opset_version: the first opset that has weights of 4 bits and a scale for each block; None if any will do.
        rtol: the tolerance of ``verify``, because runtimes round at other places than torch; None is the usual one.
        rounds_activations: whether activations become integers when the model runs. A number between two of them may be
            rounded either way, and what follows is then rounded otherwise too. So two right results may be as far apart
            as each is from fp32, and ``verify`` allows twice this distance.
    """

    half: bool = False
    config: Callable[[], Any] | None = None
    block: int = 1
    opset_version: int | None = None
    rtol: float | None = None
    rounds_activations: bool = False


def _int8() -> Any:
    """Returns a scale and a zero point for each row of the activations.

    Without a zero point, torchao divides by the largest magnitude / 127.5. The largest negative number is then between
    two integers, and the last bit of a sum decides to which of them it is rounded.
    """
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, MappingType

    return Int8DynamicActivationInt8WeightConfig(act_mapping_type=MappingType.ASYMMETRIC)


def _int4() -> Any:
    import torch
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup

    return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(_BLOCK))  # type: ignore[attr-defined]


_BLOCK = 32

PRECISIONS = {
    "fp32": Precision(),
    "fp16": Precision(half=True, rtol=1e-2),
    "int8": Precision(config=_int8, rtol=1e-2, rounds_activations=True),
    "q4": Precision(config=_int4, block=_BLOCK, opset_version=21),
    "q4f16": Precision(half=True, config=_int4, block=_BLOCK, opset_version=21, rtol=1e-2),
}
"""The name of a precision → its record."""
