"""Models of files: programs of torch.export, also of an older torch, and TorchScript models.

It is a room: without this folder, a path and a program that was loaded from a file are refused.
"""
