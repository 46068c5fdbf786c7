"""Networks that no package has, as their papers describe them, with random weights: what `benchmarks.full_networks` exports."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import nn
from torch.nn import functional


class _Forward(nn.Module):  # type: ignore[misc]
    """Modules as attributes, and a function of them and of the input."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, dilation: int = 1, **more: Any) -> nn.Sequential:
    """Conv of the same size, BatchNorm and Relu."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False, **more)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


def _features(name: str, **more: Any) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, features_only=True, **more)


def _added(module: Any, x: Any) -> Any:
    return x + module.body(x)


def espcn() -> nn.Module:
    """Shi et al. 2016: sub-pixel convolution, factor 3."""
    layers = [nn.Conv2d(3, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()]
    return nn.Sequential(*layers, nn.Conv2d(32, 27, 3, padding=1), nn.PixelShuffle(3))


def fsrcnn() -> nn.Module:
    """Dong et al. 2016: PRelu, a last deconvolution of stride 3."""
    layers: list[nn.Module] = [nn.Conv2d(3, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12)]
    for _ in range(4):
        layers += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
    layers += [nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 3, 9, 3, 4, 2)]
    return nn.Sequential(*layers)


def edsr() -> nn.Module:
    """Lim et al. 2017, baseline: 16 residual blocks of 64 channels, factor 2."""

    def block() -> nn.Module:
        return _Forward(_added, body=nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1)))

    body = _Forward(_added, body=nn.Sequential(*(block() for _ in range(16)), nn.Conv2d(64, 64, 3, 1, 1)))
    end = [nn.Conv2d(64, 256, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(64, 3, 3, 1, 1)]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), body, *end)


def rcan() -> nn.Module:
    """Zhang et al. 2018: channel attention in residual blocks; 2 groups of 6 blocks, factor 2."""

    def attention() -> nn.Module:
        layers = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 4, 1), nn.ReLU(), nn.Conv2d(4, 64, 1), nn.Sigmoid()]
        return _Forward(lambda m, x: x * m.body(x), body=nn.Sequential(*layers))

    def block() -> nn.Module:
        layers = [nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), attention()]
        return _Forward(_added, body=nn.Sequential(*layers))

    def group() -> nn.Module:
        return _Forward(_added, body=nn.Sequential(*(block() for _ in range(6)), nn.Conv2d(64, 64, 3, 1, 1)))

    end = [nn.Conv2d(64, 256, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(64, 3, 3, 1, 1)]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), group(), group(), *end)


def dcgan() -> nn.Module:
    """Radford et al. 2016: the generator of 64 x 64 images, from noise [1, 100, 1, 1]."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride, padding in ((100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1)):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, stride, padding), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())


def cyclegan() -> nn.Module:
    """Zhu et al. 2017: reflection padding, InstanceNorm, 9 residual blocks."""

    def block() -> nn.Module:
        half = [nn.ReflectionPad2d(1), nn.Conv2d(256, 256, 3), nn.InstanceNorm2d(256)]
        other = [nn.ReflectionPad2d(1), nn.Conv2d(256, 256, 3), nn.InstanceNorm2d(256)]
        return _Forward(_added, body=nn.Sequential(*half, nn.ReLU(), *other))

    def step(module: nn.Module, channels: int) -> list[nn.Module]:
        return [module, nn.InstanceNorm2d(channels), nn.ReLU()]

    down = step(nn.Conv2d(64, 128, 3, 2, 1), 128) + step(nn.Conv2d(128, 256, 3, 2, 1), 256)
    up = step(nn.ConvTranspose2d(256, 128, 3, 2, 1, 1), 128) + step(nn.ConvTranspose2d(128, 64, 3, 2, 1, 1), 64)
    first = [nn.ReflectionPad2d(3), *step(nn.Conv2d(3, 64, 7), 64)]
    last = [nn.ReflectionPad2d(3), nn.Conv2d(64, 3, 7), nn.Tanh()]
    return nn.Sequential(*first, *down, *(block() for _ in range(9)), *up, *last)


