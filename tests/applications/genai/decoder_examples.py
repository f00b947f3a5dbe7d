"""The interface of a small decoder, for the tests of its detection and of its configuration."""

from fx_onnx.applications.genai.decoder_interface import DecoderInterface

INTERFACE = DecoderInterface(
    inputs=("input_ids", "attention_mask"),
    past={"key": "past.%d.key", "value": "past.%d.value"},
    present={"key": "present.%d.key", "value": "present.%d.value"},
    logits="logits",
    layers=2,
    heads=2,
    head_size=8,
    vocabulary=99,
    capacity=None,
    writes_in_place=False,
    skips_padding=False,
    logits_length=None,
)
