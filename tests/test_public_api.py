"""The public interface is the one that the snapshot beside this file shows.

``python -m tests.test_public_api`` writes a new snapshot.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.onnx

import fx_onnx

SNAPSHOT = Path(__file__).with_name("public_api.txt")


class _Verbatim(str):
    """Text that a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _text(annotation: Any) -> Any:
    return _Verbatim(annotation) if isinstance(annotation, str) else annotation


def _default(value: Any) -> Any:
    """Returns a function by its name, and ``...`` instead of what shows its address."""
    if inspect.isfunction(value):
        return _Verbatim(value.__name__)
    return _Verbatim("...") if " object at 0x" in repr(value) else value


def _signature(function: Any) -> str:
    """Returns the signature with the annotations of the source."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(
            annotation=_text(each.annotation),
            default=_default(each.default),
        )
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=_text(signature.return_annotation)))


def _members(cls: type) -> Iterator[str]:
    """Yields the public members of a class that the class itself defines."""
    for name, member in sorted(vars(cls).items()):
        if name.startswith("_") and name not in {"__init__", "__call__"}:
            continue
        if isinstance(member, property):
            yield f"    {name}: property{_signature(member.fget)}"
        elif inspect.isfunction(member):
            yield f"    {name}{_signature(member)}"


def public_api() -> str:
    """Returns every public name with its signature, one a line."""
    fx_onnx.OnnxExporterError()  # the first error makes torch's class the base of ours
    lines = []
    for name in sorted(fx_onnx.__all__):
        value = getattr(fx_onnx, name)
        if isinstance(value, type):
            lines.append(f"class {name}({', '.join(base.__name__ for base in value.__bases__)})")
            lines += _members(value)
        elif callable(value):
            lines.append(f"{name}{_signature(value)}")
        else:
            lines.append(f"{name}: {type(value).__name__}")
    return "\n".join(lines) + "\n"


def test_the_public_api_is_the_snapshot() -> None:
    assert public_api() == SNAPSHOT.read_text("utf-8"), (
        "The public interface has changed. If that is intended, run `python -m tests.test_public_api`, and describe "
        "the change in CHANGELOG.md."
    )


def test_optimize_and_verify_are_called_from_the_top() -> None:
    module, x = torch.nn.GELU(approximate="tanh").eval(), torch.randn(3)
    program = fx_onnx.export(module, (x,), optimize=False)
    nodes = len(program.model.graph)
    fx_onnx.optimize(program.model, without=["fuse_gelu"])
    assert len(program.model.graph) <= nodes
    verification = fx_onnx.verify(program, (x,))
    assert isinstance(verification, fx_onnx.Verification)
    assert verification.ok


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api(), encoding="utf-8")


def test_the_errors_are_those_of_torch_onnx() -> None:
    assert issubclass(fx_onnx.OnnxExporterError, (torch.onnx.OnnxExporterError, RuntimeError))
    with pytest.raises(torch.onnx.OnnxExporterError):
        fx_onnx.export(torch.nn.ReLU(), (torch.ones(1),), opset_version=99)
