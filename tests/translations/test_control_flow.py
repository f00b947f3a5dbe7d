"""Control flow as If, Loop and Scan, and higher-order operators that only give execution hints, each at two sizes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import hints_wrapper, map, scan, while_loop

import fx_onnx
from tests.compare import assert_close
from tests.torch_versions import needs

ROWS = ({0: "rows"},)


class Net(nn.Module):
    """A module whose forward calls a function with the module and its input."""

    def __init__(self, function: Callable[["Net", Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.linear = nn.Linear(4, 4)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> object:
        return self.function(self, x)


def if_with_weights(net: Net, x: Tensor) -> object:
    return torch.cond(x.sum() > 0, lambda x: net.linear(x), lambda x: x.relu() - 1, (x,))


def if_with_several_results(net: Net, x: Tensor) -> object:
    return torch.cond(x.sum() > 0, lambda x: (x + 1, x.sum()), lambda x: (x - 1, x.mean()), (x,))


def if_in_if(net: Net, x: Tensor) -> object:
    def positive(x: Tensor) -> Tensor:
        return torch.cond(x.max() > 3, lambda x: x * 2, lambda x: net.linear(x), (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: x - x.shape[0], (x,))


def if_on_a_size(net: Net, x: Tensor) -> object:
    return torch.cond(x.shape[0] > 3, lambda x: x + 1, lambda x: x - 1, (x,))


def if_that_returns_its_input(net: Net, x: Tensor) -> object:
    return torch.cond(x.sum() > 0, lambda x: x.clone(), lambda x: x * 2, (x,))


def loop(net: Net, x: Tensor) -> object:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, net.linear(y) + x), (torch.tensor(0), x))


def loop_that_never_runs(net: Net, x: Tensor) -> object:
    return while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


def loop_in_loop(net: Net, x: Tensor) -> object:
    def inner(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        _, z = while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z + 1), (torch.tensor(0), y))
        return i + 1, z

    return while_loop(lambda i, y: i < 4, inner, (torch.tensor(0), x))


def loop_over_numbers(net: Net, x: Tensor) -> object:
    _, y = while_loop(lambda i, y: i < x.shape[0], lambda i, y: (i + 2, net.linear(y) + i), (x.shape[0] // 2, x))
    return y


def loop_to_a_data_dependent_number(net: Net, x: Tensor) -> object:
    count = (x > 1).sum().item()
    last, y = while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y + i), (0, x))
    return y * last, x.new_zeros(last + 1)


def loop_until_a_value(net: Net, x: Tensor) -> object:
    return while_loop(lambda i, y: y.sum() < 100, lambda i, y: (i + 1, y.abs() + 1), (torch.tensor(0), x))


def loop_that_swaps(net: Net, x: Tensor) -> object:
    return while_loop(lambda i, y, z: i < 3, lambda i, y, z: (i + 1, z - 1, y * 2), (torch.tensor(0), x, x + 1))


def loop_that_keeps_every_step(net: Net, x: Tensor) -> object:
    def more(i: Tensor, y: Tensor) -> Tensor:
        return i < 3

    return torch.ops.higher_order.while_loop_stack_output(
        more, lambda i, y: (i + 1, y * 2), (torch.scalar_tensor(0, dtype=torch.int64), x.clone()), ()
    )


def loop_that_keeps_no_step(net: Net, x: Tensor) -> object:
    return torch.ops.higher_order.while_loop_stack_output(
        lambda i, y: i > 3, lambda i, y: (i + 1, y * 2), (torch.scalar_tensor(0, dtype=torch.int64), x.clone()), ()
    )


def if_in_loop(net: Net, x: Tensor) -> object:
    def body(i: int, y: Tensor) -> tuple[int, Tensor]:
        return i + 1, torch.cond(i % 2 == 0, lambda y: y + 1, net.linear, (y,))

    last, y = while_loop(lambda i, y: i < 3, body, (0, x))
    return y + last


def loop_of_a_structure(net: Net, x: Tensor) -> object:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, {"a": y["a"] + 1}), (torch.tensor(0), {"a": x}))


def scan_rows(net: Net, x: Tensor) -> object:
    return scan(lambda carry, row: (carry + row, carry * row), torch.ones(4), x, dim=0)


def map_rows(net: Net, x: Tensor) -> object:
    return map(lambda row, bias: row.cos() + bias, x, net.linear.bias)


def scan_backwards_over_a_structure(net: Net, x: Tensor) -> object:
    def step(carry: dict[str, Tensor], row: tuple[Tensor, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        total = carry["total"] * 0.5 + net.linear(row[0])
        return {"total": total, "count": carry["count"] + 1}, total * row[1]

    return scan(step, {"total": x[0] * 0, "count": torch.tensor(0)}, (x, x + 1), dim=0, reverse=True)


def scan_columns_in_rows(net: Net, x: Tensor) -> object:
    def outer(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        total, columns = scan(lambda a, b: (a + b, a * b), carry.sum(), row, dim=0)
        return carry + total, columns + 1

    return scan(outer, torch.ones(4), x, dim=0)


def map_with_a_branch(net: Net, x: Tensor) -> object:
    return map(lambda row: torch.cond(row.sum() > 0, net.linear, lambda row: row - 1, (row,)), x)


def products_of_prefixes(net: Net, x: Tensor) -> object:
    """Calls the operator itself, because torch's function produces it for tensors on a GPU only."""

    def run(xs: list[Tensor]) -> object:
        return torch.ops.higher_order.associative_scan(lambda a, b: [a * b], xs, ())

    return torch.compile(run, backend="eager", fullgraph=True)([x])


def hints_for_a_compiler(net: Net, x: Tensor) -> object:
    twice = torch.compiler.nested_compile_region(lambda x, y: (net.linear(x).relu(), y + 1))
    first, second = twice(*twice(x, x))
    return hints_wrapper(lambda x, y: x * y, (first, second), {}, hints={"outer": True})


def vectorized(net: Net, x: Tensor) -> object:
    return torch.vmap(lambda row, weight: row @ weight + row.sum(), (0, None))(x, net.linear.weight)


def checkpoint(net: Net, x: Tensor) -> object:
    return torch.utils.checkpoint.checkpoint(lambda x: net.linear(x).relu(), x, use_reentrant=False)


def without_gradients(net: Net, x: Tensor) -> object:
    with torch.no_grad():
        y = net.linear(x)
    return y.sin()


@pytest.mark.parametrize(
    "function",
    [
        if_with_weights, if_with_several_results, if_in_if, if_on_a_size, if_that_returns_its_input, loop,
        loop_that_never_runs, loop_in_loop, loop_over_numbers, loop_to_a_data_dependent_number, loop_until_a_value,
        loop_that_swaps, loop_that_keeps_every_step, loop_that_keeps_no_step, if_in_loop, loop_of_a_structure,
        scan_rows, scan_backwards_over_a_structure,
        scan_columns_in_rows, map_rows, map_with_a_branch, products_of_prefixes,
        pytest.param(hints_for_a_compiler, marks=needs("nested_compile_region")), vectorized,
        checkpoint, without_gradients,
    ],
)  # fmt: skip
def test_control_flow(function: Callable[[Net, Tensor], object]) -> None:
    module = Net(function).eval()
    program = fx_onnx.export(module, (torch.randn(3, 4),), dynamic_shapes=ROWS)
    for rows in (3, 6):
        for sign in (1, -1):
            x = (torch.rand(rows, 4) + 0.1) * sign
            assert_close(program(x), module(x))
