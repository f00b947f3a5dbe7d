"""Conversion to opsets below the native ones, by onnxscript's version converter."""

from __future__ import annotations

import logging

import onnx_ir as ir
from onnxscript import version_converter

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.opsets import MINIMUM_OPSET


def convert_opset(model: ir.Model, version: int) -> ir.Model:
    """Converts the model in place to an older opset. A model that is in this opset already stays as it is.

    Raises:
        OnnxExporterError: the converter cannot express some operator in that opset.
    """
    if model.graph.opset_imports[""] == version:
        return model
    logger = logging.getLogger(version_converter.__name__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # the converter logs pages of text; the error below is one sentence
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
