"""The result of an export: ONNXProgram, which runs and saves a model, with the log, the options and the facts of it.

Nothing here captures, translates or optimizes a model.
"""
