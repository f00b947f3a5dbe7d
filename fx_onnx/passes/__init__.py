"""ONNX → ONNX: the optimizer, the legalization, and what all passes share.

Passes read and write ONNX models only. This folder imports from core. Subfolders: cleanup, fusion, weights and
legalization.
"""
