"""Tests of branches and loops that depend on data: the examples of PyTorch's documentation, and harder ones."""

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import CaptureError
from tests.torchscript.agreement import agree

torch.manual_seed(0)
X = torch.randn(4, 3)


# The first three are the examples of PyTorch's pages about tracing and scripting.
@torch.jit.script
def sum_loop(x: Tensor, y: Tensor) -> Tensor:
    for i in range(int(y.item())):
        x = x + i
    return x


@torch.jit.script
def sum_rows(x: Tensor) -> Tensor:
    y = torch.zeros_like(x[0])
    for i in range(x.size(0)):
        y = y + x[i] * i
    return y


@torch.jit.script
def branch_on_data(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return -x
    return x


@torch.jit.script
def writes(x: Tensor) -> Tensor:
    out = torch.zeros(x.size(0), 3)
    for i in range(x.size(0)):
        out[i] = x[i] * 2
        if bool(x[i].sum() > 0):
            out[i, 0] = -1.0
    return out


@torch.jit.script
def returns_early(x: Tensor) -> tuple[Tensor, int]:
    n = 0
    while True:
        if bool(x.sum() > 10):
            return x * 2, n
        x = x + 1
        n += 1
        if n > 4:
            break
    return x, -1


@torch.jit.script
def numbers(x: Tensor) -> tuple[Tensor, int, bool]:
    steps, scale, found = 0, 1.0, False
    while not found and steps < 10:
        scale = scale * 1.5
        steps += 1
        found = bool((x * scale).max() > 3)
    return x * scale, steps, found


@torch.jit.script
def nested(x: Tensor) -> Tensor:
    total = x * 0
    i = 0
    while bool(total.sum() < 20) and i < 6:
        for j in range(int(x.abs().max().item()) + 1):
            total = total + j if bool(total.sum() > 3 * j) else total + x.abs() + 1
        i += 1
    return total


@torch.jit.script
def containers(x: Tensor) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {"x": x}
    items: list[Tensor] = [x, x + 1]
    if bool(x.sum() > 0):
        items[0] = items[1] * 2
        found["x"] = items[0] - 1
    else:
        found["x"] = found["x"] * 3
    found["sum"] = items[0] + items[1]
    return found


SIGNS = [(X,), (-X,), (X + 2,), (X - 2,), (X * 9,)]
CASES = {
    "sum_loop": (sum_loop, (X, torch.tensor(3)), [(X, torch.tensor(n)) for n in (0, 1, 7)], None),
    "sum_rows": (sum_rows, (X,), [(torch.randn(n, 3),) for n in (1, 2, 9)], ({0: "n"},)),
    "branch": (branch_on_data, (X,), SIGNS, None),
    "writes": (writes, (X,), [(torch.randn(n, 3),) for n in (1, 2, 9)], ({0: "n"},)),
    "writes unrolled": (writes, (X,), SIGNS, None),
    "returns_early": (returns_early, (X,), SIGNS, None),
    "numbers": (numbers, (X,), SIGNS, None),
    "nested": (nested, (X,), SIGNS, None),
    "containers": (containers, (X,), SIGNS, None),
}


@pytest.mark.parametrize("name", CASES)
def test_data_decides_at_run_time(name):
    script, args, others, dims = CASES[name]
    program = fx_onnx.export(script, args, dynamic_shapes=dims, verify=True)
    for other in others:
        agree(script, program, *other)


def test_a_loop_with_a_fixed_count_is_unrolled():
    program = fx_onnx.export(sum_rows, (X,), verify=True)
    assert "Loop" not in {node.op_type for node in program.model.graph}


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.linear = nn.Linear(3, 3)
        self.step = 1

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            self.count = self.count + 1
            return self.linear(x) * self.step
        self.count.mul_(2)
        return x + self.count


def test_a_branch_changes_buffers_and_reads_weights():
    script = torch.jit.script(Buffers())
    program = fx_onnx.export(script, (X,), verify=True)
    program.state = {}
    for value in (X.abs(), -X.abs(), X.abs()):
        agree(script, program, value)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.linear = nn.Linear(3, 3)
        self.step = 1

    def forward(self, x: Tensor) -> Tensor:
        i = 0
        while bool(x.sum() < 12) and i < 5:
            if bool(x.max() > 1.5):
                self.step += 2
                self.total = self.total + self.linear(x).sum(0)
            else:
                self.total.add_(1)
            x = x + 0.5
            i += 1
        return x * self.step + self.total


def test_a_loop_assigns_attributes_under_a_condition_and_writes_to_them():
    script = torch.jit.script(Counting().eval())
    program = fx_onnx.export(script, (X,), verify=True)
    program.state = {}
    for (value,) in SIGNS:
        agree(script, program, value)


@torch.jit.script
def raises(x: Tensor) -> Tensor:
    if bool(x.sum() > 100):
        raise ValueError("too large")
    return x + 1


def test_a_raise_that_depends_on_data_is_a_warning():
    text = r"the exported model does not: too large \(.*:\d+: raise.*\); check the data"
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=text):
        program = fx_onnx.export(raises, (X,), verify=True)
    agree(raises, program, -X)


