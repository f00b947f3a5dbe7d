"""The package runs where the modules, functions and flags that only POSIX has are absent, as on Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.sources import ROOT
from tests.test_architecture import POSIX_MODULES
from tests.torch_versions import needs

WITHOUT_POSIX = f"""
import os, sys, types
import onnx, onnx_ir, onnxruntime, onnxscript, torch, torch.export, typer, webbrowser
sys.modules.update(dict.fromkeys({sorted(POSIX_MODULES)}))
for name in ("fork", "getuid", "geteuid", "getgid", "getpgid", "killpg", "mkfifo", "chown", "fchmod", "O_NOFOLLOW",
             "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "sched_getaffinity", "getloadavg", "uname", "statvfs"):
    if hasattr(os, name):
        delattr(os, name)
sys.platform = "win32"
from fx_onnx.files import locked_file
sys.platform, locked_file.sys = "linux", types.SimpleNamespace(platform="win32")  # torch needs the true platform
import fx_onnx, fx_onnx.cli.app, fx_onnx.cli.run
for _ in range(2):  # the second save replaces the first one's files
    fx_onnx.export(torch.nn.Linear(64, 64), (torch.ones(1, 64),), "model.onnx", external_data=True, verify=True)
print(*sorted(os.listdir()))
"""


@needs("no POSIX")
def test_an_export_and_two_saves_without_posix(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WITHOUT_POSIX]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["model.onnx", "model.onnx.1.data"]
