"""The exports with each argument, old calls, the other functions of the interface, and refusals."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import onnxscript
import torch
from onnxscript import opset18
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.symbolic_helper import parse_args
from tools.digest_cases import Function, add, add_case, copied, i, t
from tools.digest_networks import (
    BATCH,
    BATCH_TIME,
    SEQUENCES,
    SMALL,
    Attention,
    Convolutions,
    Shapes,
    Traced,
    Transformer,
)

ROWS = (t(3, 16),)
ONNX = torch.onnx.OperatorExportTypes


class Block(nn.Module):
    """A layer that is repeated."""

    size: int = 16

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Any:
        """(rows, 16) to the same shape."""
        return self.norm(x + self.linear(x).relu())


def layers() -> nn.Module:
    """Returns three equal layers."""
    return nn.Sequential(Block(), Block(), nn.Dropout(0.1), nn.Linear(16, 4))


# ---------------------------------------------------------------- saved files


def _saved(options: dict[str, Any], make: Callable[[], nn.Module], args: Any, folder: Path) -> Any:
    options = {key: folder if value is Path else value for key, value in options.items()}
    return fx_onnx.export(make().eval(), copied(args), folder / "model.onnx", **options)


OLD = {"dynamo": False, "dynamic_axes": {"x": {0: "batch"}, "y": [0]}, "input_names": ["x"], "output_names": ["y"]}
for _name, _options in {
    "plain": {},
    "dynamic": {"dynamic_shapes": BATCH},
    "external": {"external_data": True},
    "names": {"metadata": "names"},
    "no_metadata": {"metadata": "none"},
    "doc_strings": {"verbose": True},
    "report": {"report": True, "artifacts_dir": Path},
    "program": {"dump_exported_program": True, "artifacts_dir": Path},
    "profile": {"profile": True, "artifacts_dir": Path},
    "verified": {"verify": True},
    "old": OLD,
    "old_without_weights": {**OLD, "export_params": False},
    "old_inputs": {**OLD, "keep_initializers_as_inputs": True, "opset_version": 11},
    "old_names": {**OLD, "input_names": ["x", "w", "b"]},
    "old_inputs_by_type": {**OLD, "keep_initializers_as_inputs": None, "operator_export_type": ONNX.ONNX_FALLTHROUGH},
    "old_training": {**OLD, "training": torch.onnx.TrainingMode.TRAINING},
    "old_preserve": {**OLD, "training": torch.onnx.TrainingMode.PRESERVE},
    "old_opset_9": {**OLD, "opset_version": 9},
    "old_expressions": {**OLD, "dynamic_axes": {"x": {0: "a + b"}, "z": [0]}},
    "old_number": {**OLD, "dynamic_axes": {"x": {0: "3", 1: "w"}}},
    "without_weights": {"export_params": False},
    "weights_as_inputs": {"keep_initializers_as_inputs": True},
    "removed_checker": {"enable_onnx_checker": True},
    "removed_external": {"use_external_data_format": True},
    "removed_doc_string": {"strip_doc_string": False},
    "removed_aten": {"aten": True},
    "removed_raw": {"export_raw_ir": True},
    "removed_others": {"example_outputs": None, "fallback": True, "_retain_param_name": True, "propagate": True},
    "removed_more": {"add_node_names": True, "fixed_batch_size": False, "onnx_shape_inference": True},
    "functions": {"export_modules_as_functions": {Block}, "dynamic_shapes": BATCH},
    "all_functions": {"export_modules_as_functions": True},
    "functions_old_opset": {"export_modules_as_functions": True, "opset_version": 14},
    "unoptimized": {"optimize": False},
    "unoptimized_opset_12": {"optimize": False, "opset_version": 12},
    "without_passes": {"optimize": {"fuse_gelu"}},
    "no_such_pass": {"optimize": {"fuse_nothing"}},
    "unfolded": {"do_constant_folding": False},
    "custom_opsets": {"custom_opsets": {"a.b": 3}},
    "no_inlining": {"autograd_inlining": False},
    "quiet": {"progress": False, "verbose": False},
}.items():
    add_case(f"call/{_name}", functools.partial(_saved, _options, layers, ROWS))
for _name, _options in {
    "unoptimized": {"optimize": False},
    "unfolded": {"do_constant_folding": False},
    "verified": {"verify": True},
    "old": {"dynamo": False, "opset_version": 13},
    "functions": {"export_modules_as_functions": True},
}.items():
    add_case(
        f"call/attention/{_name}",
        functools.partial(_saved, {**_options, "dynamic_shapes": BATCH_TIME}, Attention, SEQUENCES),
    )
    add_case(
        f"call/convolutions/{_name}",
        functools.partial(_saved, {**_options, "dynamic_shapes": BATCH}, Convolutions, SMALL),
    )
    add_case(f"call/shapes/{_name}", functools.partial(_saved, _options, Shapes, SMALL))


def _into_a_file(folder: Path) -> Any:
    file = io.BytesIO()
    fx_onnx.export(layers().eval(), ROWS, file)
    return onnx.load_from_string(file.getvalue())


add_case("call/into_a_file", _into_a_file)
add_case("call/kwargs", lambda folder: fx_onnx.export(layers().eval(), kwargs={"input": ROWS[0]}))
add_case(
    "call/dict",
    lambda folder: fx_onnx.export(layers().eval(), {"input": ROWS[0]}, dynamic_shapes={"input": {0: Dim("n", max=9)}}),
)
add_case("call/list", lambda folder: fx_onnx.export(Block().eval(), [ROWS[0]], dynamic_shapes=({0: Dim.DYNAMIC},)))
add_case("call/tensor", lambda folder: fx_onnx.export(layers().eval(), ROWS[0], input_names=["a"], output_names=["b"]))
add_case("call/last_dict", lambda folder: fx_onnx.export(layers().eval(), ({"input": ROWS[0]},)))
add_case("call/training_mode", lambda folder: fx_onnx.export(layers(), ROWS))
add_case(
    "call/captured",
    lambda folder: fx_onnx.export(torch.export.export(layers().eval(), ROWS, dynamic_shapes=({0: Dim("n")},))),
)
add_case(
    "call/number",
    lambda folder: fx_onnx.export(Function(lambda x, n: x * n), (ROWS[0], 3), dynamic_shapes=((None, Dim.DYNAMIC),)),
)
add_case(
    "call/nested",
    lambda folder: fx_onnx.export(
        Function(lambda d: {"a": [d["x"] + 1, None], "b": (d["x"], 2)}), ({"x": ROWS[0]}, {})
    ),
)

# ---------------------------------------------------------------- rules, tables, registered functions


@fx_onnx.rule("x * Sigmoid(1.702 * x)")
def quick_gelu(f: Any, x: Any) -> Any:
    """Returns one node for three."""
    return f.QuickGelu(x, domain="com.microsoft", sizes=x.shape)


@fx_onnx.rule("Add(x, y)", since=13)
def declines(f: Any, x: Any, y: Any) -> Any:
    """Returns why the nodes stay."""
    return "nothing is better"


@onnxscript.script(onnxscript.values.Opset("digests.functions", 1))
def swish(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  onnxscript reads annotations as its own types
    """Returns the SiLU."""
    return opset18.Mul(x, opset18.Sigmoid(x))


def plain_swish(self: Any) -> Any:
    """Returns the SiLU, as a function of torch.onnx does."""
    return opset18.Mul(self, opset18.Sigmoid(self))


def clamped(x: Any) -> Any:
    """Returns the sum of two calls, of which the function declines one."""
    return torch.nn.functional.hardtanh(x, 0.0, 6.0) + torch.nn.functional.hardtanh(x)


@parse_args("v", "f", "f")
def hardtanh(g: Any, self: Any, min_val: Any, max_val: Any) -> Any:
    """Returns a node if the lower bound is 0."""
    return g.op("Clip", self, torch.tensor(min_val), torch.tensor(max_val)) if min_val == 0 else None


def python_op(g: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns a node for a function by its name."""
    return g.op("Mul", args[0], args[0]) if kwargs["name"] == "Traced" else None


