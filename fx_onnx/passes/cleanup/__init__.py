"""Passes that remove or simplify nodes without changing what a model computes.

Canonicalization, constant folding, common-subexpression elimination and dead-code elimination.
"""
