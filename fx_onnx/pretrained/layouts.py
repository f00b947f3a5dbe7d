"""The layouts: the names of files, inputs and outputs in the folder that an application loads.

A layout is one row of ``LAYOUTS``. The names of a part's inputs and outputs are those of transformers; ``renames``
turns them into those of the application. All files of the source but its weights are copied as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LAYOUTS", "Layout"]


@dataclass(frozen=True)
class Layout:
    """One layout.

    Attributes:
        files: the part's name → its file, relative to the folder and without ``.onnx``. A task whose parts it lacks is
            refused.
        suffixes: precision → what follows the name of the file. A precision that it lacks is refused.
        renames: the beginning of a name of an input or output → what replaces it.
        required: files of the source without which the application does not load the folder.
    """

    files: Mapping[str, str]
    suffixes: Mapping[str, str]
    renames: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ("config.json",)


LAYOUTS = {
    "optimum": Layout(files={"model": "model", "decoder": "model"}, suffixes={"fp32": ""}),
    "sentence-transformers": Layout(
        files={"model": "onnx/model"}, suffixes={"fp32": ""}, required=("config.json", "modules.json")
    ),
}
"""The name of a layout → its record."""
