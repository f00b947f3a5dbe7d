"""Which conditions only lead to an exception, and what their parts must answer so that nothing is raised."""

from __future__ import annotations

import contextlib
import linecache
import sys
from typing import Any

import pytest

from fx_onnx.capture.check_sources import answer_of, is_caught


class Asked:
    """Answers as a check needs it where it is asked in a check, and notes the answers."""

    def __init__(self) -> None:
        self.answers: list[bool | None] = []
        self.caught: list[bool] = []

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        self.answers.append(answer_of(frame.f_code, frame.f_lasti))
        self.caught.append(is_caught(frame.f_code, frame.f_lineno))
        return bool(self.answers[-1])

    def any(self) -> Asked:
        return self

    def own(self) -> Asked:
        return self

    def __lt__(self, other: Any) -> Asked:
        return self

    def __gt__(self, other: Any) -> Asked:
        return self


def run(code: str) -> Asked:
    asked, name = Asked(), f"<cell of {code}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    with contextlib.suppress(ValueError, AssertionError):
        exec(compile(code, name, "exec"), {"x": asked, "max": lambda *_: asked, "flag": True})
    return asked


@pytest.mark.parametrize(
    ("code", "answers"),
    [
        ("assert x", [True]),
        ("assert not x.any(), 'text'", [False]),
        ("if x < 3: raise ValueError", [False]),
        ("if not x: raise ValueError", [True]),
        ("if not (flag and x.any()): raise ValueError", [True]),
        ("if (x <\n  3) or x.any():\n  y = 2\n  raise ValueError", [False, False]),
        ("if bool(x): raise ValueError", [False]),
        ("if (\n  x.any()\n  or\n  (x > 3)\n): raise ValueError", [False, False]),
        ("if 0 < x.any() < 5: raise ValueError", [False]),
        ("if x: raise ValueError\nelse: y = 1", [False]),
        ("if x: y = 1", [None]),
        ("for _ in (1,):\n  if x:\n    if flag: continue\n    raise ValueError", [None]),
        ("if x: raise StopIteration", [None]),
        ("error = ValueError\nif x: raise error", [False]),
        ("if x: raise", [None]),
        ("if x: raise ValueError(1 if flag else 2)\ny = 1 if x else 2", [False, None]),
        ("if max(x, 3) > 5: raise ValueError", [None]),
        ("if flag and not flag and x.any(): raise ValueError", []),
        ("if not (not flag) and x.any(): raise ValueError", [False]),
        ("if not flag or not x.any(): raise ValueError", [True]),
        ("if flag is not None and not x.any(): raise ValueError", [True]),
        ("if flag != 'text' and not x.any(): raise ValueError", [True]),
        ("if not 'text' == flag and x.any(): raise ValueError", [False]),
        ("if not isinstance(flag, int) or x.any(): raise ValueError", [False]),
        ("if not hasattr(flag, 'size') and x.any() and x > 3: raise ValueError", [False]),
        ("if (\n  not flag is None\n  and not (flag is None)\n  and x.any()\n): raise ValueError", [False]),
        ("if not (not flag or x.any()): raise ValueError", [True]),
        ("assert flag is None or x.any()", [True]),
        ("assert not (flag and x.any())", [False]),
        ("if not max(x, 3) and x.any(): raise ValueError", [None, None]),
        ("if flag in (x, 3) or x.any(): raise ValueError", [None]),
        ("if x or not x.any(): raise ValueError", [True]),  # a name counts as a flag, so this raises
        ("if x.any() or not x.any(): raise ValueError", [None, None]),
        ("if x.any() and x.own(): raise ValueError", [None]),
    ],
)
def test_answers(code: str, answers: list[bool | None]) -> None:
    assert run(code).answers == answers


@pytest.mark.parametrize(
    ("code", "caught"),
    [
        ("assert not x", False),
        ("try:\n  assert not x\nexcept ValueError: pass", True),
        ("try:\n  assert not x\nfinally: y = 1", False),
        ("def f():\n  try:\n    assert not x\n  finally: return 1\nf()", True),
        ("import torch\nwith torch.no_grad():\n  assert not x", False),
        ("from contextlib import suppress\nwith suppress(ValueError):\n  assert not x", True),
    ],
)
def test_lines_whose_exceptions_are_caught(code: str, caught: bool) -> None:
    assert run(code).caught == [caught]


def test_code_without_a_source() -> None:
    code = compile("if x: raise ValueError", "<nothing>", "exec")
    assert answer_of(code, 0) is None
    assert not is_caught(code, 1)
