"""Tests that importing fx_onnx is fast, and that public names do not depend on the order of imports."""

import pickle
import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

import fx_onnx

# One process runs this and ORDERS, because importing torch takes seconds.
TIMED = """
import sys, time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import fx_onnx
from fx_onnx import export
end = time.perf_counter()
slow = {"onnx", "onnx_ir", "onnxscript", "onnxruntime", "sympy"}
slow |= {"torch._dynamo", "torch.fx.experimental.symbolic_shapes"}
print((end - middle) / (middle - start), *(slow & set(sys.modules)))
"""

ORDERS = """
import sys, torch

firsts = ["import fx_onnx", "import fx_onnx.export", "from fx_onnx.export import export", "from fx_onnx import *"]
for first in firsts:
    for name in [each for each in sys.modules if each.partition(".")[0] == "fx_onnx"]:
        del sys.modules[name]
    exec(f"{first}\\nimport fx_onnx\\nprint(callable(fx_onnx.export), fx_onnx.export.__name__)", {})
"""


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed():
    return python(TIMED + ORDERS).splitlines()


def test_importing_adds_little_to_importing_torch(printed):
    ratio, *loaded = printed[0].split()
    assert loaded == []  # the first export imports them
    assert float(ratio) < 0.15


def test_export_is_the_function(printed):
    """After each form of the first import, where fx_onnx is imported anew."""
    assert printed[1:] == ["True export"] * 4


def test_a_checkout_works_without_an_installation():
    """A script in the checkout imports the folder fx_onnx from there, also where the package is installed."""
    assert PathFinder.find_spec("fx_onnx.decompositions", fx_onnx.__path__) is not None


def test_public_names():
    assert set(fx_onnx.__all__) <= set(dir(fx_onnx))
    for name in set(fx_onnx.__all__) - {"__version__"}:
        assert getattr(fx_onnx, name).__name__ == name
        assert pickle.loads(pickle.dumps(getattr(fx_onnx, name))) is getattr(fx_onnx, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = fx_onnx.nothing


LACKING = """
import sys, torch

class Lacking:
    def __getattr__(self, name):
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith("fx_onnx") and not name.startswith("__"):
            raise AttributeError(name)
        return getattr(aten, name)

aten, torch.ops.aten = torch.ops.aten, Lacking()
import fx_onnx.pipeline
from fx_onnx.extension_points.translation_table import registered_translations
from fx_onnx.decompositions.registry import DECOMPOSITIONS
print(*(str(target) for target in {*registered_translations(), *DECOMPOSITIONS}))
"""


def test_an_operator_that_torch_lacks_is_no_error_at_import():
    """In this process torch has no ATen operators but those that are named like methods of Python."""
    registered = python(LACKING).split()
    assert "torchvision::roi_align" in registered
    assert {name.split(".")[1][:2] for name in registered if name.startswith("aten.")} == {"__"}
