"""Reads ``dynamic_axes``, the older way of torch.onnx.export to request dynamic dims."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fx_onnx.capture.dim_expressions import AxisText, dim_expression
from fx_onnx.core.arguments import check_name
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId


def split_dynamic_axes(
    dynamic_axes: Mapping[str, Any], output_names: Sequence[str]
) -> tuple[dict[str, Mapping[int, str]], dict[str, Mapping[int, str]]]:
    """Returns the entries of inputs and the entries of outputs, each as ``{name: {axis: dim name}}``.

    A list of axes gets automatic dim names: ``{"x": [0, 2]}`` names them ``x_dynamic_axes_1`` and ``x_dynamic_axes_2``.
    Any text may name a dim, as in torch.onnx. A number, such as ``{1: "1"}``, says that the axis has this size; the
    input must have it, and an output has the size that the model computes.

    Raises:
        ArgumentError: An entry is neither a dict from axes to names nor a list of axes.
    """
    inputs: dict[str, Mapping[int, str]] = {}
    outputs: dict[str, Mapping[int, str]] = {}
    for name, axes in dynamic_axes.items():
        check_name("A key of dynamic_axes", name)
        named = axes if isinstance(axes, Mapping) else _automatic_names(name, axes)
        if not all(isinstance(axis, int) and isinstance(dim, str) for axis, dim in named.items()):
            raise _not_axes(name)
        checked = {axis: _checked(dim) for axis, dim in named.items()}
        if name in output_names:
            outputs[name] = {axis: dim for axis, dim in checked.items() if not dim.isdecimal()}
        else:
            inputs[name] = checked
    return inputs, outputs


def _checked(dim: str) -> AxisText:
    """Returns the name of a dim after checking that it can be one: any text that is not empty, or a size.

    Raises:
        ArgumentError: It is neither, such as "-1" or "2 * 3", which a program that reads the model would compute.
    """
    check_name("The dim name", dim)
    if dim.isascii() and dim.isdecimal():
        return AxisText(dim)
    if dim.strip().lstrip("+-").isdigit() or dim_expression(dim, {}) is not None:
        raise ArgumentError(
            f"The dim name {dim!r} is a number; use a name such as 'batch_size'.", id=MessageId.DYNAMIC_SHAPES
        )
    return AxisText(dim)


def _automatic_names(name: str, axes: Any) -> dict[int, str]:
    if not isinstance(axes, Iterable) or isinstance(axes, str):
        raise _not_axes(name)
    name = re.sub(r"[^\w.:]", "_", name)  # a dim name allows fewer characters
    return {axis: f"{name}_dynamic_axes_{i}" for i, axis in enumerate(axes, start=1)}


def _not_axes(name: str) -> ArgumentError:
    return ArgumentError(
        f"dynamic_axes[{name!r}] must map axes to dim names or be a list of axes.", id=MessageId.DYNAMIC_SHAPES
    )
