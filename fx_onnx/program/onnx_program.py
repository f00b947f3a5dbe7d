"""ONNXProgram: the exported model, to be called with the module's own arguments, saved, renamed, given new weights."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnx_ir as ir
import torch

from fx_onnx.core import metadata
from fx_onnx.core.errors import ArgumentError, warn
from fx_onnx.core.weights import Weight, as_torch, memory_key, plain, rebind
from fx_onnx.program import save
from fx_onnx.program.report import ModelSummary
from fx_onnx.program.session import bind, bound, new_session, run, structured

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["ONNXProgram"]

_FROM_FILE_BYTES = 512 * 1024**2
"""Above this many bytes of weights a session is loaded from a temporary file, which ONNX Runtime maps."""


class ONNXProgram:
    """What export() returns: an ONNX model, and the ExportedProgram it was translated from.

    Attributes:
        model: the onnx_ir.Model. Assigning another one drops the loaded session; after changing it in place, call
            ``release()``.
        exported_program: the torch.export.ExportedProgram, or None if the model came from elsewhere; then inputs are
            taken in the order of the graph's and outputs have no structure.
        timings: seconds by stage of the export that made it.
        state: None, and every call begins with the buffers as they were at export; or a dict of buffers by name: a
            call begins with those it holds, and puts into it what they became. Assign ``{}`` to begin anew.
    """

    def __init__(self, model: ir.Model, exported_program: torch.export.ExportedProgram | None = None) -> None:
        self._model = model
        self.exported_program = exported_program
        self.timings: dict[str, float] = {}
        self.state: dict[str, torch.Tensor] | None = None
        self._session: onnxruntime.InferenceSession | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def model(self) -> ir.Model:
        """The ONNX model as an onnx_ir.Model."""
        return self._model

    @model.setter
    def model(self, model: ir.Model) -> None:
        self.release()
        self._model = model

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The ONNX model as a protobuf message: a copy of everything, weights included.

        Raises:
            ArgumentError: a weight has no data.
        """
        save.require_data(self._model)
        return ir.serde.serialize_model(self._model)

    def __repr__(self) -> str:
        found = self.summary()
        opsets = ", ".join(f"{domain} {version}".strip() for domain, version in found.opset.items())
        lines = [
            f"ONNXProgram(opset {opsets}, {sum(found.operators.values())} nodes, "
            f"{found.parameters:,} parameters in {found.parameter_bytes:,} bytes",
            *(f"  input  {text}" for text in found.inputs),
            *(f"  output {text}" for text in found.outputs),
        ]
        return "\n".join(lines) + ")"

    def summary(self) -> ModelSummary:
        """The model in numbers, as the report shows it; nodes of functions are not counted, only calls of them."""
        graph = self._model.graph
        sizes = [value.const_value for value in save.initializers(self._model) if value.const_value is not None]
        dtypes: Counter[str] = Counter()
        for tensor in sizes:
            dtypes[tensor.dtype.name.lower()] += tensor.size
        return ModelSummary(
            opset=dict(graph.opset_imports),
            inputs=[_described(value) for value in graph.inputs],
            outputs=[_described(value) for value in graph.outputs],
            operators=Counter(node.op_type for node in ir.traversal.RecursiveGraphIterator(graph)),
            parameters=sum(tensor.size for tensor in sizes),
            parameter_bytes=save.parameter_bytes(self._model),
            dtypes=dtypes,
        )

    # Running

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Runs the model in ONNX Runtime with the arguments of the module it was exported from.

        Args:
            args: the module's positional arguments, in its own structure (or the graph's inputs in order). None and
                constants may be given where they were given at export. Python numbers do for 0-d inputs. A complex
                tensor is passed as its real view.
            kwargs: its keyword arguments in any order.

        Returns:
            All graph outputs as tensors in order: the module's, flattened and without None, then what the program
            keeps of its state. A complex output is its real view, with a last axis of 2.

        Raises:
            ArgumentError: an input is missing, too many, or of another dtype or shape than the graph's.
        """
        inputs = bind(self._model.graph, self.exported_program, args, kwargs)
        buffers = {str(value.name): value for value in self._model.graph.inputs if value.is_initializer()}
        for name, tensor in (self.state or {}).items():
            if name not in buffers:
                raise ArgumentError(f"The program writes no buffer {name!r}; its state is {sorted(buffers)}.")
            inputs[name] = bound(buffers[name], tensor)
        if self._session is None:
            self.initialize_inference_session()
        results = run(cast("onnxruntime.InferenceSession", self._session), inputs)
        if self.state is not None:
            kinds = (value.metadata_props.get(metadata.OUTPUT_KIND) for value in self._model.graph.outputs)
            written = (result for result, kind in zip(results, kinds, strict=True) if kind == "BUFFER_MUTATION")
            self.state.update(zip(buffers, written, strict=True))
        return results

    def call_structured(self, *args: Any, **kwargs: Any) -> Any:
        """Like calling the program, but returns what the module does: its own dicts, tuples, None and complex tensors.

        Raises:
            ArgumentError: as for a call, or the program has no exported_program.
        """
        if self.exported_program is None:
            raise ArgumentError("Only a program with an exported_program knows the structure of its outputs.")
        return structured(self.exported_program, self(*args, **kwargs))

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Like calling the program, but in onnx.reference's evaluator: slow, in Python, with no runtime to suspect."""
        from onnx.reference import ReferenceEvaluator

        inputs = bind(self._model.graph, self.exported_program, args, kwargs)
        arrays = {name: Weight(tensor).numpy() for name, tensor in inputs.items()}
        results = ReferenceEvaluator(self.model_proto).run(None, arrays)
        return tuple(as_torch(ir.Tensor(np.asarray(result))) for result in results)

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Runs the model and returns the values with these names, which need not be outputs.

        Args:
            value_names: names of inputs, initializers or results of nodes of the main graph.
            args: the module's positional arguments.
            kwargs: its keyword arguments.

        Raises:
            ArgumentError: the main graph has no such value, or the arguments do not fit.
        """
        inputs = bind(self._model.graph, self.exported_program, tuple(args), dict(kwargs or {}))
        model = self._model.clone()  # the weights are shared
        values: dict[str | None, ir.Value] = {value.name: value for value in model.graph.inputs}
        values.update(model.graph.initializers)
        values.update((value.name, value) for node in model.graph for value in node.outputs)
        missing = [name for name in value_names if not name or name not in values]
        if missing:
            raise ArgumentError(f"The graph has no value named {missing[0]!r}.")
        unique = dict.fromkeys(value_names)
        model.graph.outputs.clear()
        model.graph.outputs.extend(values[name] for name in unique)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            session = new_session(_loadable(model, Path(folder)))
            found = dict(zip(unique, run(session, inputs), strict=True))
            del session  # before the folder it maps
        return tuple(found[name] for name in value_names)

    def initialize_inference_session(
        self, initializer: Callable[[str | bytes], onnxruntime.InferenceSession] = new_session
    ) -> None:
        """Loads the model into ONNX Runtime now instead of at the first call.

        Args:
            initializer: makes the session from the model's bytes, or from a path if the model is large; here providers
                and options can be chosen.
        """
        self.release()
        if save.parameter_bytes(self._model) > _FROM_FILE_BYTES:
            self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._session = initializer(_loadable(self._model, Path(self._folder.name) if self._folder else None))

    def release(self) -> None:
        """Drops the loaded session and the temporary file it was loaded from, if any; the next call loads anew."""
        self._session = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    # Saving and changing

    def save(
        self,
        destination: save.Destination,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
        weights_from: str | os.PathLike[str] | None = None,
    ) -> None:
        """Writes the model to a path or a binary file object; the file appears under its name only when it is whole.

        Args:
            destination: a path in an existing folder, or a file object opened in binary mode.
            include_initializers: whether the weights are written.
            keep_initializers_as_inputs: whether they are graph inputs too, so that a runtime may override them.
            external_data: True puts the weights into ``<name>.data`` beside the model; None and False make a single
                file, except above 2 GB, where that cannot be (False then warns).
            weights_from: a safetensors file, an index of several, or a folder of them, in the model's own folder or
                below. Weights whose name, dtype, shape and values are those of an entry are not written: the model
                points to the entry. So weights need no data (FakeTensors, the meta device) if they are there.

        Raises:
            ArgumentError: the path cannot be written, a weight has no data, or ``weights_from`` does not fit.
            OnnxExporterError: writing failed; a file that was there before still is.
        """
        save.save(
            self._model,
            destination,
            include_initializers=include_initializers,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=external_data,
            weights_from=weights_from,
            tied=_tied(self.exported_program) if weights_from is not None and self.exported_program is not None else (),
        )

    def optimize(self) -> None:
        """Runs the optimization passes that export(optimize=True) runs."""
        from fx_onnx.passes.optimize import optimize

        self.model = optimize(self._model)

    def apply_weights(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Gives weights new data, by name; what was folded from weights is folded again from the new ones.

        Args:
            state_dict: tensors of the shapes and dtypes that the model holds; they are used in place, not copied.
                Of a quantised tensor of torchao those inside it are (``fc.weight.qdata``, ``fc.weight.scale``).

        Raises:
            ArgumentError: a tensor has another shape or dtype; no weight has changed then.
        """
        state_dict, used = plain(state_dict), set[str]()
        replacements = {
            value: rebind(value.const_value, state_dict, used)
            for value in save.initializers(self._model)
            if value.const_value is not None
        }
        self.release()
        for value, new in replacements.items():
            value.const_value = new
        placed = {memory_key(state_dict[name]) for name in used}  # a tied weight is one initializer for several names
        for name, tensor in state_dict.items():
            if name not in used and memory_key(tensor) not in placed:
                warn(f"The model has no weight named {name!r}.")

    def rename_axes(self, rename_mapping: Mapping[str | ir.SymbolicDim, str]) -> None:
        """Renames symbolic dims everywhere: in subgraphs, in functions, and inside expressions such as ``2*s0``.

        Args:
            rename_mapping: new names by old name, or by the dim found in a shape. All are replaced at once.

        Raises:
            ArgumentError: a name is not a string or is empty.
        """
        mapping: dict[str, str] = {}
        for axis, new in rename_mapping.items():
            old = axis.value if isinstance(axis, ir.SymbolicDim) else axis
            if not isinstance(old, str) or not isinstance(new, str) or not old or not new:
                raise ArgumentError(f"Axes are renamed from name to name, not from {old!r} to {new!r}.")
            mapping[old] = new
        found = _rename(self._model, mapping)
        self.release()
        for name in mapping:
            if name not in found:
                warn(f"No shape of the model has an axis named {name!r}.")


