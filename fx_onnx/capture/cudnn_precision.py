"""Lets torch.export run where the precision of cuDNN is set for each operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.backends import cudnn

__all__ = ["one_cudnn_precision"]


@contextmanager
def one_cudnn_precision() -> Iterator[None]:
    """Gives convolutions and recurrent layers one precision in cuDNN, if torch.export would raise an error otherwise.

    torch.export reads ``cudnn.allow_tf32``, which torch refuses after ``cudnn.conv.fp32_precision`` or
    ``cudnn.rnn.fp32_precision`` is set. The precision is float32 within the context, as other threads may compute.
    """
    try:
        cudnn.allow_tf32  # noqa: B018  raises
    except RuntimeError:
        operators = cudnn.conv, cudnn.rnn
        before = [operator.fp32_precision for operator in operators]
        cudnn.allow_tf32 = False
        try:
            yield
        finally:
            for operator, precision in zip(operators, before, strict=True):
                operator.fp32_precision = precision
    else:
        yield
