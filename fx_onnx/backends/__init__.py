"""Runtimes other than ONNX Runtime's CPU provider, and the opsets below 18.

A file of a target has one record of Target. ``ladder.py`` rewrites a finished model of opset 18 to an older opset, one
opset at a time.
"""
