"""AtenProgram → ir.Model: the emitter, constants, sizes, names, and the walker that calls the translations.

Imports from core, capture and aten. Translations of single operators belong in ops.
"""
