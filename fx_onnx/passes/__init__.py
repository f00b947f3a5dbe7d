"""ONNX → ONNX: the optimizer, the legalization, and what all passes share.

Passes read and write ONNX models only. Subfolders: cleanup, fusion and legalization.
"""
