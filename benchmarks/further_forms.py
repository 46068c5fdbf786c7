"""Recurrent layers (rule D28), forms that no rule writes and normalizations (D29) on the DLA by the estimate: tables of
docs/tables/rewrites.md.

    python -m benchmarks.further_forms [--norms FOLDER] [--write]

1. A network that processes a stream: a Conv, an LSTM or GRU whose state comes from the application and returns to it, and a Conv.
   `--preset dla` with the rewrites (all of them, `force`) and without; SQNR of the output of the steps in FP16 against float.
2. Forms that no rule writes. R3D-18 with its frames as channels, [N, T * C, H, W]: each Conv3d as one Conv whose weights are 0 for frames out
   of its reach; or as a Conv for each frame, of its neighbours joined. The product of the depths and the channels of a bird's-eye view as
   1x1 Convs and a Mul. The time in INT8, next to that of the GPU for the layers as they are, each with the transitions of its own.
3. Networks with normalizations that `benchmarks.full_networks` wrote to FOLDER: `--preset dla` with and without `--assume pow`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Sequence, Tuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.dla_rewrites import page
from benchmarks.full_networks import NETWORKS
from benchmarks.networks import Builder
from benchmarks.rewrites import DLA, PAGE, with_rewrites
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.targets.cost.fusing import FusedLayer
from qdq_translator.translation.targets.cost.gpu import HIGH, gpu_model
from qdq_translator.translation.targets.cost.model import Surface, Work, choose_model
from qdq_translator.translation.targets.dla.limits import GPU
from qdq_translator.translation.targets.precision import ON_GPU
from qdq_translator.translation.translator import Translation

STREAMS = "| layer | states | steps | ms without rewrites | with every rewrite | dB of its steps |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
FORMS = "| layers | on the DLA | MACs, times the network's | ms on the DLA | ms on the GPU |\n| --- | --- | ---: | ---: | ---: |\n"
NORMS = "| network | GPU layers | estimated ms | GPU layers left with the option |\n| --- | ---: | ---: | --- |\n"
NORMALIZED = ("cyclegan", "superpoint", "poolformer_s12", "convnext_tiny", "edgenext_xx_small", "mobilevit_s", "swin_t")
CLIP = 112
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and stride of R3D-18's stages of two blocks with two Convs (torchvision)."""


def stream(op: str, size: int, steps: int) -> onnx.ModelProto:
    """[1, size, 1, steps] -> Conv, Squeeze, Transpose, the layer, Transpose, Unsqueeze, Conv. Random weights."""
    b, gates = Builder(), 4 if op == "LSTM" else 3
    states = ["h", "c"][: 1 + (op == "LSTM")]
    axis, rows = b.constant("axis", np.array([2])), b.constant("rows", np.array([1]))
    x = b.node("Transpose", b.node("Squeeze", b.node("Relu", b.conv_bn("input", size, size, 1)), axis), perm=[2, 0, 1])
    chance = np.random.default_rng(1)
    draw = {key: chance.uniform(-1, 1, (1, gates * size, size)) / np.sqrt(size) for key in ("w", "r")}
    draw["b"] = chance.uniform(-1, 1, (1, 2 * gates * size)) / np.sqrt(size)
    names = [x, *(b.constant(key, values.astype(np.float32)) for key, values in draw.items()), ""]
    outputs = ["sequence", *(f"next_{name}" for name in states)]
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    b.nodes.append(helper.make_node(op, [*names, *states], outputs, "recurrent", hidden_size=size, **more))
    turned = b.node("Transpose", b.node("Squeeze", "sequence", rows), perm=[1, 2, 0])
    model = b.model(b.conv_bn(b.node("Unsqueeze", turned, axis), size, 16, 1), [1, size, 1, steps])
    shape = [1, 1, size]
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in states)
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs[1:])
    return model


def decibels(made: Translation) -> float:
    """Of the state behind the last step, of random inputs, in FP16 against float."""
    network = ImplicitNetwork(
        made.model, {}, dict.fromkeys((node.name for node in made.graph.nodes), "fp16"), frozenset()
    )
    chance = np.random.default_rng(2)
    feed = {}
    for value in made.model.graph.input:
        feed[value.name] = chance.uniform(-1, 1, [d.dim_value for d in value.type.tensor_type.shape.dim]).astype("f")
    want, got = (
        np.asarray(Session(model, "the network").run(feed)["next_h"], np.float64)
        for model in (made.model, simulate(network, SimulationOptions(fp16=True)).model)
    )
    return float(10 * np.log10(np.sum(want**2) / np.sum((want - got) ** 2)))


