"""What a model is on disk: where it may be saved, how it is serialized, and how a save replaces an older model.

onnx_ir serializes graphs, and onnx and protobuf encode and decode the messages. docs/upstream.md lists what
``onnx_ir.save`` lacks, which is what this folder adds.
"""
