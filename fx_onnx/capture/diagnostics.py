"""Why torch.export could not capture a module: one sentence from its error, with the user's line and what to change."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn.utils.rnn import PackedSequence

from fx_onnx.capture.export_flag import replaced
from fx_onnx.core.torch_private import export_trace_module

# What an error says, and what helps.
_ADVICE = {
    "do not support aliasing": "return clones of what a branch or loop body is given, `x.clone()` for `x`",
    "data-dependent": "write control flow that depends on values with torch.cond or while_loop, or state what always "
    "holds with torch._check",
    "Data-dependent": "write a branch that depends on values with torch.cond",
    "same metadata": "carry tensors of one shape and dtype through all turns of a loop",
    "merging two branches": "let both branches return tensors of one dtype and rank",
    "no fake impl": "register one with torch.library.register_fake, which says the shapes and dtypes of the results",
    "in output, which is not a known type": "return tensors in tuples, lists and dicts, or register the class with "
    "torch.export.register_dataclass",
}
_ELSE = "see that the model runs on these arguments without exporting it, then change this line"
_UNPACKED = (
    "a PackedSequence can be captured if pack_padded_sequence makes it within the forward: let the padded sequences "
    "and their lengths be the arguments"
)


def explanation(model: torch.nn.Module, error: Exception) -> str:
    """The sentence for an error that torch.export raised for the model."""
    name, kind, text = type(model).__name__, type(error).__name__, str(error)
    advice = _UNPACKED if _has_packed_sequence(error) else _advice(text)
    return f"torch.export could not capture {name}: {kind}: {_essence(text)}{_place(error)}; {advice}."


@contextmanager
def not_printed() -> Iterator[None]:
    """Keeps torch from printing the graph of each failed attempt; the error has it, as ``partial_fx_graph``."""
    module = export_trace_module()
    if module is None:
        yield
        return
    with replaced(module, "print", lambda *_, **__: None), replaced(module.log, "disabled", True):
        yield


def contradicts_dims(text: str) -> bool:
    """Whether torch says that a dim cannot be as it was asked to be."""
    return any(phrase in text for phrase in ("Suggested fixes", "dim hint", "as dynamic but your code specialized"))


def _essence(text: str) -> str:
    """The lines of torch's message that say what is wrong, each without the explanations that follow."""
    if (inner := re.search(r"""got (\w+)\((["'])(.+?)\2\)""", text, re.DOTALL)) is not None:  # an error within dynamo's
        return f"{inner[1]}: {_first_sentence(inner[3])}"
    _, _, after = text.partition("Got graph break/error:")
    lines = [line.strip() for line in (after or text).splitlines() if line.strip()] or ["no message"]
    conflicts = [line[2:] for line in lines if line.startswith("- ")]
    if not conflicts and lines[0].endswith(":"):
        return " ".join(map(_first_sentence, lines[:2]))
    return ", ".join(map(_first_sentence, conflicts or lines[:1]))


def _first_sentence(line: str) -> str:
    return line.partition(". ")[0].partition(" (unhinted")[0].rstrip(".")


def _advice(text: str) -> str:
    if contradicts_dims(text):
        return "change dynamic_shapes so, or give the dim a string as its name, which may come out static"
    return next((advice for phrase, advice in _ADVICE.items() if phrase in text), _ELSE)


def _has_packed_sequence(error: Exception) -> bool:
    """Whether a recurrence failed at one, of which no message of torch speaks."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(isinstance(each, PackedSequence) for frame in frames for each in frame.f_locals.values())


def _place(error: Exception) -> str:
    """The last line of the user's own in the traceback."""
    library, torch_home, own = (Path(sysconfig.get_path("stdlib")), Path(torch.__file__).parent, Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        in_library = path.is_relative_to(library) and "site-packages" not in path.parts
        if path.is_file() and not in_library and not path.is_relative_to(torch_home) and not path.is_relative_to(own):
            return f" ({frame.filename}:{frame.lineno}: {frame.line})"
    return ""
