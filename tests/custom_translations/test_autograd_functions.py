"""An autograd.Function with its own translation is captured as one operator, but only while a model is traced."""

from __future__ import annotations

import functools
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.utils.checkpoint import checkpoint

import fx_onnx
from fx_onnx.custom_translations import autograd_functions
from fx_onnx.translation.emitter import Emitter
from tests.compare import assert_close
from tests.torch_versions import needs

X = torch.randn(2, 3)


class Scale(Function):
    """The older form of torch.onnx: a forward, and a ``symbolic`` method that creates ONNX nodes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None

    @staticmethod
    def symbolic(g: Any, x: Any, factor: float) -> Any:
        return g.op("Mul", x, torch.tensor(float(factor)))


class Plain(Function):
    """Has no ``symbolic`` method."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_non_differentiable(x)
        return x.relu() + 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient


class Net(nn.Module):
    """Calls a function on the output of a linear layer."""

    def __init__(self, function: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.function, self.args, self.kwargs = function, args, kwargs

    def forward(self, x: Tensor) -> Any:
        return self.function.apply(self.layer(x), *self.args, **self.kwargs)


def _exported(module: nn.Module, *args: Any, **options: Any) -> fx_onnx.ONNXProgram:
    return fx_onnx.export(module.eval(), args or (X,), **options)


def _operators(program: fx_onnx.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


def test_a_function_with_symbolic_is_one_operator() -> None:
    module = Net(Scale, 2.5)
    program = _exported(module, dynamic_shapes=({0: "n"},), verify=True)
    assert _operators(program) == ["Gemm", "Mul"]
    larger = torch.randn(5, 3)
    assert_close(program(larger), module(larger))
    names = [str(n.target) for n in program.exported_program.graph.nodes if n.op == "call_function"]
    assert "autograd_function.Scale.default" in names


class WithTorchScriptSymbolic(Function):
    """Has a ``symbolic`` method that calls translations of torch.onnx's TorchScript exporter, as in transformers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.softmax(-1)

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        from torch.onnx.symbolic_opset9 import softmax

        return softmax(g, x, -1)


def test_symbolic_that_calls_the_torchscript_exporter_is_ignored() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return WithTorchScriptSymbolic.apply(x)  # type: ignore[no-any-return]

    program = fx_onnx.export(Net().eval(), (X,), verbose=False)
    assert [node.op_type for node in program.model.graph] == ["Softmax"]
    assert_close(program(X), X.softmax(-1))


def test_a_function_without_symbolic_is_traced_through() -> None:
    module = Net(Plain)
    program = _exported(module)
    assert _operators(program) == ["Gemm", "Relu", "Add"]
    assert_close(program(X), module(X))


@pytest.mark.parametrize("function", [Plain, Scale])
def test_the_custom_translation_table_takes_precedence(function: Any) -> None:
    def translation(op: Emitter, x: Any, *rest: Any) -> Any:
        return op.Neg(x)

    module = Net(function, *([2.0] if function is Scale else []))
    program = _exported(module, custom_translation_table={function: translation})
    assert _operators(program) == ["Gemm", "Neg"]


def test_a_translation_with_wrong_parameters_raises_before_the_capture() -> None:
    with pytest.raises(
        fx_onnx.ArgumentError, match=r"of Scale cannot take the arguments of apply: too many positional"
    ):
        _exported(Net(Scale, 2.0), custom_translation_table={Scale: lambda op, x: x})


class Everything(Function):
    """Takes arguments of every type and returns a nested structure."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, n: int, ratio: float, flag: bool, mode: str, missing: Any, dtype: Any, sizes: Any, xs: Any
    ) -> Any:
        return {"sum": (x + xs[0]) * n, "same": x, "mode": mode}, (x * ratio).to(dtype), None

    @staticmethod
    def symbolic(g: Any, *args: Any) -> Any:
        x, n, ratio, flag, mode, missing, dtype, sizes, xs = args
        assert (n, ratio, flag, mode, missing, dtype, sizes) == (3, 0.5, True, "up", None, torch.float64, [1, 2])
        total = g.op("Mul", g.op("Add", x, xs[0]), float(n))
        half = g.op("Cast", g.op("Mul", x, torch.tensor(ratio)), to_i=11)
        return total, g.op("Identity", x), half


def test_arguments_and_results_of_every_type() -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> Any:
            arguments = (3, 0.5, True, "up", None, torch.float64, (1, 2), [x, None])
            named, half, nothing = Everything.apply(x, *arguments)
            assert (named["mode"], nothing) == ("up", None)
            return named["sum"], named["same"] + 1, half

    program = _exported(Module(), verify=True)
    assert_close(program(X), Module()(X))


class WithSetupContext(Function):
    """The newer form: ``setup_context``, and a forward without ``ctx``."""

    @staticmethod
    def forward(x: Tensor, factor: float = 2.0) -> tuple[Tensor, Tensor]:
        return x * factor, x + factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def symbolic(g: Any, x: Any, factor: float) -> Any:
        return g.op("Mul", x, torch.tensor(factor)), g.op("Add", x, torch.tensor(factor))


KEYWORDS = needs("keywords of apply")


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((3.0,), {}), pytest.param((), {"factor": 4.0}, marks=KEYWORDS)]
)
def test_a_function_with_setup_context(args: Any, kwargs: Any) -> None:
    module = Net(WithSetupContext, *args, **kwargs)
    assert_close(_exported(module)(X), tuple(module(X)))


