"""Promotion of operators to a wider dtype where ONNX Runtime has no kernel for theirs, by default in its CPU provider.

Without these Casts the model is correct, but ONNX Runtime does not load it. So the pass runs for unoptimized models
too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.onnx_model.schemas import OperatorSchema, Parameter, operator_schema, tensor_type
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.kernel_tables import Kernel, first_kernels, kernel_table, since_version
from fx_onnx.passes.matchers import attribute, constant_array, initializer_tensor
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.traversal import all_nodes

__all__ = ["InsertCasts", "KernelPass"]


class KernelPass(Pass):
    """A pass for the operators and dtypes for which a runtime has no kernel.

    Args:
        tables: the tables of kernels of the runtime's providers, by default that of ONNX Runtime's CPU provider. The
            first one that has an operator runs it.
    """

    def __init__(self, *tables: str) -> None:
        super().__init__()
        self.tables = tables or ("onnxruntime",)

    def kernels(self, node: ir.Node, opset: int) -> tuple[Kernel, ...]:
        """Returns the kernels of the provider that runs the node's operator; none if no provider has the operator."""
        version = since_version(node.op_type, opset)
        return () if version is None else first_kernels(self.tables, node.op_type, version)


Types = tuple[DataType | None, ...]
Plan = tuple[Types, Types]
"""The dtypes that the inputs and the outputs of a node need; None for those that stay."""

_Moves = dict[ir.Node, DataType]
"""Nodes that move elements of a wide dtype, with the dtype."""

_FLOATS = (DataType.FLOAT, DataType.DOUBLE)
# dtype → wider dtypes, the preferred one first. They represent all its numbers, and a result that is cast back is the
# same. 64-bit dtypes have no wider one.
_WIDER: dict[DataType, tuple[DataType, ...]] = {
    DataType.BOOL: (DataType.UINT8, DataType.INT32, DataType.INT64, *_FLOATS),
    DataType.UINT8: (DataType.UINT32, DataType.INT32, DataType.INT64),
    DataType.UINT16: (DataType.UINT32, DataType.INT32, DataType.INT64),
    DataType.UINT32: (DataType.UINT64, DataType.INT64),
    DataType.INT8: (DataType.INT32, DataType.INT64),
    DataType.INT16: (DataType.INT32, DataType.INT64),
    DataType.INT32: (DataType.INT64,),
    DataType.BFLOAT16: _FLOATS,
    DataType.FLOAT16: _FLOATS,
}
_FLOAT8 = (
    DataType.FLOAT8E4M3FN, DataType.FLOAT8E4M3FNUZ, DataType.FLOAT8E5M2, DataType.FLOAT8E5M2FNUZ,
)  # fmt: skip
# More wider dtypes, for operators that only select elements (_SELECTS). These cannot overflow, so a float may carry
# small integers. 8-bit floats are here because many of ONNX's operators do not admit them.
_WIDER_FOR_SELECTION: dict[DataType, tuple[DataType, ...]] = {
    **dict.fromkeys((DataType.UINT8, DataType.INT8, DataType.UINT16, DataType.INT16), _FLOATS),
    **dict.fromkeys((DataType.UINT32, DataType.INT32), (DataType.DOUBLE,)),
    **dict.fromkeys(_FLOAT8, (DataType.FLOAT,)),
}
# Operators whose results are elements of their inputs. A consumer in the wider dtype reads such a result directly,
# without a Cast to the narrow dtype and back.
_SELECTS_TEXT = """
    Compress Concat ConstantOfShape DepthToSpace Expand EyeLike Flatten Gather GatherElements GatherND GlobalMaxPool
    Identity Max MaxPool Min NonZero OneHot Pad ReduceMax ReduceMin Reshape ReverseSequence Slice SpaceToDepth Split
    Squeeze Tile TopK Transpose Trilu Unique Unsqueeze Where
"""
_SELECTS = frozenset(_SELECTS_TEXT.split())
# These do not round, so their wide result equals the narrow one. For integers it may differ, because integers wrap.
_EXACT_OF_FLOATS = frozenset({"Relu", "Neg", "Abs", "Clip", "Sign", "Floor", "Ceil", "Round", "Shrink"})
_UNSIGNED = frozenset({"BitShift"})
# Their kernels admit every dtype, but a reduction in one of _NOT_REDUCED fails at run time.
_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_NOT_REDUCED = frozenset({DataType.BOOL, DataType.FLOAT16, DataType.BFLOAT16})
# The dtypes of these operators are part of their meaning.
_EXCLUDED_TEXT = """
    BitCast Cast CastLike Constant ConvInteger DequantizeLinear DynamicQuantizeLinear If Loop MatMulInteger Optional
    OptionalGetElement OptionalHasElement QLinearConv QLinearMatMul QuantizeLinear Scan SequenceMap
"""
_EXCLUDED = frozenset(_EXCLUDED_TEXT.split())

