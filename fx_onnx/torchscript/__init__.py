"""TorchScript modules and functions as Python modules that torch.export captures.

It may import ``fx_onnx.extension_points`` and ``fx_onnx.capture``. torch is the only library that it uses.
"""
