"""In-place and view writes become pure values: the functional graph computes what the module does, writes included."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from fx_onnx.aten.functionalize import AtenProgram, functional_variant, functionalize, is_write
from fx_onnx.core.errors import MutationError
from tests.compare import assert_close
from tests.modules import Of

aten = torch.ops.aten


def check(module: nn.Module, *inputs: Tensor, dynamic: bool = False) -> AtenProgram:
    """The functional program, after comparing its results and what it writes with eager, at one or two sizes."""
    shapes = (tuple({0: Dim.AUTO} for _ in inputs),) if dynamic else None  # of *tensors, the parameter of Of
    exported = torch.export.export(copy.deepcopy(module), inputs, dynamic_shapes=shapes)
    before = str(exported.graph)
    program = functionalize(exported)
    assert str(exported.graph) == before, "the captured graph must stay as it is"
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


# ---------------------------------------------------------------- writes to values of the program's own


def relu_(x):
    y = x + 1
    y.relu_()
    return y * 2


def relu_result_is_another_name(x):
    y = x + 1
    z = y.relu_()
    z.add_(1)
    return y, z


def chain(x):
    y = x * 1
    return y.add_(1).mul_(2).sub_(3).clamp_(min=-1)


def chain_read_between(x):
    y = x * 1
    a = y + 0
    y.add_(1)
    b = y + 0
    y.mul_(2)
    return a, b, y


def slice_copy(x):
    y = torch.zeros_like(x)
    y[:, 1:3].copy_(x[:, :2])
    return y


def slice_assign(x):
    y = x.clone()
    y[:, 1] = 7
    y[:, 2:] = x[:, :2]
    return y


def slice_of_slice(x):
    y = x.clone()
    y[1:][:, 1:].fill_(3)
    return y


def slice_add(x):
    y = x.clone()
    y[1:] += 1
    y[..., 0] *= 2
    return y


def view_then_write_base(x):
    y = x * 1
    v = y.view(-1)
    y.add_(1)
    return v * 2


def write_view_read_base(x):
    y = x * 1
    y.view(-1).mul_(2)
    return y


def write_view_read_other_view(x):
    y = x * 1
    a, b = y.view(-1), y.t()
    a.add_(1)
    b.mul_(3)
    return a, b, y


def view_taken_before_two_writes(x):
    y = x * 1
    v = y[1:]
    w = v[:, 1:]
    y.add_(1)
    w.zero_()
    v.add_(2)
    return y, v, w


def select_write(x):
    y = x.clone()
    y.select(1, 2).add_(5)
    y[0].mul_(2)
    y[-1, -1] = 9
    return y


def transpose_write(x):
    y = x.clone()
    y.transpose(0, 1)[1].fill_(1)
    y.t()[0].add_(1)
    return y


def permute_write(x):
    y = x.clone().unsqueeze(0)
    y.permute(2, 0, 1)[1].fill_(4)
    return y


def movedim_write(x):
    y = x.clone().unsqueeze(0)
    y.movedim(0, 2)[1].mul_(4)
    return y


def swapaxes_write(x):
    y = x.clone()
    y.swapaxes(0, 1)[0].mul_(4)
    y.mT[1].add_(1)
    return y


def diagonal_write(x):
    y = x.clone()
    y.diagonal().fill_(0)
    y.diagonal(1).add_(1)
    return y


def augmented_assignments(x):
    mask, bits = x > 0, x.to(torch.int32)
    mask &= x < 1
    mask |= x > 2
    mask ^= x[0] > 0
    bits <<= 2
    bits >>= 1
    bits |= 1
    return mask, bits


def dropout_in_place(x):
    y = x.clone()
    nn.functional.dropout(y, training=False, inplace=True)
    return y + 1


def narrow_write(x):
    y = x.clone()
    y.narrow(1, 1, 2).zero_()
    return y


def narrow_negative(x):
    y = x.clone()
    y.narrow(1, -2, 2).zero_()
    return y


def narrow_dynamic(x):
    y = x.clone()
    half = x.shape[0] // 2
    y.narrow(0, half, half).zero_()
    y[half:].add_(1)
    return y


def slice_step(x):
    y = x.clone()
    y[:, ::2] = 0
    y[::2].add_(1)
    return y


def negative_slice(x):
    y = x.clone()
    y[:, -2:] = 0
    y[:-1].add_(1)
    return y


def unsqueeze_write(x):
    y = x.clone()
    y.unsqueeze(0)[0, 1].add_(1)
    y.unsqueeze(-1).squeeze(-1).mul_(2)
    return y


def flatten_write(x):
    y = x.clone()
    y.flatten()[2:5].zero_()
    y.reshape(-1)[0] = 1
    y.view(2, 2, -1)[0, 1] += 1
    return y


def unflatten_write(x):
    y = x.clone()
    y.unflatten(1, (2, 2))[:, 1].zero_()
    return y


def split_write(x):
    y = x.clone()
    a, b = y.split(2, dim=1)
    a.add_(1)
    b.mul_(2)
    return y, a


def split_sizes_write(x):
    y = x.clone()
    a, b = y.split([1, 3], dim=1)
    b.mul_(2)
    a.zero_()
    return y, b


def chunk_write(x):
    y = x.clone()
    a, b = y.chunk(2, dim=-1)
    b.mul_(2)
    a.copy_(b)
    return y


def unbind_write(x):
    y = x.clone()
    rows = y.unbind(1)
    rows[1].mul_(2)
    rows[-1].add_(rows[1])
    return y


def tensor_split_write(x):
    y = x.clone()
    y.tensor_split(2, dim=1)[1].mul_(2)
    return y


def write_then_split_read(x):
    y = x.clone()
    a, b = y.split(2, dim=1)
    y.add_(1)
    return a, b


def expand_read_after_write(x):
    y = x[:1].clone()
    e = y.expand(4, -1)
    y.add_(1)
    return e + x[:1]


def index_put(x):
    y = x.clone()
    y[torch.tensor([0, 2])] = 5
    y[torch.tensor([1, 1]), torch.tensor([0, 3])] += 2
    return y


def index_put_on_view(x):
    y = x.clone()
    y[1:][torch.tensor([0, 1])] = 5
    y.t()[torch.tensor([0])] += 1
    return y


def masked_fill(x):
    y = x.clone()
    y.masked_fill_(y > 0, -1.0)
    y[:, :2].masked_fill_(x[:, :2] < 0, 3.0)
    return y


def bool_mask_assign(x):
    y = x.clone()
    y[y > 0] = 0
    return y


def scatter(x):
    y = x.clone()
    y.scatter_(1, torch.zeros(4, 1, dtype=torch.int64), 5.0)
    y.scatter_add_(1, torch.ones(4, 2, dtype=torch.int64), x)
    y.index_add_(0, torch.tensor([0, 1]), x[:2])
    y.index_fill_(0, torch.tensor([2]), 4.0)
    y.index_copy_(0, torch.tensor([3]), x[:1])
    return y


def dtype_of_the_written_stays(x):
    y = torch.zeros_like(x, dtype=torch.int64)
    y.add_(torch.ones_like(y))
    y.copy_(x)
    y[0].copy_(x[1])
    z = torch.zeros_like(x)
    z.add_(y)
    half = x.half()
    half.add_(x.float())
    return y, z, half


def comparison_in_place(x):
    y = x.clone()
    y.gt_(0)
    return y


def copy_broadcasts(x):
    y = x.clone()
    y.copy_(x[0])
    y[:, 0].copy_(torch.tensor(2.0))
    return y


def fill_and_zero(x):
    y = torch.empty_like(x)
    y.fill_(2)
    z = torch.empty_like(x).zero_()
    return y, z


def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    z = torch.empty_like(x)
    torch.mul(x, y, out=z)
    return y, z


def out_is_a_slice(x):
    y = x.clone()
    torch.add(x[1:], 1, out=y[1:])
    return y


def view_by_shape_in_place(x):
    y = x.clone()
    y.unsqueeze_(0)
    y.squeeze_(0)
    y.t_()
    return y + 1


def transpose_in_place_then_write(x):
    y = x.clone()
    y.transpose_(0, 1)
    y[0].fill_(2)
    return y


def to_that_does_not_copy(x):
    y = x.clone()
    z = y.to(torch.float32)
    z.add_(1)
    w = y.to(torch.float64)
    w.add_(1)
    return y, w


def contiguous_that_does_not_copy(x):
    y = x.clone()
    y.contiguous().add_(1)
    y.t().contiguous().add_(1)
    return y


def reshape_that_copies(x):
    y = x.clone()
    y.t().reshape(-1).add_(1)
    return y


def detach_write(x):
    y = x.clone()
    y.detach().add_(1)
    return y


def view_as_real(x):
    z = torch.view_as_complex(x.clone().view(4, 2, 2))
    torch.view_as_real(z)[..., 0] = 1
    return torch.view_as_real(z * 1)


def as_strided(x):
    y = x.clone()
    y.as_strided((2, 2), (4, 1)).add_(1)
    return y


def dropout_in_eval(x):
    y = x.clone()
    z = nn.functional.dropout(y, training=False)
    z.add_(1)
    return y, z


def inplace_activations(x):
    y = x.clone()
    nn.functional.relu(y, inplace=True)
    nn.functional.silu(y, inplace=True)
    nn.functional.leaky_relu(y, inplace=True)
    nn.functional.hardtanh(y, inplace=True)
    nn.functional.elu(y, inplace=True)
    nn.functional.hardswish(y, inplace=True)
    return y


def many_unary(x):
    y = x.abs() + 0.1
    y.sqrt_().exp_().log_().sigmoid_().tanh_().neg_().abs_().reciprocal_().floor_().clamp_min_(0.5)
    return y


def addcmul_lerp(x):
    y = x.clone()
    y.addcmul_(x, x, value=0.5).addcdiv_(x, x.abs() + 1).lerp_(x, 0.25)
    y.addmm_(x, x)
    y.div_(2, rounding_mode="floor")
    y.pow_(2)
    return y


def swap_by_temporaries(x):
    y = x.clone()
    first = y[:, 0].clone()
    y[:, 0] = y[:, 1]
    y[:, 1] = first
    return y


def loop(x):
    y = torch.zeros_like(x)
    for i in range(4):
        y[i] = x[i] + (y[i - 1] if i else 0)
    return y


def list_of_views(x):
    y = x.clone()
    parts = torch.stack([y[0], y[1]])
    y.add_(1)
    return parts, torch.cat([y[:1], y[1:]])


def rotate_halves(x):
    y = x.clone()
    a, b = y[..., :2], y[..., 2:]
    y[..., :2], y[..., 2:] = a * 2 - b, b * 2 + a
    return y


def foreach(x):
    a, b = x.clone(), x.clone()
    torch._foreach_add_([a, b], 1.0)
    return a, b


def written_twice_through_one_view(x):
    y = x.clone()
    v = y[1]
    v.add_(1)
    y.mul_(2)
    v.add_(1)
    return y, v


def with_no_grad(x):
    y = x.clone()
    with torch.no_grad():
        y.add_(1)
        y[0] = 2
    return y


def squeeze_write(x):
    y = x.clone().unsqueeze(1)
    y.squeeze(1)[0].add_(1)
    y.squeeze().mul_(2)
    return y


def zeros_then_fill_rows(x):
    mask = torch.full((4, 4), float("-inf"))
    mask.triu_(1)
    y = torch.ones(4, 4).tril_()
    return x + y, mask


def sort_into(x):
    values, indices = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)
    torch.sort(x, out=(values, indices))
    return values + 1, indices


def region_counters(x):
    """Swin's mask: one number a region."""
    mask, count = torch.zeros(1, 4, 4, 1), 0
    for rows in (slice(0, -2), slice(-2, -1), slice(-1, None)):
        for columns in (slice(0, -2), slice(-2, -1), slice(-1, None)):
            mask[:, rows, columns, :] = count
            count += 1
    return mask.view(1, 2, 2, 2, 2, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4) + x.sum()


