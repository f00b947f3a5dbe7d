"""Complex tensors become pairs of real ones, because ONNX has almost no operators on complex numbers.

It is a room: without this folder, a program with complex tensors is refused.
"""
