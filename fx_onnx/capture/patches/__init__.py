"""Temporary replacements for functions of torch and Python, active only while torch.export traces a model.

A file here patches one subject. Each replacement computes the same result as the original function, but keeps symbolic
sizes symbolic. Those for functions of model libraries are in ``fx_onnx/libraries/``.
"""
