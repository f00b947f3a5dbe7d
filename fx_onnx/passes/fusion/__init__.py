"""Passes that replace several nodes by one node that computes the same.

Imports from core and from passes.
"""
