"""ONNXProgram, the result of export(): it runs, saves and changes the exported model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnx_ir as ir
import torch

from fx_onnx.extension_points import rooms
from fx_onnx.files import save
from fx_onnx.files.destination import check_destination
from fx_onnx.files.metadata_levels import check_level
from fx_onnx.files.serialization import describe, drop_initializer_infos, graph_text
from fx_onnx.messages.arguments import (
    check_dim_name,
    check_flag,
    check_input_names,
    check_mapping,
    check_name,
    check_names,
    check_path,
    shown,
)
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import Finding, MessageId
from fx_onnx.onnx_model import metadata as metadata_keys
from fx_onnx.onnx_model.weights import tied_names
from fx_onnx.passes.traversal import all_initializers
from fx_onnx.program.export_facts import Facts, ModelSummary
from fx_onnx.program.input_binding import bind, bind_input, call_arguments
from fx_onnx.program.model_changes import rename_dims, replace_weights
from fx_onnx.program.reference_session import ReferenceSession
from fx_onnx.program.session import LoadedModel, compute_values, new_session, refuse_fallback, restore_structure
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.targets.kernel_support import Support, support
from fx_onnx.targets.known_targets import find_target
from fx_onnx.targets.target import Target
from fx_onnx.translation.translation_origins import TranslationOrigins

if TYPE_CHECKING:
    import onnxruntime

    from fx_onnx.verification.verification_result import Verification

__all__ = ["ONNXProgram"]


class ONNXProgram:
    """An ONNX model together with the ExportedProgram from which it was translated.

    Attributes:
        model: the onnx_ir.Model. Assigning a new model releases the loaded session. After a change in place, call
            ``release()``.
        exported_program: the torch.export.ExportedProgram, or None for a model from another source. Without it, inputs
            are bound in the order of the graph inputs, and outputs have no structure.
        timings: stage name → seconds, for the stages of the export that ran.
        file: the path to which the model was saved last, or from which the command read it.
        export_facts: what the export decided, for the reports.
        findings: what the export found that the user should know; each has ``id``, ``text`` and ``place``.
        dims: the dynamic dims, each with the sizes for which the model is correct, and the requested dims that are
            static.
        state: the buffers that the model writes. If it is None, each call starts with the buffers of the export. If it
            is a dict, a call starts with the buffers in it, by name, and stores their new values in it. Assign ``{}``
            to start with the buffers of the export and to keep them from call to call.
    """

    def __init__(self, model: ir.Model, exported_program: torch.export.ExportedProgram | None = None) -> None:
        if not isinstance(exported_program, (torch.export.ExportedProgram, type(None))):
            raise ArgumentError(
                f"exported_program must be an ExportedProgram, not {shown(exported_program)}.",
                id=MessageId.CALL_OF_PROGRAM,
            )
        self._model = _checked_model(model)
        self.exported_program = exported_program
        self.timings: dict[str, float] = {}
        self.findings: list[Finding] = []
        self.dims: DimTable = DimTable()
        self.state: dict[str, torch.Tensor] | None = None
        self.file: Path | None = None
        self.export_facts: Facts = Facts()
        self._loaded: LoadedModel | None = None
        self._origins: TranslationOrigins | None = None  # which functions translated the nodes, for verify()

    @property
    def model(self) -> ir.Model:
        """The ONNX model as an onnx_ir.Model."""
        return self._model

    @model.setter
    def model(self, model: ir.Model) -> None:
        _checked_model(model)
        self.release()
        self._model = model

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The ONNX model as a protobuf message. It is a copy, including the weights.

        Raises:
            ArgumentError: a weight has no data.
        """
        save.require_data(all_initializers(self._model.graph))
        proto = ir.serde.serialize_model(self._model)
        drop_initializer_infos(proto.graph)
        return proto

    def __repr__(self) -> str:
        summary = self.summary()
        opsets = ", ".join(f"{domain} {version}".strip() for domain, version in summary.opset.items())
        nodes = sum(summary.operators.values())
        lines = [
            f"ONNXProgram(opset {opsets}, {nodes} node{'s' * (nodes != 1)}, "
            f"{summary.parameters:,} parameter{'s' * (summary.parameters != 1)} in {summary.parameter_bytes:,} bytes",
            *(f"  input  {text}" for text in summary.inputs),
            *(f"  output {text}" for text in summary.outputs),
        ]
        return "\n".join(lines) + ")"

    def summary(self) -> ModelSummary:
        """Returns the figures for the report. A call of a local function counts as one node."""
        graph = self._model.graph
        tensors = [value.const_value for value in all_initializers(self._model.graph) if value.const_value is not None]
        dtypes: Counter[str] = Counter()
        for tensor in tensors:
            dtypes[tensor.dtype.name.lower()] += tensor.size
        return ModelSummary(
            opset=dict(graph.opset_imports),
            inputs=[f"{value.name}: {describe(value)}" for value in graph.inputs],
            outputs=[f"{value.name}: {describe(value)}" for value in graph.outputs],
            operators=Counter(node.op_type for node in ir.traversal.RecursiveGraphIterator(graph)),
            parameters=sum(tensor.size for tensor in tensors),
            parameter_bytes=save.parameter_bytes(self._model),
            dtypes=dtypes,
        )

    def _repr_html_(self) -> str | None:
        """Returns the head of the report, which notebooks show; None without the room of reports."""
        if not rooms.is_installed("report"):
            return None
        text: str = rooms.find("program", "notebook")(self.export_facts, self)
        return text

    def text(self) -> str:
        """Returns the model in ONNX's textual syntax, without the values of weights."""
        return graph_text(self._model)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report: one HTML file with the graph, which needs no network; docs/report.md describes it.

        Raises:
            ArgumentError: the path cannot be written.
        """
        check_path("path", path)
        rooms.find("program", "save_html")(self.export_facts, self, path)

    def view(self, viewer: str = "report") -> Path:
        """Opens the model in the browser and returns the path of the file that it shows, in a temporary folder.

        Args:
            viewer: ``report``, or ``netron`` or ``model-explorer`` if that package is installed.

        Raises:
            ArgumentError: there is no such viewer, or it is not installed.
        """
        path: Path = rooms.find("program", "view")(self, viewer)
        return path

    def supports(self, target: str | Target, shapes: Mapping[str, Sequence[int]] | None = None) -> Support:
        """Compiles the model with a runtime's compiler if that is installed, or compares it with a table of kernels.

        The result is true if the compiler took the model, or the table has a kernel for every node. As text, it lists
        the nodes without one, their lines in the model's code and the opset that would help. Nothing is run: the tables
        do not tell everything, and the result says what. TensorRT and QNN have compilers, in ``fx_onnx[tensorrt]`` and
        ``fx_onnx[qnn]``.

        Args:
            target: the name of a target or a record, as in ``export(target=...)``.
            shapes: the shapes of inputs with dynamic dims, by name, for a compiler; by default those of the example.

        Raises:
            ArgumentError: there is no such target, or no input of this name.
        """
        record = find_target(target)
        check_input_names(shapes or {}, [str(value.name) for value in self._model.graph.inputs])
        if record.compiler is None:
            return support(self._model, record)
        return support(self._model, record, record.compiler(self._model, {**self._example_shapes(), **(shapes or {})}))

    def _example_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the inputs of the export, by name; none for a model from another source."""
        program = self.exported_program
        if program is None or program.example_inputs is None:
            return {}
        try:
            inputs = bind(self._model.graph, program, *program.example_inputs)
        except ArgumentError:  # the inputs of the model were changed since
            return {}
        return {name: tuple(tensor.shape) for name, tensor in inputs.items()}

    # Running

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Runs the model in ONNX Runtime with the arguments of the exported module.

        Args:
            args: the positional arguments in the structure of the module, or the graph inputs in order. None and
                constants are allowed where the export had them. A 0-d input may be a Python number. A complex tensor
                is converted to its real view.
            kwargs: the keyword arguments, in any order.

        Returns:
            All graph outputs as tensors, in order: the outputs of the module, flattened and without None, then the new
            values of the buffers and inputs that the model writes. A complex output is its real view, whose last axis
            has size 2.

        Raises:
            ArgumentError: there are too many or too few inputs, an input does not have the dtype or shape of the graph
                input, or ``state`` has a name that is not a buffer of the program.
            OnnxExporterError: ONNX Runtime cannot load the model, or fails while it runs it.
        """
        inputs = bind(self._model.graph, self.exported_program, args, kwargs)
        buffers = {str(value.name): value for value in self._model.graph.inputs if value.is_initializer()}
        check_mapping("state", self.state, "names and tensors")
        for name, tensor in (self.state or {}).items():
            if name not in buffers:
                raise ArgumentError(
                    f"The program writes no buffer {name!r}; it writes {sorted(buffers)}.", id=MessageId.CALL_OF_PROGRAM
                )
            inputs[name] = bind_input(buffers[name], tensor)
        if self._loaded is None:
            self.initialize_inference_session()
        results = cast("LoadedModel", self._loaded).run(inputs)
        if self.state is not None:
            kinds = (value.metadata_props.get(metadata_keys.OUTPUT_KIND) for value in self._model.graph.outputs)
            written = (result for result, kind in zip(results, kinds, strict=True) if kind == "BUFFER_MUTATION")
            self.state.update(zip(buffers, written, strict=True))
        return results

    def call_structured(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model and returns the outputs in the module's structure: dicts, tuples, None and complex tensors.

        Raises:
            ArgumentError: the arguments do not fit, as for a call, or the program has no exported_program.
        """
        if self.exported_program is None:
            raise ArgumentError(
                "The program has no exported_program, which defines the structure of the outputs; call the program "
                "itself, which returns a tuple of tensors.",
                id=MessageId.CALL_OF_PROGRAM,
            )
        return restore_structure(self.exported_program, self(*args, **kwargs))

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Runs the model in onnx.reference's evaluator instead of ONNX Runtime, to find out which of them is wrong.

        The evaluator is implemented in Python and slow. Arguments and results are those of a call.
        """
        refuse_fallback(self._model)
        save.require_data(all_initializers(self._model.graph))
        return ReferenceSession(self._model).run(bind(self._model.graph, self.exported_program, args, kwargs))

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Runs the model and returns any of its values, also those that are not outputs.

        Args:
            value_names: names of inputs, initializers or node outputs of the main graph.
            args: the module's positional arguments.
            kwargs: the module's keyword arguments.

        Returns:
            One tensor for each name, in order.

        Raises:
            ArgumentError: the main graph has no value with one of the names, or the arguments do not fit.
        """
        value_names = check_names("value_names", value_names)
        if not value_names:
            raise ArgumentError(
                "value_names is empty; name at least one value of the model.", id=MessageId.CALL_OF_PROGRAM
            )
        inputs = bind(self._model.graph, self.exported_program, *call_arguments(args, kwargs))
        return compute_values(self._model, inputs, value_names)

    def verify(
        self,
        *args: Any,
        rtol: float | None = None,
        atol: float | None = None,
        provider: str | None = None,
        **kwargs: Any,
    ) -> Verification:
        """Compares the results in ONNX Runtime with those of the captured module, and finds out why they differ.

        Args:
            args: the positional arguments of the module. Without any arguments, those of the export.
            rtol: the allowed difference relative to the largest magnitude of an output; None depends on the dtype.
            atol: the allowed absolute difference; None depends on the dtype.
            provider: the execution provider of ONNX Runtime; None is CUDA if it is available, or else the CPU.
            kwargs: the keyword arguments of the module.

        Returns:
            The differences of all outputs for three sizes, and the cause if one differs; see docs/verification.md.

        Raises:
            ArgumentError: the program has no exported_program, or the arguments do not fit.
        """
        example = getattr(self.exported_program, "example_inputs", None) if not args and not kwargs else None
        compare = rooms.find("stages", "verify")
        result: Verification = compare(self, *(example or (args, kwargs)), rtol=rtol, atol=atol, provider=provider)
        return result

    def initialize_inference_session(
        self, initializer: Callable[[str | bytes], onnxruntime.InferenceSession] = new_session
    ) -> None:
        """Loads the model into ONNX Runtime now, instead of at the first call.

        Args:
            initializer: creates the session from the bytes of the model, or from a path if the weights take more than
                16 MiB. Use it to choose execution providers and session options.
        """
        if not callable(initializer):
            raise ArgumentError(
                f"initializer must be a function that returns a session, not {shown(initializer)}.",
                id=MessageId.CALL_OF_PROGRAM,
            )
        self.release()
        start = None if initializer is new_session else initializer
        self._loaded = LoadedModel(self._model, start, origins=self._origins)

    def release(self) -> None:
        """Releases the loaded session and its temporary file. The next call loads the model again."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def save(
        self,
        destination: save.Destination,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
        weights_from: str | os.PathLike[str] | None = None,
        metadata: str = "full",
    ) -> None:
        """Writes the model to a path or a binary file object. A file gets its final name only when it is complete.

        Whenever the process stops, through an error, an interrupt, a kill or a power failure, the old model or the new
        one is whole under the name, and the next save to the path removes what a kill left. Several processes may save
        to one path while others read it.

        Args:
            destination: a path in an existing folder, or a file object that is open in binary mode.
            include_initializers: whether the weights are written. If not, they are graph inputs after the others, in
                the order of the state_dict, and the caller gives them to the runtime.
            keep_initializers_as_inputs: whether the weights are graph inputs too, so that a runtime may override them.
            external_data: True writes the weights to ``<name>.data`` beside the model. If the model that is replaced
                reads this file, the name is ``<name>.1.data``, then ``<name>.2.data``, and the old file is removed.
                None and False write a single file if the model has at most 2 GB, the limit of protobuf. Above it they
                write two files too; False then warns.
            weights_from: a safetensors file, an index of several files, or a folder of them, in the model's folder or
                below it. The model refers to each entry that equals a weight in name, dtype, shape and values, and
                such a weight is not written. A weight without data (a FakeTensor, or on the meta device) must be in
                these files; its values are not compared.
            metadata: what the file tells about the code of the model. ``full`` writes the modules, the ATen operators,
                the FX nodes and the source lines of each node, with relative paths. ``names`` writes the modules and
                the ATen operators only, and ``none`` nothing. Nothing else in the file depends on it.

        Raises:
            ArgumentError: the path cannot be written, a weight has no data, or ``weights_from`` does not fit.
            OnnxExporterError: writing failed. An older file with this name remains.
        """
        check_flag("include_initializers", include_initializers)
        check_flag("keep_initializers_as_inputs", keep_initializers_as_inputs, optional=True)
        check_flag("external_data", external_data, optional=True)
        check_destination(destination, external_data)
        if weights_from is not None:
            check_path("weights_from", weights_from)
        check_level(metadata)
        save.save(
            self._model,
            destination,
            include_initializers=include_initializers,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=external_data,
            weights_from=weights_from,
            tied=tied_names(self.exported_program.state_dict)
            if weights_from is not None and self.exported_program is not None
            else (),
            metadata=metadata,
        )
        if isinstance(destination, (str, os.PathLike)):
            self.file = Path(destination)

    def save_genai(
        self,
        folder: str | os.PathLike[str],
        *,
        config: Any = None,
        generation_config: Any = None,
        tokenizer: Any = None,
        shared_buffer: bool | None = None,
        external_data: bool | None = True,
        weights_from: str | os.PathLike[str] | None = None,
        metadata: str = "full",
    ) -> None:
        """Writes a decoder with a key-value cache as a folder that onnxruntime-genai runs.

        Export with the arguments that ``fx_onnx.text_generation_arguments(model, full_cache=True)`` returns.

        Args:
            folder: is created if it does not exist. Files with these names in it are replaced.
            config: the config of the model, such as ``model.config``, or a dict with ``max_position_embeddings`` and
                ``eos_token_id``.
            generation_config: the defaults of the search, such as ``model.generation_config``. Its values win over
                those of ``config``.
            tokenizer: a tokenizer of transformers, or a folder with its files. None writes none; the caller tokenizes.
            shared_buffer: whether past and present are one buffer, which needs a model that writes into its past. None
                shares the buffer of such a model.
            external_data, weights_from, metadata: as in ``save``.

        Raises:
            ArgumentError: onnxruntime-genai cannot run the program, or an argument is not valid. Nothing is written.
            OnnxExporterError: writing failed.
        """
        rooms.find("program", "save_genai")(
            self._model,
            folder,
            lambda path: self.save(path, external_data=external_data, weights_from=weights_from, metadata=metadata),
            config=config,
            generation_config=generation_config,
            tokenizer=tokenizer,
            shared_buffer=shared_buffer,
        )

    def optimize(self) -> None:
        """Runs the optimization passes that export(optimize=True) runs."""
        from fx_onnx.passes.optimize import optimize

        self.model = optimize(self._model)

    def apply_weights(self, state_dict: Mapping[str, torch.Tensor | np.ndarray[Any, Any]]) -> None:
        """Replaces the data of weights, by name. Weights that the optimizer computed are computed from the new data.

        A name that is not a weight of the model causes a warning.

        Args:
            state_dict: tensors or arrays with the shapes and dtypes of the model's weights. They are not copied. A
                quantized tensor of torchao replaces the weights of its parts (``fc.weight.qdata``,
                ``fc.weight.scale``).

        Raises:
            ArgumentError: a tensor has another shape or dtype. In this case no weight changes.
        """
        self.release()
        replace_weights(self._model, state_dict)

    def rename_axes(self, rename_mapping: Mapping[str | ir.SymbolicDim, str]) -> None:
        """Renames symbolic dims in the whole model: in subgraphs, in functions, and in expressions such as ``2*s0``.

        A name that no shape of the model has causes a warning.

        Args:
            rename_mapping: old name, or a dim of a shape → new name. All dims are renamed at once, so that two dims may
                swap their names.

        Raises:
            ArgumentError: a name is not a string or is empty.
        """
        check_mapping("rename_mapping", rename_mapping, "old and new names", optional=False)
        mapping: dict[str, str] = {}
        for axis, new in rename_mapping.items():
            old = axis.value if isinstance(axis, ir.SymbolicDim) else axis
            check_name("The old name of an axis", old)
            check_dim_name("The new name of an axis", new)
            mapping[str(old)] = new
        renamed = rename_dims(self._model, mapping)
        self.release()
        for name in mapping:
            if name not in renamed:
                warn(f"No shape of the model has an axis named {name!r}.", MessageId.UNKNOWN_NAME)


def _checked_model(model: Any) -> ir.Model:
    if not isinstance(model, ir.Model):
        raise ArgumentError(
            f"The model must be an onnx_ir.Model, not {shown(model)}; onnx_ir.from_proto makes one.",
            id=MessageId.CALL_OF_PROGRAM,
        )
    return model