def superpoint() -> nn.Module:
    """DeTone et al. 2018: key points of an image with one channel, and descriptors of norm 1."""
    stages: list[nn.Module] = []
    for inputs, outputs in ((1, 64), (64, 64), (64, 128)):
        stages += [_conv(inputs, outputs), _conv(outputs, outputs), nn.MaxPool2d(2)]
    encoder = nn.Sequential(*stages, _conv(128, 128), _conv(128, 128))
    points = nn.Sequential(_conv(128, 256), nn.Conv2d(256, 65, 1))
    descriptors = nn.Sequential(_conv(128, 256), nn.Conv2d(256, 256, 1))

    def run(net: Any, x: Any) -> Any:
        x = net.encoder(x)
        scores = functional.pixel_shuffle(torch.softmax(net.points(x), 1)[:, :-1], 8)
        return scores, functional.normalize(net.descriptors(x), dim=1)

    return _Forward(run, encoder=encoder, points=points, descriptors=descriptors)


def crnn() -> nn.Module:
    """Shi et al. 2015: text of a line of 32 x 100; seven Convs and two bidirectional LSTMs."""
    layers: list[nn.Module] = []
    for inputs, outputs, pool in ((1, 64, 2), (64, 128, 2), (128, 256, 0), (256, 256, (2, 1)), (256, 512, 0)):
        layers += [_conv(inputs, outputs), *([nn.MaxPool2d(pool)] if pool else [])]
    layers += [_conv(512, 512), nn.MaxPool2d((2, 1)), nn.Conv2d(512, 512, 2), nn.ReLU()]

    def run(net: Any, x: Any) -> Any:
        x = net.convs(x).squeeze(2).permute(0, 2, 1)
        return net.letters(net.second(net.between(net.first(x)[0]))[0])

    first, second = (nn.LSTM(n, 256, bidirectional=True, batch_first=True) for n in (512, 256))
    parts = {"convs": nn.Sequential(*layers), "first": first, "between": nn.Linear(512, 256), "second": second}
    return _Forward(run, **parts, letters=nn.Linear(512, 37))


def _speech(layers: Sequence[tuple[int, int, int, int]]) -> list[nn.Module]:
    """Conv1d of (inputs, outputs, kernel, stride) and Relu each."""
    made = [(nn.Conv1d(i, o, k, s, k // 2), nn.ReLU()) for i, o, k, s in layers]
    return [module for pair in made for module in pair]


def wav2letter() -> nn.Module:
    """Collobert et al. 2016: 1-D Convs over a waveform [1, 1, 16000]; the first has 250 taps and stride 160."""
    return nn.Sequential(
        *_speech(
            [(1, 250, 250, 160), (250, 250, 48, 2), *[(250, 250, 7, 1)] * 7, (250, 1000, 32, 1), (1000, 1000, 1, 1)]
        ),
        nn.Conv1d(1000, 29, 1),
    )


def quartznet() -> nn.Module:
    """Kriman et al. 2020, 5 x 1: depthwise separable Conv1d of 33 to 87 taps over 64 mel features."""

    def separable(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
        padding = dilation * (kernel // 2)
        deep = nn.Conv1d(inputs, inputs, kernel, stride, padding, dilation, groups=inputs, bias=False)
        return nn.Sequential(deep, nn.Conv1d(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs))

    def block(inputs: int, outputs: int, kernel: int) -> nn.Module:
        short = nn.Sequential(nn.Conv1d(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs))
        body = separable(inputs, outputs, kernel)
        return _Forward(lambda m, x: functional.relu(m.body(x) + m.short(x)), body=body, short=short)

    sizes = ((256, 256, 33), (256, 256, 39), (256, 512, 51), (512, 512, 63), (512, 512, 75))
    first = [separable(64, 256, 33, 2), nn.ReLU()]
    last = [separable(512, 512, 87, 1, 2), nn.ReLU(), nn.Conv1d(512, 1024, 1), nn.ReLU(), nn.Conv1d(1024, 29, 1)]
    return nn.Sequential(*first, *(block(*size) for size in sizes), *last)


def pspnet() -> nn.Module:
    """Zhao et al. 2017: ResNet-50 of output stride 8, pyramid of means, upsampled by 8."""
    means = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), _conv(2048, 512, 1)) for n in (1, 2, 3, 6))
    head = nn.Sequential(_conv(4096, 512), nn.Conv2d(512, 19, 1))

    def run(net: Any, x: Any) -> Any:
        size, y = x.shape[2:], net.base(x)[-1]
        pyramid = [functional.interpolate(mean(y), y.shape[2:], mode="bilinear") for mean in net.means]
        return functional.interpolate(net.head(torch.cat([y, *pyramid], 1)), size, mode="bilinear")

    return _Forward(run, base=_features("resnet50", output_stride=8, out_indices=[4]), means=means, head=head)


def bisenet() -> nn.Module:
    """Yu et al. 2018: spatial path, context path of ResNet-18 with attention refinement, fusion."""

    def gate(channels: int) -> nn.Module:
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.Sigmoid())

    spatial = nn.Sequential(_conv(3, 64, 7, 2), _conv(64, 64, 3, 2), _conv(64, 64, 3, 2), _conv(64, 128, 1))
    refine = nn.ModuleList(_conv(n, 128) for n in (256, 512))
    gates = nn.ModuleList(gate(128) for _ in range(2))
    head = nn.Sequential(_conv(256, 64), nn.Conv2d(64, 19, 1))

    def run(net: Any, x: Any) -> Any:
        middle, deep = net.base(x)
        top = net.mean(deep)
        deep, middle = (gate(y) * y for gate, y in zip(net.gates, (net.refine[1](deep), net.refine[0](middle))))
        deep = functional.interpolate(deep + top, scale_factor=2)
        context = functional.interpolate(middle + deep, scale_factor=2)
        fused = net.fuse(torch.cat([net.spatial(x), context], 1))
        fused = fused + fused * net.fusion(fused)
        return functional.interpolate(net.head(fused), scale_factor=8, mode="bilinear")

    parts = {"spatial": spatial, "base": _features("resnet18", out_indices=[3, 4]), "refine": refine, "gates": gates}
    mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(512, 128, 1), nn.ReLU())
    return _Forward(run, **parts, mean=mean, fuse=_conv(256, 256, 1), fusion=gate(256), head=head)


