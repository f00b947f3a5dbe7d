"""The graph that ``symbolic`` writes to: nodes of any domain, attributes by suffix, types, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxscript
import pytest
import torch
from onnxscript import opset18
from torch import Tensor, nn
from torch.autograd import Function

import fx_onnx
from tests.compare import assert_close

X = torch.randn(2, 3)


@onnxscript.script(onnxscript.values.Opset("tests.symbolic", 1))
def doubled(x, factor: float = 2.0):  # type: ignore[no-untyped-def]
    return opset18.Mul(x, opset18.Constant(value_float=factor))


def _module(symbolic: Callable[..., Any], forward: Callable[..., Any] = torch.relu) -> nn.Module:
    """Returns a module that calls a function with this ``symbolic``."""
    members = {"forward": staticmethod(lambda ctx, x: forward(x)), "symbolic": staticmethod(symbolic)}
    function = type("Example", (Function,), members)

    class Module(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function.apply(x)  # type: ignore[attr-defined]

    return Module().eval()


def _exported(symbolic: Callable[..., Any], **options: Any) -> fx_onnx.ONNXProgram:
    return fx_onnx.export(_module(symbolic), (X,), **options)


def test_attributes_by_suffix() -> None:
    def symbolic(g: Any, x: Any) -> Any:
        return g.op(
            "some.domain::Thing", x, None, x,
            a_i=2, b_f=1, c_s="text", d_i=[1, True], e_f=(1, 2.5), f_s=["x", "y"], g_t=torch.arange(3),
            h_i=torch.tensor([4, 5]), i_f=None,
        )  # fmt: skip

    (node,) = _exported(symbolic).model.graph
    assert (node.domain, node.op_type, len(node.inputs), node.inputs[1]) == ("some.domain", "Thing", 3, None)
    kinds = {name: (attribute.type.name, attribute.value) for name, attribute in node.attributes.items()}
    assert kinds.pop("g")[1].numpy().tolist() == [0, 1, 2]
    assert {name: (kind, list(v) if kind.endswith("S") else v) for name, (kind, v) in kinds.items()} == {
        "a": ("INT", 2), "b": ("FLOAT", 1.0), "c": ("STRING", "text"), "d": ("INTS", [1, 1]),
        "e": ("FLOATS", [1.0, 2.5]), "f": ("STRINGS", ["x", "y"]), "h": ("INTS", [4, 5]),
    }  # fmt: skip


def test_several_outputs_and_the_runtimes_domain() -> None:
    def symbolic(g: Any, x: Any) -> Any:
        values, indices = g.op("onnx::TopK", x, torch.tensor([2]), axis_i=-1, outputs=2)
        return g.op("com.microsoft::Gelu", values), indices

    def forward(x: Tensor) -> Any:
        values, indices = x.topk(2)
        return torch.nn.functional.gelu(values), indices

    module = _module(symbolic, forward)
    program = fx_onnx.export(module, (X,), verify=True)
    assert program.model.graph.opset_imports["com.microsoft"] == 1
    assert_close(program(X), tuple(module(X)))


def test_types_constants_and_opset() -> None:
    seen: dict[str, Any] = {}

    def symbolic(g: Any, x: Any) -> Any:
        type_ = x.type()
        seen.update(opset=g.opset, scalar=type_.scalarType(), dim=type_.dim(), last=type_.sizes()[1])
        zero = g.op("Constant", value_t=torch.tensor(0.0))
        unknown = g.op("some::Thing", x)
        seen["unknown"] = unknown.type().scalarType(), unknown.type().sizes()
        unknown.setType(type_.with_dtype(torch.int64).with_sizes([1, 2]))
        seen["stated"] = unknown.type().scalarType(), unknown.type().sizes(), unknown.type().dim()
        return g.op("Max", x, zero).setType(type_)

    module = _module(symbolic)
    program = fx_onnx.export(module, (X,), dynamic_shapes=({0: "n"},), opset_version=21)
    assert_close(program(torch.cat([X, X])), module(torch.cat([X, X])))
    assert seen == {
        "opset": 21, "scalar": "Float", "dim": 2, "last": 3, "unknown": (None, None), "stated": ("Long", [1, 2], 2),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_float_of_another_precision_is_cast(dtype: torch.dtype) -> None:
    """As TorchScript's files assume; NVIDIA Model Optimizer returns float32 for a tensor in bfloat16."""

    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Relu", g.op("Cast", x, to_i=1)), g.op("Relu", x)

    x = X.to(dtype)
    program = fx_onnx.export(_module(symbolic, lambda x: (x.relu(), x.relu())), (x,))
    assert_close(program(x), (x.relu(), x.relu()))


def test_decorated_by_torch() -> None:
    """Most libraries decorate ``symbolic`` with torch.onnx.symbolic_helper.parse_args."""
    from torch.onnx import symbolic_helper

    @symbolic_helper.parse_args("v")
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Relu", x)

    assert_close(_exported(symbolic)(X), X.relu())


