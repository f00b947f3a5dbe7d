"""The arguments of one call of ``export()`` as one record, and the call as text, for the reports."""

from __future__ import annotations

import enum
import os
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from fx_onnx.capture.export_modes import OperatorExportTypes, TrainingMode

if TYPE_CHECKING:
    from fx_onnx.passes.rules import Rule
    from fx_onnx.targets.target import Target

__all__ = ["ExportArguments"]

_MOST_ITEMS = 24
_MOST_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class ExportArguments:
    """The arguments of ``export()``, as the caller gave them. The fields are its parameters, with their defaults.

    The last two fields are what a removed keyword sets and no parameter of today does.

    Attributes:
        check: whether the model is checked, also without ``verify``.
        doc_strings: whether each node gets its source lines as doc_string; None follows ``verbose``.
    """

    model: Any
    args: tuple[Any, ...] | list[Any] | torch.Tensor | Mapping[str, Any] = ()
    f: str | os.PathLike[str] | BinaryIO | None = None
    kwargs: Mapping[str, Any] | None = None
    verbose: bool | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    opset_version: int | None = None
    dynamo: bool = True
    external_data: bool | None = None
    dynamic_shapes: Any | None = None
    custom_translation_table: Mapping[Callable[..., Any], Callable[..., Any]] | None = None
    report: bool = False
    optimize: bool | Collection[str] = True
    verify: bool = False
    profile: bool = False
    dump_exported_program: bool = False
    artifacts_dir: str | os.PathLike[str] = "."
    export_params: bool = True
    keep_initializers_as_inputs: bool | None = False
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None
    training: TrainingMode | None = None
    operator_export_type: OperatorExportTypes | None = OperatorExportTypes.ONNX
    do_constant_folding: bool = True
    custom_opsets: Mapping[str, int] | None = None
    export_modules_as_functions: bool | Collection[type[torch.nn.Module]] = False
    autograd_inlining: bool = True
    target: str | Target | None = None
    metadata: str = "full"
    progress: bool | None = None
    rules: Sequence[Rule | str] = ()
    check: bool = field(default=False, repr=False)
    doc_strings: bool | None = field(default=None, repr=False)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default of each field, by name."""
        return {each.name: each.default for each in fields(cls)}

    def given(self) -> dict[str, Any]:
        """Returns the arguments that are not the defaults, by parameter."""
        values = ((each, getattr(self, each.name)) for each in fields(self) if each.repr)
        return {each.name: value for each, value in values if value is not each.default}

    def with_own_examples(self) -> ExportArguments:
        """Returns the arguments, completed by those that a ``torch.onnx.ExportableModule`` holds.

        The module's example arguments, dynamic shapes and names are used if the call gives no example arguments, as in
        torch.onnx. Dynamic shapes or names that the call gives have precedence.
        """
        is_empty = isinstance(self.args, (tuple, list)) and not self.args
        if not isinstance(self.model, torch.onnx.ExportableModule) or not is_empty or self.kwargs:
            return self
        args, kwargs = self.model.example_arguments()
        shapes = self.dynamic_shapes
        return replace(
            self,
            args=args,
            kwargs=kwargs,
            input_names=self.model.input_names() if self.input_names is None else self.input_names,
            output_names=self.model.output_names() if self.output_names is None else self.output_names,
            dynamic_shapes=self.model.dynamic_shapes() if shapes is None and not self.dynamic_axes else shapes,
        )

    def call(self) -> str:
        """Returns the call with the arguments that were given, one a line; tensors are shown by dtype and shape."""
        given = self.given()
        positional = [given.pop(name) for name in ("model", "args") if name in given]
        lines = [*map(_text, positional), *(f"{name}={_text(value)}" for name, value in given.items())]
        return "fx_onnx.export(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def _text(value: Any) -> str:
    """Returns an argument as it might be written, without running code of the user's classes."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if type(value) in (tuple, list, set, frozenset, dict):
        return _container(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (str, os.PathLike)):
        return repr(os.fspath(value)[:_MOST_CHARACTERS])
    if value is None or isinstance(value, (bool, int, float, bytes, complex)):
        return reprlib.repr(value)
    return str(value.__qualname__) if hasattr(value, "__qualname__") else f"{type(value).__name__}(...)"


def _container(value: Any) -> str:
    if type(value) is dict:
        items = [f"{_text(key)}: {_text(each)}" for key, each in list(value.items())[:_MOST_ITEMS]]
    else:
        items = [_text(each) for each in list(value)[:_MOST_ITEMS]]
    text = ", ".join([*items, "..."] if len(value) > _MOST_ITEMS else items)
    if type(value) is tuple:
        return f"({text}{',' if len(value) == 1 else ''})"
    return f"[{text}]" if type(value) is list else f"{{{text}}}"
