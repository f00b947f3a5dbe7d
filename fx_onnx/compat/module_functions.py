"""Local functions for modules: calls whose nodes differ only in weights, attributes and numbers share one function."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from fx_onnx.compat.module_attributes import annotated_attributes
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.names import Names
from fx_onnx.onnx_model.small_constants import constant_key
from fx_onnx.passes.matchers import constant_array
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.traversal import all_nodes, subgraphs

if TYPE_CHECKING:
    from fx_onnx.program.export_options import ExportOptions
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["ModulesToFunctions", "modules_to_functions"]

# A constant of at most this size becomes part of the function; a larger one becomes an input, as weights do.
_MAX_INNER_BYTES = 1024


def modules_to_functions(program: ONNXProgram, options: ExportOptions, module: Any) -> list[str]:
    """Makes local functions of the calls of modules; returns the paths of the modules whose nodes stayed inline.

    Args:
        program: the program, whose model changes.
        options: the options, which name the classes of the modules.
        module: the exported module, for the annotated attributes of its parts.
    """
    to_functions = ModulesToFunctions(options.module_classes, partial(annotated_attributes, module))
    program.model = to_functions(program.model).model
    return to_functions.left_inline


class ModulesToFunctions(Pass):
    """The nodes of a call of a module → one node that calls a local function, from the innermost modules outwards.

    Legal where no path of nodes leaves the module and enters it again; otherwise the nodes of the call stay inline.
    The metadata of a node tells which module it comes from. ONNX functions hold no weights, so weights become
    inputs of the function, and calls with the same structure share one function. An attribute of a node, or a
    number, that differs among the calls is an attribute of the function, such as
    ``inferred::LayerNormalization_epsilon``. The annotated attributes of the module are attributes of the function
    too, which its nodes do not read. Sizes that nodes outside the module read too are computed outside and become
    inputs. The function has the name of the class, and its domain is the class's Python module.

    Attributes:
        left_inline: the paths of the modules whose nodes stayed inline.
    """

    name = "modules_to_functions"

    def __init__(
        self, classes: Collection[str] | None, annotated: Callable[[str], Mapping[str, Any]] = lambda path: {}
    ) -> None:
        """Makes the pass.

        Args:
            classes: the qualified names of the module classes to convert; None converts all.
            annotated: returns the annotated attributes of the module at a path.
        """
        super().__init__()
        self._classes, self._annotated = classes, annotated
        self.left_inline: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts the modules from the innermost outwards, with one walk over the graph for each depth of nesting."""
        made: dict[Hashable, ir.Function] = {}
        deepest = max((len(_scopes(node)) for node in model.graph), default=0)
        for depth in reversed(range(deepest)):
            order = list(model.graph)
            places = {node: index for index, node in enumerate(order)}
            calls = self._calls(order, depth)
            varying = _varying(_Call(scope, nodes) for scope, nodes in calls.items())
            for scope, nodes in calls.items():
                call = _Call(scope, nodes, varying[scope], self._annotated(scope[-1][0].partition("@")[0]))
                if not call.nodes:
                    continue
                if call.is_convex(order[places[call.nodes[0]] : places[call.nodes[-1]] + 1]):
                    _replace(call, model, made)
                else:
                    self.left_inline.append(scope[-1][0])
            model.graph.sort()
        for name, value in list(model.graph.initializers.items()):
            if not value.uses() and not value.is_graph_input() and not value.is_graph_output():
                del model.graph.initializers[name]
        return ir.passes.PassResult(model, modified=bool(made))

    def _calls(self, nodes: Iterable[ir.Node], depth: int) -> dict[_Scope, list[ir.Node]]:
        """Returns the nodes of each call at this depth of nesting, in order."""
        calls: dict[_Scope, list[ir.Node]] = {}
        for node in nodes:
            scopes = _scopes(node)
            if len(scopes) <= depth:
                continue
            path, cls = scopes[depth]
            if path and (self._classes is None or cls in self._classes):
                calls.setdefault(scopes[: depth + 1], []).append(node)
        return calls


# The place of a value that may differ among the calls of one function: the number of a node and the name of its
# attribute, or the number of a constant and an empty name.
_Slot = tuple[int, str]

# (path, class) of each module around a node, the outermost first.
_Scope = tuple[tuple[str, str], ...]


def _scopes(node: ir.Node) -> _Scope:
    return metadata.module_scopes(node.metadata_props)


