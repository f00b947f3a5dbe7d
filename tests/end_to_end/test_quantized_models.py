"""Networks quantized by PT2E and torchao: from the quantizer to ONNX Runtime."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.applications.text_generation import _example_tokens
from tests.compare import assert_close
from tests.models.decoders import decoder
from tests.one_capture import OneCapture

pytest.importorskip("torchao", reason="torchao is in the extra 'test'")
from torchao import quantization as ao

from tests.models.quantized_networks import (
    CONFIGS,
    Attention,
    Mobile,
    ResidualBlock,
    after_xnnpack,
    converted,
    images,
    mlp,
    quantized,
    rows,
    tokens,
)
from tests.torch_versions import needs

BATCH = ({0: "batch"},)
CAPTURES: dict[nn.Module, OneCapture] = {}
residual_block = functools.cache(lambda: converted(ResidualBlock, images))
shared = functools.cache(quantized)


def exported(module: nn.Module, inputs: Callable[[int], Tensor], **options: Any) -> fx_onnx.ONNXProgram:
    """Exports the network and compares it with eager at two batch sizes. All exports of a module share one capture."""
    torch.manual_seed(1)
    examples = inputs(2), inputs(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a converted program has neither training nor eval mode
        if module not in CAPTURES:
            CAPTURES[module] = OneCapture(module, (examples[0],), dynamic_shapes=BATCH)
        program = CAPTURES[module].export(**options)
    for example in examples:
        with torch.no_grad():
            assert_close(program(example), module(example), None)
    return program


def operators(program: fx_onnx.ONNXProgram) -> Counter[str]:
    return Counter(node.op_type for node in program.model.graph)


def stored(program: fx_onnx.ONNXProgram) -> dict[str, str]:
    """Returns the dtypes of the matrices and kernels in the model, by name."""
    values = program.model.graph.initializers.values()
    return {str(v.name): v.dtype.name for v in values if v.shape is not None and v.dtype and len(v.shape) > 1}


@needs("PT2E of torchao")
@pytest.mark.parametrize("opset", [18, 20, 21, 23])
def test_pt2e(opset: int) -> None:
    """Tests that weights are UINT8 initializers, and that each layer reads its own DequantizeLinear."""
    program = exported(residual_block(), images, opset_version=opset)
    assert set(stored(program).values()) == {"UINT8"}
    assert operators(program) == {
        "QuantizeLinear": 3, "DequantizeLinear": 7, "Conv": 2, "Gemm": 1, "Relu": 2, "Add": 1,
        "GlobalAveragePool": 1, "Reshape": 1,
    }  # fmt: skip
    weights = [program.model.graph.initializers[name] for name in stored(program)]
    readers = [node.op_type for weight in weights for node in weight.consumers()]
    assert readers == ["DequantizeLinear"] * 3


@needs("PT2E of torchao")
def test_pt2e_attention() -> None:
    """Tests that the weight of a 3-D product is stored transposed, so that its scale is next to the product."""
    program = exported(converted(Attention, tokens), tokens)
    assert set(stored(program).values()) == {"UINT8"}
    products = [node for node in program.model.graph if node.op_type == "MatMul"]
    factors = [node.inputs[1].producer() for node in products if node.inputs[1] is not None]
    assert [node.op_type for node in factors if node is not None].count("DequantizeLinear") == 2


@needs("PT2E of torchao")
@pytest.mark.parametrize(("make", "inputs"), [(mlp, rows), (Attention, tokens)], ids=["mlp", "attention"])
def test_pt2e_dynamic(make: Callable[[], nn.Module], inputs: Callable[[int], Tensor]) -> None:
    """Tests scales of activations that are computed at run time."""
    program = exported(converted(make, inputs, is_dynamic=True), inputs)
    assert set(stored(program).values()) == {"UINT8"}
    assert operators(program)["QuantizeLinear"] == 2


@needs("PT2E of torchao")
def test_pt2e_after_training() -> None:
    program = exported(converted(ResidualBlock, images, is_qat=True), images)
    assert set(stored(program).values()) == {"UINT8"}
    assert operators(program)["QuantizeLinear"] == 4


@pytest.mark.parametrize("kind", ["is_per_channel", "is_qat", "is_dynamic"])
def test_pt2e_for_xnnpack(kind: str) -> None:
    """Tests operators that X86InductorQuantizer does not quantize: sums, products, cat, transposed convolutions."""
    program = exported(after_xnnpack(Mobile, images, **{kind: True}), images)
    count = Counter(stored(program).values())["UINT8"]
    assert (count, operators(program)["QuantizeLinear"]) == ((1, 1) if kind == "is_dynamic" else (3, 8))


@pytest.mark.parametrize("opset", [20, 21])
@pytest.mark.parametrize("config", CONFIGS)
def test_torchao(config: str, opset: int) -> None:
    """Tests the tensor subclasses of quantize_; integers and 8-bit floats keep their dtypes."""
    program = exported(shared(config), rows, opset_version=opset)
    old = "UINT8" if "int8_dynamic" in config else "INT8"  # quantized activations too
    four = {"INT4", "FLOAT"} if opset >= 21 else {old}  # a scale and a zero point for each block
    eight = {"INT8", "FLOAT"} if "in_groups" in config and opset >= 21 else {"INT8"}
    weights = {"FLOAT8E4M3FN"} if "float8" in config else four if "int4" in config or "int2" in config else eight
    assert set(stored(program).values()) == weights
    if "int8_dynamic" not in config or "int4" in config:
        assert operators(program)["DequantizeLinear"] >= 2
    else:
        assert operators(program)["MatMulInteger"] == 2


def test_two_bits() -> None:
    """Tests 2-bit integers, which exist from opset 25 on."""
    program = exported(shared("int2_in_groups"), rows, opset_version=25)
    assert set(stored(program).values()) == {"INT2", "FLOAT"}


def test_unwrapped_subclasses() -> None:
    """Tests torchao's own preparation for export, in which the inner tensors become parameters of a parametrization."""
    from torchao.utils import unwrap_tensor_subclass

    program = exported(unwrap_tensor_subclass(quantized("int4_asymmetric")), rows, opset_version=21)
    assert set(stored(program).values()) == {"INT4", "FLOAT"}


@pytest.mark.parametrize(("config", "dtype"), [("int8_weights", "INT8"), ("int4_asymmetric", "INT4")])
def test_a_decoder_with_a_cache(config: str, dtype: str) -> None:
    """Tests weights of 4 and 8 bits in a language model: of its large matrices, only the embedding stays in floats."""
    model = decoder("llama", layers=1, hidden_size=64, intermediate_size=128, head_dim=16)
    ao.quantize_(model, CONFIGS[config]())
    arguments = fx_onnx.text_generation_arguments(model, padding=False)
    program = fx_onnx.export(model, **arguments, opset_version=21)
    weights = [value.const_value for value in program.model.graph.initializers.values()]
    assert Counter(each.dtype.name for each in weights if each.size >= 64 * 64) == {dtype: 6, "FLOAT": 1}
    tokens = torch.tensor([[5, 6, 7]] * 2)
    found, *_ = program(input_ids=tokens, past_key_values=arguments["kwargs"]["past_key_values"])
    past = _example_tokens(model.config, 5, torch.device("cpu"))  # the tokens in the cache
    expected = model(input_ids=torch.cat([past, tokens], 1)).logits[:, 5:]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
