"""The names of torch.onnx.errors: the errors that fx_onnx raises, and the one that symbolic functions raise."""

from torch.onnx.errors import SymbolicValueError

from fx_onnx.messages.errors import OnnxExporterError, OnnxExporterWarning, UnsupportedOperatorError

__all__ = ["OnnxExporterError", "OnnxExporterWarning", "SymbolicValueError", "UnsupportedOperatorError"]
