"""Tests of the suspension of garbage collection."""

import gc
from unittest import mock

import onnx_ir as ir
import pytest
import safetensors.torch
import torch
from torch import nn

import fx_onnx
from fx_onnx.torch_internals.garbage import no_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_the_state_before_is_restored(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="stop"), no_collection():
            assert not gc.isenabled()
            raise ValueError("stop")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_the_message_of_a_model_is_made_without_collections(tmp_path):
    linear = nn.Linear(8, 8)
    program = fx_onnx.export(linear.eval(), torch.ones(2, 8), verbose=False)
    safetensors.torch.save_file(linear.state_dict(), tmp_path / "model.safetensors")
    serialize, seen = ir.serde.serialize_model, []

    def recording(model):
        seen.append(gc.isenabled())
        return serialize(model)

    with mock.patch.object(ir.serde, "serialize_model", recording):
        program.save(tmp_path / "model.onnx", weights_from=tmp_path)
    assert seen == [False]