def centernet() -> nn.Module:
    """Zhou et al. 2019: ResNet-18, three deconvolutions, heads of heat map, size and offset."""
    up: list[nn.Module] = []
    for inputs in (512, 256, 256):
        up += [nn.ConvTranspose2d(inputs, 256, 4, 2, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
    heads = nn.ModuleList(nn.Sequential(_conv(256, 64), nn.Conv2d(64, n, 1)) for n in (80, 2, 2))

    def run(net: Any, x: Any) -> Any:
        x = net.up(net.base(x)[-1])
        heat, size, offset = (head(x) for head in net.heads)
        heat = torch.sigmoid(heat)
        return heat * (functional.max_pool2d(heat, 3, 1, 1) == heat).float(), size, offset

    return _Forward(run, base=_features("resnet18", out_indices=[4]), up=nn.Sequential(*up), heads=heads)


def monodepth() -> nn.Module:
    """Godard et al. 2019: ResNet-18 and a decoder with reflection padding, Elu and nearest upsampling."""
    encoded, decoded = [64, 64, 128, 256, 512], [16, 32, 64, 128, 256]

    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3), nn.ELU())

    first = nn.ModuleList(block(encoded[-1] if i == 4 else decoded[i + 1], decoded[i]) for i in range(5))
    second = nn.ModuleList(block(decoded[i] + (encoded[i - 1] if i else 0), decoded[i]) for i in range(5))

    def run(net: Any, x: Any) -> Any:
        features = net.base(x)
        x = features[-1]
        for i in reversed(range(5)):
            x = functional.interpolate(net.first[i](x), scale_factor=2, mode="nearest")
            x = net.second[i](torch.cat([x, features[i - 1]], 1) if i else x)
        return torch.sigmoid(net.end(x))

    end = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(16, 1, 3))
    return _Forward(run, base=_features("resnet18"), first=first, second=second, end=end)


def unet() -> nn.Module:
    """Ronneberger et al. 2015 with padded Convs and BatchNorm: 64 to 1024 channels, two classes."""

    def twice(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(_conv(inputs, outputs), _conv(outputs, outputs))

    widths = [64, 128, 256, 512, 1024]
    pairs = list(zip(widths, widths[1:]))

    def run(net: Any, x: Any) -> Any:
        kept = []
        for stage in net.down[:-1]:
            kept.append(stage(x))
            x = functional.max_pool2d(kept[-1], 2)
        x = net.down[-1](x)
        for grow, stage, skip in zip(reversed(net.grow), reversed(net.up), reversed(kept)):
            x = stage(torch.cat([skip, grow(x)], 1))
        return net.out(x)

    down = nn.ModuleList(twice(a, b) for a, b in zip([3, *widths], widths))
    grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
    up = nn.ModuleList(twice(b, a) for a, b in pairs)
    return _Forward(run, down=down, grow=grow, up=up, out=nn.Conv2d(widths[0], 2, 1))
