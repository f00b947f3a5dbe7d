"""The names and the metadata of emitted nodes. They show from which FX node each emitted node comes."""

from __future__ import annotations

from fx_onnx.core.names import Names


class ScopedNames:
    """Names the nodes and values that one FX node becomes: ``relu.Relu_0`` for the FX node ``relu``.

    Attributes:
        scope: the name of the FX node under translation.
        metadata: the metadata properties of the nodes it becomes.
    """

    def __init__(self, parent: ScopedNames | None = None) -> None:
        """Starts the names of a model, or those of a nested graph, which shares the counters of its parent."""
        self.scope: str = "" if parent is None else parent.scope
        self.metadata: dict[str, str] = {} if parent is None else parent.metadata
        self._names: Names = Names() if parent is None else parent._names
        self._counts: dict[str, int] = {} if parent is None else parent._counts

    def enter(self, scope: str, metadata: dict[str, str]) -> None:
        """Begins another FX node."""
        self.scope, self.metadata = scope, metadata

    def unique(self, name: str) -> str:
        """Returns ``name``, with a number appended if another value of the model has it."""
        return self._names.unique(name)

    def fresh(self, op_type: str) -> str:
        """Returns a new name ``scope.OpType_n``, where n counts within the FX node."""
        count = self._counts.get(self.scope, 0)
        self._counts[self.scope] = count + 1
        return f"{self.scope}.{op_type}_{count}" if self.scope else f"{op_type}_{count}"
