"""Which dtypes TensorRT for RTX takes for each operator: the test models of the package onnx, compiled in each dtype.

``onnxruntime-ep-nv-tensorrt-rtx-cu13`` must be installed. No GPU is needed, and nothing is run. A dtype counts as taken
if an engine is built for one of the operator's test models in which it takes the place of the dtype of a type variable.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from fx_onnx.backends.tensorrt_compiler import PLUGINS, compile_model
from fx_onnx.passes.legalization.kernel_tables import DTYPES

__all__ = ["rows"]

OLDEST, OPSET = 18, 23
MODELS = 3
"""So many test models of an operator are tried for each dtype."""
_MORE = (
    "g (float16[2,4,8,16] q, float16[2,4,8,16] k, float16[2,4,8,16] v) => (float16[2,4,8,16] y)"
    "{ y = Attention(q, k, v) }",
)
"""Models of operators whose test models no engine takes: the heads there have less than 16 elements."""
_TENSORS = {f"tensor({name})": short for short, name in DTYPES.items() if name != "double"}
"""The dtypes by their names in ONNX's schemas. The parser reads float64 as float32, so float64 counts as not taken."""
_NUMBERS = {name: getattr(onnx.TensorProto, name.upper()) for name in DTYPES.values()}


class _Case:
    """One test model of one node, in which a dtype can be replaced."""

    def __init__(self, model: onnx.ModelProto, data: Sequence[Any]) -> None:
        self.model, self.node = model, model.graph.node[0]
        given = next(entry.version for entry in model.opset_import if not entry.domain)
        self.opset = max(OPSET, onnx.defs.get_schema(self.node.op_type, given).since_version)
        self.schema = onnx.defs.get_schema(self.node.op_type, self.opset)
        self.data = {value.name: np.asarray(array) for value, array in zip(model.graph.input, data, strict=False)}

    def variable(self, name: str) -> str:
        """Returns the type variable of an input or output of the node."""
        for formal, actual in ((self.schema.inputs, self.node.input), (self.schema.outputs, self.node.output)):
            if name in actual:
                return str(formal[min(list(actual).index(name), len(formal) - 1)].type_str)
        return ""

    def with_dtype(self, variables: Collection[str], dtype: str, *, all_constant: bool) -> onnx.ModelProto:
        """Returns the model with another dtype for type variables, with its first result, and with constant settings.

        Settings are small inputs of another type variable than the first input, such as axes; or all inputs.
        """
        graph = onnx.GraphProto()
        graph.CopyFrom(self.model.graph)
        del graph.output[1:], graph.node[0].output[1:]
        inputs = list(graph.input)
        first = self.variable(inputs[0].name) if inputs else ""
        del graph.input[:]
        for value in inputs:
            mine, kind = self.variable(value.name), value.type.tensor_type
            if mine in variables:
                kind.elem_type = _NUMBERS[dtype]
            array = self.data.get(value.name)
            if array is not None and (all_constant or (mine != first and array.size < 64)):
                wanted = helper.tensor_dtype_to_np_dtype(kind.elem_type)
                graph.initializer.append(numpy_helper.from_array(array.astype(wanted), value.name))
            else:
                graph.input.append(value)
        for value in graph.output:
            if self.variable(value.name) in variables:
                value.type.tensor_type.elem_type = _NUMBERS[dtype]
                for attribute in graph.node[0].attribute:
                    if attribute.name in ("to", "dtype") and attribute.type == onnx.AttributeProto.INT:
                        attribute.i = _NUMBERS[dtype]
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def variants(self, variable: str, dtype: str, *, all_constant: bool) -> Iterator[onnx.ModelProto]:
        """Yields the model with a dtype for one variable, and for all others of the same old dtype, as in Attention."""
        if (variable, dtype) not in self.dtypes():
            return
        yield self.with_dtype({variable}, dtype, all_constant=all_constant)
        values = (*self.model.graph.input, *self.model.graph.output)
        old = {self.variable(value.name): value.type.tensor_type.elem_type for value in values}
        same = {name for name, number in old.items() if number == old.get(variable) and (name, dtype) in self.dtypes()}
        if len(same) > 1:
            yield self.with_dtype(same, dtype, all_constant=all_constant)

    def since(self) -> int:
        """Returns the first version of the operator whose type variables have the same meaning; 1 if all have."""
        try:
            oldest = onnx.defs.get_schema(self.node.op_type, OLDEST)
        except onnx.defs.SchemaError:
            return 1
        variables = [
            {parameter.name: parameter.type_str for parameter in (*schema.inputs, *schema.outputs)}
            for schema in (oldest, self.schema)
        ]
        differ = any(variables[1].get(name, kind) != kind for name, kind in variables[0].items())
        return int(self.schema.since_version) if differ else 1

    def dtypes(self) -> Iterator[tuple[str, str]]:
        """Yields the type variables with each dtype of the tables that ONNX allows."""
        used = {self.variable(name) for name in (*self.node.input, *self.node.output)}
        for constraint in self.schema.type_constraints:
            if constraint.type_param_str in used:
                for allowed in constraint.allowed_type_strs:
                    if allowed in _TENSORS:
                        yield constraint.type_param_str, DTYPES[_TENSORS[allowed]]