class _Call:
    """The nodes of one call of a module.

    Attributes:
        nodes: the nodes in order.
        inner: the nodes and those of their subgraphs.
        inputs: the outer values that they read, in the order of the first use, without small constants.
        constants: the small constants that they read.
        outputs: their results that outer nodes or the graph's outputs read.
        attributes: the attributes of the call by name.
        slots: the name of the function's attribute for each slot that it has.
    """

    def __init__(
        self,
        scope: _Scope,
        nodes: Sequence[ir.Node],
        varying: Collection[_Slot] = (),
        annotated: Mapping[str, Any] | None = None,
    ) -> None:
        self.scope = scope
        shared = _shared_sizes(nodes)
        self.nodes = [node for node in nodes if node not in shared]
        self.inner = dict.fromkeys(inner for node in self.nodes for inner in (node, *_inside(node)))
        own = {value for node in self.inner for body in subgraphs(node) for value in body.inputs}
        read = dict.fromkeys(x for node in self.inner for x in node.inputs if x is not None and x not in own)
        outer = [value for value in read if value.producer() not in self.inner]
        self.constants = [value for value in outer if _is_small(value)]
        self.inputs = [value for value in outer if not _is_small(value)]
        self.outputs = [
            v for node in self.nodes for v in node.outputs if v.is_graph_output() or self._read_by_others(v)
        ]

        self.attributes = {name: ir.convenience.convert_attribute(name, x) for name, x in (annotated or {}).items()}
        self.slots: dict[_Slot, str] = {}
        names = Names(self.attributes)
        for slot, attr in self.candidates().items():
            if slot in varying:
                self.slots[slot] = name = names.unique(self._name(slot, attr))
                self.attributes[name] = ir.Attr(name, attr.type, attr.value)

    def _name(self, slot: _Slot, attr: ir.Attr) -> str:
        """Returns torch.onnx's name of an inferred attribute: ``inferred::LayerNormalization_epsilon``."""
        index, of_node = slot
        if attr.name.startswith(_INFERRED):  # of a call inside the function
            return attr.name
        return f"{_INFERRED}{self.nodes[index].op_type if of_node else 'Constant'}_{attr.name}"

    def candidates(self) -> dict[_Slot, ir.Attr]:
        """Returns the attributes and the numbers that may become attributes of the function."""
        attributes = {
            (index, name): attr
            for index, node in enumerate(self.nodes)
            for name, attr in node.attributes.items()
            if attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) and not attr.is_ref()
        }
        numbers = {(index, ""): _tensor(value) for index, value in enumerate(self.constants)}
        return attributes | {slot: ir.AttrTensor("value", x) for slot, x in numbers.items() if len(x.shape) == 0}

    def _read_by_others(self, value: ir.Value) -> bool:
        return any(use.node not in self.inner for use in value.uses())

    def is_convex(self, span: Sequence[ir.Node]) -> bool:
        """Returns whether no outer node depends on some of the nodes while others depend on it.

        Args:
            span: the nodes of the graph from the first to the last node of the call.
        """
        after: set[ir.Node] = set()
        for node in span:
            producers = {x.producer() for inner in (node, *_inside(node)) for x in inner.inputs if x is not None}
            if node in self.inner:
                if producers & after:
                    return False
            elif producers & after or any(producer in self.inner for producer in producers):
                after.add(node)
        return True

    def structure(self, slots: Collection[_Slot] | None = None) -> Hashable:
        """Returns a key that is equal for two calls if both can call one function.

        Args:
            slots: the slots whose values may differ; None means those of the function's attributes.
        """
        slots = self.slots if slots is None else slots
        tokens: dict[ir.Value | None, Hashable] = {None: None}
        tokens |= {value: ("input", index, value.dtype) for index, value in enumerate(self.inputs)}
        for index, value in enumerate(self.constants):
            tensor = _tensor(value)
            tokens[value] = ("number", index, tensor.dtype) if (index, "") in slots else constant_key(tensor)
        nodes = tuple(
            _node_key(node, tokens, {name for number, name in slots if number == index and name})
            for index, node in enumerate(self.nodes)
        )
        attributes = tuple((name, attr.type) for name, attr in self.attributes.items())
        return self.scope[-1][1], nodes, tuple(tokens[value] for value in self.outputs), attributes


