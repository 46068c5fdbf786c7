"""Convolution networks of full size with random weights, quantized by ONNX Runtime: what `benchmarks.dla_rewrites` plans.

    python -m benchmarks.full_networks FOLDER [NAME ...]

Writes NAME__float.onnx and NAME__ort.onnx. Architectures come from torchvision, timm and ultralytics, which only this script
needs, with PyTorch and ONNX Runtime; no weights are downloaded. Calibrated on two images of noise: only the structure counts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np

from benchmarks.symmetric import quantize_symmetric


def _warm(network: Any, side: int) -> Any:
    """With normalizations that know what they normalize: without, activations shrink to 1e-9 on the way through a deep network
    with random weights, where one code more or less decides about all codes behind it."""
    import torch

    normalizations = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    if not normalizations:
        return network
    for module in normalizations:
        module.momentum = None  # the average of all batches
    with torch.no_grad():
        for _ in range(4):
            network.train()(torch.randn(2, 3, side, side))
    return network


def _torchvision(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from torchvision import models

        kind = models.segmentation if name.startswith("fcn") else models
        more = {"weights_backbone": None} if name.startswith("fcn") else {}
        more = {"init_weights": False} if name in ("inception_v3", "googlenet") else more
        network = getattr(kind, name)(weights=None, **more)
        if name.startswith("vit"):  # whose head starts as zeros
            network.heads.head.reset_parameters()
        return _warm(network, 299)

    return make


def _timm(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import timm

        return _warm(timm.create_model(name, pretrained=False, exportable=True), 224)

    return make


def _ultralytics(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from ultralytics import YOLO

        network = _warm(YOLO(f"{name}.yaml").model, 160).fuse().eval()
        for module in network.modules():
            if hasattr(module, "export"):
                module.export, module.format, module.dynamic = True, "onnx", False
        return network

    return make


def _unet() -> Any:
    """Ronneberger's U-Net with padded convolutions and normalizations: 64 to 1024 channels, two classes."""
    import torch
    from torch import nn

    def twice(inputs: int, outputs: int) -> Any:
        layers = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            widths = [64, 128, 256, 512, 1024]
            self.down = nn.ModuleList(twice(a, b) for a, b in zip([3, *widths], widths))
            self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
            self.up = nn.ModuleList(twice(b, a) for a, b in zip(widths, widths[1:]))
            self.out = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for stage in self.down[:-1]:
                kept.append(stage(x))
                x = nn.functional.max_pool2d(kept[-1], 2)
            x = self.down[-1](x)
            for grow, stage, skip in zip(reversed(self.grow), reversed(self.up), reversed(kept)):
                x = stage(torch.cat([skip, grow(x)], 1))
            return self.out(x)

    return _warm(UNet(), 64)


NETWORKS: dict[str, tuple[str, Callable[[], Any], int]] = {
    "yolov5s": ("YOLOv5s (ultralytics)", _ultralytics("yolov5s"), 640),
    "yolov8n": ("YOLOv8n (ultralytics)", _ultralytics("yolov8n"), 640),
    "yolo11n": ("YOLO11n (ultralytics)", _ultralytics("yolo11n"), 640),
    "resnet50": ("ResNet-50 (torchvision)", _torchvision("resnet50"), 224),
    "mobilenet_v2": ("MobileNetV2 (torchvision)", _torchvision("mobilenet_v2"), 224),
    "mobilenet_v3_large": ("MobileNetV3-L (torchvision)", _torchvision("mobilenet_v3_large"), 224),
    "efficientnet_b0": ("EfficientNet-B0 (torchvision)", _torchvision("efficientnet_b0"), 224),
    "efficientnet_lite0": ("EfficientNet-Lite0 (timm)", _timm("efficientnet_lite0"), 224),
    "inception_v3": ("Inception-v3 (torchvision)", _torchvision("inception_v3"), 299),
    "shufflenet_v2": ("ShuffleNetV2 1.0 (torchvision)", _torchvision("shufflenet_v2_x1_0"), 224),
    "densenet121": ("DenseNet-121 (torchvision)", _torchvision("densenet121"), 224),
    "regnet": ("RegNetY-400MF (torchvision)", _torchvision("regnet_y_400mf"), 224),
    "alexnet": ("AlexNet (torchvision)", _torchvision("alexnet"), 224),
    "tf_efficientnetv2_b0": ("EfficientNetV2-B0 of TensorFlow (timm)", _timm("tf_efficientnetv2_b0"), 224),
    "repvit_m0_9": ("RepViT-M0.9 (timm)", _timm("repvit_m0_9"), 224),
    "convnext": ("ConvNeXt-T (torchvision)", _torchvision("convnext_tiny"), 224),
    "fcn_resnet50": ("FCN-ResNet50 (torchvision)", _torchvision("fcn_resnet50"), 224),
    "unet": ("U-Net, 64 to 1024 channels", _unet, 256),
    "vit_b_16": ("ViT-B/16 (torchvision)", _torchvision("vit_b_16"), 224),
    "swin_t": ("Swin-T (torchvision)", _torchvision("swin_t"), 224),
}
"""File stem -> what it is called, how it is made, and the side of its square input."""


def export(make: Callable[[], Any], size: int, path: Path) -> None:
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # which the exporter cannot write
    network = make().eval()
    shape = torch.zeros(1, 3, size, size)
    names = ["out"]
    with torch.no_grad():
        torch.onnx.export(
            network, (shape,), str(path), opset_version=17, dynamo=False, input_names=["images"], output_names=names
        )


def quantize(source: Path, target: Path) -> None:
    """Per-channel int8 weights, int8 activations with zero point 0, calibrated on noise."""
    import onnx

    shape = [d.dim_value for d in onnx.load(str(source)).graph.input[0].type.tensor_type.shape.dim]
    generator = np.random.default_rng(0)
    feeds = ({"images": generator.standard_normal(shape).astype(np.float32)} for _ in range(2))
    quantize_symmetric(source, target, feeds)


def main() -> int:
    parser = argparse.ArgumentParser(description="Full-size networks for benchmarks.dla_rewrites.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NETWORKS)}")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NETWORKS:
        _, make, size = NETWORKS[name]
        paths = [arguments.folder / f"{name}__{kind}.onnx" for kind in ("float", "ort")]
        export(make, size, paths[0])
        quantize(*paths)
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