@pytest.mark.parametrize(("write", "count"), [(torch.Tensor.add_, 1), (torch.Tensor.add, 0)])
def test_a_write_to_a_result_that_is_an_argument_is_a_finding(write: Any, count: int) -> None:
    class Same(Scale):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
            return x[:]

    def forward(x: Tensor, same: Any = Same.apply) -> Any:
        return write(same(x, 1.0)[0], 1), x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _exported(Calls(forward))
    assert len([each for each in caught if "writes to a result of" in str(each.message)]) == count


def test_calls_with_different_argument_types_are_different_operators() -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Scale.apply(x, 2.0) + Scale.apply(x, 3)

    assert_close(_exported(Module())(X), X * 5)


class Half(Function):
    """Has a ``symbolic`` whose node tells it from its forward, and aliases."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x / 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient if len(ctx.saved_tensors) == 0 else gradient / 2

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Mul", x, torch.tensor(0.5))


class Quarter(Half):
    """Calls the forward of its base, and an alias in its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return half(Half.forward(ctx, x))

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Mul", x, torch.tensor(0.25))


class HalfOfBase(Half):
    """Inherits the forward and ``symbolic``."""


class NamedOnly(Half):
    """Inherits the forward, and has no ``symbolic``."""

    symbolic: Any = None


