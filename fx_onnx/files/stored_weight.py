"""A weight that a saved model reads from the safetensors file of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

__all__ = ["StoredWeight"]


class StoredWeight(ir.ExternalTensor):
    """A tensor in a safetensors file. ``location`` is relative to the folder of the model that refers to it."""

    def numpy(self) -> npt.NDArray[Any]:
        """Reads the values from the file each time, because a memory-mapped file would stay in memory."""
        data = np.fromfile(self.path, np.uint8, count=self.nbytes, offset=self.offset or 0)
        return data.view(self.dtype.numpy()).reshape(self.shape.numpy())

    def named(self, name: str) -> StoredWeight:
        """Returns the same tensor under another name."""
        return StoredWeight(
            self.location, self.offset, self.length, self.dtype, shape=self.shape, name=name, base_dir=self.base_dir
        )

    def run(self, start: int, shape: Sequence[int], name: str) -> StoredWeight:
        """Returns a tensor of this shape whose elements are those from the element ``start`` on."""
        size, frozen = self.dtype.bitwidth // 8, ir.Shape(shape, frozen=True)
        offset, length = (self.offset or 0) + start * size, math.prod(shape) * size
        return StoredWeight(self.location, offset, length, self.dtype, shape=frozen, name=name, base_dir=self.base_dir)