def _tied(program: torch.export.ExportedProgram) -> list[list[str]]:
    """The names of each weight that has several."""
    names: dict[Any, list[str]] = {}
    for name, tensor in plain(program.state_dict).items():
        names.setdefault(memory_key(tensor), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _described(value: ir.Value) -> str:
    dims = "?" if value.shape is None else ", ".join(str(dim) for dim in value.shape)
    return f"{value.name}: {value.dtype.name.lower() if value.dtype else '?'}[{dims}]"


def _loadable(model: ir.Model, folder: Path | None) -> str | bytes:
    """What a session is made from: the model's bytes, or the path of a file in ``folder`` if the model is large."""
    if folder is not None and save.parameter_bytes(model) > _FROM_FILE_BYTES:
        path = folder / "model.onnx"
        save.save(model, path, external_data=True)
        return str(path)
    buffer = io.BytesIO()
    save.save(model, buffer)
    return buffer.getvalue()


# Axes


_WORD = re.compile(r"[^\W\d][\w.]*")


def _rename(model: ir.Model, mapping: Mapping[str, str]) -> set[str]:
    """Renames dims in place; returns the old names that were found."""
    found: set[str] = set()

    def renamed(name: str) -> str:
        if name in mapping:
            found.add(name)
            return mapping[name]
        return name

    for value in dict.fromkeys(_values(model)):  # once each: renaming a to b and b to a twice is nothing
        if value.shape is None or value.shape.is_static():
            continue
        shape = ir.Shape(value.shape, [value.shape.get_denotation(axis) for axis in range(len(value.shape))])
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                whole = renamed(dim.value)
                shape[axis] = whole if whole != dim.value else _WORD.sub(lambda word: renamed(word.group()), dim.value)
        value.shape = shape  # a new one, as the old one may be frozen, or shared with a value still to come
    return found


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the graph, its subgraphs and the functions."""
    graphs: list[ir.Graph | ir.Function] = [*model.graphs()]
    for function in model.functions.values():
        graphs += [function, *function.subgraphs()]
    for graph in graphs:
        yield from graph.inputs
        if isinstance(graph, ir.Graph):
            yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs
