"""Messages name lines of the user or of a library, never of torch, of fx_onnx or of Python."""

from __future__ import annotations

import functools
import json
import linecache
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
import torch

import fx_onnx.export
from fx_onnx.messages.source_lines import (
    call_site,
    function_place,
    innermost_line,
    is_internal,
    is_library,
    line_text,
    portable_stack_trace,
    shown_path,
)


@pytest.mark.parametrize(
    ("file", "internal"),
    [
        (__file__, False),
        (onnx.__file__, False),
        (torch.__file__, True),
        (fx_onnx.export.__globals__["__file__"], True),
        (json.__file__, True),
        ("<string>", True),
    ],
)
def test_which_files_are_internal(file: str, internal: bool) -> None:
    assert is_internal(file) is internal


def test_which_modules_are_libraries() -> None:
    assert [is_library(name) for name in ("torch.nn", "json", "torchvision.ops", __name__)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_cell_of_a_notebook_is_not_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell has the name of a file that does not exist. Code that torch generates has a name such as ``<string>``."""
    code = (4, None, ["x.sin()\n"], "")
    for name, internal in (("/tmp/ipykernel_7/12.py", False), ("<eval_with_key>.12", True)):
        monkeypatch.setitem(linecache.cache, name, code)
        assert is_internal(name) is internal
    assert is_internal("/tmp/ipykernel_7/13.py")


def test_a_cell_of_a_notebook_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython compiles a cell as a file in the folder of temporary files."""
    compiler = SimpleNamespace(format_code_name={"/tmp/ipykernel_1/2.py": ("Cell", "In[3]")}.get)
    shell = SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert line_text("/tmp/ipykernel_1/2.py", 4, "x.item()") == "(Cell In[3]:4: x.item())"
    assert shown_path("/tmp/ipykernel_1/2.py") == "Cell In[3]" and shown_path("/tmp/other.py") == "/tmp/other.py"
    trace = '  File "/tmp/ipykernel_1/2.py", line 4, in forward\n    x.item()\n'
    assert portable_stack_trace(trace) == trace.replace("/tmp/ipykernel_1/2.py", "Cell In[3]")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert shown_path("/tmp/ipykernel_1/2.py") == "/tmp/ipykernel_1/2.py"


def test_a_call_is_one_call_however_often_it_runs() -> None:
    """Python 3.11 moves the call of a class to another instruction at the eighth call."""
    sites = []

    class Asked:
        def __bool__(self) -> bool:
            sites.append(call_site(sys._getframe(1)))
            return True

    for _ in range(12):
        assert bool(Asked()) and bool(Asked())
    assert len(set(sites)) == 2 and sites[:2] * 12 == sites


def test_a_line_has_its_code_and_a_short_path() -> None:
    assert line_text(__file__, 3) == f"({__file__}:3: from __future__ import annotations)"
    assert (
        line_text("/env/lib/python3.11/site-packages/library/model.py", 7, " call(x)")
        == "(library/model.py:7: call(x))"
    )
    assert line_text("nowhere.py", 7) == "(nowhere.py:7)"


def test_the_innermost_line_is_not_internal() -> None:
    frames = [traceback.FrameSummary(__file__, 3, "f"), traceback.FrameSummary(torch.__file__, 5, "g")]
    assert innermost_line(frames) == line_text(__file__, 3)
    assert innermost_line(frames[1:]) == ""


def test_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(str(tmp_path / "a" / "b.py")) == "a/b.py"
    assert shown_path(torch.__file__) == "torch/__init__.py"
    assert shown_path("/elsewhere/b.py") == "/elsewhere/b.py"


def test_a_function_has_its_place() -> None:
    name = Path(__file__).name
    line = test_a_function_has_its_place.__code__.co_firstlineno
    found = function_place(functools.partial(test_a_function_has_its_place))
    assert found.startswith("test_a_function_has_its_place (") and found.endswith(f"{name}:{line})")
    assert function_place(len) == "len"
