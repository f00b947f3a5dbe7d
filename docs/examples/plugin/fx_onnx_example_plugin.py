"""A plug-in of fx_onnx: a translation, a target, a rule, a task and a layout. pyproject.toml names them."""

import torch

import fx_onnx


@torch.library.custom_op("example_plugin::half_square", mutates_args=())
def half_square(x: torch.Tensor) -> torch.Tensor:
    """Returns x * x / 2."""
    return x * x / 2


@half_square.register_fake
def _(x):
    return torch.empty_like(x)


def translate_half_square(op, x):
    """Emits two Muls."""
    return op.Mul(op.Mul(x, x), 0.5)


TRANSLATIONS = {"example_plugin::half_square": translate_half_square}


@fx_onnx.rule("x * Sigmoid(1.702 * x)")
def quick_gelu(f, x):
    """x * Sigmoid(1.702 * x) → QuickGelu(x)."""
    return f.QuickGelu(x, domain="com.microsoft", sizes=x.shape)


def target():
    """Returns the record of a runtime whose newest opset is 19, and which has QuickGelu."""
    return fx_onnx.Target(
        "example-runtime", versions="1.x", opset=19, fusions=(quick_gelu,), domains=("com.microsoft",)
    )


def pooling():
    """Returns the row of a task whose result is the pooled output of an encoder."""
    return (fx_onnx.Task("AutoModel", outputs=("pooler_output",)),)


def layout():
    """Returns the layout of an application that loads network.onnx, or network-half.onnx in float16."""
    return fx_onnx.Layout(files={"model": "network"}, suffixes={"fp32": "", "fp16": "-half"})
