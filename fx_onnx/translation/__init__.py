"""AtenProgram → ir.Model: the emitter, constants, sizes, names, and the walker that calls the translations.

Translations of single operators belong in ``translations``.
"""