def stream_table() -> str:
    rows = STREAMS
    for op in ("LSTM", "GRU"):
        for size in (128, 512):
            for steps in (1, 2, 4, 8, 16):
                made = [
                    translate(stream(op, size, steps), with_rewrites(DLA, rewrites), try_more=False)
                    for rewrites in (False, "force")
                ]
                before, after = (one.costs.least[1] if one.costs is not None else None for one in made)
                rows += (
                    f"| {op} | {size} | {steps} | {before or 0:.2f} | {after or 0:.2f} | {decibels(made[1]):.0f} |\n"
                )
                print(rows.splitlines()[-1], flush=True)
    return rows


Shape = Tuple[int, int, int, int, int, int, int, int]
"""Channels in and out, frames in and out, kernel along T and along H and W, size of the output, stride."""


def convs(frames: int) -> list[Shape]:
    """Every Conv."""
    size = CLIP // 2
    rows = [(3, 64, frames, frames, 3, 7, size, 2)]
    cin, t = 64, frames
    for channels, stride in STAGES:
        after, size = -(-t // stride), size // stride
        if stride > 1:
            rows.append((cin, channels, t, after, 1, 1, size, stride))
        rows.append((cin, channels, t, after, 3, 3, size, stride))
        rows += [(channels, channels, after, after, 3, 3, size, 1)] * 3
        cin, t = channels, after
    return rows


def convolution(read: Surface, write: Surface, products: int) -> Work:
    """A Conv that reads and writes these; products: of one position."""
    weights = read.channels * write.channels * products
    return Work((read,), (write,), write.positions * products, (read.channels, write.channels), 1, weights)


def on_dla(works: Sequence[Work]) -> float:
    model, _ = choose_model(platform="jetpack-6.2")
    assert model is not None
    return sum(model.estimate(work, fp16=False).milliseconds for work in works)


def on_gpu(works: Sequence[Work]) -> float:
    return sum(gpu_model().kernel(FusedLayer([0], GPU, [work]), fp16=True) for work in works)


def clip(frames: int) -> str:
    """Two rows of R3D-18."""
    joined, apart, given = [], [], []  # type: list[Work], list[Work], list[Work]
    for cin, cout, before, after, kt, k, size, stride in convs(frames):
        into, out = (size * stride) ** 2, size**2
        given.append(convolution(Surface(cin, before * into), Surface(cout, after * out), kt * k * k))
        joined.append(convolution(Surface(cin * before, into), Surface(cout * after, out), k * k))
        firsts = range(-(kt // 2), before - kt // 2, before // after)
        reach = [min(before, first + kt) - max(0, first) for first in firsts]
        apart += [convolution(Surface(cin * near, into), Surface(cout, out), k * k) for near in reach]
    gpu, macs = on_gpu(given) + HIGH, sum(work.macs for work in given)
    return "".join(
        f"| R3D-18, {frames} frames | {form} | {sum(work.macs for work in made) / macs:.2f} | {on_dla(made):.2f} | {gpu:.2f} |\n"
        for form, made in (("frames as channels", joined), ("a Conv for each frame", apart))
    )


def lifted(cameras: int = 6, depths: int = 59, channels: int = 64, positions: int = 16 * 44) -> str:
    """The product over an added axis, whose result goes to the GPU, which gathers it."""
    parts, product = (
        [Surface(size, cameras * positions) for size in (depths, channels)],
        Surface(depths * channels, cameras * positions),
    )
    copies, gpu = [convolution(part, product, 1) for part in parts], gpu_model()
    dla = on_dla([*copies, Work((product, product), (product,))]) + gpu.transition(product)
    there = on_gpu([Work(tuple(parts), (product,))]) + sum(map(gpu.transition, parts))
    return f"| {depths} depths times {channels} channels, {cameras} cameras | 1x1 Convs and a Mul | | {dla:.2f} | {there:.2f} |\n"


def norms(folder: Path) -> str:
    rows = NORMS
    for name in NORMALIZED:
        made = [
            translate(str(folder / f"{name}__ort.onnx"), dataclasses.replace(DLA, assume=assume), try_more=False)
            for assume in (None, "pow")
        ]
        left = [Counter(row.op for row in one.plan if row.device == ON_GPU) for one in made]
        layers = " → ".join(str(sum(counts.values())) for counts in left)
        times = " → ".join(f"{one.costs.least[1]:.1f}" for one in made if one.costs is not None)
        which = ", ".join(f"{count} {op}" for op, count in left[1].most_common())
        rows += f"| {NETWORKS[name].title} | {layers} | {times} | {which} |\n"
        print(rows.splitlines()[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--norms", type=Path, metavar="FOLDER", help="only the table of normalizations")
    asked = parser.parse_args()
    if asked.norms:
        tables = {"norms": norms(asked.norms)}
    else:
        tables = {"streams": stream_table(), "forms": FORMS + "".join(map(clip, (2, 4, 8, 16))) + lifted()}
        print(tables["forms"])
    if asked.write:
        text = PAGE.read_text(encoding="utf-8")
        for part, table in tables.items():
            text = page(text, part, table)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