class OfHalf(Function):
    """Is traced through, and calls an alias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return half(x).relu()


scale, half, triple = Scale.apply, Half.apply, WithSetupContext.apply
half_of_base, named_only, of_half = HalfOfBase.apply, NamedOnly.apply, OfHalf.apply


def _closure() -> Any:
    function = Half.apply
    return lambda x: function(x)


class Holder:
    """Has an alias as a static method."""

    call = staticmethod(Half.apply)


def _as_default(x: Tensor, function: Any = Half.apply) -> Any:
    return function(x)


def _defined_in_forward(x: Tensor) -> Any:
    class Local(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x / 2

        @staticmethod
        def symbolic(g: Any, x: Any) -> Any:
            return g.op("Mul", x, torch.tensor(0.5))

    local = Local.apply
    return local(x)


def _subclass_in_forward(x: Tensor) -> Any:
    return type("Local", (Half,), {"symbolic": staticmethod(lambda g, x: g.op("Mul", x, torch.tensor(0.5)))}).apply(x)


ALIASES: dict[str, tuple[Any, list[str]]] = {
    "module": (lambda x: half(x), ["Mul"]), "closure": (_closure(), ["Mul"]), "static method": (Holder.call, ["Mul"]),
    "default": (_as_default, ["Mul"]), "list": (lambda x: [half][0](x), ["Mul"]),
    "keyword": (lambda x: scale(x, factor=0.5), ["Mul"]),
    "partial": (functools.partial(triple, factor=0.5), ["Mul", "Add"]), "setup_context": (triple, ["Mul", "Add"]),
    "wraps": (functools.wraps(half)(lambda x: half(x)), ["Mul"]), "no_grad": (torch.no_grad()(half), ["Mul"]),
    "disabled": (torch.compiler.disable(half), ["Mul"]), "compiled": (torch.compile(half), ["Mul"]),
    "checkpoint": (lambda x: checkpoint(half, x, use_reentrant=False), ["Mul"]), "subclass": (half_of_base, ["Mul"]),
    "no symbolic": (named_only, ["Div"]), "nested": (of_half, ["Mul", "Relu"]), "base": (Quarter.apply, ["Mul"]),
    "class in forward": (_defined_in_forward, ["Mul"]), "subclass in forward": (_subclass_in_forward, ["Mul"]),
    "forward itself": (lambda x: Half.forward(FunctionCtx(), x), ["Div"]),
}  # fmt: skip


class Calls(nn.Module):
    """Calls a function on a weight times the input, so that the argument requires a gradient."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function((x - self.weight).relu())


@pytest.mark.parametrize("options", [{}, {"dynamic_shapes": ({0: "n"},)}, {"opset_version": 17}])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=KEYWORDS if name in ("keyword", "partial") else ()) for name in ALIASES]
)
def test_an_alias_of_apply_is_the_operator_too(name: str, options: Any) -> None:
    function, expected = ALIASES[name]
    module = Calls(function)
    program = _exported(module, **options)
    assert _operators(program) == ["Sub", "Relu", *expected]
    assert_close(program(X), module(X))


@pytest.mark.parametrize("alias", [half, Plain.apply])
def test_an_alias_is_whole_in_each_way(alias: Any) -> None:
    function = alias.__self__
    table = {function: lambda op, x: op.Neg(x)}
    assert _operators(_exported(Calls(alias), custom_translation_table=table)) == ["Sub", "Relu", "Neg"]
    if function is Plain:
        with pytest.raises(fx_onnx.UnsupportedOperatorError, match=r"autograd_function.Plain"):
            _exported(Calls(alias), autograd_inlining=False)


def test_a_gradient_of_an_operator_needs_setup_context() -> None:
    """The context of ``apply`` has nothing of what the forward saves, and a backward may accept that."""

    def gradient(function: Any, x: Tensor) -> Any:
        return torch.autograd.grad(function(x).sum(), x)[0]

    with pytest.raises(fx_onnx.CaptureError, match=r"Half is one ONNX operator, so its gradient cannot be calculated"):
        _exported(Calls(lambda x: gradient(half, x)))
    module = Calls(lambda x: gradient(Square.apply, x))
    assert_close(_exported(module)(X), module(X))


class Square(Function):
    """Its backward needs the input."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * 2 * ctx.saved_tensors[0]

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Pow", x, torch.tensor(2.0))


class Limited(Function):
    """Branches on the values of its arguments."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: Tensor) -> Tensor:
        if limit.min() < 0 or (limit.max() > 100 and x.min() < 0):
            raise ValueError("no limit")
        return x.minimum(limit)

    @staticmethod
    def symbolic(g: Any, x: Any, limit: Any) -> Any:
        return g.op("Min", x, limit)


