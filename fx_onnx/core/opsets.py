"""Opset versions: which are native, which is the default, and how older ones are reached."""

import logging

import onnx_ir as ir
from onnxscript import version_converter

from fx_onnx.errors import ArgumentError, OnnxExporterError
from fx_onnx.table import MAXIMUM_OPSET, MINIMUM_OPSET

DEFAULT_OPSET = 20
OLDEST_OPSET = 7


def check(version: int | None) -> int:
    """The opset version to export to: the default for None.

    Raises:
        ArgumentError: it is not a number between the oldest and the newest supported version.
    """
    if version is None:
        return DEFAULT_OPSET
    if isinstance(version, bool) or not isinstance(version, int) or not OLDEST_OPSET <= version <= MAXIMUM_OPSET:
        raise ArgumentError(
            f"opset_version must be a number from {OLDEST_OPSET} to {MAXIMUM_OPSET} (native from {MINIMUM_OPSET}), "
            f"not {version!r}."
        )
    return version


def native(version: int) -> int:
    """The opset in which a model for ``version`` is translated."""
    return max(version, MINIMUM_OPSET)


def convert(model: ir.Model, version: int) -> ir.Model:
    """The model in an older opset, by onnxscript's version converter; as it is where it is in that opset already.

    Raises:
        OnnxExporterError: the converter cannot say some operator in that opset.
    """
    if model.graph.opset_imports[""] == version:
        return model
    logger = logging.getLogger(version_converter.__name__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it logs pages where one sentence of ours follows
    try:
        version_converter.convert_version(model, version, fallback=True)
    except (ValueError, RuntimeError, TypeError) as error:
        raise OnnxExporterError(_refusal(version)) from error
    finally:
        logger.setLevel(level)
    if model.graph.opset_imports[""] != version:
        raise OnnxExporterError(_refusal(version))
    return model


def _refusal(version: int) -> str:
    return (
        f"The model cannot be converted from opset {MINIMUM_OPSET} to opset {version}; "
        f"export with opset_version={MINIMUM_OPSET} or above."
    )
