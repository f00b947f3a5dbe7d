"""``torch.onnx.symbolic_opset7`` to ``symbolic_opset20``: their functions emit TorchScript's nodes and are refused."""

from typing import NoReturn

from fx_onnx.messages.errors import MissingPackageError

__all__: list[str] = []  # as in torch


def __getattr__(name: str) -> NoReturn:
    """Refuses a function of torch.onnx's symbolic_opset modules; a dunder name is only absent.

    Raises:
        MissingPackageError: always.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    raise MissingPackageError(
        f"fx_onnx has no function {name} of torch.onnx's symbolic_opset modules; "
        "where a symbolic function returns None, fx_onnx translates the call itself."
    )
