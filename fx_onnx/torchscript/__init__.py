"""TorchScript modules and functions as Python modules that torch.export captures.

torch is the only library that it uses.
"""
