"""Weights of 8, 4 and 2 bits: their DequantizeLinear, and ONNX Runtime's MatMulNBits."""
