"""The names of torch.onnx's older interface, implemented with this package; docs/old_api.md lists them.

The package finds its names by the table of rooms, on first use.
"""