def split_then_cat(x):
    y = x.clone()
    parts = list(y.split(1))
    parts[0].add_(1)
    y.mul_(2)
    return torch.cat(parts)


def gathered_rows_and_columns(x):
    y = x.clone()
    y[:, [0, 2]] = x[:, [1, 3]]
    y[1:3, [0]] *= 2
    y[None, :, 1] = 3
    y[0, 0] = x[1, 1]
    y[1] = x.sum()
    return y


def views_that_are_the_same(x):
    y = x.clone()
    y[:].add_(1)
    y[...].mul_(2)
    y.float().add_(1)
    y.type_as(x).mul_(2)
    y.expand(4, 4).add_(1)
    return y


def one_of_several_results(x: Tensor) -> tuple[Tensor, ...]:
    values, indices = x.topk(2)
    values /= values.sum(-1, keepdim=True)
    row = values[0]
    row.add_(1)
    return values, indices, row


OWN = [
    one_of_several_results,
    relu_, relu_result_is_another_name, chain, chain_read_between, slice_copy, slice_assign, slice_of_slice,
    slice_add, view_then_write_base, write_view_read_base, write_view_read_other_view, view_taken_before_two_writes,
    select_write, transpose_write, permute_write, movedim_write, swapaxes_write, diagonal_write,
    augmented_assignments, dropout_in_place, narrow_write, narrow_negative, slice_step, negative_slice,
    unsqueeze_write, flatten_write, unflatten_write, split_write, split_sizes_write, chunk_write, unbind_write,
    tensor_split_write, write_then_split_read, expand_read_after_write, index_put, index_put_on_view, masked_fill,
    bool_mask_assign, scatter, dtype_of_the_written_stays, comparison_in_place, copy_broadcasts, fill_and_zero,
    out_argument, out_is_a_slice, view_by_shape_in_place, transpose_in_place_then_write, to_that_does_not_copy,
    contiguous_that_does_not_copy, reshape_that_copies, detach_write, view_as_real, as_strided, dropout_in_eval,
    inplace_activations, many_unary, addcmul_lerp, swap_by_temporaries, loop, list_of_views, rotate_halves, foreach,
    written_twice_through_one_view, with_no_grad, squeeze_write, zeros_then_fill_rows,
    sort_into, region_counters, split_then_cat, gathered_rows_and_columns, views_that_are_the_same,
]  # fmt: skip


