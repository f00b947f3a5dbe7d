"""Exports one network for several runtimes, and asks which runtimes have kernels for all of its operators."""

from collections import Counter

import torch
from torch import nn

import fx_onnx

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Upsample(scale_factor=2, mode="bilinear")).eval()
images = torch.randn(1, 3, 16, 16)

for target in ("onnxruntime", "openvino", "tensorrt"):
    program = fx_onnx.export(model, (images,), target=target)
    opset = program.model.opset_imports[""]
    print(f"{target}: opset {opset}, {dict(Counter(node.op_type for node in program.model.graph))}")

program = fx_onnx.export(model, (images,))
for target in ("onnxruntime", "openvino", "webgpu", "webnn"):
    print(program.supports(target))
assert program.supports("onnxruntime")
