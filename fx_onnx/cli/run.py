"""``fx-onnx run``: runs a Python program whose calls of torch.onnx export through fx_onnx."""

from __future__ import annotations

import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb
from typing import Annotated

import typer

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["run"]

Program = Annotated[
    str, typer.Argument(help="An installed command, or a Python file; with -m a module.", show_default=False)
]
Arguments = Annotated[list[str] | None, typer.Argument(help="The program's own arguments.", show_default=False)]
Module = Annotated[bool, typer.Option("-m", help="Run a module, as python -m does.")]


def run(program: Program, arguments: Arguments = None, module: Module = False) -> None:
    """Runs a program whose torch.onnx.export goes through fx_onnx.

    The exit code is the program's. Processes that the program starts export through torch.onnx.
    """
    from fx_onnx.integrations.torch_onnx import replacing_torch_onnx

    folder, start = _program(program, module)
    with replacing_torch_onnx() as calls, _restored():
        sys.argv = [program, *(arguments or ())]
        sys.path[:0] = folder
        try:
            start()
        finally:
            if not calls:
                typer.echo(f"fx-onnx: {program} did not call torch.onnx in this process.", err=True)


def _program(program: str, module: bool) -> tuple[list[str], Callable[[], object]]:
    """Returns the folder that Python adds to the import path for a program, if any, and what runs the program.

    Raises:
        ArgumentError: the program is neither a Python file nor a command that is written in Python.
    """
    if module:
        return [""], lambda: _run_module(program)
    if scripts := tuple(entry_points(group="console_scripts", name=program)):
        return [], lambda: sys.exit(scripts[0].load()())
    if (path := _python_file(program)) is not None:
        return [str(path.resolve().parent)], lambda: runpy.run_path(str(path), run_name="__main__")
    raise ArgumentError(
        f"{program} is neither a Python file nor an installed command that is written in Python; give the file, or -m "
        "and a module.",
        id=MessageId.COMMAND_OPTION,
    )


def _run_module(name: str) -> None:
    """Runs a module.

    Raises:
        ArgumentError: there is no such module, or it is a package that cannot be run.
    """
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except ImportError as error:
        *_, (frame, _line) = walk_tb(error.__traceback__)
        if frame.f_globals["__name__"] != "runpy":  # the module's own error
            raise
        raise ArgumentError(f"-m {name}: {error}", id=MessageId.COMMAND_OPTION) from error


def _python_file(program: str) -> Path | None:
    """Returns the file of a script, or of a command on the path whose first line names Python; else None."""
    if program.endswith((".py", ".pyw")) and Path(program).is_file():
        return Path(program)
    command = shutil.which(program)
    if command is None:
        return None
    with open(command, "rb") as file:
        line = file.readline(200)
    return Path(command) if line.startswith(b"#!") and b"python" in line else None


@contextmanager
def _restored() -> Iterator[None]:
    """Restores the arguments and the import path of this process at the end."""
    argv, path = sys.argv, list(sys.path)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
