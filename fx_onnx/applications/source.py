"""Reads a model that ``save_pretrained`` wrote, or takes one that is loaded."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fx_onnx.extension_points.rooms import find
from fx_onnx.messages.arguments import check_path, did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError, first_line
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.progress import hides_progress

if TYPE_CHECKING:
    from fx_onnx.applications.tasks import Task

__all__ = [
    "Source",
    "evaluates_source",
    "find_row",
    "is_diffusion",
    "is_packed",
    "load_config",
    "load_model",
    "named_class",
    "read_source",
    "reading_folder",
]


@dataclass(frozen=True)
class Source:
    """A model, and what belongs to it.

    Attributes:
        model: in evaluation mode.
        task: the name of its task.
        row: the row of the task.
        folder: the folder that it comes from; None if it was loaded before.
        processors: its tokenizer, image processor, feature extractor or processor.
    """

    model: Any
    task: str
    row: Task
    folder: Path | None
    processors: tuple[Any, ...]


P = ParamSpec("P")
R = TypeVar("R")


def evaluates_source(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function whose first argument is a source.

    The modules of a source that is loaded are in evaluation mode during a call, and in their own modes after it.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        from fx_onnx.capture.eager_model import in_mode
        from fx_onnx.requests.export_modes import TrainingMode

        source: Any = args[0] if args else kwargs.get("source")
        given = [source, *(getattr(source, name, None) for name in ("model", "vocoder"))]
        given += source.components.values() if is_diffusion(source) else []
        with ExitStack() as modes:
            for module in given:
                if hasattr(module, "named_modules"):
                    modes.enter_context(in_mode(module, TrainingMode.EVAL))
            return function(*args, **kwargs)

    return call


def is_diffusion(source: Any) -> bool:
    """Returns whether a source is a pipeline of diffusers."""
    return hasattr(source, "components") and hasattr(source, "save_config")


def read_source(source: Any, task: str | None, processor: Any, trust_remote_code: bool) -> Source:
    """Returns the model of a folder, of a pipeline, or a model that is loaded.

    Raises:
        ArgumentError: there is no model, or transformers has none for the task.
    """
    if not (processor is None or hasattr(processor, "save_pretrained")):
        raise ArgumentError(
            f"processor must be a tokenizer or processor of transformers, not {shown(processor)}.",
            id=MessageId.MODEL_SOURCE,
        )
    from fx_onnx.applications.tasks import MODULES

    _check_task(task)
    if task in MODULES:
        return _module(source, task, MODULES[task])
    own, vocoder = () if processor is None else (processor,), None
    if hasattr(source, "model") and hasattr(source, "task"):  # a pipeline
        names = ("processor", "tokenizer", "image_processor", "feature_extractor")
        own = own or tuple(part for name in names if (part := getattr(source, name, None)) is not None)
        source, vocoder = source.model, getattr(source, "vocoder", None)
    if is_diffusion(source):
        return _pipeline(source, task, None)
    if hasattr(source, "config") and hasattr(source, "forward"):
        name, row = find_row(source.config, task, type(source).__name__)
        return Source(_in_float32(source.eval(), is_own=False), name, _with_vocoder(row, vocoder), None, own)
    if hasattr(source, "named_modules"):
        raise ArgumentError(
            f"{type(source).__name__} is no model of transformers; give a task of other modules, one of "
            f"{', '.join(MODULES)}, or call fx_onnx.export.",
            id=MessageId.MODEL_SOURCE,
        )
    check_path("source, if it is no model and no pipeline,", source)
    folder = Path(source)
    if folder.suffix == ".gguf" and folder.is_file():
        return _gguf(folder, task)
    if (folder / "model_index.json").is_file():
        return _pipeline(_load_pipeline(folder), task, folder)
    config = load_config(folder, trust_remote_code=trust_remote_code)
    with reading_folder(folder):
        name, row = find_row(config, task, _architecture(config), trust_remote_code=trust_remote_code)
    model = _in_float32(load_model(folder, config, row.auto, trust_remote_code=trust_remote_code), is_own=True)
    if row.auto == "AutoModelForTextToSpectrogram" and (folder / "vocoder").is_dir():
        row = _with_vocoder(row, _in_float32(load_model(folder / "vocoder", None, "SpeechT5HifiGan"), is_own=True))
    return Source(model, name, row, folder, own or _load_processors(folder, trust_remote_code))


def _module(source: Any, task: str, row: Task) -> Source:
    """Returns the source of a module that is no model of transformers.

    Raises:
        ArgumentError: the source is no module, and no folder that the task can load.
    """
    folder = Path(source) if row.load is not None and isinstance(source, (str, os.PathLike)) else None
    model = source
    if folder is not None and row.load is not None:
        _check_exists(folder)
        with reading_folder(folder, row.auto):
            model = row.load(folder)
    if not hasattr(model, "named_modules"):
        raise ArgumentError(f"The task {task} takes an nn.Module, not {shown(source)}.", id=MessageId.MODEL_SOURCE)
    return Source(model.eval(), task, row, folder, ())


def _in_float32(model: Any, *, is_own: bool) -> Any:
    """Returns a model whose weights are float32, with which the precisions begin. One in 16 bits is converted.

    Args:
        model: the model.
        is_own: whether it may change; a copy is converted otherwise.
    """
    if str(getattr(model, "dtype", None)) not in ("torch.float16", "torch.bfloat16"):
        return model
    model = model if is_own else copy.deepcopy(model)
    if not is_packed(model):
        return model.float()
    for tensor in model.state_dict(keep_vars=True).values():  # float() would convert packed weights of 8-bit floats
        if str(tensor.dtype) in ("torch.float16", "torch.bfloat16"):
            tensor.data = tensor.data.float()
    return model


def _gguf(file: Path, task: str | None) -> Source:
    """Returns the source of a GGUF file, whose weights stay packed if transformers has layers for its architecture."""
    import transformers

    options = {"gguf_file": file.name, "local_files_only": True}
    with reading_folder(file):
        config = transformers.AutoConfig.from_pretrained(file.parent, **options)
        name, row = find_row(config, task, _architecture(config))
        load = partial(getattr(transformers, row.auto).from_pretrained, file.parent, **options)
        model = _in_float32(find("loading", "packed")(load).eval(), is_own=True)
        if not any(hasattr(module, "ggml_type") for module in model.modules()):
            warn(
                f"The weights of {file.name} become floats, because transformers {transformers.__version__} keeps no "
                f"weights of {config.model_type} packed.",
                MessageId.MODEL_SOURCE,
            )
        tokenizer: Any = transformers.AutoTokenizer  # transformers does not annotate it
        return Source(model, name, row, None, (tokenizer.from_pretrained(file.parent, **options),))


_PACKED = ("fp8", "mxfp4", "gguf", "compressed-tensors")
"""The quantization methods of transformers whose weights stay packed on a CPU."""


def is_packed(model: Any) -> bool:
    """Returns whether a model of transformers, or one with this config, has weights that stay packed."""
    given = getattr(getattr(model, "config", model), "quantization_config", None)
    method = given.get("quant_method") if isinstance(given, dict) else getattr(given, "quant_method", None)
    return getattr(method, "value", method) in _PACKED


def _with_vocoder(row: Task, vocoder: Any) -> Task:
    """Returns the row of a model that computes spectrograms, of which a vocoder makes sounds."""
    return row if vocoder is None else replace(row, parts=partial(row.parts, vocoder=vocoder.eval()))


def _pipeline(pipeline: Any, task: str | None, folder: Path | None) -> Source:
    """Returns the source of a pipeline of diffusers, which is its model.

    Raises:
        ArgumentError: a task is given.
    """
    from fx_onnx.applications.tasks import PIPELINE

    if task is not None:
        raise ArgumentError(
            f"{type(pipeline).__name__} is a pipeline of diffusers, which has one task; leave out the task.",
            id=MessageId.COMMAND_OPTION,
        )
    return Source(pipeline, "diffusion", PIPELINE, folder, ())


def _load_pipeline(folder: Path) -> Any:
    try:
        import diffusers  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ArgumentError(
            "A pipeline of diffusers needs the package diffusers: pip install diffusers.", id=MessageId.MISSING_PACKAGE
        ) from None
    with reading_folder(folder):
        return diffusers.DiffusionPipeline.from_pretrained(folder, local_files_only=True)


def load_config(folder: Path, advice: str = ".", *, trust_remote_code: bool = False) -> Any:
    """Returns the config of the model in a folder.

    Args:
        folder: has ``config.json``.
        advice: the end of the sentence that refuses a folder that does not exist.
        trust_remote_code: whether the code of the folder may run.

    Raises:
        ArgumentError: there is no such folder, it has no config, or transformers is not installed or does not know it.
    """
    _check_exists(folder, advice)
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
    with reading_folder(folder):
        return transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )


def _check_exists(folder: Path, advice: str = ".") -> None:
    if not folder.is_dir():
        raise ArgumentError(
            f"There is no folder {folder}, and nothing is downloaded; write the model to a folder with "
            f"`save_pretrained`{advice}",
            id=MessageId.MODEL_SOURCE,
        )


@contextmanager
def reading_folder(folder: Path, library: str = "transformers") -> Iterator[None]:
    """Turns an error of a library about a folder into an ArgumentError. Its bars are hidden as those of exports.

    The code of a class is imported where it is first named, for which a package may be missing or damaged.
    """
    from transformers import utils

    bars: Any = utils.logging  # transformers does not annotate it
    is_hidden = hides_progress() and bars.is_progress_bar_enabled()
    if is_hidden:
        bars.disable_progress_bar()
    try:
        yield
    except ArgumentError:
        raise
    except Exception as error:  # transformers raises errors of many classes for a config that is not valid
        text = str(error) if isinstance(error, (OSError, ValueError)) else first_line(error)
        cause = f": {first_line(error.__cause__)}" if isinstance(error.__cause__, Exception) else ""
        hint = "; install the torchvision of this torch, from the same index." if "torchvision::" in cause else ""
        raise ArgumentError(
            f"{library} cannot load {folder}: {text}{cause}{hint}", id=MessageId.MODEL_SOURCE
        ) from error
    finally:
        if is_hidden:
            bars.enable_progress_bar()


def find_row(
    config: Any, task: str | None, architecture: str | None, *, trust_remote_code: bool = False
) -> tuple[str, Task]:
    """Returns the row of a task that builds an architecture, or else the first that builds a model of the config.

    Args:
        config: the config of the model.
        task: the name of a task; None takes the one of the architecture.
        architecture: the name of a class.
        trust_remote_code: whether the code of the folder may build the model.

    Raises:
        ArgumentError: there is no such row.
    """
    from fx_onnx.applications.tasks import MODULES, TASKS  # it imports torch, which a refused folder does not need

    _check_task(task)
    if task in MODULES:
        raise ArgumentError(
            f"The task {task} takes an nn.Module, not a model of transformers.", id=MessageId.COMMAND_OPTION
        )
    fitting = list(_fitting(task, config, trust_remote_code))
    exact = [(name, row) for name, row, classes in fitting if architecture in {cls.__name__ for cls in classes}]
    if exact or (fitting and task is not None):
        return exact[0] if exact else fitting[0][:2]
    if task is None:
        raise ArgumentError(
            f"No task builds the architecture {architecture} of config.json; give a task, one of {', '.join(TASKS)}.",
            id=MessageId.MODEL_SOURCE,
        )
    others = dict.fromkeys(name for name, _, _ in _fitting(None, config, trust_remote_code))
    raise ArgumentError(
        f"transformers has no {config.model_type} model for the task {task!r}; its tasks are {', '.join(others)}.",
        id=MessageId.MODEL_SOURCE,
    )


def _check_task(task: Any) -> None:
    """Raises an ArgumentError if a task is neither None nor the name of one."""
    from fx_onnx.applications.tasks import MODULES, OTHER_NAMES, TASKS

    names = [*TASKS, *MODULES]
    if task is not None and not (isinstance(task, str) and task in names):
        plain = task.removesuffix("-with-past") if isinstance(task, str) else ""  # the suffix is optimum's
        name = OTHER_NAMES.get(plain, plain)
        hint = f"; here it is {name!r}." if name in TASKS else did_you_mean(task, names) or "."
        raise ArgumentError(
            f"The task {shown(task)} is not one of {', '.join(names)}{hint}", id=MessageId.COMMAND_OPTION
        )


def named_class(config: Any) -> str:
    """Returns the name of the class of transformers that a config names as its architecture.

    Raises:
        ArgumentError: it names none.
    """
    import transformers

    from fx_onnx.applications.tasks import TASKS

    name = _architecture(config) or ""
    cls = getattr(transformers, name, None)
    if not isinstance(cls, type) or not issubclass(cls, transformers.PreTrainedModel):
        raise ArgumentError(
            f"config.json names no class of transformers; add --task, one of {', '.join(TASKS)}.",
            id=MessageId.MODEL_SOURCE,
        )
    return name


def _architecture(config: Any) -> str | None:
    """Returns the name of the class that a config names first, if any. The config may come from a damaged file."""
    named = config.architectures
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None


def _fitting(task: str | None, config: Any, trust_remote_code: bool) -> Iterator[tuple[str, Task, tuple[type, ...]]]:
    """Yields the rows of a task, or of all tasks, that have classes for a config."""
    from fx_onnx.applications.tasks import rows_of

    for name, row in rows_of(task):
        classes = _classes_of(row, config, trust_remote_code)
        if classes and hasattr(classes[0], row.method or "__name__"):
            yield name, row, classes


def _classes_of(row: Task, config: Any, trust_remote_code: bool) -> tuple[type, ...]:
    """Returns the classes that build the model of a config for a task; none if there are none."""
    import transformers

    auto = getattr(transformers, row.auto, None)  # an older version may lack it
    is_remote = trust_remote_code and row.auto in getattr(config, "auto_map", {})
    if auto is not None and (is_remote or getattr(auto, "config_class", None) is type(config)):  # a model's own class
        return (auto,)
    classes = getattr(auto, "_model_mapping", {}).get(type(config), ())
    return classes if isinstance(classes, tuple) else (classes,)


def load_model(folder: Path, config: Any, class_name: str, *, trust_remote_code: bool = False) -> Any:
    """Returns the model of a class of transformers in evaluation mode. Warns of weights that the folder does not have.

    Raises:
        ArgumentError: transformers cannot load it.
    """
    import transformers

    with reading_folder(folder):
        options = {"local_files_only": True, "trust_remote_code": trust_remote_code, "output_loading_info": True}
        load = partial(getattr(transformers, class_name).from_pretrained, folder, config=config, **options)
        model, info = find("loading", "packed")(load) if is_packed(config) else load()
    if missing := sorted(info["missing_keys"]):
        more = f" and {len(missing) - 3} others" if len(missing) > 3 else ""
        warn(
            f"{folder} has no values for the weights {', '.join(missing[:3])}{more} of {type(model).__name__}, so they "
            "are random; take a task for which the model was trained.",
            MessageId.MODEL_SOURCE,
        )
    return model.eval()


def _load_processors(folder: Path, trust_remote_code: bool) -> tuple[Any, ...]:
    """Returns the processor in a folder, if it has one that transformers can load in this environment."""
    import transformers

    names = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
    if not any((folder / name).is_file() for name in names):
        return ()
    try:
        options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
        loader: Any = transformers.AutoProcessor  # transformers does not annotate it
        return (loader.from_pretrained(folder, **options),)
    except Exception as error:  # such as a missing package
        warn(
            f"transformers cannot load the processor of {folder}: {first_line(error)}. The example inputs are derived "
            "from the config instead.",
            MessageId.MODEL_SOURCE,
        )
        return ()
