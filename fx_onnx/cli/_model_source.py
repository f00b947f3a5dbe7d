"""The result of loading a source: a model, and the example inputs and dynamic dims that the source contains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ModelSource"]


@dataclass
class ModelSource:
    """A model with the example inputs and dynamic dims that its source contains.

    Attributes:
        model: a Module, a ScriptModule or an ExportedProgram.
        args: the example positional arguments, if the source has them.
        kwargs: the example keyword arguments, if the source has them.
        dynamic_shapes: the dynamic dims, if the source has them.
    """

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None

    @property
    def has_inputs(self) -> bool:
        """True if the source itself has example arguments, so that ``--input`` is not needed."""
        import torch

        return bool(self.args or self.kwargs) or isinstance(self.model, torch.export.ExportedProgram)
