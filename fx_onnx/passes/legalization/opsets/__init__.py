"""Opsets below the native ones: one file a step, from opset n + 1 to opset n; ``ladder.py`` runs the steps in order.

A step may import what all passes may import, and ``step.py`` and the files without a number that
hold a rewrite of several steps. It does not import another step.
"""
