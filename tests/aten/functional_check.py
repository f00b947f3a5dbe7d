"""Checks that a functionalized program returns the results of its module, and the values that the module writes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.export.graph_signature import InputKind, OutputKind

from fx_onnx.aten.alias_analysis import is_write
from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.autocast import lower_autocast
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.torch_internals.torch_private import pytree
from tests.compare import assert_close


def check(module: nn.Module, *inputs: Tensor, dynamic: bool = False) -> AtenProgram:
    """Returns the functionalized program, after comparing it with the module, at two sizes if ``dynamic``."""
    shapes = (
        (tuple({0: Dim.AUTO} for _ in inputs),) if dynamic else None
    )  # one entry, for the parameter *tensors of forward
    exported = torch.export.export(copy.deepcopy(module), inputs, dynamic_shapes=shapes)
    before = str(exported.graph)
    program = functionalize(lower_autocast(AtenProgram.captured(exported)))
    assert str(exported.graph) == before, "the captured graph must not change"
    assert_pure(program)
    program.graph.lint()
    compare(program, module, inputs)
    if dynamic:
        compare(program, module, tuple(torch.cat([each, each[:1]]) for each in inputs))
    return program


def assert_pure(program: AtenProgram) -> None:
    for node in program.graph.nodes:
        assert not is_write(node.target), f"{node.format_node()} still writes"


def compare(program: AtenProgram, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Runs the functional graph and a fresh copy of the module on copies of the inputs."""
    module, mine = copy.deepcopy(module), [each.clone() for each in inputs]
    got = run(program, dict(module.state_dict()), mine)
    for each, original in zip(mine, inputs, strict=True):
        assert torch.equal(each, original), "the functional graph wrote to an input"
    theirs = [each.clone() for each in inputs]
    with torch.no_grad():
        results = [leaf for leaf in pytree.tree_leaves(module(*theirs)) if leaf is not None]
    state = dict(module.named_buffers())
    users = dict(zip(user_inputs(program), theirs, strict=True))
    written = [
        state[spec.target] if spec.kind == OutputKind.BUFFER_MUTATION else users[spec.target]
        for spec in program.mutations
    ]
    assert_close([x for x in got if x is not None], [*results, *written], tolerance=1e-5)


def user_inputs(program: AtenProgram) -> list[str]:
    specs = program.exported_program.graph_signature.input_specs
    return [spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT]


def run(program: AtenProgram, state: dict[str, Tensor], inputs: list[Tensor]) -> list[Any]:
    exported, rest = program.exported_program, iter(inputs)
    weights = {**exported.constants, **{name: each.clone() for name, each in state.items()}}
    values = [
        next(rest) if spec.kind == InputKind.USER_INPUT else weights[spec.target]
        for spec in exported.graph_signature.input_specs
    ]
    module = torch.fx.GraphModule(exported.graph_module, program.graph)
    with torch.no_grad():
        return list(torch.fx.Interpreter(module).run(*values))
