"""Models of transformers that branch or loop on values export with dynamic dims; the replacements compute the same."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import Tensor, nn
from transformers import LongcatFlashConfig, OpenAIPrivacyFilterConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.encodec.modeling_encodec import EncodecConfig, EncodecConv1d
from transformers.models.fastspeech2_conformer import modeling_fastspeech2_conformer as fastspeech2
from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashExperts
from transformers.models.mobilenet_v1 import modeling_mobilenet_v1 as mobilenet_v1
from transformers.models.mobilenet_v2 import modeling_mobilenet_v2 as mobilenet_v2
from transformers.models.openai_privacy_filter.modeling_openai_privacy_filter import OpenAIPrivacyFilterExperts

import fx_onnx
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.libraries.transformers import PATCHES
from tests.compare import assert_close
from tests.models.families import FAMILIES


def test_export_at_two_sizes() -> None:
    family = next(family for family in FAMILIES if family.name == "ovis2")
    module = family.build()
    examples = family.examples(module)
    shapes = family.dynamic_shapes(examples[0])
    program = fx_onnx.export(module, (), kwargs=copy.deepcopy(examples[0]), dynamic_shapes=shapes)
    for inputs in examples:
        with torch.no_grad():
            assert_close(program.call_structured(**copy.deepcopy(inputs)), module(**copy.deepcopy(inputs)))


class Experts(nn.Module):
    """Calls experts with a router's choice of two for each token."""

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.experts = experts
        for parameter in experts.parameters():
            nn.init.normal_(parameter)

    def forward(self, tokens: Tensor, scores: Tensor) -> Tensor:
        """(tokens, 8) and (tokens, experts) to (tokens, 8)."""
        weights, chosen = scores.topk(2)
        return self.experts(tokens, chosen, weights)


LONGCAT = LongcatFlashConfig(hidden_size=8, expert_ffn_hidden_size=4, n_routed_experts=3, zero_expert_num=2)
PRIVACY = OpenAIPrivacyFilterConfig(hidden_size=8, intermediate_size=4, num_local_experts=5)


@pytest.mark.parametrize("experts", [LongcatFlashExperts(LONGCAT), OpenAIPrivacyFilterExperts(PRIVACY)])
def test_experts(experts: nn.Module) -> None:
    PRIVACY._experts_implementation = "eager"
    module, rows = Experts(experts).eval(), {0: "tokens"}
    example = torch.randn(4, 8), torch.rand(4, 5)
    program = fx_onnx.export(module, example, dynamic_shapes=(rows, rows))
    for tokens in (4, 1, 9):
        given = torch.randn(tokens, 8), torch.rand(tokens, 5)
        with torch.no_grad():
            assert_close(program(*given), module(*given))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "mode"), [(7, 1, 1, "reflect"), (8, 4, 1, "constant"), (3, 2, 2, "reflect")]
)
def test_padding_of_encodec(causal: bool, kernel: int, stride: int, dilation: int, mode: str) -> None:
    config = EncodecConfig(use_causal_conv=causal, pad_mode=mode)
    convolution = EncodecConv1d(config, 1, 2, kernel, stride, dilation).eval()
    for length in (2, 3, 5, 8, 21):
        x = torch.randn(2, 1, length)
        with torch.no_grad():
            want = convolution(x)
            with apply_patches(PATCHES):
                assert_close(convolution(x), want, tolerance=0)


@pytest.mark.parametrize("durations", [[[1, 0, 3], [2, 2, 1]], [[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0]]])
@pytest.mark.parametrize("speed", [1.0, 0.5, 2.0])
def test_durations_of_fastspeech2(durations: list[list[int]], speed: float) -> None:
    x, given, patched = torch.randn(2, 3, 4), torch.tensor(durations), torch.tensor(durations)
    want = fastspeech2.length_regulator(x, given, speed)
    with apply_patches(PATCHES):
        assert_close(fastspeech2.length_regulator(x, patched, speed), want, tolerance=0)
    assert torch.equal(given, patched)  # durations that are all 0 become 1 in place


