"""The padding of a TransformerEncoder has the values that torch gives it for inference."""

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.patches.layers import PATCHES
from fx_onnx.capture.patches.patching import apply_patches

PADDING = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]).bool()
OTHERS = {
    "all rows padded": torch.tensor([[0, 0, 1], [0, 1, 1]]).bool(),
    "padding first": torch.tensor([[1, 0, 0], [0, 0, 1]]).bool(),
    "one token": torch.zeros(2, 1).bool(),
    "an empty row": torch.tensor([[1, 1], [0, 0]]).bool(),
}


def encoder(layer: dict[str, object] | None = None, **options: object) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    if options.get("norm"):
        options["norm"] = nn.LayerNorm(8)
        nn.init.normal_(options["norm"].bias)  # type: ignore[attr-defined]
    parts = nn.TransformerEncoderLayer(8, 2, 16, **{"batch_first": True} | (layer or {}))  # type: ignore[arg-type]
    return nn.TransformerEncoder(parts, 1, **options).eval()  # type: ignore[arg-type]


def eager(model: nn.Module, x: Tensor, padding: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x, src_key_padding_mask=padding)


def check(model: nn.Module, program: fx_onnx.ONNXProgram, padding: Tensor) -> None:
    x = torch.randn(*padding.shape, 8)
    (found,) = program(x, src_key_padding_mask=padding)
    torch.testing.assert_close(found, eager(model, x, padding), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"norm": True}, {"mask_check": False}], ids=str)
def test_all_masks_agree_with_torch(options: dict[str, object]) -> None:
    model = encoder(**options)
    program = fx_onnx.export(
        model,
        (torch.randn(3, 5, 8),),
        kwargs={"src_key_padding_mask": PADDING},
        dynamic_shapes={"src": {0: "batch", 1: "time"}, "src_key_padding_mask": {0: "batch", 1: "time"}},
    )
    for padding in (PADDING, *OTHERS.values()):
        check(model, program, padding)
    padded = eager(model, torch.randn(3, 5, 8), PADDING)[0, 3:]
    assert padded.eq(0).all() or padded[0].equal(padded[1])  # the case that the patch is for


@pytest.mark.parametrize(
    "model",
    [
        encoder(enable_nested_tensor=False),
        encoder({"norm_first": True}),
        encoder({"dropout": 0.0}).train(),
    ],
    ids=["no nested tensors", "norm first", "training"],
)
def test_where_torch_makes_no_nested_tensor(model: nn.Module) -> None:
    check(model, fx_onnx.export(model, (torch.randn(3, 5, 8),), kwargs={"src_key_padding_mask": PADDING}), PADDING)


def test_strict_mode() -> None:
    model, x = encoder(), torch.randn(3, 5, 8)
    with apply_patches(PATCHES):
        program = torch.export.export(model, (x,), {"src_key_padding_mask": PADDING}, strict=True)
    found = program.module()(x, src_key_padding_mask=PADDING)
    torch.testing.assert_close(found, eager(model, x, PADDING), rtol=1e-4, atol=1e-5)
