"""Forwards that compute gradients, with torch.autograd or the transforms of torch.func.

It is a room: without this folder, such a forward is refused.
"""
