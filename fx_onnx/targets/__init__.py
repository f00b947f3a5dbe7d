"""The targets of an export. Each target is one frozen record in one file, which describes a runtime.

May import passes and the folders above it; must not import program.
"""
