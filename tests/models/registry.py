"""The table of the networks that every release must export: how to build, feed and check each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import fx_onnx
from tests.models import transformers_models as hf
from tests.models.alexnet import AlexNet
from tests.models.convnext import ConvNeXt
from tests.models.efficientnet import Row, efficientnet, mobilenet_v3
from tests.models.mlp import MLP
from tests.models.resnet import ResNet
from tests.models.swin import Swin
from tests.models.transformer import TextClassifier, Translator
from tests.models.unet import UNet
from tests.models.vit import ViT
from tests.one_capture import OneCapture


class Inputs(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012

    def to(self, dtype: torch.dtype) -> "Inputs":
        """Returns the inputs with every floating-point tensor in `dtype`."""
        return pytree.tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, self)


@dataclass(frozen=True)
class ModelCase:
    """A network with inputs of two sizes: it is exported at `example` and checked at both.

    `dynamic_shapes` names the dims that must stay symbolic; `other` differs from `example` in each of them.
    """

    name: str
    make: Callable[[], nn.Module]
    example: Callable[[], Inputs]
    other: Callable[[], Inputs]
    dynamic_shapes: Any
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    names: dict[str, list[str]] = field(default_factory=dict)

    def build(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Returns the module in eval mode, the same at every call, with statistics of batch norms as after training."""
        torch.manual_seed(0)
        module = self.make()
        for norm in module.modules():
            if isinstance(norm, nn.BatchNorm2d):
                nn.init.normal_(norm.running_mean, std=0.1)
                nn.init.uniform_(norm.running_var, 0.5, 1.5)
                nn.init.uniform_(norm.weight, 0.5, 1.5)
        return module.to(dtype).eval()

    def export(self, dtype: torch.dtype = torch.float32, **options: Any) -> fx_onnx.ONNXProgram:
        """Exports the example with its dynamic shapes and names. All exports in a process share one capture."""
        inputs, arguments = self.example().to(dtype), {"dynamic_shapes": self.dynamic_shapes, **self.names}
        if (self.name, dtype) not in _EXPORTS:
            _EXPORTS[self.name, dtype] = OneCapture(self.build(dtype), inputs.args, kwargs=inputs.kwargs, **arguments)
        return _EXPORTS[self.name, dtype].export(verbose=False, **options)


_EXPORTS: dict[tuple[str, torch.dtype], OneCapture] = {}


def mlp_inputs(batch: int) -> Inputs:
    """Returns a tensor, a dict and a list of (batch, 8)."""
    torch.manual_seed(1)
    return Inputs((torch.randn(batch, 8), {"tensor_x": torch.randn(batch, 8)}, [torch.randn(batch, 8)]))


def images(batch: int, height: int, width: int | None = None) -> Inputs:
    """Returns one positional batch of images, square unless the width is given."""
    torch.manual_seed(1)
    return Inputs((torch.randn(batch, 3, height, width or height),))


def tokens(*shapes: tuple[int, int]) -> Inputs:
    """Returns positional token tensors of the shapes; the last two columns of the first row are padding (0)."""
    torch.manual_seed(1)
    ids = tuple(torch.randint(1, hf.VOCABULARY - 28, shape) for shape in shapes)
    for each in ids:
        each[0, -2:] = 0
    return Inputs(ids)


def text(batch: int, sequence: int) -> dict[str, Tensor]:
    """Returns input_ids and attention_mask (batch, sequence); the first row has two positions of padding."""
    torch.manual_seed(1)
    mask = torch.ones(batch, sequence, dtype=torch.int64)
    mask[0, -2:] = 0
    return {"input_ids": torch.randint(1, hf.VOCABULARY - 1, (batch, sequence)), "attention_mask": mask}


def text_inputs(batch: int, sequence: int) -> Inputs:
    """Returns the results of `text` as keyword arguments."""
    return Inputs(kwargs=text(batch, sequence))


def t5_inputs(batch: int, sequence: int, target: int) -> Inputs:
    """Returns the results of `text` and decoder_input_ids (batch, target)."""
    kwargs = text(batch, sequence)
    return Inputs(kwargs={**kwargs, "decoder_input_ids": torch.randint(1, hf.VOCABULARY, (batch, target))})


def whisper_inputs(batch: int) -> Inputs:
    """Returns input_features (batch, 16 mel bins, 48 frames): Whisper accepts no other number of frames."""
    torch.manual_seed(1)
    return Inputs((torch.randn(batch, 16, 48),))


def clip_inputs(texts: int, sequence: int, pictures: int) -> Inputs:
    """Returns the results of `text` with an end-of-text token in each row, and pixel_values (pictures, 3, 32, 32)."""
    kwargs = text(texts, sequence)
    kwargs["input_ids"][:, -3] = hf.VOCABULARY - 1
    return Inputs(kwargs={**kwargs, "pixel_values": torch.randn(pictures, 3, 32, 32)})


