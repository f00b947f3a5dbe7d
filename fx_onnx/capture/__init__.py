"""Reads the arguments of an export into a Request and captures the model with torch.export.

The input of this folder is what the user passes to ``export``; its output is a ``Capture``, which holds the
ExportedProgram and the facts about its dynamic dims. ``patches/`` holds what is replaced in torch and Python
during the capture.
"""
