"""Function → FX graph: the tracer of decompositions, its fake tensors and shape rules, and the check of its guards.

This folder imports ``core``, and from ``aten`` the files that are not stages.
"""
