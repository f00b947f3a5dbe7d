"""Makes torch.export faster by exact replacements of its internals.

A room: without this folder, every export is the same, only slower.
"""
