"""All rules together: random chains of the operators that they are for, with branches, quantizers and several outputs."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import BATCHES, INFER, ORIN, graph, ints, pair, same, weights

XAVIER = {"target": "xavier-dla", "platform": "jetpack-5.1", "unify_scales": "max", **INFER}
SAME_SHAPE = ("Relu", "Identity", "Dropout", "Neg", "HardSigmoid", "HardSwish", "Sum", "Mean", "Max", "Add", "Div")


class Network:
    """Adds nodes to the tensors that there are; `shapes` leaves the batch axis out."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        size = (self.random.choice([2, 4, 8]), self.random.choice([4, 6, 8, 16, 20]), self.random.choice([4, 8, 10]))
        self.shapes: dict[str, tuple[int, ...]] = {"t0": size}
        self.lines = [pair("x", "t0")]
        self.arrays: dict[str, np.ndarray] = {}
        for _ in range(self.random.randint(3, 12)):
            self.step()

    def constant(self, values: np.ndarray) -> str:
        name = f"k{len(self.arrays)}"
        self.arrays[name] = values
        return name

    def add(self, call: str, *shapes: tuple[int, ...]) -> None:
        names = [f"t{len(self.shapes) + i}" for i in range(len(shapes))]
        self.lines.append(f"{', '.join(names)} = {call}")
        self.shapes.update(zip(names, shapes))
        if self.random.random() < 0.35:
            quantized = f"t{len(self.shapes)}"
            self.lines.append(pair(names[0], quantized))
            self.shapes[quantized] = shapes[0]

    def step(self) -> None:
        tensor = self.random.choice(list(self.shapes)[-3:])
        shape = self.shapes[tensor]
        kinds = ["same", "same", "conv", "conv", "split", "mean", "flat", "pad", "space"]
        kinds += ["largest", "grow", "stretch", "join", "up"]
        kind = self.random.choice(kinds if len(shape) == 3 else ["same", "dense", "unsqueeze"])
        getattr(self, kind)(tensor, shape)

    def same(self, tensor: str, shape: tuple[int, ...]) -> None:
        op = self.random.choice(SAME_SHAPE)
        others = [name for name in self.shapes if self.shapes[name] == shape]
        inputs = [tensor]
        if op in ("Sum", "Mean", "Max", "Add"):
            inputs += [self.random.choice(others) for _ in range(1 if op == "Add" else self.random.randint(1, 2))]
        elif op == "Div":
            inputs.append(self.constant(np.float32(self.random.choice([2, 3, -4]))))
        self.add(f"{op} ({', '.join(inputs)})", shape)

    def conv(self, tensor: str, shape: tuple[int, ...]) -> None:
        channels, kernel, stride = (
            self.random.choice([2, 4, 8]),
            self.random.choice([1, 2, 3]),
            self.random.choice([1, 2]),
        )
        pads = [self.random.randint(0, 3) for _ in range(4)]
        sizes = [shape[1 + i] + pads[i] + pads[i + 2] - kernel for i in range(2)]
        if min(sizes) < 0:
            return
        weight = self.constant(weights(len(self.arrays), channels, shape[0], kernel, kernel))
        bias = self.constant(weights(len(self.arrays), channels))
        attributes = f"pads = {pads}, strides = [{stride}, {stride}], kernel_shape = [{kernel}, {kernel}]"
        self.add(f"Conv <{attributes}> ({tensor}, {weight}, {bias})", (channels, *(s // stride + 1 for s in sizes)))

    def split(self, tensor: str, shape: tuple[int, ...]) -> None:
        if shape[0] % 2 == 0:
            half = (shape[0] // 2, *shape[1:])
            self.add(f"Split <axis = 1> ({tensor}, {self.constant(ints(half[0], half[0]))})", half, half)

    def mean(self, tensor: str, shape: tuple[int, ...]) -> None:
        if self.random.random() < 0.5:
            self.add(f"GlobalAveragePool ({tensor})", (shape[0], 1, 1))
        else:
            self.add(f"ReduceMean <axes = [2, 3], keepdims = 0> ({tensor})", shape[:1])

    def flat(self, tensor: str, shape: tuple[int, ...]) -> None:
        self.add(f"Flatten ({tensor})", (shape[0] * shape[1] * shape[2],))

    def pad(self, tensor: str, shape: tuple[int, ...]) -> None:
        before, behind = ([self.random.choice([0, 0, 1, 2]) for _ in range(3)] for _ in range(2))
        sizes = self.constant(ints(0, *before, 0, *behind))
        self.add(f"Pad ({tensor}, {sizes})", tuple(a + b + c for a, b, c in zip(before, shape, behind)))

    def space(self, tensor: str, shape: tuple[int, ...]) -> None:
        c, h, w = shape
        if c % 4 == 0:
            self.add(f"DepthToSpace <blocksize = 2> ({tensor})", (c // 4, h * 2, w * 2))
        elif h % 2 == 0 and w % 2 == 0:
            self.add(f"SpaceToDepth <blocksize = 2> ({tensor})", (c * 4, h // 2, w // 2))

    def largest(self, tensor: str, shape: tuple[int, ...]) -> None:
        axis = self.random.choice([1, 2, 3])
        made = [1 if number == axis else size for number, size in enumerate(shape, 1)]
        self.add(f"{self.random.choice(['ReduceMax', 'ReduceMin'])} <axes = [{axis}]> ({tensor})", tuple(made))

    def grow(self, tensor: str, shape: tuple[int, ...]) -> None:
        times = [self.random.choice([1, 2, 3]), *(self.random.choice([1, 3]) if size == 1 else 1 for size in shape[1:])]
        made = tuple(size * count for size, count in zip(shape, times))
        self.add(f"Tile ({tensor}, {self.constant(ints(1, *times))})", made)

    def stretch(self, tensor: str, shape: tuple[int, ...]) -> None:
        where = self.random.choice(["align_corners", "asymmetric", "half_pixel"])
        made = (shape[0], *(self.random.choice([size, size + 3, 2 * size, 9 * size]) for size in shape[1:]))
        if max(made) > 60:
            return
        factors = self.constant(np.float32([1, 1, *(b / a for a, b in zip(shape[1:], made[1:]))]))
        if all(int(np.floor(a * f)) == b for a, b, f in zip(shape, made, self.arrays[factors][1:])):
            attributes = f'mode = "linear", coordinate_transformation_mode = "{where}"'
            self.add(f"Resize <{attributes}> ({tensor}, , {factors})", made)

    def join(self, tensor: str, shape: tuple[int, ...]) -> None:
        axis = self.random.choice([2, 3])
        made = tuple(size * (2 if number == axis else 1) for number, size in enumerate(shape, 1))
        other = next(name for name, same in self.shapes.items() if same == shape)
        self.add(f"Concat <axis = {axis}> ({tensor}, {other})", made)

    def up(self, tensor: str, shape: tuple[int, ...]) -> None:
        kernel, group = self.random.choice([2, 3, 4]), self.random.choice([1, 2])
        pad = self.random.randint(0, 1)
        made = (2 * group, *((size - 1) * 2 + kernel - 2 * pad for size in shape[1:]))
        if shape[0] % group or not 0 < min(made) <= max(made) < 60:
            return
        weight = self.constant(weights(len(self.arrays), shape[0], 2, kernel, kernel))
        attributes = f"group = {group}, strides = [2, 2], pads = [{pad}, {pad}, {pad}, {pad}], kernel_shape = [{kernel}, {kernel}]"
        self.add(f"ConvTranspose <{attributes}> ({tensor}, {weight})", made)

    def dense(self, tensor: str, shape: tuple[int, ...]) -> None:
        channels = self.random.choice([3, 5, 8])
        weight = self.constant(weights(len(self.arrays), channels, shape[0]))
        bias = self.constant(weights(len(self.arrays), channels))
        self.add(f"Gemm <transB = 1> ({tensor}, {weight}, {bias})", (channels,))

    def unsqueeze(self, tensor: str, shape: tuple[int, ...]) -> None:
        self.add(f"Unsqueeze ({tensor}, {self.constant(ints(2, 3))})", (*shape, 1, 1))

    def model(self, batch: str) -> onnx.ModelProto:
        outputs = dict.fromkeys([list(self.shapes)[-1], self.random.choice(list(self.shapes)[1:] or ["t0"])])
        typed = ", ".join(f"float[{batch},{','.join(map(str, self.shapes[n]))}] {n}" for n in outputs)
        size = ",".join(map(str, self.shapes["t0"]))
        return graph(f"float[{{N}},{size}] x", typed, "\n".join(self.lines), batch, **self.arrays)


@pytest.mark.parametrize("seed", range(60))
def test_random_network(seed: int) -> None:
    batch = BATCHES[seed % len(BATCHES)]
    explicit = Network(seed).model(batch)
    for options in ({}, XAVIER):
        found = same(explicit, batch, **options)
        for output in found.plain.graph.outputs:  # rule S2
            assert (output in found.rewritten.tensor_scales) == (output in found.plain.tensor_scales)


def test_random_networks_reach_every_rule_that_they_have_operators_for() -> None:
    options = TranslateOptions(dla_rewrites=True, **ORIN)
    made = (translate(Network(seed).model("1"), options) for seed in range(60))
    rules = {applied.rule for one in made for applied in one.rewrites.applied}
    assert rules == {f"D{n}" for n in (3, 4, 5, 6, 7, 9, 11, 13, 15, 17, 21, 23, 27)}