# The prefix that torch.onnx gave to an attribute that comes from the nodes of a function.
_INFERRED = "inferred::"


def _varying(calls: Iterable[_Call]) -> dict[_Scope, set[_Slot]]:
    """Returns, for each call, the slots whose values differ among the calls with the same structure."""
    groups: dict[Hashable, list[tuple[_Scope, dict[_Slot, Hashable]]]] = {}
    for call in calls:
        candidates = call.candidates()
        keys = {slot: _attribute_key(attr, {}) for slot, attr in candidates.items()}
        groups.setdefault(call.structure(candidates), []).append((call.scope, keys))
    varying: dict[_Scope, set[_Slot]] = {}
    for group in groups.values():
        first = group[0][1]
        differing = {slot for _, keys in group for slot, key in keys.items() if key != first[slot]}
        varying |= {scope: differing for scope, _ in group}
    return varying


def _inside(node: ir.Node) -> Iterator[ir.Node]:
    for body in subgraphs(node):
        yield from all_nodes(body)


def _is_small(value: ir.Value) -> bool:
    array = constant_array(value)
    return array is not None and array.nbytes <= _MAX_INNER_BYTES


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    """Returns the data of a constant, which is an initializer or a Constant node."""
    node, held = value.producer(), value.const_value
    return held if node is None and held is not None else node.attributes["value"].as_tensor()  # type: ignore[union-attr]


def _shared_sizes(nodes: Sequence[ir.Node]) -> set[ir.Node]:
    """Returns the nodes that compute sizes from outer values only and whose results outer nodes read too.

    torch records the nodes that compute a size in the module that is the first to need it.
    """
    inside = {inner for node in nodes for inner in (node, *_inside(node))}
    sizes: dict[ir.Node, None] = {}
    for node in nodes:
        producers = [x.producer() for x in node.inputs if x is not None]
        if all(map(_is_size, node.outputs)) and all(p not in inside or p in sizes for p in producers):
            sizes[node] = None
    shared: set[ir.Node] = set()
    for node in reversed(sizes):
        users = [use.node for output in node.outputs for use in output.uses()]
        if any(user not in inside or user in shared for user in users):
            shared.add(node)
    return shared


def _is_size(value: ir.Value) -> bool:
    rank = 0 if value.shape is None else len(value.shape)
    return value.dtype == ir.DataType.INT64 and rank <= 1 and not value.is_graph_output()


# ---------------------------------------------------------------- equality


def _node_key(
    node: ir.Node, tokens: dict[ir.Value | None, Hashable], varying: Collection[str] = frozenset()
) -> Hashable:
    """Returns the key of a node; attributes in ``varying`` count by their types only."""
    inputs = tuple(tokens.get(value, value) for value in node.inputs)
    for output in node.outputs:
        tokens[output] = ("node", len(tokens))
    attributes = tuple(
        (name, attr.type if name in varying else _attribute_key(attr, tokens))
        for name, attr in sorted(node.attributes.items())
    )
    return node.domain, node.op_type, inputs, len(node.outputs), attributes


def _attribute_key(attr: ir.Attr, tokens: dict[ir.Value | None, Hashable]) -> Hashable:
    if attr.type == ir.AttributeType.TENSOR:
        return constant_key(attr.as_tensor())
    if attr.type == ir.AttributeType.GRAPH:
        return _body_key(attr.as_graph(), tokens)
    if attr.type == ir.AttributeType.GRAPHS:
        return tuple(_body_key(graph, tokens) for graph in attr.as_graphs())
    return attr.type, attr.ref_attr_name, repr(attr.value)  # by its text, because 0.0 == -0.0


def _body_key(graph: ir.Graph, tokens: dict[ir.Value | None, Hashable]) -> Hashable:
    for value in graph.inputs:
        tokens[value] = ("body", len(tokens))
    nodes = tuple(_node_key(node, tokens) for node in graph)
    return len(graph.inputs), nodes, tuple(tokens.get(value, value) for value in graph.outputs)


# ---------------------------------------------------------------- replacement


