"""Opens a program in a viewer: the report of fx_onnx, Netron or Model Explorer."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError, MissingPackageError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["view"]


def view(program: ONNXProgram, viewer: str) -> Path:
    """Writes what a viewer shows to a temporary folder, opens it, and returns the path.

    The file stays, because the viewer reads it after this function has returned.

    Args:
        program: the program.
        viewer: ``report``, ``netron`` or ``model-explorer``.

    Raises:
        ArgumentError: there is no such viewer.
        MissingPackageError: the viewer is not installed.
    """
    if viewer == "report":
        path = _folder() / "report.html"
        program.save_html(path)
        if not webbrowser.open(path.as_uri()):
            warn(f"No browser could be opened; the report is the file {path}.", MessageId.NO_BROWSER)
        return path
    if not isinstance(viewer, str) or viewer not in _VIEWERS:
        known = ("report", *_VIEWERS)
        hint = did_you_mean(viewer, known) or f"; the viewers are {', '.join(known)}."
        raise ArgumentError(f"There is no viewer {shown(viewer)}{hint}")
    modules, packages, start = _VIEWERS[viewer]
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise MissingPackageError(f"The viewer {viewer} is not installed; `pip install {packages}` installs it.")
    path = _folder() / "model.onnx"
    program.save(path)
    start(importlib.import_module(modules[0]), str(path))
    return path


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fx_onnx_view_"))


_VIEWERS: dict[str, tuple[tuple[str, ...], str, Callable[[Any, str], object]]] = {
    "netron": (("netron",), "netron", lambda module, path: module.start(path)),
    "model-explorer": (
        ("model_explorer", "model_explorer_onnx"),
        "ai-edge-model-explorer model-explorer-onnx",
        lambda module, path: module.visualize(path, extensions=["model_explorer_onnx"]),
    ),
}
"""Viewer → its modules, its packages, and the call of the first module that opens a file.

Model Explorer reads ONNX files with an adapter, which is a package of its own.
"""