BATCH = ({0: "batch"},)
BATCH_HEIGHT_WIDTH = ({0: "batch", 2: "height", 3: "width"},)
BATCH_SEQUENCE = {0: "batch", 1: "sequence"}
TEXT = {"input_ids": BATCH_SEQUENCE, "attention_mask": BATCH_SEQUENCE}
FLOAT16_TOO = (torch.float32, torch.float16)
ROWS = (Row(3, 1, 16, 2), Row(3, 4, 24, 2), Row(5, 3, 24, 1), Row(5, 3, 32, 2))


def _image_case(name: str, make: Callable[[], nn.Module], size: int, **options: Any) -> ModelCase:
    """Returns a case with one input: a batch of square images, where the batch is dynamic."""
    return ModelCase(name, make, lambda: images(2, size), lambda: images(3, size), BATCH, **options)


def _text_case(name: str, make: Callable[[], nn.Module], **options: Any) -> ModelCase:
    """Returns a case with input_ids and attention_mask, where batch and sequence are dynamic."""
    return ModelCase(name, make, lambda: text_inputs(2, 8), lambda: text_inputs(3, 13), TEXT, **options)


CASES = [
    ModelCase(
        "mlp",
        MLP,
        lambda: mlp_inputs(3),
        lambda: mlp_inputs(5),
        ({0: "batch_size"}, {"tensor_x": {0: "batch_size"}}, [{0: "batch_size"}]),
        names={"input_names": ["tensor_input", "tensor_x", "list_input_index_0"], "output_names": ["output"]},
    ),
    _image_case("alexnet", lambda: AlexNet(width=4, hidden=32, classes=10), 224),
    _image_case("resnet", lambda: ResNet((1, 2, 1, 1), width=8, classes=10), 64, dtypes=FLOAT16_TOO),
    _image_case("mobilenet_v3", lambda: mobilenet_v3(ROWS, classes=10), 64),
    _image_case("efficientnet", lambda: efficientnet(ROWS, classes=10), 64),
    _image_case("vit", lambda: ViT(image=32, patch=8, dim=32, depth=2, heads=4, classes=10), 32),
    _image_case("swin", lambda: Swin(32, window=4, dim=16, depths=(2, 2), heads=(2, 4), classes=10), 32),
    _image_case("convnext", lambda: ConvNeXt((1, 2), (16, 32), classes=10), 32),
    *(
        ModelCase(
            f"unet_{mode}",
            lambda mode=mode: UNet(width=4, depth=2, mode=mode),
            lambda: images(2, 32, 48),
            lambda: images(3, 45, 38),
            BATCH_HEIGHT_WIDTH,
        )
        for mode in ("bilinear", "nearest")
    ),
    ModelCase(
        "transformer_encoder", TextClassifier, lambda: tokens((2, 8)), lambda: tokens((3, 13)), (BATCH_SEQUENCE,)
    ),
    ModelCase(
        "transformer",
        Translator,
        lambda: tokens((2, 8), (2, 6)),
        lambda: tokens((3, 13), (3, 9)),
        ({0: "batch", 1: "source"}, {0: "batch", 1: "target"}),
    ),
    _text_case("bert", hf.bert),
    _text_case("bert_eager_attention", lambda: hf.bert("eager")),
    _text_case("distilbert", hf.distilbert),
    _text_case("gpt2", hf.gpt2),
    _text_case("llama", hf.llama, dtypes=FLOAT16_TOO),
    _text_case("mistral", hf.mistral),
    _text_case("gemma2", hf.gemma2),
    ModelCase(
        "t5",
        hf.t5,
        lambda: t5_inputs(2, 8, 6),
        lambda: t5_inputs(3, 13, 9),
        {**TEXT, "decoder_input_ids": {0: "batch", 1: "target"}},
    ),
    ModelCase("whisper_encoder", hf.whisper_encoder, lambda: whisper_inputs(2), lambda: whisper_inputs(3), BATCH),
    ModelCase(
        "clip",
        hf.clip,
        lambda: clip_inputs(4, 8, 2),
        lambda: clip_inputs(5, 13, 3),
        {
            "input_ids": {0: "texts", 1: "sequence"},
            "attention_mask": {0: "texts", 1: "sequence"},
            "pixel_values": {0: "images"},
        },
    ),
    ModelCase(
        "vit_transformers",
        hf.vit,
        lambda: Inputs(kwargs={"pixel_values": images(2, 32).args[0]}),
        lambda: Inputs(kwargs={"pixel_values": images(3, 32).args[0]}),
        {"pixel_values": {0: "batch"}},
    ),
]
