"""Tests of the private names of torch: each exists in this torch, and a missing one has the documented effect."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.export import Dim
from torch.overrides import TorchFunctionMode

from fx_onnx.torch_internals import torch_private

aten = torch.ops.aten


@pytest.mark.parametrize("name", torch_private.NAMES)
def test_each_name_resolves_and_has_a_reason(name):
    assert getattr(torch_private, name) is not None
    assert torch_private.NAMES[name].reason


def test_all_lists_every_name():
    public = {name for name in torch_private.__all__ if name not in torch_private.NAMES}
    assert torch_private.NAMES.keys() <= set(torch_private.__all__)
    assert all(hasattr(torch_private, name) for name in public)


def test_import_resolves_nothing():
    code = (
        "import sys, torch; before = set(sys.modules); import fx_onnx.torch_internals.torch_private; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith(("torch", "sympy"))} == set()


def test_a_missing_name_is_an_import_error_that_names_it(monkeypatch):
    monkeypatch.setitem(torch_private.NAMES, "gone", torch_private.PrivateName("torch._ops.Gone", "a test"))
    with pytest.raises(ImportError, match=r"fx_onnx needs torch\._ops\.Gone, which torch .* lacks"):
        _ = torch_private.gone
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        _ = torch_private.unknown


def test_checks_holds_the_functions_that_torch_has():
    assert torch._check in torch_private.CHECKS
    assert {check.__name__ for check in torch_private.CHECKS} <= {"_check", "_check_is_size"}


def test_operator_name():
    assert torch_private.operator_name(aten.add.Tensor) == "aten::add.Tensor"
    assert torch_private.operator_name(torch.ops.higher_order.cond) == "cond"
    assert torch_private.operator_name(len) == ""


def test_operator_names():
    names = torch_private.operator_names()
    assert {"aten::add.Tensor", "aten::relu"} <= set(names)
    assert names == sorted(names)


def test_operator_of_a_custom_op():
    @torch.library.custom_op("torch_private_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x

    assert torch_private.operator_of(twice) is torch.ops.torch_private_test.twice.default


def test_has_composite_kernel(monkeypatch):
    assert torch_private.has_composite_kernel(aten.linear.default)
    assert not torch_private.has_composite_kernel(aten.mm.default)
    monkeypatch.delattr(torch._C, "_dispatch_has_kernel_for_dispatch_key")
    assert not torch_private.has_composite_kernel(aten.linear.default)


def test_torch_decompositions_without_the_private_table(monkeypatch):
    everything, public = torch_private.torch_decompositions(), dict(torch.export.default_decompositions().items())
    monkeypatch.setattr(torch.export, "default_decompositions", lambda: public)  # torch's reads the table too
    _remove(monkeypatch, torch._decomp, "global_decomposition_table")
    assert set() < set(torch_private.torch_decompositions()) == set(public) < set(everything)


def test_replaced_kernels_restores_the_kernels():
    composite, meta = torch_private.kernel_keys()
    operator = aten.max_pool1d.default
    before = dict(torch_private.python_kernels(operator))
    with torch_private.replaced_kernels({(operator, composite): len, (operator, meta): len}):
        kernels = torch_private.python_kernels(operator)
        assert (kernels[composite]([1, 2]), kernels[meta]([1])) == (2, 1)
    assert torch_private.python_kernels(operator) == before


def test_a_compiled_kernel_computes():
    composite, _ = torch_private.kernel_keys()
    x = torch.randn(3, 2)
    kernel = torch_private.compiled_kernel(torch.ops.aten.cdist.default, composite)
    torch.testing.assert_close(kernel(x, x + 1), torch.cdist(x, x + 1))


def test_replaced_kernels_leave_other_threads_alone():
    operator, (_, meta) = aten.relu.default, torch_private.kernel_keys()
    x = torch.ones(2, 3, device="meta")

    def shape():
        with torch_private.FakeTensorMode() as mode:
            return torch.relu(mode.from_tensor(x)).shape

    with torch_private.replaced_kernels({(operator, meta): lambda x: x.new_empty(7)}):
        kernel = torch_private.python_kernels(operator)[meta]
        with ThreadPoolExecutor() as threads:
            assert threads.submit(kernel, x).result().shape == (2, 3)
            assert threads.submit(shape).result() == (2, 3)
        assert kernel(x).shape == (7,)


def test_a_shape_kernel_replaces_the_decomposition_that_fake_tensors_prefer():
    operator, (_, meta) = aten.unfold_backward.default, torch_private.kernel_keys()
    table, arguments = torch._decomp.decomposition_table, (torch.ones(3, 4), [8], 0, 4, 2)
    before = table[operator]
    with torch_private.replaced_kernels({(operator, meta): lambda grad, *_: grad.new_empty(7)}):
        assert table[operator](*arguments).shape == (7,)
        with ThreadPoolExecutor() as threads:
            assert threads.submit(table[operator], *arguments).result().shape == (8,)
    assert table[operator] is before


def test_storage_id_tells_storages_apart():
    for device in ("cpu", "meta"):
        x = torch.zeros(4, device=device)
        assert torch_private.storage_id(x) == torch_private.storage_id(x[1:])
        assert torch_private.storage_id(x) != torch_private.storage_id(x.clone())


class Even(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] % 2 == 0 else x


class Seeing(TorchFunctionMode):
    """Counts the functions of torch that it sees."""

    seen = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Calls the function."""
        self.seen += 1
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("is_gone", [False, True])
def test_function_modes_see_nothing(is_gone, monkeypatch):
    if is_gone:
        monkeypatch.delattr(torch._C, "DisableTorchFunction")
    with Seeing() as mode, torch_private.without_function_modes():
        torch.ones(2).add(1).shape  # noqa: B018
    assert (mode.seen > 0) is is_gone


