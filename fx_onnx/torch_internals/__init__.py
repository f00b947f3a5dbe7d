"""What depends on torch itself: its private names, the custom operators of fx_onnx, threads, and the version of torch.

Only the files whose names end in ``_private`` use private names of torch. Each name has its reason there.
"""