class Compressed(Limited):
    """The values decide about the size of its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: Tensor) -> Tensor:
        return x[:1] if limit.min() > 0 else x


@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
def test_a_forward_that_branches_on_values(shapes: Any) -> None:
    module = Calls(lambda x: Limited.apply(x, torch.tensor([0.5, 0.1, 2.0])))
    program = _exported(module, dynamic_shapes=shapes)
    larger = torch.randn(2 if shapes is None else 5, 3)
    assert _operators(program)[-1] == "Min"
    assert_close(program(larger), module(larger))
    with pytest.raises(fx_onnx.CaptureError, match=r"limit.min\(\) > 0"):
        _exported(Calls(lambda x: Compressed.apply(x, x[0])), dynamic_shapes=shapes)


class Positive(Function):
    """Returns a result of data-dependent size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x[x > 0]

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        zero = torch.tensor(0.0)
        return g.op("Compress", x, g.op("Reshape", g.op("Greater", x, zero), torch.tensor([-1])))


def test_a_result_of_data_dependent_size() -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Positive.apply(x) * 2

    for x in (X, -X):
        assert_close(_exported(Module(), X)(x), Module()(x))


class InPlace(Scale):
    """Writes to its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(factor)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Net(InPlace, 2.0), r"InPlace writes to its arguments, so it cannot be one ONNX operator"),
        (Net(Scale, object()), r"Scale.apply got <object.*which cannot be an argument of an operator"),
    ],
)
def test_functions_that_cannot_be_one_operator_raise(module: nn.Module, message: str) -> None:
    with pytest.raises(fx_onnx.CaptureError, match=message):
        _exported(module)


@needs("exceptions in branches")
def test_functions_raise_where_torch_traces_bytecode() -> None:
    """Inside torch.cond and in strict mode, torch would trace through the function unnoticed."""

    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: Scale.apply(x, 2.0), lambda x: x + 1, (x,))

    with pytest.raises(
        fx_onnx.CaptureError, match=r"Scale cannot be one ONNX operator.*test_autograd_functions.py.*torch.cond"
    ):
        _exported(Module())
    with autograd_functions.trace_as_operators(), pytest.raises(Exception, match=r"Scale cannot be one ONNX operator"):
        torch.export.export(Net(Scale, 2.0), (X,), strict=True)


def test_the_classes_are_unchanged_after_an_export() -> None:
    before = dict(vars(Function)), dict(vars(Scale)), dict(vars(InPlace))
    _exported(Net(Scale, 2.0))
    with pytest.raises(fx_onnx.CaptureError):
        _exported(Net(InPlace, 2.0))
    assert (dict(vars(Function)), dict(vars(Scale)), dict(vars(InPlace))) == before
    assert Scale.apply(X, 2.0).grad_fn is None
    assert Scale.apply(X.clone().requires_grad_(), 2.0).grad_fn.name() == "ScaleBackward"


def test_other_threads_are_not_affected() -> None:
    with autograd_functions.trace_as_operators(), ThreadPoolExecutor() as threads:
        x = X.clone().requires_grad_()
        result = threads.submit(lambda: Scale.apply(x, 2.0)).result()
    assert result.grad_fn.name() == "ScaleBackward"


class OfClass(Function):
    """Has a class method as its forward."""

    @classmethod
    def forward(cls, ctx: Any, x: Tensor, factor: float, bias: float = 1.0) -> Tensor:  # type: ignore[override]
        return x * factor + bias


@KEYWORDS
def test_a_replaced_forward_takes_what_the_original_takes() -> None:
    """In each thread, also by keywords."""
    calls: list[Any] = [
        lambda: scale(X, factor=2.0), lambda: Scale.forward(FunctionCtx(), factor=3.0, x=X),
        lambda: OfClass.apply(X, 5.0), lambda: OfClass.forward(FunctionCtx(), X, bias=2.0, factor=6.0),
        lambda: triple(X, factor=4.0),
    ]  # fmt: skip
    expected = [call() for call in calls]
    with autograd_functions.trace_as_operators(every=True), ThreadPoolExecutor() as threads:
        assert_close([call() for call in calls], expected)
        assert_close([threads.submit(call).result() for call in calls], expected)
