"""Models with the fake quantizers of torch's eager quantization."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao import quantization
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver, QConfig

import fx_onnx
from fx_onnx.messages.errors import CaptureError
from tests.compare import assert_close

PLAIN = QConfig(
    activation=FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255),
    weight=quantization.default_per_channel_weight_fake_quant,
)


class Net(nn.Module):
    """A convolution, a FloatFunctional sum and a linear layer between quantization stubs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.relu, self.fc = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Linear(8, 4)
        self.residual = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv(self.quant(x)))
        x = self.residual.add_relu(x, x.flip(3)).mean((2, 3))
        return self.dequant(self.fc(x))


def trained(qconfig: Any) -> nn.Module:
    """Returns a network after short quantization-aware training, with its observers disabled."""
    torch.manual_seed(0)
    net = Net().train()
    net.qconfig = qconfig
    quantization.prepare_qat(net, inplace=True)
    for _ in range(3):
        net(torch.randn(4, 3, 8, 8))
    return net.apply(quantization.disable_observer).eval()


@pytest.mark.parametrize("qconfig", [PLAIN, quantization.get_default_qat_qconfig("x86")], ids=["plain", "fused"])
def test_quantization_aware_training(qconfig: Any) -> None:
    """Each fake quantizer is a pair of QuantizeLinear and DequantizeLinear; the module is not changed."""
    net = trained(qconfig)
    torch.manual_seed(1)  # inputs for which a rounding error does not change the nearest integer
    x, other = torch.randn(2, 3, 8, 8), torch.randn(3, 3, 8, 8)
    program = fx_onnx.export(net, (x,), dynamic_shapes=({0: "batch"},))
    for example in (x, other):
        assert_close(program(example), net(example), None)
    found = Counter(node.op_type for node in program.model.graph)
    assert found["QuantizeLinear"] == found["DequantizeLinear"] == 6
    assert not any("forward" in vars(module) for module in net.modules())


def test_stubs_of_a_network_that_is_not_prepared_do_nothing() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    assert_close(fx_onnx.export(net, (x,))(x), net(x))


def test_a_disabled_fake_quantizer_returns_its_input() -> None:
    net, x = trained(PLAIN).apply(quantization.disable_fake_quant), torch.randn(2, 3, 8, 8)
    program = fx_onnx.export(net, (x,))
    assert_close(program(x), net(x), None)
    assert not any("Linear" in node.op_type for node in program.model.graph)


def test_a_fake_quantizer_that_observes_raises() -> None:
    net = trained(PLAIN).apply(quantization.enable_observer)
    with pytest.raises(CaptureError, match=r"call model\.apply\(torch\.ao\.quantization\.disable_observer\) before"):
        fx_onnx.export(net, (torch.randn(2, 3, 8, 8),))


@pytest.mark.parametrize("package", ["torch.ao.quantization", "torchao.quantization.pt2e"])
@pytest.mark.parametrize("name", ["MinMaxObserver", "HistogramObserver", "PerChannelMinMaxObserver"])
def test_a_model_that_is_prepared_and_not_converted_raises(package: str, name: str) -> None:
    net = nn.Sequential(nn.ReLU(), getattr(pytest.importorskip(package), name)())
    with pytest.raises(CaptureError, match=rf"not converted: '1' is a {name}, .*call torch.*convert.* before") as error:
        fx_onnx.export(net.eval(), (torch.randn(2, 3),))
    assert error.value.id == "FX1113"


@pytest.mark.parametrize("name", ["FakeQuantize", "FusedMovingAvgObsFakeQuantize", "FixedQParamsFakeQuantize"])
def test_a_fake_quantizer_of_torchao(name: str) -> None:
    """One whose scale is fixed has an observer that changes nothing."""
    pt2e = pytest.importorskip("torchao.quantization.pt2e")
    fixed = pt2e.FixedQParamsObserver.with_args(scale=0.1, zero_point=3)
    quantizer = getattr(pt2e, name)(fixed if name.startswith("Fixed") else pt2e.MovingAverageMinMaxObserver)
    x = torch.arange(-4.0, 4.0)
    quantizer(x)
    if not name.startswith("Fixed"):
        with pytest.raises(CaptureError, match=r"call model\.apply\(torchao\.quantization\.pt2e\.disable_observer\)"):
            fx_onnx.export(quantizer.eval(), (x,))
        quantizer.apply(pt2e.disable_observer)
    program = fx_onnx.export(quantizer.eval(), (x,))
    assert_close(program(x), quantizer(x), None)
    assert [node.op_type for node in program.model.graph] == ["QuantizeLinear", "DequantizeLinear"]


def test_converted_modules_raise() -> None:
    net = quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)).eval(), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(CaptureError, match=r"The module '0' is a torch\.ao\.nn\.quantized.*quantize with PT2E"):
        fx_onnx.export(net, (torch.randn(2, 8),))
