"""Networks of full size with random weights, quantized by ONNX Runtime: what `benchmarks.dla_rewrites` plans.

    python -m benchmarks.full_networks FOLDER [NAME ...]

Writes NAME__float.onnx and NAME__ort.onnx. Architectures come from torchvision, timm and ultralytics, which only this script
needs, with PyTorch and ONNX Runtime; no weights are downloaded. Calibrated on two images of noise: only the structure counts.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np

from benchmarks.symmetric import quantize_symmetric


def _warm(network: Any, *shape: int) -> Any:
    """With normalizations that know what they normalize: without, activations shrink to 1e-9 on the way through a deep network
    with random weights, where one code more or less decides about all codes behind it."""
    import torch

    normalizations = [m for m in network.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not normalizations:
        return network
    for module in normalizations:
        module.momentum = None  # the average of all batches
    with torch.no_grad():
        for _ in range(4):
            network.train()(torch.randn(2, *shape))
    return network


def _torchvision(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from torchvision import models

        kind = models.segmentation if name.startswith(("fcn", "deeplab", "lraspp")) else models
        more = {"weights_backbone": None} if name.startswith(("fcn", "deeplab", "lraspp")) else {}
        more = {"init_weights": False} if name in ("inception_v3", "googlenet") else more
        network = getattr(kind, name)(weights=None, **more)
        if name.startswith("vit"):  # whose head starts as zeros
            network.heads.head.reset_parameters()
        return _warm(network, 3, 299, 299)

    return make


def _video() -> Any:
    from torchvision.models import video

    return _warm(video.r3d_18(weights=None), 3, 8, 112, 112)


def _timm(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import timm

        return _warm(timm.create_model(name, pretrained=False, exportable=True), 3, 224, 224)

    return make


def _ultralytics(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from ultralytics import YOLO

        network = _warm(YOLO(f"{name}.yaml").model, 3, 160, 160).fuse().eval()
        for module in network.modules():
            if hasattr(module, "export"):
                module.export, module.format, module.dynamic = True, "onnx", False
        return network

    return make


def _own(name: str, *warm: int) -> Callable[[], Any]:
    """Of `benchmarks.architectures`; warm: the shape of the images that its normalizations see."""

    def make() -> Any:
        from benchmarks import architectures

        network = getattr(architectures, name)()
        return _warm(network, *warm) if warm else network

    return make


@dataclass(frozen=True)
class Network:
    """title: as in the tables. make: the module. shape: of the input, without the batch."""

    title: str
    make: Callable[[], Any]
    shape: tuple[int, ...]


def _rows(package: str, make: Callable[[str], Callable[[], Any]], side: int, titles: str) -> dict[str, Network]:
    """titles: 'name=Title; ...'."""
    pairs = (row.strip().split("=") for row in titles.split(";"))
    return {name: Network(f"{title} ({package})", make(name), (3, side, side)) for name, title in pairs}


NETWORKS: dict[str, Network] = {
    **_rows("ultralytics", _ultralytics, 640, "yolov5s=YOLOv5s; yolov8n=YOLOv8n; yolo11n=YOLO11n"),
    **_rows(
        "torchvision",
        _torchvision,
        224,
        "resnet50=ResNet-50; mobilenet_v2=MobileNetV2; mobilenet_v3_large=MobileNetV3-L; efficientnet_b0=EfficientNet-B0",
    ),
    **_rows("timm", _timm, 224, "efficientnet_lite0=EfficientNet-Lite0"),
    **_rows("torchvision", _torchvision, 299, "inception_v3=Inception-v3"),
    **_rows(
        "torchvision",
        _torchvision,
        224,
        "shufflenet_v2_x1_0=ShuffleNetV2 1.0; densenet121=DenseNet-121; regnet_y_400mf=RegNetY-400MF; alexnet=AlexNet; "
        "convnext_tiny=ConvNeXt-T; vit_b_16=ViT-B/16; swin_t=Swin-T; squeezenet1_1=SqueezeNet 1.1; googlenet=GoogLeNet; "
        "vgg11=VGG-11; fcn_resnet50=FCN-ResNet50; deeplabv3_resnet50=DeepLabV3-ResNet50; "
        "lraspp_mobilenet_v3_large=LR-ASPP-MobileNetV3",
    ),
    **_rows(
        "timm",
        _timm,
        224,
        "tf_efficientnetv2_b0=EfficientNetV2-B0 of TensorFlow; repvit_m0_9=RepViT-M0.9; dla34=DLA-34; "
        "hgnetv2_b0=HGNetV2-B0; levit_128s=LeViT-128S; poolformer_s12=PoolFormer-S12; resnest14d=ResNeSt-14d; "
        "tresnet_m=TResNet-M; eca_nfnet_l0=ECA-NFNet-L0; rexnet_100=ReXNet 1.0; hrnet_w18_small=HRNet-W18-S; "
        "selecsls42b=SelecSLS-42b; skresnet18=SKNet-18; ghostnet_100=GhostNet 1.0; mixnet_s=MixNet-S; "
        "mnasnet_small=MnasNet-S; cspresnet50=CSPResNet-50; darknet53=Darknet-53; ese_vovnet19b_dw=VoVNet-19b; "
        "xception41=Xception-41; dpn48b=DPN-48b; res2net50_14w_8s=Res2Net-50; gernet_s=GENet-S; mobileone_s0=MobileOne-S0; "
        "repvgg_a0=RepVGG-A0; efficientformer_l1=EfficientFormer-L1; edgenext_xx_small=EdgeNeXt-XXS; "
        "mobilenetv4_conv_small=MobileNetV4-S; convmixer_768_32=ConvMixer-768/32; starnet_s1=StarNet-S1; "
        "inception_next_tiny=InceptionNeXt-T",
    ),
    **_rows("timm", _timm, 256, "mobilevit_s=MobileViT-S"),
    **_rows("timm", _timm, 224, "coatnet_0_rw_224=CoAtNet-0"),
    **_rows(
        "ultralytics", _ultralytics, 640, "yolov3-tiny=YOLOv3-tiny; yolov10n=YOLOv10n; yolo12n=YOLO12n; yolo26n=YOLO26n"
    ),
    "r3d_18": Network("R3D-18 (torchvision)", _video, (3, 8, 112, 112)),
    "unet": Network("U-Net, 64 to 1024 channels", _own("unet", 3, 64, 64), (3, 256, 256)),
    "espcn": Network("ESPCN", _own("espcn"), (3, 128, 128)),
    "fsrcnn": Network("FSRCNN", _own("fsrcnn"), (3, 128, 128)),
    "edsr": Network("EDSR baseline", _own("edsr"), (3, 128, 128)),
    "rcan": Network("RCAN, 2 x 6 blocks", _own("rcan"), (3, 128, 128)),
    "dcgan": Network("DCGAN generator", _own("dcgan", 100, 1, 1), (100, 1, 1)),
    "cyclegan": Network("CycleGAN generator", _own("cyclegan"), (3, 128, 128)),
    "superpoint": Network("SuperPoint", _own("superpoint", 1, 120, 160), (1, 240, 320)),
    "crnn": Network("CRNN", _own("crnn", 1, 32, 100), (1, 32, 100)),
    "wav2letter": Network("Wav2Letter", _own("wav2letter"), (1, 16000)),
    "quartznet": Network("QuartzNet 5x1", _own("quartznet", 64, 256), (64, 256)),
    "pspnet": Network("PSPNet-ResNet50", _own("pspnet", 3, 192, 192), (3, 480, 480)),
    "bisenet": Network("BiSeNet-ResNet18", _own("bisenet", 3, 256, 256), (3, 512, 512)),
    "centernet": Network("CenterNet-ResNet18", _own("centernet", 3, 128, 128), (3, 512, 512)),
    "monodepth": Network("Monodepth2", _own("monodepth", 3, 96, 160), (3, 192, 640)),
}
"""File stem -> network."""


def export(network: Network, path: Path) -> None:
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # which the exporter cannot write
    module = network.make().eval()
    names = ["out"]
    with torch.no_grad():
        torch.onnx.export(
            module,
            (torch.zeros(1, *network.shape),),
            str(path),
            opset_version=17,
            dynamo=False,
            input_names=["images"],
            output_names=names,
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
        paths = [arguments.folder / f"{name}__{kind}.onnx" for kind in ("float", "ort")]
        export(NETWORKS[name], paths[0])
        quantize(*paths)
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
