"""Translates keywords that torch removed from torch.onnx.export, and that programs still pass, to today's keywords.

No other file knows them. Each one sets keywords of today, or settings without a keyword, and causes one FutureWarning
that names what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from fx_onnx.messages.arguments import check_flag, shown, unknown_keyword
from fx_onnx.messages.errors import ArgumentError, UnknownArgumentError, no_effect
from fx_onnx.messages.findings import warn_now
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.requests.export_modes import OperatorExportTypes

__all__ = ["REMOVED", "RemovedKeywords", "modern", "refuse_positional"]


class RemovedKeywords(TypedDict, total=False):
    """The removed keywords and their types."""

    use_external_data_format: bool | None
    enable_onnx_checker: bool
    strip_doc_string: bool
    aten: bool
    export_raw_ir: bool
    example_outputs: Any
    fallback: bool
    _retain_param_name: bool
    add_node_names: bool
    fixed_batch_size: bool
    onnx_shape_inference: bool
    propagate: bool


@dataclass(frozen=True)
class Removed:
    """A removed keyword.

    Attributes:
        instead: what the warning says after "use" or "leave it out".
        meaning: returns what a value of the keyword sets today; nothing if the export is the same without it.
    """

    instead: str
    meaning: Callable[[Any], Mapping[str, Any]] = lambda value: {}


def _raw_ir(wanted: bool) -> Mapping[str, Any]:
    if wanted:
        raise ArgumentError("export_raw_ir=True asks for TorchScript's graph, which does not exist here; leave it out.")
    return {}


_LEAVE_OUT = "leave it out"
REMOVED: Mapping[str, Removed] = {
    "use_external_data_format": Removed("use external_data", lambda wanted: {"external_data": True} if wanted else {}),
    "enable_onnx_checker": Removed("use verify=True", lambda wanted: {"check": bool(wanted)}),
    "strip_doc_string": Removed("use verbose=True", lambda strip: {"doc_strings": not strip}),
    "aten": Removed(
        "use operator_export_type=OperatorExportTypes.ONNX_ATEN",
        lambda wanted: {"operator_export_type": OperatorExportTypes.ONNX_ATEN} if wanted else {},
    ),
    "export_raw_ir": Removed(_LEAVE_OUT, _raw_ir),
    "example_outputs": Removed(f"{_LEAVE_OUT}: capture finds the outputs"),
    "fallback": Removed(f"{_LEAVE_OUT}: there is one exporter"),
    "_retain_param_name": Removed(f"{_LEAVE_OUT}: weights keep their names"),
    "add_node_names": Removed(f"{_LEAVE_OUT}: nodes have names"),
    "fixed_batch_size": Removed(f"{_LEAVE_OUT}: a dim that is not requested as dynamic is static"),
    "onnx_shape_inference": Removed(f"{_LEAVE_OUT}: capture finds the shapes"),
    "propagate": Removed(f"{_LEAVE_OUT}: capture finds the shapes"),
}

# The order of torch.onnx.export before torch 2.5, which took all of them by position, and of today's keywords.
_OLD_ORDER = (
    "export_params", "verbose", "training", "input_names", "output_names", "operator_export_type", "opset_version",
    "do_constant_folding", "dynamic_axes", "keep_initializers_as_inputs", "custom_opsets",
    "export_modules_as_functions", "autograd_inlining",
)  # fmt: skip


def modern(removed: Mapping[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what removed keywords set, with one FutureWarning for all of them.

    Args:
        removed: the removed keywords of a call.
        given: the values of today's keywords in the same call.
        defaults: the defaults of today's keywords.

    Raises:
        UnknownArgumentError: torch never had such a keyword.
        ArgumentError: a value is wrong, or contradicts the keyword of today.
    """
    settings: dict[str, Any] = {}
    sentences: list[str] = []
    for name, value in removed.items():
        if name not in REMOVED:
            raise unknown_keyword("export", name, [*given, *REMOVED])
        if name != "example_outputs":
            check_flag(name, value, optional=True)
        entry = REMOVED[name]
        set_by_it = {} if value is None else dict(entry.meaning(value))
        for keyword, setting in set_by_it.items():
            other = given.get(keyword, defaults.get(keyword))
            if other is not defaults.get(keyword) and not _means(other, setting):
                raise ArgumentError(
                    f"{name}={value} contradicts {keyword}={shown(other)}.", id=MessageId.CONFLICTING_ARGUMENTS
                )
        settings |= set_by_it
        sentences.append(f"torch removed the argument {name!r} of export(); {entry.instead}.")
        if not set_by_it:
            no_effect(f"{name}={shown(value)}", "the export is the same without it")
    if sentences:
        warn_now("\n".join(sentences), FutureWarning)
    return settings


def _means(value: Any, setting: Any) -> bool:
    """Returns whether a value equals the setting; members of enumerations are compared by name."""
    return value is setting if isinstance(setting, bool) else getattr(value, "name", None) == setting.name


def refuse_positional(positional: tuple[Any, ...]) -> None:
    """Checks that no argument after ``f`` was given by position.

    Raises:
        UnknownArgumentError: some were. The message names the keywords that torch had at their positions.
    """
    if positional:
        names = _OLD_ORDER[: len(positional)]
        pairs = ", ".join(f"{name}={shown(value)}" for name, value in zip(names, positional, strict=False))
        raise UnknownArgumentError(
            f"Only model, args and f may be positional arguments; give the others by keyword, such as {pairs}."
        )
