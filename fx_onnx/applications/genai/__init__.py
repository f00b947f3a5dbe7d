"""The folder that onnxruntime-genai loads: the decoder's inputs and outputs, its configuration and its files."""
