"""Each cause of a difference is told from the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import while_loop

import fx_onnx
from fx_onnx.messages.progress import progress_to
from fx_onnx.verification.reference_runs import onnx_runner
from tests.verification.sample_models import WRONG, Encoder, X, export

aten = torch.ops.aten


def failure(module: nn.Module, *args: Tensor, **options: Any) -> str:
    """Returns the message of an export with verify=True."""
    with pytest.raises(fx_onnx.VerificationError) as error:
        export(module, *args, verify=True, **options)
    return str(error.value)


@pytest.mark.parametrize("options", [{}, {"optimize": False}, {"opset_version": 18}, {"opset_version": 15}])
def test_a_wrong_translation_in_a_middle_layer(options: dict[str, Any]) -> None:
    message = failure(Encoder(), X, wrong=True, **options)
    assert "First differs at enc.1 (GELU) = aten.gelu, translated by wrong_gelu (" in message
    assert "; your line: x = self.enc(x), " in message


def test_in_a_module_that_is_called_twice() -> None:
    """The first call is right, because its values are large, for which the wrong function agrees."""

    class Twice(Encoder):
        def forward(self, x: Tensor) -> Tensor:
            return self.enc[1](self.enc[1](x + 50) - 50)

    assert "First differs at enc.1 (GELU, call 2) = aten.gelu" in failure(Twice(), X.abs(), wrong=True)


def test_in_the_body_of_a_condition() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > -1e9, lambda a: nn.functional.gelu(a) + 1, lambda a: a.sin(), (x.exp(),)) * 2

    message = failure(Branch(), X, wrong=True)
    assert "First differs at the model (Branch) = cond, translated by wrong_gelu (" in message
    assert ") of aten.gelu" in message


@pytest.mark.parametrize("options", [{}, {"dynamic_shapes": ({0: "batch"},)}])
def test_in_the_body_of_a_loop(options: dict[str, Any]) -> None:
    class Repeated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            def body(n: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
                return n + 1, nn.functional.gelu(y)

            return while_loop(lambda n, _: n < 3, body, (torch.zeros((), dtype=torch.int64), x.exp()))[1] * 2

    message = failure(Repeated(), X, wrong=True, **options)
    assert "First differs at the model (Repeated) = while_loop, translated by wrong_gelu (" in message
    assert ") of aten.gelu" in message
    assert "; your line: while_loop(lambda n, _: n < 3, body, " in message
    assert "test_diagnosis.py:" in message.partition("; your line: ")[2]


def test_the_search_reports_its_progress() -> None:
    program, steps = export(Encoder(), X, wrong=True), list[tuple[int, int]]()
    with progress_to(lambda done, total: steps.append((done, total))):
        assert program.verify().cause is not None
    total = steps[-1][1]
    assert total > 3 and [done for done, of in steps if of == total] == list(range(total))


def test_at_another_size_only() -> None:
    def wrong_sum(op: Any, self: Any, *, dtype: Any = None) -> Any:
        """Returns the sum of the first three rows."""
        return op.ReduceSum(op.Slice(self, op.constant([0]), op.constant([3]), op.constant([0])), keepdims=False)

    class Sum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp().sum()

    message = failure(Sum(), X, custom_translation_table={aten.sum.default: wrong_sum})
    assert "in 'sum_1' at batch=4: the largest difference is" in message
    assert "First differs at the model (Sum) = aten.sum, translated by wrong_sum (" in message
    assert " at batch=4: max " in message


def test_in_a_local_function() -> None:
    message = failure(Encoder(2), X, wrong=True, export_modules_as_functions=True)
    assert "First differs at enc" in message and "wrong_gelu (" in message


def test_a_capture_that_differs_from_the_module() -> None:
    class Changes(Encoder):
        def forward(self, x: Tensor) -> Tensor:
            self.enc[1].approximate = "tanh" if torch.compiler.is_exporting() else "none"
            return self.head(self.enc(x * 3))

    message = failure(Changes(), X)
    assert "The program that torch.export captured differs from the module: 'linear_2': " in message
    assert "the translation to ONNX is not the cause; it begins in enc.1 (GELU): max " in message


def test_arguments_that_share_memory() -> None:
    """The captured program without writes agrees with the ONNX model in float64, but not with the module."""

    class Writes(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x.add_(1)
            return x + y

    x = torch.ones(3)
    result = export(Writes(), torch.ones(3), torch.ones(3), dynamic_shapes=None).verify(x, x)
    assert result.cause is not None and result.cause.kind == "functionalization"
    assert "arguments that share memory" in str(result)


def test_random_numbers() -> None:
    message = failure(nn.Sequential(nn.Linear(8, 8), nn.Dropout()), X, training=fx_onnx.TrainingMode.TRAINING)
    assert "The module returns other values when it runs again" in message


@pytest.mark.parametrize("select", [lambda x: x.topk(5), lambda x: x.topk(3, dim=0), lambda x: x.kthvalue(30)])
def test_equal_elements(select: Any) -> None:
    """The program selects the first of them, PyTorch another one."""

    class Selects(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            index = select((x > 0.5).float())[1]
            return x.flatten()[index] * 3

    x = torch.rand(40, 40)
    result = export(Selects(), x).verify(x)
    assert result.cause is not None and result.cause.kind == "ties"
    assert "select other ones of equal elements at " in str(result)
    assert not result.ok


@torch.library.custom_op("fx_onnx_tests::shifted", mutates_args=())
def shifted(x: Tensor) -> Tensor:
    """Returns x, of which the sum with a large number loses digits unless it is float64."""
    return (x + 65536) - 65536


@shifted.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def scaled_by(factor: float) -> Any:
    def translation(op: Any, x: Any) -> Any:
        return op.Mul(x, op.constant(factor, dtype=x.dtype))

    return {torch.ops.fx_onnx_tests.shifted.default: translation}


class Shifts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return shifted(x * 3) + 1


SMALL = X * 1e-2


def test_a_value_that_eager_computes_badly() -> None:
    """PyTorch's float32 is wrong by up to 1/256; the ONNX model is exact."""
    result = export(Shifts(), SMALL, custom_translation_table=scaled_by(1.0)).verify(SMALL)
    assert [output.verdict for output in result.outputs] == ["inaccurate in eager"]
    assert result.ok and result.cause is None
    assert "'add' is inaccurate in eager: the ONNX result is nearer to float64 than PyTorch's own: " in str(result)


