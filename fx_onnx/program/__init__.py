"""The result of an export: ONNXProgram, and the modules that run, save, verify and report it.

Nothing here captures, translates or optimizes a model. The folder may import core, capture, aten, translation, ops and
passes. Only pipeline.py, export.py and the package itself import this folder.
"""
