"""Passes that replace what an opset or ONNX Runtime's CPU provider does not support.

They run with and without the optimizer.
"""