@pytest.mark.parametrize("factor", [1.01, 0.5])
def test_a_wrong_result_is_not_hidden_by_the_inaccuracy_of_eager(factor: float) -> None:
    """With the factor 1.01, the ONNX value is nearer to float64 than PyTorch's, but wrong."""
    result = export(Shifts(), SMALL, custom_translation_table=scaled_by(factor)).verify(SMALL)
    assert not result.ok and result.cause is not None and result.cause.kind == "translation"
    assert "= fx_onnx_tests.shifted, translated by translation (" in str(result)
    assert "; in float64, the error of PyTorch is 0.00" in str(result)


def test_a_wrong_part_beside_an_inaccurate_one() -> None:
    class Both(Shifts):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.gelu(super().forward(x))

    result = export(Both(), SMALL, custom_translation_table={**scaled_by(1.0), **WRONG}).verify(SMALL)
    assert not result.ok and "= aten.gelu, translated by wrong_gelu (" in str(result)


def test_an_ill_conditioned_result() -> None:
    """The last digit of a sum decides the sine; each part agrees, and both sides have an error of about 1."""

    class IllConditioned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x.sum(1) * 1e6)

    def summed(op: Any, self: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
        total = op.ReduceSum(op.Cast(self, to=11), op.constant(list(dim)), keepdims=keepdim)
        return op.Cast(total, to=1)

    x = torch.rand(64, 513, generator=torch.Generator().manual_seed(0))
    table = {aten.sum.dim_IntList: summed}
    result = export(IllConditioned(), x, custom_translation_table=table).verify(x)
    assert result.outputs[0].max_abs > 0.1
    assert result.ok and result.outputs[0].verdict == "inaccurate in eager"


def test_the_optimizer_of_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with optimizations returns a wrong output; the parts and the session without them are right."""
    program = export(Encoder(), X)
    session_run = type(program).__call__
    monkeypatch.setattr(type(program), "__call__", lambda self, *args: tuple(x + 1 for x in session_run(self, *args)))
    result = program.verify(X)
    assert result.cause is not None and result.cause.kind == "runtime"
    assert onnx_runner(program, None, optimized=False)(X)[0].shape == (3, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    def relu_for_gelu(op: Any, self: Any, *, approximate: str = "none") -> Any:
        return op.Relu(self)

    x, table = X.to(dtype), {aten.gelu.default: relu_for_gelu}
    assert export(Encoder().to(dtype), x).verify(x).ok
    result = export(Encoder().to(dtype), x, custom_translation_table=table).verify(x, rtol=0.02)
    assert not result.ok and result.cause is not None and result.cause.module == "enc.1"