def _replace(call: _Call, model: ir.Model, made: dict[Hashable, ir.Function]) -> None:
    """Replaces the nodes by a call of a function. They move into a new function, or are removed if one exists."""
    graph = model.graph
    structure = call.structure()
    results = [_renewed(value) for value in call.outputs]
    for old, new in zip(call.outputs, results, strict=True):
        for use in list(old.uses()):
            if use.node not in call.inner:
                use.node.replace_input_with(use.idx, new)
        for index, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[index] = new
    last = call.nodes[-1]
    function = made.get(structure)
    domain, name = (function.domain, function.name) if function else _name(call.scope[-1][1], model)
    node = ir.Node(
        domain,
        name,
        call.inputs,
        list(call.attributes.values()),
        outputs=results,
        name=call.scope[-1][0],
        metadata_props=_origin(call),
    )
    graph.insert_after(last, node)
    if function is None:
        made[structure] = _function(call, model, domain, name)
        return
    for inner in call.inner:
        if inner not in call.nodes:
            inner.resize_inputs(0)
    graph.remove(call.nodes, safe=True)


def _renewed(old: ir.Value) -> ir.Value:
    """Returns a new value with the name, type, shape and metadata of the old one, which moves into the function."""
    new = ir.Value(name=old.name, type=old.type, shape=old.shape, metadata_props=dict(old.metadata_props))
    new.meta.update(old.meta)
    return new


def _name(cls: str, model: ir.Model) -> tuple[str, str]:
    """Returns the domain and a name in it that no function has yet."""
    domain, _, base = re.sub(r"\.?<locals>", "", cls).rpartition(".")
    names = Names(function.name for function in model.functions.values() if function.domain == domain)
    return domain, names.unique(base)


def _origin(call: _Call) -> dict[str, str]:
    """Returns the metadata of the calling node, which names the module and those around it."""
    first = call.nodes[0].metadata_props
    paths, classes = zip(*call.scope, strict=True)
    return {
        metadata.NAMESPACE: "/".join(f"{path}: {cls}" for path, cls in call.scope),
        metadata.CLASS_HIERARCHY: repr(list(classes)),
        metadata.NAME_SCOPES: repr(list(paths)),
        metadata.FX_NODE: first.get(metadata.FX_NODE, ""),
        metadata.STACK_TRACE: first.get(metadata.STACK_TRACE, ""),
    }


def _function(call: _Call, model: ir.Model, domain: str, name: str) -> ir.Function:
    """Moves the nodes into a new function of the model."""
    graph, nodes = model.graph, list(call.nodes)
    inside, inputs = _arguments(call)
    graph.remove(nodes)
    constants = [
        ir.Node("", "Constant", (), [ir.AttrTensor("value", _tensor(value))], outputs=[inside[value]])
        for value in call.constants
    ]
    for (index, name_of_attribute), own in call.slots.items():
        node, key = (nodes[index], name_of_attribute) if name_of_attribute else (constants[index], "value")
        node.attributes[key] = ir.RefAttr(key, own, node.attributes[key].type)
    for inner in call.inner:
        for index, argument in enumerate(inner.inputs):
            if argument in inside:
                inner.replace_input_with(index, inside[argument])
        for key in (metadata.NAMESPACE, metadata.NAME_SCOPES):  # they name one call, but the function may serve several
            inner.metadata_props.pop(key, None)
    for node in nodes:
        for output in node.outputs:
            output.shape = output.type = None  # another call may have other shapes
    imports = {inner.domain: graph.opset_imports[inner.domain] for inner in call.inner} | {"": graph.opset_imports[""]}
    body = ir.Graph(inputs, call.outputs, nodes=[*constants, *nodes], opset_imports=imports, name=name)
    declared = [ir.Attr(attr.name, attr.type, None) for attr in call.attributes.values()]
    function = ir.Function(domain, name, graph=body, attributes=declared)
    function.metadata_props[metadata.CLASS_HIERARCHY] = repr([call.scope[-1][1]])
    model.functions[function.identifier()] = function
    graph.opset_imports.setdefault(domain, 1)
    return function


def _arguments(call: _Call) -> tuple[dict[ir.Value | None, ir.Value], list[ir.Value]]:
    """Returns outer value → its value in the function, and the function's inputs.

    A weight is named by its path within the module.
    """
    path = call.scope[-1][0].partition("@")[0]
    names = Names(output.name for node in call.inner for output in node.outputs)
    inside: dict[ir.Value | None, ir.Value] = {}
    for value in (*call.inputs, *call.constants):
        inside[value] = ir.Value(name=names.unique(str(value.name).removeprefix(f"{path}.")))
    return inside, [inside[value] for value in call.inputs]
