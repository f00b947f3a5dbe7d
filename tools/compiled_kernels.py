"""Which dtypes a compiler takes for each operator: the test models of the package onnx, compiled in each dtype.

The compiler is that of TensorRT for RTX or of QNN, whose package must be installed. No accelerator is needed, and
nothing is run. A dtype counts as taken if one of the operator's test models is compiled in which it takes the place of
the dtype of a type variable.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fx_onnx.passes.legalization.kernel_tables import DTYPES

__all__ = ["rows"]

OLDEST, OPSET = 18, 23
MODELS = 3
"""So many test models of an operator are tried for each dtype."""
_MORE = (
    "(float16[2,4,8,16] q, float16[2,4,8,16] k, float16[2,4,8,16] v) => (float16[2,4,8,16] y)"
    "{ y = Attention(q, k, v) }",
    "(float[2,8] x) => (float16[2,8] y) { y = Cast<to=10>(x) }",
    "(float[2,8] x) => (bool[2,8] y) { z = Cast<to=6>(x) y = Cast<to=9>(z) }",
    "(float[2,8] x) => (float[2,8] y) <float low = {-1}, float high = {1}> { y = Clip(x, low, high) }",
    "(float[1,8,2,2] x) => (float[1,2,4,4] y) { y = DepthToSpace<blocksize=2>(x) }",
    "(float[3,1,8] x, float[1,24,8] w, float[1,24,8] r) => (float[3,1,1,8] y) { y = GRU<hidden_size=8>(x, w, r) }",
    "(float[2,8] x) => (float[2,8] y) <float[8] s = {1, 1, 1, 1, 1, 1, 1, 1}> { y = LayerNormalization(x, s) }",
    "(float[3,1,8] x, float[1,32,8] w, float[1,32,8] r) => (float[3,1,1,8] y) { y = LSTM<hidden_size=8>(x, w, r) }",
    "(float[2,8] x) => (float[2,8] y) { y = LogSoftmax(x) }",
    "(float[2,8] x) => (float[2,8] y) <float[8] s = {1, 1, 1, 1, 1, 1, 1, 1}> { y = RMSNormalization(x, s) }",
    "(float[2,8] x) => (float[2,1] y) <int64[1] axes = {1}> { y = ReduceProd<keepdims=1>(x, axes) }",
    "(float[1,2,4,4] x) => (float[1,8,2,2] y) { y = SpaceToDepth<blocksize=2>(x) }",
    "(float[2,8] x) => (float[2,4] y, float[2,4] z) { y, z = Split<axis=1, num_outputs=2>(x) }",
    "(float[2,8] x) => (float[2,3] y, int64[2,3] i) <int64[1] k = {3}> { y, i = TopK(x, k) }",
)
"""Models of operators whose test models a compiler does not take: heads of less than 16 elements, settings that are no
constants, norms over other axes than the last, results that nothing reads."""
_TENSORS = {f"tensor({name})": short for short, name in DTYPES.items() if name != "double"}
"""The dtypes by their names in ONNX's schemas. The parser reads float64 as float32, so float64 counts as not taken."""
_NUMBERS = {name: getattr(onnx.TensorProto, name.upper()) for name in DTYPES.values()}


_Compiler = Callable[[onnx.ModelProto], bool]


class _Case:
    """One test model of one node, in which a dtype can be replaced."""

    def __init__(self, model: onnx.ModelProto, data: Sequence[Any]) -> None:
        self.model, self.node = model, model.graph.node[0]
        given = next(entry.version for entry in model.opset_import if not entry.domain)
        self.opset = max(OPSET, onnx.defs.get_schema(self.node.op_type, given).since_version)
        self.schema = onnx.defs.get_schema(self.node.op_type, self.opset)
        self.data = {value.name: _array(given) for value, given in zip(model.graph.input, data, strict=False)}

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
        if self.data:
            del graph.output[1:], graph.node[0].output[1:]
        for tensor in graph.initializer:
            if self.variable(tensor.name) in variables:
                wanted = helper.tensor_dtype_to_np_dtype(_NUMBERS[dtype])
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(wanted), tensor.name))
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
        for attribute in graph.node[0].attribute if self.variable(graph.node[0].output[0]) in variables else ():
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


def _array(given: Any) -> np.ndarray[Any, Any]:
    return numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else np.asarray(given)


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
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {OPSET}]> g {text}')
        cases.setdefault(model.graph.node[0].op_type, []).insert(0, _Case(model, ()))
    return cases


def row(cases: Sequence[_Case], is_taken: _Compiler, dtypes: Collection[str]) -> list[str]:
    """Returns the lines of an operator for the table; none if none of its test models is compiled.

    An operator such as Range has a kernel for constants only. An older version whose type variables have other
    meanings gets a line without dtypes.
    """
    taken = _taken(cases, is_taken, dtypes, all_constant=False) or _taken(cases, is_taken, dtypes, all_constant=True)
    order = list(DTYPES)
    parts = (f"{name}={','.join(sorted(dtypes, key=order.index))}" for name, dtypes in sorted(taken.items()))
    since = cases[0].since()
    older = [f"1 {since - 1}"] if taken and since > 1 else []
    return [*older, " ".join([f"{since} *", *parts])] if taken else []


def _taken(
    cases: Sequence[_Case], is_taken: _Compiler, dtypes: Collection[str], *, all_constant: bool
) -> dict[str, list[str]]:
    """Returns the dtypes, as in the tables, in which a test model is compiled, by type variable."""
    taken: dict[str, list[str]] = {}
    for variable, dtype in dict.fromkeys(itertools.chain.from_iterable(case.dtypes() for case in cases)):
        if dtype not in dtypes:
            continue
        protos = (proto for case in cases for proto in case.variants(variable, dtype, all_constant=all_constant))
        if any(map(is_taken, protos)):
            taken.setdefault(variable, []).append(_TENSORS[f"tensor({dtype})"])
    return taken


def rows(
    operators: Collection[str],
    is_taken: _Compiler,
    untested: Collection[str] = (),
    *,
    narrow: bool = False,
    dtypes: Collection[str] = tuple(DTYPES.values()),
) -> dict[str, list[str]]:
    """Returns the lines of the operators for the table.

    Args:
        operators: their names.
        is_taken: compiles a model, and returns whether it is taken.
        untested: the operators that only the accelerator can check. These, and those without test models, have no
            dtypes in the table.
        narrow: whether an operator without test models has no line.
        dtypes: those that are tried.
    """
    cases, table = _cases(), {}
    for operator in operators:
        if operator in untested or (operator not in cases and not narrow):
            table[operator] = ["1 *"]
        elif lines := row(cases[operator][:MODELS], is_taken, dtypes) if operator in cases else []:
            table[operator] = lines
        print(operator, table.get(operator), file=sys.stderr, flush=True)
    return table


def in_a_fork(is_taken: _Compiler) -> _Compiler:
    """Returns a compiler that compiles each model in a fork of this process, which it may end."""

    def compiled(proto: onnx.ModelProto) -> bool:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # the log of the compiler
            taken = False
            try:
                taken = is_taken(proto)
            finally:  # also if the compiler raises: this process is no second parent
                os._exit(not taken)
        return os.waitpid(child, 0)[1] == 0

    return compiled
