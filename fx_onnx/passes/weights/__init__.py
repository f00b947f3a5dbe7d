"""Passes that change how weights are stored: transposed, packed, quantized.

Imports from core and from passes.
"""
