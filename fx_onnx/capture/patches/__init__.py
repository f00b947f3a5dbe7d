"""Temporary replacements for functions of torch and of model libraries, active only while torch.export traces a model.

A file here patches one library or one subject. Each replacement computes the same result as the original function, but
keeps symbolic sizes symbolic. The folder may import ``decompositions``, ``core`` and nothing else of ``capture``.
"""
