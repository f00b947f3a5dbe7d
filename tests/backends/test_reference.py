"""The target reference: models run in onnx's reference evaluator."""

import onnx_ir as ir
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import fx_onnx
from fx_onnx.backends.reference import TARGET
from tests.capture.sample_modules import Function
from tests.compare import assert_close
from tests.exporting import exported, operators

X = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))


def test_no_casts_are_inserted() -> None:
    program = exported(lambda x: x.neg(), torch.ones(2, 3, dtype=torch.bfloat16), target="reference")
    assert operators(program) == ["Neg"]


def test_a_model_runs() -> None:
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    program = exported(lambda x: torch.softmax(x, -1).cumsum(0), x, target="reference")
    (found,) = ReferenceEvaluator(program.model_proto).run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), torch.softmax(x, -1).cumsum(0))


def test_products_along_another_axis_run() -> None:
    program = exported(lambda x: x.cumprod(1), X, target="reference")
    (found,) = ReferenceEvaluator(program.model_proto).run(None, {"x": X.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), X.cumprod(1))


def test_a_scan_of_another_axis_is_a_defect() -> None:
    assert TARGET.constraint is not None
    node = ir.node("Scan", [], {"scan_input_axes": [1], "num_scan_inputs": 1})
    assert "scans the first axis only" in TARGET.constraint(node)


class Lengths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 2, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (Lengths(), (X, torch.tensor([2, 4])), "ignores the lengths"),
        (nn.RNN(3, 2, nonlinearity="relu"), (X,), "no activation other than Tanh"),
        (Function(lambda x: functional.pad(x, (-1, 2))), (X,), "does not cut off elements"),
        (nn.ConvTranspose1d(4, 4, 2, groups=2), (X,), "computes one group only"),
    ],
)
def test_what_the_evaluator_computes_wrongly_is_refused(model: nn.Module, args: tuple[Tensor], message: str) -> None:
    with pytest.raises(fx_onnx.OnnxExporterError, match=message) as error:
        fx_onnx.export(model.eval(), args, target="reference")
    assert error.value.id == "FX1304"
    program = fx_onnx.export(model.eval(), args)
    assert message in str(program.supports("reference"))


@pytest.mark.parametrize(
    "model",
    [
        nn.RNN(3, 2),
        nn.LSTM(3, 2, bidirectional=True),
        Function(lambda x: functional.pad(x, (1, 2))),
        nn.ConvTranspose1d(4, 4, 2),
    ],
)
def test_what_it_computes_rightly_is_not(model: nn.Module) -> None:
    program = fx_onnx.export(model.eval(), (X,), target="reference")
    name = program.model_proto.graph.input[0].name
    found = ReferenceEvaluator(program.model_proto).run(None, {name: X.numpy()})[0]
    expected = model(X)
    assert_close([torch.from_numpy(found)], [expected[0] if isinstance(expected, tuple) else expected])