@torch.jit.script
def appends_to_known_items(x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    items = [x, x * 2]
    h = x
    while bool(h.sum() < 10):
        h = h + 1
        items.append(h)
    items.append(x)
    return torch.stack(items, 1), torch.cat(items, -1), items[-1] + items[1], len(items)


@torch.jit.script
def appends_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = torch.jit.annotate(list[Tensor], [])
    for i in range(x.size(0)):
        rows.append(x[i] * i)
    return torch.stack(rows), torch.cat(rows), rows[x.size(0) - 1]


def test_lists_to_which_a_loop_appends():
    program = fx_onnx.export(appends_to_known_items, (X,), verify=True)
    for (value,) in SIGNS:  # the loop runs a different number of times, or not at all
        agree(appends_to_known_items, program, value)
    program = fx_onnx.export(appends_rows, (X,), dynamic_shapes=({0: "rows"},), verify=True)
    for rows in (1, 2, 9):
        agree(appends_rows, program, torch.randn(rows, 3))


@torch.jit.script
def returns_a_list(x: Tensor) -> list[Tensor]:
    items = [x]
    for _ in range(int(x.abs().max().item())):
        items.append(x)
    return items


@torch.jit.script
def reverses_a_list(x: Tensor) -> Tensor:
    items = [x]
    for _ in range(int(x.abs().max().item())):
        items.append(x)
    items.reverse()
    return torch.stack(items)


@torch.jit.script
def appends(x: Tensor) -> list[Tensor]:
    items = [x]
    while bool(items[-1].sum() < 10):
        items.append(items[-1] + 1)
    return items


@torch.jit.script
def writes_to_base(x: Tensor) -> Tensor:
    y = x * 1
    row = y[0]
    if bool(x.sum() > 0):
        row.add_(1)
        y = y * row
    return y


@torch.jit.script
def sometimes_none(x: Tensor) -> Tensor:
    y = torch.jit.annotate(Tensor | None, None)
    if bool(x.sum() > 0):
        y = x
    return x if y is None else y * 2


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (appends, r"loop that depends on data .*a variable is a list or dict whose length depends on data"),
        (returns_a_list, "returns a list whose length depends on data"),
        (reverses_a_list, r"The length of a list depends on data, and aten::reverse needs it \(.*items.reverse"),
        (writes_to_base, r"branch that depends on data .*it writes to a tensor of which another variable is a view"),
        (sometimes_none, r"a variable is a tensor in one case and NoneType None in the other"),
    ],
)
def test_what_has_no_common_form_is_refused(script, message):
    with pytest.raises(CaptureError, match=message):
        fx_onnx.export(script, (X,))


@torch.jit.script
def ranges(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n = x.size(0)
    first, last, data = x[0], x[0], x[0]
    for i in range(1, n):
        first = first * 0.5 + x[i]
    for i in range(n - 1, -1, -2):
        last = last * 0.5 + x[i]
    for i in range(2, int(x.abs().max().item()), 3):
        data = data + i
    return first, last, data


def test_ranges_of_dynamic_length():
    program = fx_onnx.export(ranges, (X,), dynamic_shapes=({0: "rows"},), verify=True)
    for rows in (1, 2, 3, 9):
        agree(ranges, program, torch.randn(rows, 3) * 4)


@torch.jit.script
def grows(x: Tensor) -> Tensor:
    y = x
    for _ in range(1, x.size(0)):
        y = torch.cat([y, x])
    return y


def test_a_dim_is_static_if_a_loop_over_it_cannot_be_a_loop_of_the_program():
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"static with size 4: .*test_data_dependent.py:\d+: for _ in"):
        program = fx_onnx.export(grows, (X,), dynamic_shapes=({0: "rows"},), verify=True)
    assert program(X)[0].shape == (16, 3)


@torch.jit.script
def halves(x: Tensor) -> Tensor:
    if bool(x.sum() > 1000):
        raise ValueError("too large")
    return x[: x.size(0) // 2] if x.size(0) % 2 == 0 else x


def test_warnings_name_the_line_of_the_model_and_that_of_the_export():
    with pytest.warns(fx_onnx.OnnxExporterWarning) as found:
        fx_onnx.export(halves, (X,), dynamic_shapes=({0: "rows"},))
    (warning,) = found
    assert warning.filename == __file__
    assert "raises an exception" in str(warning.message)
    assert f" ({__file__}:" in str(warning.message)


def test_a_warning_names_no_place_if_the_file_of_a_model_stores_none():
    model = torch.jit.CompilationUnit("def f(x: Tensor):\n    return x + 1 if x.size(0) == 4 else x\n").f
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"the model needs shape\[0\] == 4( \(<string>|\.$)"):
        fx_onnx.export(model, (X,), dynamic_shapes=({0: "rows"},))


@torch.jit.script
def ends_early(x: Tensor) -> Tensor:
    h = torch.zeros(3)
    for i in range(1, x.size(0)):
        h = torch.tanh(x[i] + h)
        if bool(h.sum() > 2):
            break
    return h


def test_the_sizes_for_which_a_loop_has_no_iteration_are_those_of_its_line():
    with pytest.warns(fx_onnx.OnnxExporterWarning):
        program = fx_onnx.export(ends_early, (torch.ones(5, 3),), dynamic_shapes=({0: "n"},))
    (finding,) = program.findings
    assert "correct only where n >= 2, because the code reads at an index that other sizes do not have" in finding.text
    assert ": h = torch.tanh(x[i] + h))" in finding.text and finding.place
