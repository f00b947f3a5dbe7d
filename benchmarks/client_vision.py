"""Calls of projects of computer vision; see benchmarks/client_calls.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.client_registry import assert_exports_right, assert_right, call, settle

# ---------------------------------------------------------------- ultralytics


def _yolo(config: str, size: int = 320, **options: Any) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        os.environ.setdefault("YOLO_CONFIG_DIR", str(folder))
        from ultralytics import YOLO

        torch.manual_seed(0)
        yolo = YOLO(config)
        settle(yolo.model, torch.rand(4, 3, size, size))
        os.chdir(folder)
        path = yolo.export(format="onnx", imgsz=size, simplify=False, **options)
        for shape in ((1, size, size), (2, size + 64, size - 64)) if options.get("dynamic") else ((1, size, size),):
            image = torch.rand(shape[0], 3, *shape[1:])
            with torch.no_grad():
                want = yolo.model.eval()(image)
            wanted = want[0] if isinstance(want, tuple) else want
            # ultralytics converts the file to half precision itself, and keeps the dtypes of inputs and outputs.
            assert_right(path, [image], wanted, tolerance=2e-2 if options.get("half") else None)

    return run


for _config in ("yolo11n.yaml", "yolov8n.yaml", "yolov8n-seg.yaml", "yolo26n.yaml"):
    for _opset in (12, 18):
        call("ultralytics", f'YOLO("{_config}").export(opset={_opset})')(_yolo(_config, opset=_opset))
for _opset in (12, 18):
    call("ultralytics", f'YOLO("yolo11n.yaml").export(opset={_opset}, dynamic=True)')(
        _yolo("yolo11n.yaml", opset=_opset, dynamic=True)
    )
    call("ultralytics", f'YOLO("yolo11n.yaml").export(opset={_opset}, half=True)')(
        _yolo("yolo11n.yaml", opset=_opset, half=True)
    )
for _config in ("yolo11n-seg.yaml", "yolo11n-pose.yaml", "yolo11n-obb.yaml", "yolo11n-cls.yaml"):
    call("ultralytics", f'YOLO("{_config}").export(opset=12)')(_yolo(_config, 160, opset=12))
    call("ultralytics", f'YOLO("{_config}").export(opset=18, dynamic=True)')(
        _yolo(_config, 160, opset=18, dynamic=True)
    )
for _opset in (9, 10, 11, 13, 14, 15, 16, 17):
    call("ultralytics", f'YOLO("yolo11n.yaml").export(opset={_opset})')(_yolo("yolo11n.yaml", 160, opset=_opset))
call("ultralytics", 'YOLO("yolo26n.yaml").export(opset=12, end2end=False)')(
    _yolo("yolo26n.yaml", 160, opset=12, end2end=False)
)


# ---------------------------------------------------------------- timm


def _timm(name: str, **options: Any) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        import timm
        from timm.utils.onnx import onnx_export

        torch.manual_seed(0)
        model = timm.create_model(name, exportable=True)
        size = model.default_cfg["input_size"]
        settle(model, torch.rand(4, *size))
        path = folder / "model.onnx"
        # check_forward is timm's own comparison with ONNX Runtime.
        onnx_export(model, str(path), batch_size=2, check=True, check_forward=True, **options)
        image = torch.rand(3 if options.get("dynamic_size") else 2, *size)
        with torch.no_grad():
            assert_right(path, [image], model(image))

    return run


_TIMM: Mapping[str, Mapping[str, Any]] = {
    "resnet18": {},
    "mobilenetv3_small_100": {"opset": 12},
    "efficientnet_b0": {"opset": 13, "dynamic_size": True},
    "convnext_atto": {"opset": 17},
    "vit_tiny_patch16_224": {"opset": 14, "keep_initializers": True},
    "swin_tiny_patch4_window7_224": {"opset": 16},
    "regnetx_002": {"aten_fallback": True},
    "resnet10t": {"use_dynamo": True, "dynamic_size": True},
}
for _name, _options in _TIMM.items():
    _given = "".join(f", {key}={value}" for key, value in _options.items())
    call("timm", f'onnx_export(create_model("{_name}"){_given})')(_timm(_name, **_options))


# ---------------------------------------------------------------- segmentation-models-pytorch


def _segmentation(name: str, encoder: str) -> Callable[[Path], None]:
    """Returns the call of the example on ONNX in the project's documentation."""

    def run(folder: Path) -> None:
        import segmentation_models_pytorch as smp

        torch.manual_seed(0)
        model = getattr(smp, name)(encoder_name=encoder, encoder_weights=None, in_channels=3, classes=1)
        settle(model, torch.rand(4, 3, 96, 96))
        image = torch.rand(1, 3, 96, 96)
        assert_exports_right(
            lambda: torch.onnx.export(
                model,
                image,
                str(folder / "model.onnx"),
                export_params=True,
                opset_version=17,
                do_constant_folding=True,
                input_names=["input"],
                output_names=["output"],
                dynamic_axes={"input": {0: "batch_size", 2: "height", 3: "width"}, "output": {0: "batch_size"}},
            ),
            (torch.rand(2, 3, 128, 64),),
        )

    return run


for _name, _encoder in (
    ("Unet", "resnet18"), ("UnetPlusPlus", "resnet18"), ("MAnet", "resnet18"), ("Linknet", "resnet18"),
    ("FPN", "mobilenet_v2"), ("PSPNet", "resnet18"), ("DeepLabV3Plus", "resnet18"), ("UPerNet", "resnet18"),
):  # fmt: skip
    call("segmentation-models-pytorch", f'torch.onnx.export({_name}("{_encoder}"), dynamic_axes=...)')(
        _segmentation(_name, _encoder)
    )
