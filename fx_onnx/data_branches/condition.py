"""The operators that mark a condition on data in a captured program, and the node that marks it in an ONNX model."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.capture.patches.data_conditions import OffPathError, current_path
from fx_onnx.extension_points.translation_table import translates
from fx_onnx.torch_internals.custom_ops import define_operator
from fx_onnx.translation.emitter import Emitter

__all__ = ["CONDITION", "DOMAIN", "MARKS", "mark"]

DOMAIN, CONDITION = "fx_onnx", "Condition"
"""The domain and the operator of the node that marks a condition, until the models are merged."""

_OTHER = (
    "another branch than this captured program, which is one path of the model; use the module, as in "
    "fx_onnx.verify(program, args, module=module)."
)


def _check_tensor(condition: torch.Tensor, answer: bool) -> None:
    """Refuses data of another path, except in the runs of a capture, which are to take this path."""
    if current_path() is None and not condition.is_meta and bool(condition) != answer:
        raise OffPathError(f"The data take {_OTHER}")


def _check_number(condition: int, answer: bool) -> None:
    """Refuses sizes of another path: Python compares sizes without asking anyone."""
    if isinstance(condition, int) and bool(condition) != answer:
        raise OffPathError(f"The sizes take {_OTHER}")


define_operator("condition(Tensor condition, bool answer) -> ()", _check_tensor, lambda condition, answer: None)
define_operator("condition_of_sizes(SymInt condition, bool answer) -> ()", _check_number, None)
torch.library.register_fake("fx_onnx::condition_of_sizes", _check_number)  # no argument is a tensor
MARKS = _TENSOR, _NUMBER = torch.ops.fx_onnx.condition.default, torch.ops.fx_onnx.condition_of_sizes.default
for _operator in (_TENSOR, _NUMBER):
    torch.fx.node.has_side_effect(_operator)


def mark(condition: torch.Tensor | torch.SymBool, answer: bool) -> None:
    """Records a condition in the program that is being captured."""
    if isinstance(condition, torch.Tensor):
        _TENSOR(condition.detach(), answer)
    else:
        _NUMBER(torch.sym_ite(condition, 1, 0), answer)


@translates("fx_onnx::condition", "fx_onnx::condition_of_sizes")
def _condition(op: Emitter, condition: Any, answer: bool) -> None:
    """Emits a node that reads the condition as a 0-d bool."""
    value = op.Reshape(op.cast(condition, DataType.BOOL), [])
    value.shape = ir.Shape([])
    op.emit(CONDITION, value, domain=DOMAIN)
