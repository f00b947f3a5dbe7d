"""Function → FX graph: the tracer of decompositions, its fake tensors and shape rules, and the check of its guards.

From ``aten``, this folder imports only the files that are no stages.
"""