def registered(name: str, function: Callable[..., Any], forward: Callable[..., Any], opset: int, folder: Path) -> Any:
    """Returns the program of an export with a registered function."""
    fx_onnx.register_custom_op_symbolic(name, function, opset)
    try:
        return fx_onnx.export(Function(forward), ROWS, dynamic_shapes=(BATCH,))
    finally:
        fx_onnx.unregister_custom_op_symbolic(name, opset)


silu = torch.ops.aten.silu.default
add("user/rules", lambda: Function(lambda x: x * torch.sigmoid(1.702 * x) + 1), ROWS, rules=[quick_gelu, declines])
add(
    "user/rules_unoptimized",
    lambda: Function(lambda x: x * torch.sigmoid(1.702 * x)),
    ROWS,
    rules=[quick_gelu],
    optimize=False,
)
add("user/no_rule", nn.SiLU, ROWS, rules=["no_such_rule"])
for _name, _function in {
    "script": swish,
    "plain": plain_swish,
    "emitter": lambda op, x: op.Mul(x, op.Sigmoid(x)),
}.items():
    add(
        f"user/{_name}_function",
        nn.SiLU,
        ROWS,
        custom_translation_table={silu: _function},
        dynamic_shapes=BATCH,
    )
add(
    "user/symbolic_function",
    nn.SiLU,
    ROWS,
    custom_translation_table={silu: lambda g, x: g.op("Selu", x, gamma_f=1.5)},
)
add(
    "user/calls_a_script",
    nn.SiLU,
    ROWS,
    custom_translation_table={silu: lambda g, x: g.onnxscript_op(swish, x)},
)
add("user/wrong_function", nn.SiLU, ROWS, custom_translation_table={silu: lambda op, x: op.NoSuchOperator(x)})
add_case("user/registered", functools.partial(registered, "aten::hardtanh", hardtanh, clamped, 9))
add_case("user/registered_too_new", functools.partial(registered, "aten::hardtanh", hardtanh, clamped, 24))
add_case("user/registered_python_op", functools.partial(registered, "prim::PythonOp", python_op, Traced.apply, 9))

