"""Opsets below the native ones: one file a step, from opset n + 1 to opset n; ``ladder.py`` runs the steps in order.

A step may import what all passes may import, and ``step.py``. It does not import another step.
"""
