"""The record that describes a runtime, that of ONNX Runtime, and the look-up of all targets by name."""
