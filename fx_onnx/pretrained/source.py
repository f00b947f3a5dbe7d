"""Reads a model that ``save_pretrained`` wrote, without downloads and without running its code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_onnx.core.errors import ArgumentError, first_line
from fx_onnx.core.messages import MessageId

if TYPE_CHECKING:
    from fx_onnx.pretrained.tasks import Task

__all__ = ["find_task", "load_config", "load_model", "load_weights", "reading"]


_LOCAL = {"local_files_only": True, "trust_remote_code": False}


def load_config(folder: Path, advice: str = ".") -> Any:
    """Returns the config of the model in a folder.

    Args:
        folder: has ``config.json``.
        advice: the end of the sentence that refuses a folder that does not exist.

    Raises:
        ArgumentError: there is no such folder, it has no config, or transformers is not installed or does not know it.
    """
    if not folder.is_dir():
        raise ArgumentError(
            f"There is no folder {folder}, and nothing is downloaded; write the model to a folder with "
            f"`save_pretrained`{advice}",
            id=MessageId.MODEL_SOURCE,
        )
    if not (folder / "config.json").is_file():
        raise ArgumentError(
            f"{folder} is no folder of a Hugging Face model, because it has no config.json; `save_pretrained` writes "
            "one.",
            id=MessageId.MODEL_SOURCE,
        )
    try:
        import transformers
    except ImportError:
        raise ArgumentError(
            "A Hugging Face model needs the package transformers: pip install transformers.",
            id=MessageId.MISSING_PACKAGE,
        ) from None
    with reading(folder):
        return transformers.AutoConfig.from_pretrained(folder, **_LOCAL)


def load_weights(model_class: Any, folder: Path, config: Any) -> Any:
    """Returns the model of a class of transformers in evaluation mode."""
    return model_class.from_pretrained(folder, config=config, **_LOCAL).eval()


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turns an error of transformers about a folder into an ArgumentError."""
    try:
        yield
    except ArgumentError:
        raise
    except Exception as error:  # transformers raises errors of many classes for a config that is not valid
        text = str(error) if isinstance(error, (OSError, ValueError)) else first_line(error)
        cause = f": {first_line(error.__cause__)}" if isinstance(error.__cause__, Exception) else ""
        raise ArgumentError(f"transformers cannot load {folder}: {text}{cause}", id=MessageId.MODEL_SOURCE) from error


def find_task(config: Any) -> str:
    """Returns the task whose class of transformers builds what the config names as its architecture.

    Raises:
        ArgumentError: no task has such a class.
    """
    from fx_onnx.pretrained.tasks import TASKS  # it imports torch, which a folder that is refused does not need

    wanted = (config.architectures or [None])[0]
    for name, task in TASKS.items():
        found = _class_of(task, config)
        if found is not None and wanted in {each.__name__ for each in found}:
            return name
    raise ArgumentError(
        f"No task builds the architecture {wanted} of config.json; give a task, one of {', '.join(TASKS)}.",
        id=MessageId.MODEL_SOURCE,
    )


def load_model(folder: Path, config: Any, task: str) -> Any:
    """Returns the model in evaluation mode.

    Raises:
        ArgumentError: transformers has no such model for the task, or cannot load it.
    """
    import transformers

    from fx_onnx.pretrained.tasks import TASKS

    if _class_of(TASKS[task], config) is None:
        fitting = [name for name, each in TASKS.items() if _class_of(each, config) is not None]
        raise ArgumentError(
            f"transformers has no {config.model_type} model for the task {task!r}; its tasks are {', '.join(fitting)}.",
            id=MessageId.MODEL_SOURCE,
        )
    with reading(folder):
        return load_weights(getattr(transformers, TASKS[task].auto), folder, config)


def _class_of(task: Task, config: Any) -> tuple[type, ...] | None:
    """Returns the classes that build the model of a config for a task; None if there are none."""
    import transformers

    found = getattr(transformers, task.auto)._model_mapping.get(type(config), None)
    return found if found is None or isinstance(found, tuple) else (found,)
