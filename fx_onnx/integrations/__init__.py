"""Lets other programs export through fx_onnx: in place of torch.onnx, before the fusions of onnxscript, as a backend of
transformers, as a pass of Olive.

A file imports the package that it integrates with; nothing else of fx_onnx imports the file.
"""
