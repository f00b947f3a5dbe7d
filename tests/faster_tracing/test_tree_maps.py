"""Maps of trees of containers."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from fx_onnx.faster_tracing.replacement import replaced
from fx_onnx.faster_tracing.tree_maps import REPLACEMENTS

Pair = namedtuple("Pair", "a b")


class Named(dict[str, int]):
    """A dict of another class, which is a leaf."""


TREES: list[Any] = [
    1,
    None,
    (),
    [],
    {},
    (1, [2, {"a": 3, "b": (None, 4)}], OrderedDict(z=5, y=[6])),
    {"x": {2: "two", None: ("one",)}, 3: []},
    [Pair(1, [2]), 3],
    (Named(a=1), defaultdict(list, a=[1]), deque([1, (2,)]), torch.Size([2, 3]), torch.return_types.max((1, 2))),
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_trees_are_equal_and_leaves_come_in_the_same_order(tree: Any) -> None:
    def mapped() -> tuple[str, list[Any]]:
        calls: list[Any] = []
        return repr(pytree.tree_map(lambda leaf: calls.append(leaf) or (leaf, len(calls)), tree)), calls

    expected = mapped()
    with replaced(REPLACEMENTS):
        assert mapped() == expected


def test_a_function_that_changes_the_tree_sees_all_leaves() -> None:
    def changed() -> Any:
        tree = {"a": [1, 2], "b": [3]}
        return pytree.tree_map(lambda leaf: tree["b"].append(4) or tree.pop("a", None) or leaf, tree)

    expected = changed()
    with replaced(REPLACEMENTS):
        assert changed() == expected


def test_a_container_that_is_registered_otherwise_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    node = pytree.SUPPORTED_NODES[dict]._replace(flatten_fn=lambda d: ([], list(d)), unflatten_fn=lambda v, keys: keys)
    with replaced(REPLACEMENTS):
        monkeypatch.setitem(pytree.SUPPORTED_NODES, dict, node)
        assert pytree.tree_map(str, [1, {"a": 2}]) == ["1", ["a"]]
    with replaced(REPLACEMENTS):
        assert pytree.tree_map(str, [1, {"a": 2}]) == ["1", ["a"]]


def test_several_trees_and_leaves_of_the_caller_are_left_to_torch() -> None:
    with replaced(REPLACEMENTS):
        assert pytree.tree_map(lambda a, b: (a, b), [1, (2,)], [3, (4,)]) == [(1, 3), ((2, 4),)]
        assert pytree.tree_map(str, [(1, 2), 3], is_leaf=lambda node: isinstance(node, tuple)) == ["(1, 2)", "3"]
