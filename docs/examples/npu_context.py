"""Compiles a model for the NPU of Snapdragon X Elite, without a device: writes a context binary and simulates it."""

import onnxruntime as ort
import onnxruntime_qnn as qnn
import torch
from torch import nn

import fx_onnx

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()
images = torch.randn(1, 3, 64, 64)
fx_onnx.export(model, (images,), "model.onnx", input_names=["images"], target="qnn")

ort.register_execution_provider_library("QNNExecutionProvider", qnn.get_library_path())
devices = [device for device in ort.get_ep_devices() if device.ep_name == "QNNExecutionProvider"]
npu = {"backend_path": qnn.get_qnn_htp_path(), "enable_htp_fp16_precision": "1", "soc_model": "60", "htp_arch": "73"}
options = ort.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")  # otherwise nodes may run on the CPU
options.add_session_config_entry("ep.context_enable", "1")
options.add_session_config_entry("ep.context_file_path", "model_ctx.onnx")  # it loads without compiling
options.add_provider_for_devices(devices, npu)
session = ort.InferenceSession("model.onnx", options)

(found,) = session.run(None, {"images": images.numpy()})
with torch.no_grad():
    expected = model(images)
print("largest difference", (torch.from_numpy(found) - expected).abs().max().item())
torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-2, atol=1e-2)
