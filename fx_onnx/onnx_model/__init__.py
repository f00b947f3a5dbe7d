"""Facts about ONNX models: opsets, schemas, element types, types of nodes, metadata, names and weights."""
