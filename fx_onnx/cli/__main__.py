"""Runs the command as ``python -m fx_onnx.cli``."""

from fx_onnx.cli.app import main

main()
