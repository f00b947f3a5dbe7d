"""The reference evaluator in the package onnx: pure NumPy, slow, close to the specification."""

from fx_onnx.passes.legalization.gathered_elements import LegalizeGatherElements
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="reference",
    versions="onnx 1.18 to 1.23",
    executed=True,
    table="reference",
    expands_functions=True,
    refuses=True,
    legalizations=(LegalizeGatherElements(),),
    notes=("The evaluator computes every dtype of the specification, so no Casts are inserted.",),
)