def test_positions_of_fastspeech2() -> None:
    config = fastspeech2.FastSpeech2ConformerConfig(hidden_size=8, encoder_num_attention_heads=2)
    encoding = fastspeech2.FastSpeech2ConformerRelPositionalEncoding(config, config.encoder_config).eval()
    for length in (1, 2, 9):
        x = torch.randn(2, length, 8)
        want = encoding(x)
        with apply_patches(PATCHES):
            assert_close(encoding(x), want)


def test_relative_positions_of_fastspeech2() -> None:
    config = fastspeech2.FastSpeech2ConformerConfig(hidden_size=8, encoder_num_attention_heads=2)
    attention = fastspeech2.FastSpeech2ConformerAttention(config, config.encoder_config)
    scores = torch.randn(2, 2, 4, 7)
    want = attention.shift_relative_position_tensor(scores)
    with apply_patches(PATCHES):
        assert_close(attention.shift_relative_position_tensor(scores), want, tolerance=0)


@pytest.mark.parametrize(("stride", "kernel", "dilation"), [(1, 3, 2), (2, 3, 1), (2, 1, 1), (3, 5, 1), (3, 2, 1)])
def test_padding_of_mobilenet(stride: int, kernel: int, dilation: int) -> None:
    """Both versions pad as before, for sizes with each remainder; the first one has no dilation."""
    convolution = nn.Conv2d(1, 1, kernel, stride, dilation=dilation)
    for module in (mobilenet_v1, mobilenet_v2)[dilation > 1 :]:
        images = [torch.randn(1, 1, height, 10) for height in range(5, 9)]
        want = [module.apply_tf_padding(image, convolution) for image in images]
        with apply_patches(PATCHES):
            for image, padded in zip(images, want, strict=True):
                assert_close(module.apply_tf_padding(image, convolution), padded, tolerance=0)


def test_a_mobilenet_takes_images_of_all_sizes() -> None:
    config = mobilenet_v2.MobileNetV2Config(depth_multiplier=0.2)
    layer = mobilenet_v2.MobileNetV2Stem(config, 3, 8, 4).eval()
    program = fx_onnx.export(layer, torch.randn(2, 3, 9, 8), dynamic_shapes=({2: "height", 3: "width"},))
    for size in ((9, 8), (6, 11)):
        image = torch.randn(2, 3, *size)
        with torch.no_grad():
            assert_close(program(image)[0], layer(image))


def test_a_version_without_a_method_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(fastspeech2, "length_regulator")
    attention = fastspeech2.FastSpeech2ConformerAttention
    before = attention.shift_relative_position_tensor
    with apply_patches(PATCHES):
        assert attention.shift_relative_position_tensor is not before
        assert not hasattr(fastspeech2, "length_regulator")
    (record,) = [each for each in caplog.records if each.name == "fx_onnx.patches"]
    assert record.getMessage().startswith(f"{fastspeech2.__name__}:length_regulator does not exist")
    monkeypatch.delitem(sys.modules, fastspeech2.__name__)
    with apply_patches(PATCHES):
        assert attention.shift_relative_position_tensor is before


class _Masked(nn.Module):
    """Adds the mask that transformers makes for no padding of the states of an encoder."""

    def forward(self, states: Tensor) -> Tensor:
        """(batch, source, size) to the same."""
        mask = create_bidirectional_mask(PRIVACY, states[:, :1], None, states)
        return states if mask is None else states + mask


def test_no_mask_of_padding_is_no_mask() -> None:
    """As in eager PyTorch, because the keys may be more than the states, from which a model makes a mask."""
    program = fx_onnx.export(_Masked(), (torch.randn(2, 3, 4),), dynamic_shapes=({1: "source"},))
    assert [node.op_type for node in program.model_proto.graph.node] == ["Identity"]
