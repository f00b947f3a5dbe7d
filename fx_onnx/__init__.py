"""Exports PyTorch models to ONNX through torch.export.

The names in ``__all__`` are the public interface. All but the errors are imported on first use, because torch, onnx,
onnx_ir and onnxruntime take longer to import than the rest of fx_onnx, and ``fx-onnx --help`` needs none of them. The
names of torch.onnx's older interface (docs/old_api.md) are attributes too: ``fx_onnx.register_custom_op_symbolic``,
``fx_onnx.symbolic_helper``.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from warnings import warn

from fx_onnx.extension_points.rooms import TABLE, find
from fx_onnx.messages.errors import (
    ArgumentError,
    CaptureError,
    CheckerError,
    MutationError,
    OnnxExporterError,
    OnnxExporterWarning,
    TranslationError,
    UnsupportedOperatorError,
    VerificationError,
)

if TYPE_CHECKING:
    from torch.onnx import TensorProtoDataType as TensorProtoDataType

    from fx_onnx import errors as errors
    from fx_onnx import operators as operators
    from fx_onnx import ops as ops
    from fx_onnx import symbolic_helper as symbolic_helper
    from fx_onnx import testing as testing
    from fx_onnx import utils as utils
    from fx_onnx import verification as verification
    from fx_onnx.applications.export_pretrained import export_pretrained
    from fx_onnx.applications.layouts import Layout
    from fx_onnx.applications.tasks import Task
    from fx_onnx.applications.text_generation import text_generation_arguments
    from fx_onnx.capture.export_flag import is_in_onnx_export
    from fx_onnx.compat.exportable_module import ExportableModule as ExportableModule
    from fx_onnx.compat.input_observer import InputObserver as InputObserver
    from fx_onnx.compat.jit_scalar_type import JitScalarType as JitScalarType
    from fx_onnx.compat.log import disable_log as disable_log
    from fx_onnx.compat.log import enable_log as enable_log
    from fx_onnx.compat.log import is_onnx_log_enabled as is_onnx_log_enabled
    from fx_onnx.compat.utils import export_to_pretty_string as export_to_pretty_string
    from fx_onnx.compat.utils import register_custom_op_symbolic as register_custom_op_symbolic
    from fx_onnx.compat.utils import select_model_mode_for_export as select_model_mode_for_export
    from fx_onnx.compat.utils import unconvertible_ops as unconvertible_ops
    from fx_onnx.compat.utils import unregister_custom_op_symbolic as unregister_custom_op_symbolic
    from fx_onnx.export import export
    from fx_onnx.integrations.torch_onnx import replacing_torch_onnx
    from fx_onnx.passes.optimize import optimize
    from fx_onnx.passes.rules import rule
    from fx_onnx.program.onnx_program import ONNXProgram
    from fx_onnx.quantized_weights.static_quantization import Quantized, quantize
    from fx_onnx.requests.export_modes import OperatorExportTypes as OperatorExportTypes
    from fx_onnx.requests.export_modes import TrainingMode as TrainingMode
    from fx_onnx.targets.kernel_support import Support
    from fx_onnx.targets.target import Lack, Target
    from fx_onnx.verification.tensor_comparison import Difference
    from fx_onnx.verification.verification_result import Verification
    from fx_onnx.verification.verify import verify

    __version__: str
    producer_name: str
    producer_version: str

__all__ = [
    "ArgumentError",
    "CaptureError",
    "CheckerError",
    "Difference",
    "Lack",
    "Layout",
    "MutationError",
    "ONNXProgram",
    "OnnxExporterError",
    "OnnxExporterWarning",
    "Quantized",
    "Support",
    "Target",
    "Task",
    "TranslationError",
    "UnsupportedOperatorError",
    "Verification",
    "VerificationError",
    "__version__",
    "export",
    "export_pretrained",
    "is_in_onnx_export",
    "optimize",
    "quantize",
    "replacing_torch_onnx",
    "rule",
    "text_generation_arguments",
    "verify",
]

if not (Path(__file__).parent / "decompositions").is_dir():
    # A checkout that is on sys.path, such as the working folder of a script: decompositions/ is beside the package.
    __path__.append(str(Path(__file__).parents[1]))

_NAMES = TABLE["fx_onnx"]
"""The names that are imported on first use, and where they are defined."""

_MODULES, _MOVED = TABLE["modules"], TABLE["moved modules"]


def _module_on_first_use(group: str, name: str) -> ModuleType:
    """Returns a module that takes its attributes from the one in the table, which the first attribute imports."""
    path = f"{__name__}.{name}"

    def attribute(attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__all__":  # ``inspect`` asks every module for its ``__file__``
            raise AttributeError(attribute)
        if (inner := sys.modules.get(f"{path}.{attribute}")) is not None:
            return inner
        value = getattr(find(group, name), attribute)
        if group == "moved modules":
            now = __name__ if attribute in _NAMES else _MOVED[name]
            warn(f"fx_onnx 0.4 will not have {path}; use {now}.{attribute}.", DeprecationWarning, stacklevel=2)
        return value

    module = ModuleType(path, f"Is {TABLE[group][name]}.")
    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module


# ``from fx_onnx.symbolic_helper import parse_args`` looks here before it looks for a file.
for _group in ("modules", "moved modules"):
    sys.modules.update({f"{__name__}.{name}": _module_on_first_use(_group, name) for name in TABLE[_group]})


class _Package(ModuleType):
    """This package. Its ``export`` is the function, also after an import of the module ``fx_onnx.export``."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.export if name == "export" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Imports a public name on first use."""
    if name in ("__version__", "producer_version"):
        value: Any = import_module("fx_onnx.torch_internals.version").version()
    elif name in _NAMES or name in _MODULES:
        value = find(__name__ if name in _NAMES else "modules", name)
    elif name in _MOVED:  # after ``import fx_onnx.pretrained.tasks``
        value = sys.modules[f"{__name__}.{name}"]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NAMES, *_MODULES})
