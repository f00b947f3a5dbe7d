"""Calls of projects of computer vision; see benchmarks/client_calls.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

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


# ---------------------------------------------------------------- kornia


@call("kornia", "RTDETRDetectorBuilder.build(config).to_onnx(image_size=256)")
def _rt_detr(folder: Path) -> None:
    """An RT-DETR detector with its processing of images and boxes."""
    from kornia.contrib.object_detection import RTDETRDetectorBuilder
    from kornia.models.rt_detr.model import RTDETRConfig

    torch.manual_seed(0)
    config = RTDETRConfig("resnet18d", num_classes=5, input_size=256, head_num_queries=20)
    detector = RTDETRDetectorBuilder.build(config=config, confidence_threshold=0.01).eval()
    image = (torch.rand(1, 3, 256, 256),)
    assert_exports_right(lambda: detector.to_onnx(str(folder / "detector.onnx"), image_size=256), image)


@call("kornia", "EdgeDetectorBuilder.build(pretrained=False).to_onnx(image_size=352)")
def _edges(folder: Path) -> None:
    from kornia.contrib.edge_detection import EdgeDetectorBuilder

    torch.manual_seed(0)
    detector = EdgeDetectorBuilder.build(pretrained=False).eval()
    detector.to_onnx(str(folder / "edges.onnx"), image_size=352)
    images = torch.rand(2, 3, 352, 352)
    with torch.no_grad():
        assert_right(folder / "edges.onnx", (images,), torch.cat(detector(images)))  # one tensor, as it documents


# ---------------------------------------------------------------- rfdetr, anomalib, segmentation-models-pytorch


def _rfdetr(**options: Any) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        from rfdetr import RFDETRNano

        torch.manual_seed(0)
        detector = RFDETRNano(pretrain_weights=None, device="cpu")
        assert_exports_right(lambda: detector.export(output_dir=str(folder), verbose=False, **options))

    return run


call("rfdetr", "RFDETRNano(pretrain_weights=None).export()")(_rfdetr())
call("rfdetr", "RFDETRNano(pretrain_weights=None).export(dynamic_batch=True)")(_rfdetr(dynamic_batch=True))


def _anomalib(name: str, **options: Any) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        import anomalib.models

        torch.manual_seed(0)
        model = getattr(anomalib.models, name)(**options).eval()
        assert_exports_right(lambda: model.to_onnx(folder, input_size=(128, 128)), (torch.rand(3, 3, 128, 128),))

    return run


call("anomalib", "Fastflow(pre_trained=False).to_onnx(folder, input_size=(128, 128))")(
    _anomalib("Fastflow", pre_trained=False)
)
call("anomalib", "ReverseDistillation(pre_trained=False).to_onnx(folder, input_size=(128, 128))")(
    _anomalib("ReverseDistillation", pre_trained=False)
)


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
    ("FPN", "mobilenet_v2"), ("PSPNet", "resnet18"), ("DeepLabV3Plus", "resnet18"),
    ("UPerNet", "resnet18"),
):  # fmt: skip
    call("segmentation-models-pytorch", f'torch.onnx.export({_name}("{_encoder}"), dynamic_axes=...)')(
        _segmentation(_name, _encoder)
    )


# ---------------------------------------------------------------- monai


def _monai(name: str, **options: Any) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        import monai.networks.nets
        from monai.networks.utils import convert_to_onnx

        torch.manual_seed(0)
        model = getattr(monai.networks.nets, name)(**options).eval()
        size = (32,) * options["spatial_dims"]
        assert_exports_right(
            lambda: convert_to_onnx(
                model,
                [torch.rand(1, 1, *size)],
                input_names=["x"],
                output_names=["y"],
                dynamic_axes={"x": [0], "y": [0]},
                filename=str(folder / "model.onnx"),
                verify=True,
                use_ort=True,
                device=torch.device("cpu"),
                rtol=1e-3,
                atol=1e-4,
            ),
            (torch.rand(2, 1, *size),),
        )

    return run


for _name, _options in (
    ("UNet", {"spatial_dims": 3, "in_channels": 1, "out_channels": 2, "channels": (4, 8, 16), "strides": (2, 2)}),
    ("SegResNet", {"spatial_dims": 3, "init_filters": 8}),
    ("DenseNet121", {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}),
    ("AttentionUnet", {"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "channels": (4, 8), "strides": (2,)}),
):
    call("monai", f"convert_to_onnx({_name}, verify=True, use_ort=True)")(_monai(_name, **_options))


# ---------------------------------------------------------------- diffusers


def _diffusers(part: str, opset: int) -> Callable[[Path], None]:
    """Returns the call of the script convert_stable_diffusion_checkpoint_to_onnx.py for one part of a pipeline."""

    def run(folder: Path) -> None:
        from diffusers import AutoencoderKL, UNet2DConditionModel

        torch.manual_seed(0)
        if part == "unet":
            model: nn.Module = UNet2DConditionModel(
                sample_size=16,
                block_out_channels=(32, 64),
                layers_per_block=1,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                cross_attention_dim=32,
                attention_head_dim=8,
            )
            names = ["sample", "timestep", "encoder_hidden_states", "return_dict"]
            args: tuple[Any, ...] = (torch.randn(2, 4, 16, 16), torch.randn(2), torch.randn(2, 7, 32), False)
            other: tuple[Any, ...] = (torch.randn(4, 4, 24, 8), torch.randn(4), torch.randn(4, 9, 32))
            axes = {
                "sample": {0: "batch", 1: "channels", 2: "height", 3: "width"},
                "timestep": {0: "batch"},
                "encoder_hidden_states": {0: "batch", 1: "sequence"},
            }
        else:
            model = AutoencoderKL(
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                block_out_channels=(32, 64),
            )
            model.forward = model.decode  # as in the script
            names, args = ["latent_sample", "return_dict"], (torch.randn(1, 4, 8, 8), False)
            other = (torch.randn(2, 4, 6, 10),)
            axes = {"latent_sample": {0: "batch", 1: "channels", 2: "height", 3: "width"}}
        path = folder / "model.onnx"
        torch.onnx.export(
            model.eval(),
            args,
            f=path.as_posix(),
            input_names=names,
            output_names=["out_sample"],
            dynamic_axes=axes,
            do_constant_folding=True,
            opset_version=opset,
        )
        for given in (args[:-1], other):
            with torch.no_grad():
                assert_right(path, given, model(*given, return_dict=False))

    return run


for _part in ("unet", "vae decoder"):
    call("diffusers", f"convert_stable_diffusion_checkpoint_to_onnx.py: the {_part}")(_diffusers(_part, 14))
