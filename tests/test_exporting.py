"""The mark of an export: set inside, gone after it, also after a failure, and not seen by other threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest

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