# ---------------------------------------------------------------- the other functions


def _program(**options: Any) -> fx_onnx.ONNXProgram:
    return fx_onnx.export(Transformer().eval(), (t(2, 5, 16), t(2, 3, 16)), **options)


def _replaced(folder: Path) -> Any:
    with fx_onnx.replacing_torch_onnx() as calls:
        program = torch.onnx.export(layers().eval(), ROWS, dynamo=True, dynamic_shapes=BATCH)
        torch.onnx.export(
            layers().eval(), ROWS, folder / "a.onnx", dynamo=False, dynamic_axes={"input": [0]}, input_names=["input"]
        )
        torch.onnx.export(layers().eval(), ROWS, str(folder / "b.onnx"), verbose=False, opset_version=12, dynamo=False)
        return [program.model_proto, dict(calls), torch.onnx.utils.unconvertible_ops(nn.SiLU(), ROWS)[1]]


def _optimized(folder: Path) -> Any:
    model = onnx_ir.from_proto(_program(optimize=False).model_proto)
    first = onnx_ir.to_proto(fx_onnx.optimize(model))
    again = onnx_ir.from_proto(_program(optimize=False).model_proto)
    return [first, onnx_ir.to_proto(fx_onnx.optimize(again, without={"fuse_gelu"}))]


def _changed(folder: Path) -> Any:
    program = fx_onnx.export(layers().eval(), ROWS, dynamic_shapes=BATCH)
    program.apply_weights({"3.bias": torch.ones(4)})
    program.rename_axes({"batch": "rows"})
    for name, options in {
        "a": {},
        "b": {"metadata": "none"},
        "c": {"external_data": True},
        "d": {"include_initializers": False},
    }.items():
        program.save(folder / f"{name}.onnx", **options)
    program.save_html(folder / "a.html")
    return [
        program,
        program.text(),
        repr(program),
        program.summary(),
        program.supports("openvino"),
        program.supports("tensorrt"),
    ]


