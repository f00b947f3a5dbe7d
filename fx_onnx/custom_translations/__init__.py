"""Translations that are not fx_onnx's own: of custom_translation_table, of plug-ins, and symbolic functions.

It is a room: without this folder, an export that has such a translation is refused.
"""