@pytest.mark.parametrize(
    ("symbolic", "message"),
    [
        (lambda g, x: g.op("aten::relu", x), r"aten::relu, an operator of TorchScript, which ONNX does not have"),
        (lambda g, x: g.op("Relu", x, alpha=1.0), r"'alpha' of g.op must end in _i, _f, _s or _t"),
        (lambda g, x: g.op("Relu", x, alpha_f=1.0), r"ONNX Relu of opset 20 has no attribute 'alpha'"),
        (lambda g, x: g.op("Rellu", x), r"has no operator Rellu"),
        (lambda g, x: g.op("Concat", [x, x], axis_i=0), r"a list of values, but ONNX takes one tensor"),
        (lambda g, x: g.op("a::B", x, n_i=x.type().sizes()[0]), r"ONNX needs a constant where the call has the size"),
        (lambda g, x: g.at("relu", x), r"the graph of symbolic has op\(\), onnxscript_op\(\),.* but no 'at'"),
        (lambda g, x: x.uses(), r"a value of symbolic has type\(\), setType\(\).* but no 'uses'"),
        (lambda g, x: x.node().prev(), r"a node of symbolic has kind\(\).* but no 'prev'"),
        (lambda g, x: g.onnxscript_op(torch.relu, x), r"g.onnxscript_op needs a function made by onnxscript.script"),
        (lambda g, x: g.onnxscript_op(doubled, x, outputs=2), r"doubled has 1 outputs, not 2"),
        (lambda g, x: g.op("Relu"), r"ONNX Relu needs the input 'X'"),
        (lambda g, x: g.op(1, x), r"first argument of g.op is the name of an operator, not 1"),
        (lambda g, x: g.op("Relu", {}), r"an input of a node is a value or a number, not \{\}"),
        (lambda g, x: torch.zeros(2, 3), r"returned a Tensor instead of an ONNX value"),
        (lambda g, x: (x, x), r"Example.symbolic returned 2 results, but the operator has 1"),
        (lambda g, x: g.op("Cast", x, to_i=7), r"returns int64.* where the operator returns float"),
    ],
)
def test_refusals(symbolic: Callable[..., Any], message: str) -> None:
    with pytest.raises(fx_onnx.TranslationError, match=message):
        _exported(symbolic, dynamic_shapes=({0: "n"},))


def test_nodes_constants_and_varying_sizes() -> None:
    seen: dict[str, Any] = {}

    def symbolic(g: Any, x: Any) -> Any:
        constant = g.op("Constant", value_t=torch.tensor([1, 2]))
        thing = g.op("some::Thing", x, None, axis_i=1)
        node = thing.node()
        seen["constant"] = constant.node().kind(), constant.node()["value"].tolist(), constant.node().t("value").dim()
        seen["input"] = x.node().kind(), x.node().inputs(), x.type().varyingSizes(), x.isCompleteTensor()
        seen["thing"] = node.kind(), node.i("axis"), node.attributeNames(), node.hasAttribute("b"), node.mustBeNone()
        seen["values"] = len(node.inputs()), node.inputs()[1], node.output().debugName() == thing.debugName()
        seen["call"] = g.original_node.kind(), x.type().kind(), x.type().isSubtypeOf(torch._C.TensorType.get())
        return g.op("Relu", x)

    fx_onnx.export(_module(symbolic), (X,), dynamic_shapes=({0: "n"},))
    assert seen == {
        "constant": ("onnx::Constant", [1, 2], 1), "input": ("prim::Param", [], [None, 3], False),
        "thing": ("some::Thing", 1, ["axis"], False, False), "values": (2, None, True),
        "call": ("prim::PythonOp", "TensorType", True),
    }  # fmt: skip


def test_an_element_type_of_torch_onnx_is_an_attribute() -> None:
    """Libraries that have their own import of torch.onnx write its enumeration."""

    def symbolic(g: Any, x: Any) -> Any:
        whole = g.op("Cast", x, to_i=torch.onnx.TensorProtoDataType.INT64)
        return g.op("Cast", whole, to_i=torch.onnx.JitScalarType.FLOAT.onnx_type())

    program = fx_onnx.export(_module(symbolic, lambda x: x.long().float()), (X,), verify=True, optimize=False)
    assert [node.attributes["to"].as_int() for node in program.model.graph] == [7, 1]


def test_an_onnxscript_function_becomes_a_local_function() -> None:
    def symbolic(g: Any, x: Any) -> Any:
        return g.onnxscript_op(doubled, x, factor_f=3.0).setType(x.type())

    program = fx_onnx.export(_module(symbolic, lambda x: x * 3), (X,), verify=True)
    assert [name for _, name, _ in program.model.functions] == ["doubled"]
    assert_close(program(X), X * 3)
