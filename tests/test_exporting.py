"""The mark of an export: set inside, gone after it, also after a failure, and not seen by other threads."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import fx_onnx
from fx_onnx.exporting import exporting, is_in_onnx_export


def test_the_mark():
    assert not is_in_onnx_export()
    with pytest.raises(KeyError), exporting():
        with exporting():
            pass
        assert is_in_onnx_export()
        with ThreadPoolExecutor() as threads:
            assert not threads.submit(is_in_onnx_export).result()
        raise KeyError
    assert not is_in_onnx_export()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
