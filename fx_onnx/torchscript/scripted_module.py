"""A TorchScript module or function as a torch.nn.Module with the same weights, names and results."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch.fx.traceback import preserve_node_meta

from fx_onnx.capture.forward_wrapper import write_in_place
from fx_onnx.capture.patches.torch_export import dicts_of_this_thread
from fx_onnx.messages.errors import ArgumentError, CaptureError, no_effect
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.requests.scripts import InterpretedModule, is_script
from fx_onnx.torch_internals.torch_private import statically_known_true
from fx_onnx.torchscript.data_dependent import ScriptRaise
from fx_onnx.torchscript.script_graph import Block, GraphReader
from fx_onnx.torchscript.script_interpreter import Interpreter
from fx_onnx.torchscript.script_private import script_class, script_method, script_methods, set_script_line
from fx_onnx.torchscript.script_values import (
    DTYPES,
    Instance,
    ScalarTensor,
    StoredConstant,
    argument_value,
    as_tensor,
    content,
    described,
    is_unchanged,
    like,
    parameters,
    rebuild,
    result_value,
)

__all__ = ["ScriptedModule", "interpreted_submodules", "reads_mode", "scripted_module"]


def scripted_module(script: Any) -> ScriptedModule:
    """Returns a TorchScript module or function as a Python module that interprets its graph.

    The module shares the parameters and buffers, which keep their names. ``forward`` has the parameters of the schema.

    Args:
        script: A ScriptModule (also a traced, frozen or loaded one) or a ScriptFunction.

    Raises:
        CaptureError: The module has attributes or operators that cannot be captured, or no forward.
    """
    if isinstance(script, torch.jit.ScriptModule) and "forward" not in script_methods(script):
        raise CaptureError(
            f"The TorchScript module {script.original_name} has no forward; export a module that calls its methods.",
            id=MessageId.TORCHSCRIPT,
        )
    return _Builder(script).prepared_root()


@contextmanager
def interpreted_submodules(model: torch.nn.Module) -> Iterator[None]:
    """Replaces the TorchScript modules in a Python module by ScriptedModules, in the current thread.

    Other threads that call the model until the context ends have the TorchScript modules.
    """
    parents = [module for module in model.modules() if not is_script(module)]
    children = [(owner, name, child) for owner in parents for name, child in owner._modules.items() if is_script(child)]
    scripts = {id(child): child for _, _, child in children}
    made = {key: _Builder(script).prepared_root() for key, script in scripts.items()}
    with dicts_of_this_thread({parent: None for parent, *_ in children}, ["_modules"]):
        for parent, name, child in children:
            parent._modules[name] = made[id(child)]
            made[id(child)].is_part = True
        yield


def reads_mode(script: torch.jit.ScriptModule) -> bool:
    """Returns whether a method of a TorchScript module reads ``training``."""
    graphs = [script_method(script, name).graph for name in script_methods(script)]
    return any(node.s("name") == "training" for graph in graphs for node in graph.findAllNodes("prim::GetAttr"))


class ScriptedModule(InterpretedModule):
    """One module of a TorchScript program, or a function.

    Attributes:
        script: The ScriptModule or ScriptFunction.
        interpreter: Runs the graphs; the modules of one program share it.
        changed_numbers: The numbers that the last forward changed and that are not buffers yet.
        script_state: The attributes as the forward has read and assigned them.
        is_part: Whether it is in a Python module.
    """

    script: Any
    is_part = False

    def __init__(self, script: Any, builder: _Builder) -> None:
        super().__init__()
        vars(self)["script"] = script  # nn.Module would make it a submodule
        self.interpreter = builder.interpreter
        self._builder = builder
        self.script_state = Instance(self.attribute, self)
        self._values: dict[str, Any] = {}  # attributes that are neither tensors nor modules
        self._methods: dict[str, Block] = {}
        self._numbers: set[str] = set()  # numbers that are buffers, because the forward changes them
        self.changed_numbers: set[str] = set()
        self.training = bool(getattr(script, "training", False))  # a frozen module and a function have no mode
        if isinstance(script, torch.jit.ScriptModule):
            self._adopt(script)

    def _adopt(self, script: Any) -> None:
        """Takes over the parameters, buffers and submodules."""
        persistent = set(script.state_dict(keep_vars=True))
        for name, weight in script.named_parameters(recurse=False, remove_duplicate=False):
            self.register_parameter(name, self._builder.parameter(weight))
        for name, buffer in script.named_buffers(recurse=False, remove_duplicate=False):
            self.register_buffer(name, buffer, persistent=name in persistent)
        for name, child in script.named_children():
            self.add_module(name, self._builder.module(child))

    # --- used by the interpreter

    def attribute(self, name: str) -> Any:
        """Returns an attribute of the TorchScript module: a tensor, the state of a module, or a value of Python."""
        tensors = {**self._parameters, **self._buffers}
        if name in tensors:
            return tensors[name]
        if name in self._modules:
            return self.get_submodule(name).script_state
        if name == "training":
            return self.training
        if name not in self._values:
            self._values[name] = self._registered(name, getattr(self.script, name))
        return rebuild(self._values[name], self._stored, {})

    def method(self, name: str) -> Block:
        """Returns the body of a method."""
        if name not in self._methods:
            self._methods[name] = self._builder.reader.read(script_method(self.script, name).graph)
        return self._methods[name]

    def _registered(self, name: str, value: Any) -> Any:
        """Registers the tensors of an attribute as buffers, so that torch.export captures them as weights."""
        if isinstance(value, torch.Tensor):
            self.register_buffer(name, value, persistent=False)
            return StoredConstant(self, name)
        if isinstance(value, (list, tuple, dict)):
            items = enumerate(content(value).items())
            return like(value, {key: self._registered(f"{name}_{i}", item) for i, (key, item) in items})
        if isinstance(value, torch.dtype):
            return DTYPES.index(value)
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, torch.ScriptObject) and "__torch__.torch.classes" in str(value):
            raise CaptureError(
                f"The attribute {name} of {type(self).__name__} holds packed weights, which only PyTorch can read; "
                "export the model before it was converted or quantized.",
                id=MessageId.TORCHSCRIPT,
            )
        return Instance(lambda attribute: self._registered(f"{name}_{attribute}", getattr(value, attribute)))

    def _stored(self, value: Any) -> Any:
        return value.module.attribute(value.name) if isinstance(value, StoredConstant) else value

    # --- the forward

    def forward(self, *arguments: Any) -> Any:
        """Runs the forward of a submodule. The first argument is the state of the submodule."""
        (result,) = self.interpreter.run(self.method("forward"), arguments)
        return result

    def prepare(self) -> None:
        """Makes this module the root of a program: reads all graphs, and takes the script's parameters and methods."""
        if not isinstance(self.script, torch.jit.ScriptModule):
            self.forward = self._callable(self.script, (), ())  # type: ignore[method-assign]
            return
        hooks: tuple[Any, ...] = self.script._forward_pre_hooks, self.script._forward_hooks
        before, after = ([self._builder.reader.read(hook.graph) for hook in group.values()] for group in hooks)
        for name in script_methods(self.script):
            if name == "forward":
                self.forward = self._callable(script_method(self.script, name), before, after)  # type: ignore[method-assign]
            elif not hasattr(self, name):
                setattr(self, name, self._callable(script_method(self.script, name), (), ()))

    def _callable(self, function: Any, before: Sequence[Block], after: Sequence[Block]) -> Callable[..., Any]:
        """Returns a function or method of the script, with its parameters; the hooks run before and after it."""
        owner = [] if function is self.script else [self.script_state]
        types = function.schema.arguments[len(owner) :]
        signature = inspect.Signature(parameters(types))
        body = self._builder.reader.read(function.graph)
        for block in (body, *before, *after):
            self._builder.visit(block, owner)

        def call(values: tuple[Any, ...]) -> Any:
            for hook in before:
                (changed,) = self.interpreter.run(hook, [*owner, values])
                if changed is not None:
                    values = changed if isinstance(changed, tuple) else (changed,)
            (result,) = self.interpreter.run(body, [*owner, *values])
            for hook in after:
                (changed,) = self.interpreter.run(hook, [*owner, values, result])
                result = result if changed is None else changed
            return result

        def called(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            pairs = zip(signature.parameters, types, strict=True)
            values = tuple(argument_value(bound.arguments[name], argument.type) for name, argument in pairs)
            return self._run(lambda: call(values))

        called.__signature__ = signature  # type: ignore[attr-defined]
        return called

    def _run(self, call: Callable[[], Any]) -> Any:
        self.interpreter.training = self.training
        scripts = [module for module in self.modules() if isinstance(module, ScriptedModule)]
        for script in scripts:
            # A read in the body of a branch or loop would be lost, because the first runs of a body are not recorded.
            script.script_state.attributes = {name: script.get_buffer(name).item() for name in sorted(script._numbers)}
        try:
            with preserve_node_meta():
                result = call()
                writes = [write for script in scripts for write in script.writes()]
                if any(script.changed_numbers for script in scripts):
                    raise _NumbersChanged
                return write_in_place(writes, result_value(result))
        except ScriptRaise as error:
            raise CaptureError(
                f"The model raises an exception for the example arguments: {error}.", id=MessageId.TORCHSCRIPT
            ) from error
        finally:
            set_script_line("", 0)

    def writes(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yields each buffer of an assigned attribute and its new value; collects the numbers that have changed.

        Raises:
            CaptureError: An attribute has changed and cannot be a buffer.
        """
        for name, value in self.script_state.attributes.items():
            before, value = self.attribute(name), as_tensor(value)
            if name in self._numbers:
                yield before, torch.scalar_tensor(value, dtype=before.dtype)
            elif isinstance(before, torch.Tensor) and isinstance(value, torch.Tensor):
                if value is not before:
                    self._check_buffer(name, before, value)
                    yield before, value.detach()
            elif isinstance(before, (bool, int, float)) and isinstance(value, _NUMBERS):
                if not statically_known_true(value == before):
                    self.changed_numbers.add(name)
            elif not is_unchanged(before, value):
                raise CaptureError(
                    f"The forward changes the attribute {name} of {type(self).__name__}, {described(before)}, to "
                    f"{described(value)}, which cannot be a buffer; keep what changes between calls in tensors.",
                    id=MessageId.TORCHSCRIPT,
                )

    def _check_buffer(self, name: str, before: torch.Tensor, after: torch.Tensor) -> None:
        same = before.dim() == after.dim() and before.dtype == after.dtype
        if not same or not all(statically_known_true(a == b) for a, b in zip(before.shape, after.shape, strict=True)):
            raise CaptureError(
                f"The forward changes the attribute {name} of {type(self).__name__} from {described(before)} to "
                f"{described(after)}; call the model once on the example arguments before the export if the first call "
                "differs from later ones, and leave static the dims that the attribute depends on.",
                id=MessageId.TORCHSCRIPT,
            )

    def promote_numbers(self) -> None:
        """Turns the numbers that the last forward changed into 0-d buffers."""
        for name in sorted(self.changed_numbers):
            value = self.attribute(name)
            dtype = torch.float64 if isinstance(value, float) else None  # the precision of a Python number
            self.register_buffer(name, torch.tensor(value, dtype=dtype), persistent=False)
        self._numbers |= self.changed_numbers
        self.changed_numbers.clear()

    def train(self, mode: bool = True) -> ScriptedModule:
        """Sets the mode, as in a module. A function has no mode.

        Raises:
            ArgumentError: The whole model is frozen, so that it has only one mode. A frozen part of a Python module
                keeps its mode.
        """
        if isinstance(self.script, torch.jit.ScriptFunction):
            if mode:
                no_effect("training", "a TorchScript function has no mode")
            return self
        is_frozen = isinstance(self.script, torch.jit.ScriptModule) and not hasattr(self.script, "training")
        if mode and is_frozen and not self.is_part:
            raise ArgumentError(
                f"The TorchScript module {type(self).__name__} is frozen in evaluation mode; leave out training, or "
                "export the module before torch.jit.freeze.",
                id=MessageId.TORCHSCRIPT,
            )
        return self if is_frozen else super().train(mode)

    # --- the reference

    def run_script(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the ScriptModule or ScriptFunction itself in the mode of the last capture, and restores its state."""
        modules: list[Any] = [module for module in self.modules() if is_script(getattr(module, "script", None))]
        state = [
            (module.script, name, getattr(module.script, name))
            for module in modules
            for name in {*module._buffers, *module._values, *module._numbers, "training"}
            if hasattr(module.script, name)
        ]
        copies = [value.detach().clone() if isinstance(value, torch.Tensor) else value for _, _, value in state]
        try:
            if self.interpreter.training != self.training:
                self.script.train(self.interpreter.training)
            return self.script(*args, **kwargs)
        finally:
            for (script, name, value), copied in zip(state, copies, strict=True):
                setattr(script, name, value.copy_(copied) if isinstance(value, torch.Tensor) else value)


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)

# The types of attributes that are values; other attributes are objects of TorchScript classes.
_PLAIN = (type(None), bool, int, float, complex, str, Enum, torch.device, torch.Generator)


class _NumbersChanged(Exception):
    """The forward changes a number that the capture treated as a constant."""


class _Builder:
    """Builds the modules of one program."""

    def __init__(self, script: Any) -> None:
        self.reader = GraphReader(self._constant)
        self.interpreter = Interpreter(self.reader)
        self._modules: dict[int, ScriptedModule] = {}
        self._parameters: dict[int, tuple[torch.Tensor, torch.nn.Parameter]] = {}
        self.root = self.module(script)

    def module(self, script: Any) -> ScriptedModule:
        if id(script) not in self._modules:
            self._modules[id(script)] = _class_of(script)(script, self)
        return self._modules[id(script)]

    def prepared_root(self) -> ScriptedModule:
        """Returns the module of the whole program, whose forward and methods can be called."""
        self.root.prepare()
        return self.root

    def parameter(self, tensor: torch.Tensor) -> torch.nn.Parameter:
        """Returns a parameter as a Parameter, because a loaded file has plain tensors; tied ones are one Parameter."""
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        if id(tensor) not in self._parameters:
            self._parameters[id(tensor)] = tensor, torch.nn.Parameter(tensor.detach(), tensor.requires_grad)
        return self._parameters[id(tensor)][1]

    def visit(self, block: Block, arguments: Sequence[Any]) -> None:
        """Reads the attributes and methods that a graph uses, so that torch.export finds all tensors registered.

        Args:
            block: The block.
            arguments: The modules and objects among the values of its parameters; others are None.
        """
        self._visit(block, dict(zip(block.parameters, arguments, strict=False)))

    def _visit(self, block: Block, objects: dict[int, Any]) -> None:
        for operation in block.operations:
            given = [objects.get(number) for number in operation.inputs]
            if operation.kind == "prim::GetAttr" and given[0] is not None:
                value = given[0].get(operation.attributes["name"])
                if isinstance(value, Instance):
                    objects[operation.outputs[0]] = value
            elif operation.kind in ("prim::CallMethod", "prim::CallFunction", "prim::fork"):
                self.visit(*self.interpreter.callee(operation, given))
            for inner in operation.blocks:
                self._visit(inner, objects)

    def _constant(self, name: str, tensor: torch.Tensor) -> Any:
        if tensor.is_mkldnn or tensor.is_quantized:
            raise CaptureError(
                f"The constant {name} has a layout of a backend of PyTorch (mkldnn or quantized); export the model "
                "before torch.jit.optimize_for_inference or quantization.",
                id=MessageId.TORCHSCRIPT,
            )
        if tensor.dim() == 0 and tensor.device.type == "cpu" and not tensor.is_complex():
            return ScalarTensor(tensor.item(), tensor.dtype)
        name = re.sub(r"\W+", "_", name.removeprefix("self.")).strip("_")
        name = f"constant_{name}" if name.isdigit() else name
        while hasattr(self.root, name):
            name += "_"
        self.root.register_buffer(name, tensor, persistent=False)
        return StoredConstant(self.root, name)


def _class_of(script: Any) -> type[ScriptedModule]:
    """Returns a class with the name of the script's own class or function, which the metadata of the nodes show."""
    if isinstance(script, torch.jit.ScriptModule):
        name, qualified_name = script.original_name, script_class(script)
    else:
        name, qualified_name = script.name, script.qualified_name
    path = re.sub(r"\.?___torch_mangle_\d+", "", qualified_name).removeprefix("__torch__.")
    return type(name, (ScriptedModule,), {"__module__": path.rpartition(".")[0] or "torch.jit", "__qualname__": name})
