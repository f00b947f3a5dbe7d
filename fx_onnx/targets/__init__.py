"""Targets: what a runtime needs of a model. Each target is one frozen record in one file.

May import passes and the folders above it; must not import program.
"""
