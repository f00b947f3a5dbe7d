"""Facts that all other folders share: errors, dtypes, names, metadata keys, ONNX schemas, weights and symbolic sizes.

A module belongs here if two folders need it and if it belongs to no stage of the pipeline. The folder may import only
``fx_onnx.decompositions``.
"""
