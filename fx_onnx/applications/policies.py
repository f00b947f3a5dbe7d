"""The parts of a policy of lerobot: observations and noise to a chunk of actions, with the normalization of both.

A policy that integrates a velocity, such as pi0, takes the number of steps too, in ``num_steps``: the steps are a loop.
Two more programs are for applications with a loop of their own: ``policy_prefix`` computes what all steps read, such as
the cache of images and texts, and ``policy_step`` is one step.

The inputs have the names of the policy's config, such as ``observation.images.top``. What the policy draws is an input
too, so the caller chooses the noise.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fx_onnx.applications.inputs import input_names
from fx_onnx.applications.parts import Given, Part, running
from fx_onnx.applications.traced_loops import while_loop
from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.requests.pytrees import register
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["load_policy", "robot_policy"]

_BATCH = 2
_TOKENS, _MASK = "observation.language.tokens", "observation.language.attention_mask"


def load_policy(folder: Path) -> nn.Module:
    """Returns the policy in a folder, whose ``normalizers`` are the two steps of its processors, or None.

    Raises:
        ArgumentError: lerobot is not installed.
    """
    try:
        from lerobot.configs.policies import PreTrainedConfig  # type: ignore[import-not-found, unused-ignore]
        from lerobot.policies.factory import (  # type: ignore[import-not-found, unused-ignore]
            get_policy_class,
            make_pre_post_processors,
        )
    except ImportError as error:
        raise ArgumentError(
            f"A policy needs the package lerobot: pip install lerobot ({error}).", id=MessageId.MISSING_PACKAGE
        ) from None
    config = PreTrainedConfig.from_pretrained(folder, local_files_only=True)
    config.device = "cpu"
    policy = get_policy_class(config.type).from_pretrained(folder, config=config, local_files_only=True)
    policy.normalizers = None
    if (folder / "policy_preprocessor.json").is_file():
        processors = make_pre_post_processors(
            config,
            pretrained_path=str(folder),
            preprocessor_overrides={"device_processor": {"device": "cpu"}},
            postprocessor_overrides={"device_processor": {"device": "cpu"}},
        )
        policy.normalizers = tuple(map(_normalizer, processors))
    return policy  # type: ignore[no-any-return]


def _normalizer(processor: Any) -> Any:
    return next((step for step in processor.steps if hasattr(step, "_apply_transform")), None)


class _Draws(TorchFunctionMode):
    """Notes what a policy draws.

    Attributes:
        noise: the numbers of each draw.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noise: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes numbers of a normal distribution."""
        result = func(*args, **(kwargs or {}))
        if func in (torch.randn, torch.randn_like, torch.normal):
            self.noise.append(result)
        return result


class _Policy(nn.Module):
    """Predicts a chunk of actions."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy
        normalizers: tuple[Any, Any] = getattr(policy, "normalizers", None) or (None, None)
        self.inputs, self.outputs = normalizers

    def forward(self, observation: dict[str, Any], noise: Tensor | None = None, num_steps: Tensor | None = None) -> Any:
        """Observations (batch, ...) by name, noise, and the number of steps (), to actions (batch, chunk, size)."""
        batch = dict(_flat("observation", observation))
        if self.inputs is not None:
            batch = self.inputs._normalize_observation(batch, inverse=False)  # lerobot has no public name
        drawn = {} if noise is None else {"noise": noise}
        with nullcontext() if num_steps is None else _integrating(self.policy, _steps_of(self.policy, num_steps)):
            actions = self.policy.predict_action_chunk(batch, **drawn)
        if self.outputs is not None:
            actions = self.outputs._normalize_action(actions, inverse=True)
        return {"action": actions}


def _integrating(policy: nn.Module, integrate: Callable[..., Tensor]) -> AbstractContextManager[None]:
    """Replaces the function by which a policy integrates the velocity of its actions, in the current thread."""
    return replace_attribute(sys.modules[type(policy).__module__], "euler_integrate", integrate)


