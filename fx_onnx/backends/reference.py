"""The reference evaluator in the package onnx: pure NumPy, slow, close to the specification."""

from __future__ import annotations

from fx_onnx.backends.float4_weights import FLOAT4_WEIGHTS
from fx_onnx.backends.legalization.scatters import legalize_gather_elements
from fx_onnx.program.reference_session import defect
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="reference",
    versions="onnx 1.18 to 1.23",
    executed=True,
    table="reference",
    expands_functions=True,
    refuses=True,
    constraint=defect,
    translations=(FLOAT4_WEIGHTS,),
    legalizations=(legalize_gather_elements,),
    notes=("The evaluator computes every dtype of the specification, so no Casts are inserted.",),
)
