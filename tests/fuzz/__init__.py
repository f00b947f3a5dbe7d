"""A fuzzer: random modules are exported, run in ONNX Runtime at several sizes and opsets, and compared with eager."""