def _mismatch(folder: Path) -> Any:
    model = nn.Sequential(nn.Linear(16, 4), nn.ELU(), nn.Linear(4, 2), nn.SELU()).eval()
    fx_onnx.register_custom_op_symbolic("aten::selu", lambda g, x: g.op("Elu", x), 9)
    try:
        found = fx_onnx.verification.find_mismatch(model, ROWS)
        return [sorted(each.essential_node_kinds()) for each in found.all_mismatch_leaf_graph_info()]
    finally:
        fx_onnx.unregister_custom_op_symbolic("aten::selu", 9)


def _verified(folder: Path) -> Any:
    program = fx_onnx.export(layers().eval(), ROWS, dynamic_shapes=BATCH)
    found = fx_onnx.verify(program, ROWS)
    return [found.ok, [each.name for each in found.outputs], len(fx_onnx.verification.verify_onnx_program(program))]


add_case("other/replacing_torch_onnx", _replaced)
add_case("other/optimize", _optimized)
add_case("other/changed_program", _changed)
add_case("other/find_mismatch", _mismatch)
add_case("other/verify", _verified)
add_case("other/pretty_string", lambda folder: fx_onnx.export_to_pretty_string(nn.SiLU(), ROWS))
add_case(
    "other/protobuf_text", lambda folder: fx_onnx.utils.export_to_pretty_string(nn.SiLU(), ROWS, google_printer=True)
)
add_case(
    "other/unconvertible", lambda folder: fx_onnx.unconvertible_ops(Function(lambda x: torch.geqrf(x)[0]), ROWS)[1]
)
add_case("other/exportable", lambda folder: fx_onnx.utils.export(nn.SiLU(), ROWS, folder / "a.onnx"))

# ---------------------------------------------------------------- refusals


class Remembers(nn.Module):
    """Keeps a tensor that depends on the input."""

    def forward(self, x: Tensor) -> Any:
        """Returns the input."""
        self.seen = x * 2
        return x


add("refused/branch", lambda: Function(lambda x: x + 1 if x.sum() > 0 else x), ROWS)
add("other/number", lambda: Function(lambda x: x * float(x.sum().numpy())), ROWS)
add("other/unknown_operator", lambda: Function(lambda x: torch.geqrf(x)[0]), ROWS)
add("refused/opset_6", layers, ROWS, opset_version=6)
add("refused/opset_99", layers, ROWS, opset_version=99)
add("refused/target", layers, ROWS, target="no-runtime")
add("refused/keyword", layers, ROWS, no_such_keyword=1)
add("refused/flag", layers, ROWS, verify="yes")
add("refused/metadata", layers, ROWS, metadata="all")
add("refused/two_forms", layers, ROWS, dynamic_shapes=BATCH, dynamic_axes={"input": [0]})
add("refused/dims", layers, ROWS, dynamic_shapes=({5: "n"},))
add("refused/one_dim", lambda: Function(lambda x, y: x), (t(2), t(3)), dynamic_shapes=(({0: Dim("n")}, {0: Dim("n")}),))
add("refused/range", layers, ROWS, dynamic_shapes=({0: Dim("n", min=5)},))
add("refused/names", layers, ROWS, input_names=["0.linear.weight"])
add("refused/too_many_arguments", layers, (*ROWS, *ROWS))
add("refused/wrong_size", layers, (t(3, 5),))
add("refused/no_model", lambda: "model", ROWS)
add("other/attribute", Remembers, ROWS)
add("refused/sparse", lambda: Function(lambda x: x), (t(3, 3).to_sparse(),))
add("other/determinant_for_tract", lambda: Function(torch.linalg.det), (t(3, 3),), target="tract")
add("other/gather_at_opset_7", lambda: Function(lambda x, n: x[n]), (t(4, 3), i(4, 2)), opset_version=7)
add("refused/complex", lambda: Function(lambda z: z.sort()), (t(4, dtype=torch.complex64),))
add_case("refused/positional", lambda folder: fx_onnx.export(layers().eval(), ROWS, folder / "a.onnx", True, False))
add_case("refused/folder", lambda folder: fx_onnx.export(layers().eval(), ROWS, folder / "no" / "a.onnx"))
