"""The export flag is set during an export only, is reset after a failure, and is not visible in other threads."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import fx_onnx
from fx_onnx.capture.export_flag import exporting, is_in_onnx_export


def test_the_flag():
    assert not is_in_onnx_export()
    with pytest.raises(KeyError), exporting():
        with exporting():
            pass
        assert is_in_onnx_export()
        with ThreadPoolExecutor() as threads:
            assert not threads.submit(is_in_onnx_export).result()
        raise KeyError
    assert not is_in_onnx_export()


def test_the_flag_of_torch_onnx_is_set_too() -> None:
    """Models of other libraries read ``torch.onnx.is_in_onnx_export()``."""

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if torch.onnx.is_in_onnx_export() else x

    assert fx_onnx.export(Net(), (torch.zeros(2),))(torch.zeros(2))[0].tolist() == [1, 1]
    assert not torch.onnx.is_in_onnx_export()


def test_importing_the_flag_loads_no_module_beside_torch() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import fx_onnx.capture.export_flag; "
        "print(*(name for name in set(sys.modules) - before if not name.startswith('fx_onnx')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