_NO_KERNEL: Plan = (), ()


class InsertCasts(KernelPass):
    """op(x: bfloat16) → Cast(op(Cast(x, float32)), bfloat16), where the runtime has no kernel for bfloat16.

    Legal because the wider dtype represents all numbers of the narrow one, and the result of each call of a torch
    operator is rounded to its own dtype, as in torch. So a Cast to bfloat16 and back stays between two calls, except
    after operators that do not round. Between the steps of one call, such as a product and its bias, it is left out:
    torch's kernels keep these in float32. Booleans and small integers are promoted too; 64 bits are never narrowed.
    ONNX Runtime inserts Casts around float16 itself, so there float16 is promoted only where the ONNX operator does not
    admit it.

    A Concat of promoted results and a Split for promoted nodes compute in the wider dtype too. So a mixture of experts
    has one Cast for all experts instead of one for each.
    """

    name = "insert_casts"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Visits the graph, its subgraphs and the functions once."""
        modified = False
        for function in (None, *model.functions.values()):
            graph = model.graph if function is None else function
            opset = graph.opset_imports.get("", 0)
            nodes = list(all_nodes(graph))
            plans = {node: plan for node in nodes if (plan := self._plan_of(node, opset)) is not None}
            if not plans:
                continue
            casts = _Casts(Editor(model, function), *self._promote_moves(nodes, plans, opset))
            for node in nodes:
                if node in plans:
                    casts.around(node, plans[node])
            casts.finish()
            modified = True
        return ir.passes.PassResult(model, modified=modified)

    def _promote_moves(
        self, nodes: Sequence[ir.Node], plans: dict[ir.Node, Plan], opset: int
    ) -> tuple[set[ir.Node], set[ir.Node]]:
        """Adds plans for the Concats and Splits that only move the elements of promoted nodes, and returns both."""

        def moved(op_type: str, wide_dtype: Callable[[ir.Node, Mapping[ir.Node, Plan]], DataType | None]) -> _Moves:
            """Returns the nodes of an operator that may move elements of a wide dtype, with the dtype."""
            widened = {node: wide_dtype(node, plans) for node in nodes if node.op_type == op_type and node not in plans}
            return {node: wide for node, wide in widened.items() if wide is not None and runs(node, wide)}

        def runs(node: ir.Node, dtype: DataType) -> bool:
            inputs, outputs = (_with_dtype(values, dtype) for values in (node.inputs, node.outputs))
            return _plan(self.tables, node.op_type, opset, False, inputs, outputs) is None

        splits = moved("Split", _read_as)
        for split, wide in splits.items():
            plans[split] = (wide, *(None for _ in split.inputs[1:])), tuple(wide for _ in split.outputs)
        joins = moved("Concat", _joined)
        for join, wide in joins.items():
            plans[join] = (), (wide,)
            for value in join.inputs:
                producer = None if value is None else value.producer()
                if producer is not None and producer not in plans:  # a ConstantOfShape
                    plans[producer] = (None,), (wide,)
        return set(joins), set(splits)

    def _plan_of(self, node: ir.Node, opset: int) -> Plan | None:
        """Returns the dtypes that the inputs and outputs need; None if they are right, or no dtype has a kernel."""
        if node.domain:
            return None
        reduces = node.op_type in _SCATTERS and attribute(node, "reduction", "none") != "none"
        plan = _plan(self.tables, node.op_type, opset, reduces, _dtypes(node.inputs), _dtypes(node.outputs))
        if plan is _NO_KERNEL:
            self.declines(node, "no provider has a kernel for its dtypes or wider ones")
            return None
        return plan


# ---------------------------------------------------------------- which dtypes


def _dtypes(values: Iterable[ir.Value | None]) -> Types:
    """Returns the dtypes of tensors; None for an absent value, a sequence and an unknown dtype."""
    return tuple([x.dtype if x is not None and isinstance(x.type, ir.TensorType) else None for x in values])


def _with_dtype(values: Iterable[ir.Value | None], dtype: DataType) -> Types:
    """Returns the dtypes of values, of which those with the dtype of the first one have another dtype."""
    dtypes = _dtypes(values)
    return tuple(dtype if old is dtypes[0] else old for old in dtypes)


@functools.lru_cache(maxsize=4096)
def _plan(
    tables: tuple[str, ...], op_type: str, opset: int, reduces: bool, inputs: Types, outputs: Types
) -> Plan | None:
    """Returns the plan for an operator with these dtypes; None if they are right, ``_NO_KERNEL`` if none would do."""
    schema = None if op_type in _EXCLUDED else operator_schema(op_type, opset)
    bound = None if schema is None else _bound(schema, inputs, outputs)
    if schema is None or not bound:
        return None
    # A runtime that casts float16 itself does this after its fusions.
    kept = frozenset([DataType.FLOAT16]) if kernel_table(tables[0]).casts_float16 else frozenset()
    refused = _NOT_REDUCED if reduces else frozenset()
    chosen = _chosen(schema, _admitted(tables, schema, opset), bound, refused, kept)
    if not chosen:
        return _NO_KERNEL if chosen is None else None
    return (
        tuple(None if p is None else chosen.get(p.type) for p in _parameters(schema.inputs, len(inputs))),
        tuple(None if p is None else chosen.get(p.type) for p in _parameters(schema.outputs, len(outputs))),
    )


def _parameters(formal: Sequence[Parameter], count: int) -> Iterator[Parameter | None]:
    """Yields the formal parameter of each actual one; None beyond the last and for heterogeneous variadic ones."""
    for index in range(count):
        last = formal[min(index, len(formal) - 1)] if formal else None
        if last is None or (index >= len(formal) and not last.variadic) or (last.variadic and not last.homogeneous):
            yield None
        else:
            yield last


def _bound(schema: OperatorSchema, inputs: Types, outputs: Types) -> dict[str, DataType] | None:
    """Returns type variable → dtype, or None if a variable has two dtypes, which makes the node illegal."""
    bound: dict[str, DataType] = {}
    for formal, actual in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for parameter, dtype in zip(_parameters(formal, len(actual)), actual, strict=True):
            if parameter is None or dtype is None or tensor_type(parameter.type) is not None:
                continue
            if bound.setdefault(parameter.type, dtype) is not dtype:
                return None
    return bound


def _chosen(
    schema: OperatorSchema,
    kernels: Iterable[dict[str, frozenset[DataType]]],
    bound: dict[str, DataType],
    refused: frozenset[DataType],
    kept: frozenset[DataType],
) -> dict[str, DataType] | None:
    """Returns type variable → the dtype to promote it to; empty if none needs it, None if no kernel admits any."""
    legal = all(dtype in schema.types.get(variable, (dtype,)) for variable, dtype in bound.items())
    if legal and not refused and all(x not in _WIDER or x in kept for x in bound.values()):
        return {}
    best: tuple[list[int], dict[str, DataType]] | None = None
    for admitted in kernels:
        ranks, changes = [], {}
        for variable, dtype in bound.items():
            possible = admitted.get(variable, frozenset((dtype,))) & (schema.types.get(variable) or {dtype}) - refused
            options = [dtype, *_wider_dtypes(schema.name, dtype)]
            rank = next((index for index, option in enumerate(options) if option in possible), None)
            if rank is None:
                break
            ranks.append(rank)
            if rank:
                changes[variable] = options[rank]
        else:
            if best is None or sum(ranks) < sum(best[0]):
                best = ranks, changes
    return None if best is None else best[1]


def _admitted(tables: tuple[str, ...], schema: OperatorSchema, opset: int) -> Iterator[dict[str, frozenset[DataType]]]:
    """Yields the dtypes that each kernel admits, by type variable.

    An operator without a kernel may have a function body, which ONNX Runtime inlines. For it, the dtypes are those that
    function bodies compute in.
    """
    variables = {parameter.name: parameter.type for parameter in (*schema.inputs, *schema.outputs)}
    version = since_version(schema.name, opset)
    kernels = first_kernels(tables, schema.name, version) if version is not None else ()
    for kernel in kernels:
        yield {variables.get(name, name): dtypes for name, dtypes in kernel.admitted.items()}
    if kernels:
        return
    definition: Any = onnx.defs.get_schema(schema.name, opset)
    if definition.has_function or definition.has_context_dependent_function:
        yield dict.fromkeys(schema.types, frozenset({*_FLOATS, DataType.INT32, DataType.INT64, DataType.BOOL}))


def _wider_dtypes(op_type: str, dtype: DataType) -> tuple[DataType, ...]:
    """Returns the dtypes to which the operator may be promoted, the preferred one first."""
    wider = _WIDER.get(dtype, ())
    if op_type in _UNSIGNED:
        return tuple(candidate for candidate in wider if candidate.name.startswith("UINT"))
    return (*wider, *_WIDER_FOR_SELECTION.get(dtype, ())) if op_type in _SELECTS else wider


# ---------------------------------------------------------------- the moved casts


def _joined(node: ir.Node, plans: Mapping[ir.Node, Plan]) -> DataType | None:
    """Returns the wide dtype of a Concat of at least two results that are rounded to the narrow dtype; else None.

    Such a Concat may join the wide results, and one Cast rounds all of them. No other node may read the results. A part
    may also be a ConstantOfShape.
    """
    dtypes: list[DataType] = []
    for value in node.inputs:
        producer = None if value is None else value.producer()
        if value is None or producer is None or producer.graph is not node.graph or value.is_graph_output():
            return None
        if any(use.node is not node for use in value.uses()):
            return None
        wide = plans[producer][1][value.index() or 0] if producer in plans else None
        if wide is not None:
            dtypes.append(wide)
        elif producer.op_type != "ConstantOfShape":
            return None
    return dtypes[0] if len(dtypes) > 1 and len(set(dtypes)) == 1 else None


def _read_as(node: ir.Node, plans: Mapping[ir.Node, Plan]) -> DataType | None:
    """Returns the wide dtype in which alone the parts of a Split are read; None if there is none.

    One Cast of the whole tensor then replaces the Casts of the parts.
    """
    uses = [use for value in node.outputs for use in value.uses()]
    if any(value.is_graph_output() for value in node.outputs) or not all(use.node in plans for use in uses):
        return None
    dtypes = {plans[use.node][0][use.idx] for use in uses}
    return dtypes.pop() if len(dtypes) == 1 else None


# ---------------------------------------------------------------- the casts


class _Casts:
    """Inserts Casts around nodes, one for each value and dtype."""

    def __init__(self, editor: Editor, joins: Collection[ir.Node] = (), splits: Collection[ir.Node] = ()) -> None:
        """Takes the promoted nodes that join wide results before they are rounded, and those that only they read."""
        self.editor = editor
        self._joins, self._splits = joins, splits
        self._made: dict[tuple[ir.Value, DataType], ir.Value] = {}
        self._unrounded: dict[tuple[ir.Value, DataType], ir.Value] = {}
        self._narrowing: list[ir.Node] = []

    def around(self, node: ir.Node, plan: Plan) -> None:
        """Makes ``node`` compute in the dtypes of the plan, between Casts."""
        for index, (value, dtype) in enumerate(zip(node.inputs, plan[0], strict=False)):
            if value is not None and dtype is not None:
                node.replace_input_with(index, self._widen(value, dtype, node))
        for value, dtype in zip(node.outputs, plan[1], strict=True):
            if value.name and dtype is not None:
                self._narrow_result(node, value, dtype)
        self._change_attributes(node, plan[1])

    def finish(self) -> None:
        """Removes the Casts to the narrow dtype that nothing reads."""
        for node in self._narrowing:
            self.editor.remove_if_unused(node)

    def _widen(self, value: ir.Value, dtype: DataType, node: ir.Node) -> ir.Value:
        """Returns ``value`` in a wider dtype: a new constant, an existing wide value, or a Cast after its producer."""
        key = value, dtype
        unrounded = self._unrounded.get(key)
        if unrounded is not None and _of_one_call(unrounded.producer(), node):
            return unrounded
        if key not in self._made:
            known = constant_array(value) if initializer_tensor(value) is not None else None
            if known is not None and self.editor.function is None:
                self._made[key] = self.editor.constant(known.astype(dtype.numpy()), node)
            else:
                cast = self._cast(value, dtype, node)
                cast.outputs[0].name = cast.name = self.editor.unique_name(f"{value.name}.{_suffix(dtype)}")
                self.editor.insert_after(cast, value)
                self._made[key] = cast.outputs[0]
        return self._made[key]

    def _narrow_result(self, node: ir.Node, value: ir.Value, dtype: DataType) -> None:
        """Makes ``node`` return the wider dtype; a Cast after it returns the narrow value under the old name."""
        narrow = value.dtype
        if narrow is None or node.graph is None:
            return
        name, value.name = value.name, self.editor.unique_name(f"{value.name}.{_suffix(dtype)}")
        if node.name == name:
            node.name = value.name
        value.type = ir.TensorType(dtype)
        if any(use.node in self._joins for use in value.uses()):
            return
        if node in self._splits:
            self._made[value, dtype] = value  # nothing reads the narrow value
            return
        cast = self._cast(value, narrow, node)
        cast.name, result = name, cast.outputs[0]
        value.replace_all_uses_with(result, replace_graph_outputs=True)
        cast.replace_input_with(0, value)
        result.name = name
        result.metadata_props.update(value.metadata_props)
        result.meta.update(value.meta)
        node.graph.insert_after(node, cast)
        self._narrowing.append(cast)
        if node in self._joins:
            return  # the Cast rounds what the node joins
        if node.op_type in _SELECTS or (node.op_type in _EXACT_OF_FLOATS and is_float(narrow)):
            self._made[result, dtype] = value
        elif is_float(narrow):
            self._unrounded[result, dtype] = value

    def _cast(self, value: ir.Value, dtype: DataType, node: ir.Node) -> ir.Node:
        cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], metadata_props=dict(node.metadata_props))
        cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(dtype), value.shape
        return cast

    def _change_attributes(self, node: ir.Node, outputs: Types) -> None:
        """Changes the attributes that determine the dtype of the result to the wider dtype."""
        dtype = outputs[0] if outputs else None
        if dtype is None:
            return
        if "dtype" in node.attributes:
            node.attributes["dtype"] = ir.AttrInt64("dtype", int(dtype))
        value: Any = attribute(node, "value")
        if node.op_type == "ConstantOfShape" and value is not None:
            array = np.asarray(value.numpy()).astype(dtype.numpy())
            node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(array))


def _of_one_call(first: ir.Node | None, second: ir.Node) -> bool:
    """Returns whether two nodes compute steps of one call of a torch operator."""
    call = second.metadata_props.get(metadata.FX_NODE)
    return first is not None and call is not None and first.metadata_props.get(metadata.FX_NODE) == call


def _suffix(dtype: DataType) -> str:
    return {DataType.FLOAT: "float32", DataType.DOUBLE: "float64"}.get(dtype, dtype.name.lower())
