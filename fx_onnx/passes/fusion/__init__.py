"""Passes that replace several nodes by one node that computes the same."""