def _cases() -> dict[str, list[_Case]]:
    """Returns the test models by operator: those with static shapes and one node."""
    from onnx.backend.test.case.node import collect_testcases

    cases: dict[str, list[_Case]] = {}
    for test in collect_testcases(None):
        model = test.model
        if model is None or len(model.graph.node) != 1 or model.graph.node[0].domain or not test.data_sets:
            continue
        if all(value.type.HasField("tensor_type") for value in (*model.graph.input, *model.graph.output)):
            cases.setdefault(model.graph.node[0].op_type, []).append(_Case(model, test.data_sets[0][0]))
    for text in _MORE:
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {OPSET}]> {text}')
        cases.setdefault(model.graph.node[0].op_type, []).insert(0, _Case(model, ()))
    return cases


def is_taken(proto: onnx.ModelProto) -> bool:
    """Returns whether an engine is built."""
    compiled = compile_model(ir.from_proto(proto), {})
    if compiled is None:
        raise SystemExit("onnxruntime-ep-nv-tensorrt-rtx-cu13 0.5.0 is not installed.")
    return bool(compiled.size)


def row(cases: Sequence[_Case]) -> list[str]:
    """Returns the lines of an operator for the table; none if no engine is built for any of its test models.

    An operator such as Range has a kernel for constants only. An older version whose type variables have other
    meanings gets a line without dtypes.
    """
    taken = _taken(cases, all_constant=False) or _taken(cases, all_constant=True)
    order = list(DTYPES)
    parts = (f"{name}={','.join(sorted(dtypes, key=order.index))}" for name, dtypes in sorted(taken.items()))
    since = cases[0].since()
    older = [f"1 {since - 1}"] if taken and since > 1 else []
    return [*older, " ".join([f"{since} *", *parts])] if taken else []


def _taken(cases: Sequence[_Case], *, all_constant: bool) -> dict[str, list[str]]:
    """Returns the dtypes, as in the tables, for which an engine is built, by type variable."""
    taken: dict[str, list[str]] = {}
    for variable, dtype in dict.fromkeys(itertools.chain.from_iterable(case.dtypes() for case in cases)):
        protos = (proto for case in cases for proto in case.variants(variable, dtype, all_constant=all_constant))
        if any(map(is_taken, protos)):
            taken.setdefault(variable, []).append(_TENSORS[f"tensor({dtype})"])
    return taken


def rows(operators: Sequence[str]) -> dict[str, list[str]]:
    """Returns the lines of the operators for the table. One without test models, and a plug-in, has no dtypes."""
    cases, table = _cases(), {}
    for operator in operators:
        if operator in PLUGINS or operator not in cases:
            table[operator] = ["1 *"]
        elif lines := row(cases[operator][:MODELS]):
            table[operator] = lines
        print(operator, table.get(operator), file=sys.stderr, flush=True)
    return table