def _euler_integrate(policy: nn.Module) -> Any:
    return getattr(sys.modules[type(policy).__module__], "euler_integrate", None)


def _cells(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _captured(velocity: FunctionType) -> dict[str, Any]:
    """Returns the variables with tensors that a function closes over."""
    values = _cells(velocity)
    register(values)
    return {name: value for name, value in values.items() if _has_tensors(value)}


def _reading(velocity: FunctionType, values: Mapping[str, Any]) -> FunctionType:
    """Returns a function that closes over other values."""
    closure = tuple(CellType(values.get(name, value)) for name, value in _cells(velocity).items())
    return FunctionType(velocity.__code__, velocity.__globals__, closure=closure)


def _steps_of(policy: nn.Module, num_steps: Tensor) -> Callable[..., Tensor]:
    """Returns lerobot's ``euler_integrate`` for a number of steps that is a tensor; in a trace, its form as a loop."""
    original = _euler_integrate(policy)

    def integrate(velocity: FunctionType, noise: Tensor, *_: Any, **options: Any) -> Tensor:
        if not torch.compiler.is_exporting():
            return original(velocity, noise, int(num_steps), **options)  # type: ignore[no-any-return]
        captured, step_size = _captured(velocity), -1 / num_steps.double()  # lerobot computes times as floats of Python

        def body(step: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
            time = (1 + step * step_size).float().expand(sample.shape[0])
            copied = _reading(velocity, pytree.tree_map(lambda leaf: leaf, captured))  # a velocity may extend its cache
            return step + 1, sample + step_size.float() * copied(sample, time)

        return while_loop(lambda step, _: step < num_steps, body, (torch.zeros_like(num_steps), noise))[1]

    return integrate


class _Prefix(nn.Module):
    """Computes the tensors that the velocity closes over: a cache, masks, the state."""

    def __init__(self, policy: _Policy, noise: Tensor) -> None:
        super().__init__()
        self.policy, self.noise = policy, noise

    def forward(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Observations (batch, ...) to the tensors by name."""
        prefix: dict[str, Any] = {}

        def integrate(velocity: FunctionType, noise: Tensor, *_: Any, **__: Any) -> Tensor:
            prefix.update(_captured(velocity))
            return noise

        with _integrating(self.policy.policy, integrate):
            self.policy(observation, self.noise)
        return prefix


class _Step(nn.Module):
    """Integrates the velocity over one step.

    Args:
        policy: the policy.
        observation: any observation. What the policy computes from it is not read.
    """

    def __init__(self, policy: _Policy, observation: dict[str, Any]) -> None:
        super().__init__()
        self.policy, self.observation = policy, observation

    def forward(self, sample: Tensor, time: Tensor, step_size: Tensor, prefix: dict[str, Any]) -> dict[str, Tensor]:
        """Returns the next sample, and the actions that it is at the end.

        Args:
            sample: (batch, chunk, size), the noise at first.
            time: (), 1 at first and ``-step_size`` in the last step.
            step_size: (), -1 divided by the number of steps.
            prefix: the tensors of the other program.
        """
        result: list[Tensor] = []

        def integrate(velocity: FunctionType, noise: Tensor, *_: Any, **__: Any) -> Tensor:
            result.append(sample + step_size * _reading(velocity, prefix)(sample, time.expand(sample.shape[0])))
            return result[0]

        with _integrating(self.policy.policy, integrate):
            action = self.policy(self.observation, sample)["action"]
        return {"next_sample": result[0], "action": action}


def _has_tensors(value: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))


def _flat(path: str, tree: Any) -> list[tuple[str, Tensor]]:
    if isinstance(tree, Mapping):
        return [item for key, value in tree.items() for item in _flat(f"{path}.{key}", value)]
    return [(path, tree)]


def robot_policy(policy: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the part of a policy, from normalized or unnormalized observations as its processors take them.

    Raises:
        ArgumentError: the policy predicts no chunk of actions, or does not run.
    """
    if not hasattr(policy, "predict_action_chunk") or not hasattr(policy.config, "input_features"):
        raise ArgumentError(
            f"{type(policy).__name__} is no policy of lerobot that predicts a chunk of actions.",
            id=MessageId.MODEL_SOURCE,
        )
    if getattr(policy, "normalizers", None) is None:
        warn(
            "The policy has no processors, so its observations and actions are not normalized: give a folder that has "
            "policy_preprocessor.json.",
            MessageId.MODEL_SOURCE,
        )
    policy.reset()
    module = _Policy(policy.eval()).eval()
    observations = {**_examples(policy), **given}
    kwargs: dict[str, Any] = {}
    for name, value in observations.items():
        *path, last = name.split(".")
        inner = kwargs
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = value
    numbers: list[int] = []

    def integrate(velocity: Any, noise: Tensor, num_steps: int, **options: Any) -> Any:
        numbers.append(num_steps)
        return original(velocity, noise, num_steps, **options)

    original = _euler_integrate(policy)
    watching = _integrating(policy, integrate) if original is not None else nullcontext()
    with running(policy, f"the examples of {', '.join(observations)}"), watching, _Draws() as draws:
        batch = (
            observations if module.inputs is None else module.inputs._normalize_observation(observations, inverse=False)
        )
        policy.predict_action_chunk(batch)
    if len(draws.noise) > 1:
        raise ArgumentError(
            f"{type(policy).__name__} draws noise {len(draws.noise)} times, and its predict_action_chunk takes one; "
            "choose a scheduler that draws it once, such as DDIM.",
            id=MessageId.MODEL_SOURCE,
        )
    if draws.noise:
        kwargs["noise"] = draws.noise[0]
    told = {"policy": json.dumps(_description(policy) | dict(zip(("num_steps",), numbers, strict=False)))}
    others = _steps(module, kwargs, told) if numbers and draws.noise else []
    if others:
        kwargs["num_steps"] = torch.tensor(numbers[0])
    shapes = _batches(kwargs) | dict.fromkeys({"num_steps"} & {*kwargs})
    return [Part("model", module, kwargs, shapes, ("action",), metadata=told), *others]


def _batches(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _batches(value) if isinstance(value, dict) else {0: "batch"} for name, value in values.items()}


def _steps(module: _Policy, kwargs: Mapping[str, Any], told: Mapping[str, str]) -> list[Part]:
    """Returns the parts of a policy that integrates a velocity."""
    observation, noise = {"observation": kwargs["observation"]}, kwargs["noise"]
    first = _Prefix(module, noise).eval()
    with torch.no_grad():
        prefix = {"prefix": first(**observation)}
    numbers = {"time": torch.tensor(1.0), "step_size": torch.tensor(-0.1)}
    inputs = {"sample": noise, **numbers, **prefix}
    shapes = {**_batches(inputs), **dict.fromkeys(numbers)}
    names = tuple(input_names(prefix))
    return [
        Part("policy_prefix", first, observation, _batches(observation), names, metadata=told),
        Part(
            "policy_step", _Step(module, **observation).eval(), inputs, shapes, ("next_sample", "action"), metadata=told
        ),
    ]


def _examples(policy: Any) -> dict[str, Tensor]:
    """Returns observations of the shapes in the config, with several steps if the policy keeps them in a queue."""
    config = policy.config
    steps = (config.n_obs_steps,) if "observation.state" in getattr(policy, "_queues", {}) else ()
    examples = {name: torch.rand(_BATCH, *steps, *feature.shape) for name, feature in config.input_features.items()}
    if hasattr(config, "tokenizer_max_length"):
        tokens = torch.randint(1, 100, (_BATCH, config.tokenizer_max_length))
        examples |= {_TOKENS: tokens, _MASK: torch.ones_like(tokens, dtype=torch.bool)}
    return examples


def _description(policy: Any) -> dict[str, Any]:
    config = policy.config
    return {
        "type": config.type,
        "n_obs_steps": config.n_obs_steps,
        "n_action_steps": config.n_action_steps,
        "normalized": getattr(policy, "normalizers", None) is not None,
    }
