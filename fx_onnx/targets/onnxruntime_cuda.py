"""ONNX Runtime with its CUDA provider. Not executed."""

from fx_onnx.passes.legalization.cast_insertion import InsertCasts
from fx_onnx.passes.legalization.indices import legalize_unique
from fx_onnx.passes.legalization.integers import legalize_integer_argmax
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.operators_64_bit import Legalize64Bit
from fx_onnx.passes.legalization.products import legalize_unsigned_products
from fx_onnx.passes.legalization.random_draws import LegalizeRandomDraws
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

# ONNX Runtime gives a node to the first provider that has a kernel for it, so a node that only the CPU provider runs
# needs Casts for the CPU provider.
_PROVIDERS = "onnxruntime-cuda", "onnxruntime"

_OF_KERNELS = {each.name: each(*_PROVIDERS) for each in (Legalize64Bit, LegalizeRandomDraws, InsertCasts)}

TARGET = Target(
    name="onnxruntime-cuda",
    versions="ONNX Runtime 1.31, CUDA provider",
    opset=18,
    table="onnxruntime-cuda",
    expands_functions=True,
    legalizations=(
        legalize_integer_argmax,
        legalize_unsigned_products,
        legalize_unique,
        *(_OF_KERNELS.get(each.name, each) for each in LEGALIZATIONS),
    ),
    notes=(
        "float16 and bfloat16 stay as they are: no Casts where the CUDA provider has a kernel for them.",
        "Older versions have no kernels for Equal, Pad, ReduceMax and Resize above opset 18.",
        "A node without a kernel runs in the CPU provider, between two copies.",
    ),
)