@pytest.mark.parametrize("function", OWN, ids=lambda function: function.__name__)
def test_own_values(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    program = check(Of(function), torch.randn(4, 4))
    assert program.mutations == ()


DYNAMIC = [
    relu_, slice_copy, slice_assign, slice_add, view_then_write_base, write_view_read_base,
    write_view_read_other_view, view_taken_before_two_writes, select_write, transpose_write, narrow_write,
    narrow_dynamic, negative_slice, slice_step, unsqueeze_write, split_write, split_sizes_write, chunk_write,
    unbind_write, masked_fill, copy_broadcasts, rotate_halves, detach_write, reshape_that_copies,
    contiguous_that_does_not_copy, written_twice_through_one_view,
]  # fmt: skip


@pytest.mark.parametrize("function", DYNAMIC, ids=lambda function: function.__name__)
def test_own_values_of_dynamic_size(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    check(Of(function), torch.randn(4, 4), dynamic=True)


# ---------------------------------------------------------------- writes to buffers and inputs


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.total.add_(x.sum(0))
        return self.total * self.count


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.keys.index_copy_(1, position, x)
        return self.keys.sum(1)


class SlicedCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.keys[:, 2:5] = x
        return self.keys * 1


class Assigned(nn.Module):
    """A buffer that is assigned, not written to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.state * 2
        return x + self.state


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * 2


def _spec(program: AtenProgram) -> list[tuple[OutputKind, str | None]]:
    return [(spec.kind, spec.target) for spec in program.mutations]


def test_a_counter_buffer() -> None:
    program = check(Counter(), torch.randn(3, 4))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "count"), (OutputKind.BUFFER_MUTATION, "total")]


def test_a_cache_buffer() -> None:
    program = check(Cache(), torch.randn(2, 3, 4), torch.tensor([1, 2, 3]))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "keys")]


def test_a_slice_of_a_buffer() -> None:
    program = check(SlicedCache(), torch.randn(2, 3, 4))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "keys")]


def test_an_assigned_buffer() -> None:
    program = check(Assigned(), torch.randn(3, 4))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "state")]


def test_batch_norm_in_training() -> None:
    program = check(Normalized().train(), torch.randn(5, 4))
    assert sorted(spec.target or "" for spec in program.mutations) == [
        "norm.num_batches_tracked", "norm.running_mean", "norm.running_var",
    ]  # fmt: skip


def test_batch_norm_in_evaluation_writes_nothing() -> None:
    assert check(Normalized().eval(), torch.randn(5, 4)).mutations == ()


def write_input(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def write_view_of_input(x: Tensor) -> Tensor:
    x[:, 1].zero_()
    x.view(-1)[0] = 5
    return x.sum()


def return_written_input(x: Tensor) -> Tensor:
    return x.mul_(2)


def return_view_of_written_input(x: Tensor) -> Tensor:
    v = x[1:]
    x.mul_(2)
    return v


def write_second_input(x: Tensor, y: Tensor) -> Tensor:
    y.copy_(x)
    return x + y


@pytest.mark.parametrize(
    "function", [write_input, write_view_of_input, return_written_input, return_view_of_written_input]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs(function: Callable[..., Any], dynamic: bool) -> None:
    program = check(Of(function), torch.randn(4, 4), dynamic=dynamic)
    assert _spec(program) == [(OutputKind.USER_INPUT_MUTATION, user_inputs(program)[0])]


def test_the_second_of_two_inputs() -> None:
    program = check(Of(write_second_input), torch.randn(3, 4), torch.randn(3, 4))
    assert _spec(program) == [(OutputKind.USER_INPUT_MUTATION, user_inputs(program)[1])]


# ---------------------------------------------------------------- what it leaves, and what it refuses


def test_a_graph_without_writes_is_copied_as_it_is() -> None:
    exported = torch.export.export(Of(lambda x: torch.relu(x[1:]).view(-1)), (torch.randn(4, 4),))
    program = functionalize(exported)
    assert [node.target for node in program.graph.nodes] == [node.target for node in exported.graph.nodes]
    assert [node.name for node in program.graph.nodes] == [node.name for node in exported.graph.nodes]


def test_regions_are_unfolded() -> None:
    class Regions(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                y = x * 2
                y.add_(1)
            with torch.autocast("cpu", enabled=False):
                z = y + 1
            return z * y

    program = check(Regions(), torch.randn(3, 4))
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert all(isinstance(target, torch._ops.OpOverload) for target in targets)


def test_writes_in_regions() -> None:
    """What a region is given and what it gives are the same tensors inside and outside."""

    class Regions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("count", torch.ones(4))
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Any:
            x = x * 1
            with torch.no_grad():
                self.mean.add_(x.mean(0))
                self.count[1:].mul_(2)
                row, flat = x[1], x.view(-1)
            self.count.add_(1)
            x.add_(1)
            with torch.no_grad():
                doubled = self.mean * 2
                self.mean[0] = 5
                row.mul_(2)
            with torch.autocast("cpu", enabled=False):
                self.count.mul_(3)
                normal = self.norm(x)
            return x * self.mean + self.count + doubled, row, flat, normal

    program = check(Regions(), torch.randn(3, 4))
    assert {spec.target for spec in program.mutations} == {
        "mean", "count", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip


def test_a_region_that_runs_twice() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Any:
            step = torch.compiler.nested_compile_region(lambda x, y: (x * y, y + 1))
            y, z = step(x, x)
            z.add_(y)
            v, w = step(y, z)
            w.mul_(v)
            return y, z, v, w

    assert check(Twice(), torch.randn(3, 4)).mutations == ()


def test_a_write_in_a_branch_is_refused() -> None:
    class InABranch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x + self.mean.add_(1), lambda x: x - 1, (x,))

    with torch.no_grad():  # else torch does not capture it
        exported = torch.export.export(InABranch(), (torch.randn(3, 4),))
    with pytest.raises(MutationError, match="writes in place to what is outside; return it and write there"):
        functionalize(exported)


def test_a_write_through_a_view_without_an_inverse_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.clone()
        y.unfold(1, 2, 2).zero_()
        return y

    exported = torch.export.export(Of(function), (torch.randn(4, 4),))
    with pytest.raises(MutationError, match=r"aten\.unfold\.default, a view that fx_onnx cannot write through"):
        functionalize(exported)


@pytest.mark.parametrize(
    ("writing", "pure"),
    [
        (aten.add_.Tensor, aten.add.Tensor),
        (aten.relu_.default, aten.relu.default),
        (aten.add.out, aten.add.Tensor),
        (aten.mul_.Scalar, aten.mul.Scalar),
        (aten.index_put_.default, aten.index_put.default),
        (aten.div_.Tensor_mode, aten.div.Tensor_mode),
        (aten.squeeze_.dim, aten.squeeze.dim),
        (aten.copy_.default, aten.copy.default),
        (aten.zero_.default, aten.zero.default),
        (aten.__iand__.Tensor, aten.bitwise_and.Tensor),
        (aten.__ior__.Scalar, aten.bitwise_or.Scalar),
        (aten.__ilshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar),
        (aten.dropout_.default, aten.dropout.default),
        (aten.normal_.default, aten.normal_functional.default),
        (aten.fill_.Scalar, aten.fill.Scalar),
        (aten.masked_fill_.Scalar, aten.masked_fill.Scalar),
    ],
)
def test_functional_variants(writing: Any, pure: Any) -> None:
    assert functional_variant(writing) is pure


def _in_place_methods() -> Iterator[Any]:
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and packet.endswith("_") and not packet.startswith("_"):
            target = getattr(getattr(aten, packet), overload or "default")
            if is_write(target):
                yield target


def test_almost_every_in_place_method_has_a_pure_variant() -> None:
    missing = set()
    for target in _in_place_methods():
        try:
            assert not functional_variant(target)._schema.is_mutable
        except MutationError as error:
            assert str(target) in str(error)
            missing.add(str(target))
    assert missing == {"aten.polygamma_.default", "aten.requires_grad_.default"}


def test_a_node_that_was_added_without_its_value() -> None:
    """A pass of the user's own over the captured graph need not say what its nodes give."""

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() + 1

    program = torch.export.export(Doubled(), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    (relu,) = program.graph.find_nodes(op="call_function", target=aten.relu.default)
    with program.graph.inserting_after(relu):
        twice = program.graph.call_function(aten.mul.Tensor, (relu, 2))
    relu.replace_all_uses_with(twice, delete_user_cb=lambda user: user is not twice)
    result = functionalize(program)
    (mul,) = result.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    assert mul.meta["val"].shape == relu.meta["val"].shape