def test_facts_of_symbolic_sizes():
    program = torch.export.export(Even(), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    value = next(iter(program.graph.nodes)).meta["val"]
    symbol = torch_private.symbolic_expression(value.shape[0])
    shape_env = value.fake_mode.shape_env
    assert symbol.free_symbols
    assert any(guard.expr.has(torch_private.Mod) for guard in shape_env.guards)


def test_size_oblivious_keeps_a_size_of_one_symbolic():
    with torch_private.size_oblivious():
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(1, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert isinstance(next(iter(program.graph.nodes)).meta["val"].shape[0], torch.SymInt)


def test_capture_modules_are_optional(monkeypatch):
    assert torch_private.tensor_min_max() is not None
    _remove(monkeypatch, torch._export.non_strict_utils, "_tensor_min_max")
    _remove(monkeypatch, torch._dynamo, "trace_rules")
    _remove(monkeypatch, torch._dynamo, "config")
    assert torch_private.tensor_min_max() is None
    torch_private.list_python_builtins()
    with torch_private.control_flow_settings()():
        pass


def test_control_flow_settings_let_a_branch_be_empty():
    before = torch._dynamo.config.allow_empty_graphs
    with torch_private.control_flow_settings()():
        assert torch._dynamo.config.allow_empty_graphs
    assert torch._dynamo.config.allow_empty_graphs is before


def _remove(monkeypatch, module, name):
    """Makes torch lack a name of a module, which may be a module itself."""
    monkeypatch.delattr(module, name)
    monkeypatch.setitem(sys.modules, f"{module.__name__}.{name}", None)


def test_unrecorded_operators_leave_no_node():
    class Model(torch.nn.Module):
        def forward(self, x):
            with torch_private.unrecorded():
                count = (x + 1).sum().item()
            assert isinstance(count, torch.SymFloat)
            return x * 2

    program = torch.export.export(Model(), (torch.ones(2),), strict=False)
    assert [node.target for node in program.graph.nodes if node.op == "call_function"] == [aten.mul.Tensor]


def test_a_fake_tensor_remembers_its_number_until_it_is_written():
    with torch_private.FakeTensorMode():
        tensor = torch.empty((), dtype=torch.int64)
    assert torch_private.known_item(tensor) is None
    torch_private.remember_item(tensor, 3)
    assert torch_private.known_item(tensor) == tensor.item() == 3
    tensor.add_(1)
    assert torch_private.known_item(tensor) is None


def test_without_the_attribute_of_torch_no_tensor_remembers_a_number():
    assert torch_private.known_item(torch.zeros((), dtype=torch.int64)) is None
