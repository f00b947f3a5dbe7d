"""The reference evaluator in the package onnx: pure NumPy, slow, close to the specification."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.legalization.scatters import legalize_gather_elements
from fx_onnx.passes.matchers import attribute, constant_integers
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

_RECURRENT = ("GRU", "LSTM", "RNN")
_SCAN_ATTRIBUTES = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")


def _defect(node: ir.Node) -> str:
    """Returns what the evaluator computes wrongly or cannot compute; measured with onnx 1.23.2."""
    inputs = [*node.inputs, *[None] * 5]
    if node.op_type in _RECURRENT and inputs[4] is not None:
        return "the evaluator ignores the lengths of the sequences"
    if node.op_type == "RNN" and set(attribute(node, "activations", ["Tanh"])) != {"Tanh"}:
        return "the evaluator knows no activation other than Tanh"
    if node.op_type == "Scan" and any(any(attribute(node, name, ())) for name in _SCAN_ATTRIBUTES):
        return "the evaluator scans the first axis only, and forwards only"
    if node.op_type == "Pad" and min(constant_integers(inputs[1]) or [0], default=0) < 0:
        return "the evaluator does not cut off elements"
    if node.op_type == "ConvTranspose" and attribute(node, "group", 1) > 1:
        return "the evaluator computes one group only"
    return ""


TARGET = Target(
    name="reference",
    versions="onnx 1.18 to 1.23",
    executed=True,
    table="reference",
    expands_functions=True,
    refuses=True,
    constraint=_defect,
    legalizations=(legalize_gather_elements,),
    notes=("The evaluator computes every dtype of the specification, so no Casts are inserted.",),
)
