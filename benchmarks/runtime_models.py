"""The models of benchmarks/runtimes.py: small networks of all kinds, each with inputs of two sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.models import quantized_networks as quantized
from tests.models.families import FAMILIES, Family
from tests.models.registry import BATCH, CASES, Inputs, ModelCase
from tests.models.small_networks import SMALL_NETWORKS
from tests.models.vision import VISION, VisionModel

TOLERANCE, TOLERANCE_OF_ROUNDED, TOLERANCE_OF_INT8 = 2e-3, 1e-2, 0.3
_FAMILIES = {
    "encoders of text": "deberta-v2 modernbert xlnet",
    "decoders": "mixtral qwen3 gpt2_cache",
    "encoders and decoders": "bart",
    "audio": "wav2vec2 whisper",
    "images": "beit segformer swin2sr videomae detr mobilevit",
    "images and text": "siglip",
    "series": "patchtst",
}
_VISION = {
    "classification": "shufflenet_v2_x0_5 squeezenet1_1",
    "segmentation": "lraspp_mobilenet_v3_large",
    "detection": "ssdlite320_mobilenet_v3_large",
}


@dataclass(frozen=True)
class Model:
    """A network.

    Attributes:
        name: its name in the table.
        build: returns the module, the same at every call.
        examples: the arguments of two calls; the export gets the first.
        dynamic_shapes: the dynamic dims, in the form of torch.export.
        tolerance: the largest difference of a right result, as a share of the largest number of the output. It is
            larger for float16 and integers, where rounding alone changes a result by more than 2e-3.
    """

    name: str
    build: Callable[[], nn.Module]
    examples: Callable[[nn.Module], tuple[Inputs, Inputs]]
    dynamic_shapes: Callable[[Inputs], Any]
    tolerance: float = TOLERANCE


def _of_case(case: ModelCase, dtype: torch.dtype = torch.float32) -> Model:
    return Model(
        case.name if dtype == torch.float32 else f"{case.name}_float16",
        lambda: case.build(dtype),
        lambda module: (case.example().to(dtype), case.other().to(dtype)),
        lambda inputs: case.dynamic_shapes,
        TOLERANCE if dtype == torch.float32 else TOLERANCE_OF_ROUNDED,
    )


def _of_family(family: Family) -> Model:
    """Returns the model; the second size of one with a cache is a token after nineteen others."""

    def examples(module: nn.Module) -> tuple[Inputs, Inputs]:
        found = family.examples(module)
        return Inputs(kwargs=found[0]), Inputs(kwargs=found[-1])

    return Model(family.name, family.build, examples, lambda inputs: family.dynamic_shapes(inputs.kwargs))


def _of_vision(model: VisionModel) -> Model:
    def examples(module: nn.Module) -> tuple[Inputs, Inputs]:
        first, second = model.examples(module)
        return Inputs(kwargs=first), Inputs(kwargs=second)

    return Model(model.name, model.build, examples, lambda inputs: model.dynamic_shapes(inputs.kwargs))


def _quantized() -> Iterator[Model]:
    """Yields networks after PT2E and torchao's quantize_."""
    rows: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
        "pt2e_x86": (lambda: quantized.converted(quantized.ResidualBlock, quantized.images), quantized.images),
        "pt2e_x86_attention": (lambda: quantized.converted(quantized.Attention, quantized.tokens), quantized.tokens),
        "pt2e_xnnpack": (
            lambda: quantized.after_xnnpack(quantized.Mobile, quantized.images, is_per_channel=True),
            quantized.images,
        ),
        "int8_weights": (lambda: quantized.quantized("int8_weights"), quantized.rows),
        "int4_in_groups": (lambda: quantized.quantized("int4_in_groups"), quantized.rows),
        "int8_dynamic": (lambda: quantized.quantized("int8_dynamic"), quantized.rows),
    }
    for name, (build, inputs) in rows.items():
        yield Model(name, build, lambda _, make=inputs: _calls(make), lambda inputs: BATCH, TOLERANCE_OF_ROUNDED)


def _calls(inputs: Callable[[int], torch.Tensor]) -> tuple[Inputs, Inputs]:
    torch.manual_seed(1)
    return Inputs((inputs(2),)), Inputs((inputs(3),))


def _words(names: dict[str, str]) -> list[str]:
    return " ".join(names.values()).split()


MODELS = [
    *map(_of_case, CASES),
    *map(_of_case, SMALL_NETWORKS),
    *(_of_case(case, torch.float16) for case in CASES if case.name in ("resnet", "bert", "llama")),
    *_quantized(),
    *(_of_vision(each) for each in VISION if each.name in _words(_VISION)),
    *(_of_family(each) for each in FAMILIES if each.name in _words(_FAMILIES)),
]
"""All models, in the order of the tables of docs/runtimes.md."""
