"""The names of torch.onnx's older interface, implemented with this package; docs/old_api.md lists them.

This folder imports the whole package. Only ``fx_onnx/__init__.py`` imports from it, on first use of a name.
"""
