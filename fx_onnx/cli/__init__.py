"""The command ``fx-onnx``: exports models, and checks, shows and compares ONNX files.

This folder may import everything else. It holds no feature that the Python interface lacks: each command parses its
arguments, calls public functions, and prints the result as text or as JSON.
"""
