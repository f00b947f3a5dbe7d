"""The table of ONNX Runtime's kernels agrees with the installed runtime and with the models that load."""

import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_ir import DataType
from onnxruntime.capi import onnxruntime_pybind11_state as state

from fx_onnx.passes.legalization.kernel_tables import DTYPES, first_kernels, kernel_table, since_version

TABLE = kernel_table("onnxruntime")
OPEN = 2**31 - 1  # ONNX Runtime gives this as the last version of a kernel that has none


@pytest.mark.parametrize("op_type", ["Where", "Conv", "Add", "Max", "Pad", "Attention", "DepthToSpace", "Cast"])
@pytest.mark.parametrize("opset", [18, 20, 22, 23, 24, 26])
def test_agrees_with_the_installed_runtime(op_type: str, opset: int) -> None:
    """The runtime, of any version that the package allows, has the kernels of the table."""
    since = since_version(op_type, opset)
    listed = set()
    for kernel in state.get_all_opkernel_def():
        first, last = kernel.version_range
        fits = first == since or (since is not None and first < since <= last != OPEN)
        if kernel.provider == "CPUExecutionProvider" and not kernel.domain and kernel.op_name == op_type and fits:
            name, types = min(kernel.type_constraints.items())
            listed |= {(name, each[7:-1]) for each in types if each[7:-1] in DTYPES.values()}
    tabled = {(min(each.admitted), dtype.name.lower()) for each in TABLE.kernels(op_type, since or 0)
            for dtype in each.admitted[min(each.admitted)]}  # fmt: skip
    assert tabled <= listed
    assert bool(tabled) == bool(listed)


@pytest.mark.parametrize(
    ("op_type", "dtype", "loads"),
    [("Erf", "FLOAT", True), ("Erf", "DOUBLE", False), ("Neg", "BFLOAT16", False), ("Neg", "INT16", True)],
)
def test_agrees_with_the_models_that_load(op_type: str, dtype: str, loads: bool) -> None:
    """A model of one node loads exactly where the table has a kernel."""
    kind = TensorProto.DataType.Value(dtype)
    sides = [helper.make_tensor_value_info(name, kind, ["N"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "g", sides[:1], sides[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    assert (
        any(DataType[dtype] in each.admitted["T"] for each in TABLE.kernels(op_type, since_version(op_type, 20) or 0))
        == loads
    )
    if loads:
        onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    else:
        with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
            onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])


def test_unknown_operators() -> None:
    """An operator that ONNX lacks has no version and no kernel."""
    assert since_version("Nonsense", 20) is None
    assert TABLE.kernels("Nonsense", 20) == ()


def test_the_first_table_with_the_operator_decides() -> None:
    """The CUDA provider has Add of float16, the CPU provider has not; only the CPU provider has Unique."""
    providers = "onnxruntime-cuda", "onnxruntime"
    add = first_kernels(providers, "Add", 14)
    assert any(DataType.FLOAT16 in each.admitted["T"] for each in add)
    assert first_kernels(providers, "Unique", 11) == TABLE.kernels("Unique", 11) != ()
    assert first_kernels(providers, "Nonsense", 1) == ()
