"""Networks by chance, of what the passes fold, take out, write otherwise or lower: the same function as with bypassed quantizers,
and the layers, attributes, scales and messages that came before (`tests/data/networks.txt`).

    python -m tests.records --write        writes that file anew; read what has changed
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import Translation
from tests.conftest import DATA
from tests.dla.test_by_chance import Chance, listed, pick, shown
from tests.explicit_reference import random_inputs
from tests.small_models import model, pair, same_function

RECORD = DATA / "networks.txt"
COUNT = 300
OPSETS = (13, 17, 18, 19)
NOTHING = [
    "Identity", "Dropout", "Cast", "Reshape", "Transpose", "Slice", "Expand", "Pad", "Tile", "Concat", "Sum", "Mul",
    "Div", "Add", "Sub", "Flatten", "Split",
]  # fmt: skip


class Text:
    """A network that grows from [2, 4, 6, 6], layer by layer. live: tensors and their sizes behind the batch."""

    def __init__(self, chance: Chance) -> None:
        self.chance, self.opset = chance, int(pick(chance, *OPSETS))
        self.lines: list[str] = [pair("x", "x0").strip()]
        self.arrays: dict[str, np.ndarray] = {"s": np.float32(0.05), "s2": np.float32(0.02), "z": np.int8(0)}
        self.live: list[tuple[str, list[int]]] = [("x0", [4, 6, 6])]

    def constant(self, values: Any) -> str:
        name = f"k{len(self.arrays)}"
        self.arrays[name] = np.asarray(values)
        return name

    def weight(self, *shape: int, least: float = 0.0) -> str:
        values = np.random.default_rng(len(self.arrays)).standard_normal(shape) / 2
        values = np.asarray(values, np.float32)
        return self.constant(np.abs(values) + np.float32(least) if least else values)

    def add(self, layer: str, sizes: list[int], outputs: int = 1) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"{', '.join([name, *(f'{name}_{i}' for i in range(1, outputs))])} = {layer}")
        if self.chance.random() < 0.3:
            self.lines.append(pair(name, f"{name}_q", pick(self.chance, "s", "s", "s2")).strip())
            name += "_q"
        self.live.append((name, sizes))
        return name

    def normalized(self, channels: int) -> None:
        """BatchNormalization of what was made last; at times something else reads that too."""
        name, sizes = self.live[-1]
        values = [self.weight(channels) for _ in range(3)] + [self.weight(channels, least=0.1)]
        self.add(f"BatchNormalization <epsilon = {pick(self.chance, 1e-5, 0.01)}> ({name}, {', '.join(values)})", sizes)

    def conv(self) -> None:
        chance, (name, (channels, high, wide)) = self.chance, self.live[-1]
        kernel, new = pick(chance, 1, 3), pick(chance, 4, 6)
        bias = f", {self.weight(new)}" if chance.random() < 0.5 else ""
        if chance.random() < 0.3 and channels % 2 == 0:
            weight = self.weight(channels, new // 2, 2, 2)
            self.add(f"ConvTranspose <group = 2, strides = [2, 2]> ({name}, {weight}{bias})", [new, 2 * high, 2 * wide])
        else:
            group = 2 if channels % 2 == 0 and chance.random() < 0.3 else 1
            weight = self.weight(new, channels // group, kernel, kernel)
            words = f"group = {group}, pads = {listed([kernel // 2] * 4)}"
            self.add(f"Conv <{words}> ({name}, {weight}{bias})", [new, high, wide])
        if chance.random() < 0.6:
            self.normalized(new)

    def padded(self) -> None:
        chance, (name, (channels, high, wide)) = self.chance, self.live[-1]
        begins, ends = ([int(v) for v in chance.integers(0, 3, 2)] for _ in range(2))
        kind = pick(chance, "Conv", "AveragePool", "MaxPool")
        value = pick(chance, 0.0, 0.0, -3.4028234663852886e38 if kind == "MaxPool" else 0.0, 1.0)
        if self.opset >= 18 and chance.random() < 0.5:
            words = [
                self.constant(np.array([*begins, *ends])),
                self.constant(np.float32(value)),
                self.constant([-2, 3]),
            ]
        else:
            words = [self.constant(np.array([0, 0, *begins, 0, 0, *ends])), self.constant(np.float32(value))]
        high, wide = high + begins[0] + ends[0], wide + begins[1] + ends[1]
        padded = self.add(f"Pad ({name}, {', '.join(words)})", [channels, high, wide])
        if kind == "Conv":
            self.add(f"Conv <pads = [1, 1, 1, 1]> ({padded}, {self.weight(4, channels, 3, 3)})", [4, high, wide])
        else:
            words = ["kernel_shape = [3, 3]", "pads = [1, 1, 1, 1]"]
            words += [f"count_include_pad = {pick(chance, 0, 1)}"] if kind == "AveragePool" else []
            pooled = self.add(f"{kind} <{', '.join(words)}> ({padded})", [channels, high, wide])
            if value < 0:  # the largest of nothing
                del self.live[-2:]
                self.add(f"Relu ({pooled})", [channels, high, wide])

    def nothing(self) -> None:
        """What changes nothing, or nearly."""
        chance, (name, sizes) = self.chance, self.live[-1]
        op, rank = pick(chance, *NOTHING), 1 + len(sizes)
        if op in ("Mul", "Div", "Add", "Sub"):
            value = float(op in ("Mul", "Div")) + pick(chance, 0.0, 0.0, 0.0, 0.5)
            shape = pick(chance, (), (1,), (1,) * rank, (sizes[-1],), (2, *sizes))
            inputs = [name, self.constant(np.full(shape, value, np.float32))]
            layer = f"{op} ({', '.join(inputs[:: -1 if op in ('Mul', 'Add') and chance.random() < 0.5 else 1])})"
        else:
            ones, everything = [1] * rank, [2**31 - 1] * rank
            orders = (
                [[*range(rank)], [*range(rank - 2), rank - 1, rank - 2]]
                if sizes[-1:] == sizes[-2:-1]
                else [[*range(rank)]]
            )
            layer = {
                "Identity": lambda: f"Identity ({name})",
                "Dropout": lambda: f"Dropout ({name})",
                "Cast": lambda: f"Cast <to = 1> ({name})",
                "Reshape": lambda: f"Reshape ({name}, {self.constant([0, *sizes[:-1], -1])})",
                "Transpose": lambda: f"Transpose <perm = {listed(pick(chance, *orders))}> ({name})",
                "Slice": lambda: f"Slice ({name}, {self.constant([0] * rank)}, {self.constant(everything)})",
                "Expand": lambda: f"Expand ({name}, {self.constant(pick(chance, ones, ones[1:], [2, *sizes]))})",
                "Pad": lambda: f"Pad ({name}, {self.constant([0] * 2 * rank)})",
                "Tile": lambda: f"Tile ({name}, {self.constant(ones)})",
                "Concat": lambda: f"Concat <axis = 1> ({name})",
                "Sum": lambda: f"Sum ({name})",
                "Flatten": lambda: f"Flatten ({name})" if rank == 2 else f"Identity ({name})",
                "Split": lambda: f"Split <axis = 1> ({name}, {self.constant(sizes[:1])})",
            }[op]()  # fmt: skip
        self.add(layer, sizes)

    def activation(self) -> None:
        chance, (name, sizes) = self.chance, self.live[-1]
        low, high = (
            self.constant(np.float32(pick(chance, 0.0, -0.5))),
            self.constant(np.float32(pick(chance, 0.75, 6.0))),
        )
        layers = ["Clip ({0}, {1})", "Clip ({0}, , {2})", "Clip ({0}, {1}, {2})", "Celu ({0})", "Relu ({0})"]
        layers += ["Celu <alpha = 0.5> ({0})", "LeakyRelu ({0})", "Sigmoid ({0})", "LogSoftmax <axis = 1> ({0})"]
        layers += ["HardSwish ({0})"] if self.opset >= 14 else []
        layers += ["Mish ({0})"] if self.opset >= 18 else []
        self.add(pick(chance, *layers).format(name, low, high), sizes)

    def combined(self) -> None:
        chance, (name, sizes) = self.chance, self.live[-1]
        others = [other for other, shape in self.live if shape == sizes]
        if chance.random() < 0.5:
            names = [name, *(pick(chance, *others) for _ in range(int(chance.integers(0, 3))))]
            self.add(f"{pick(chance, 'Sum', 'Max', 'Min', 'Mean')} ({', '.join(names)})", sizes)
        else:
            inputs = [name, self.weight(*pick(chance, (), (sizes[-1],), (1, *([1] * (len(sizes) - 1))), tuple(sizes)))]
            order = -1 if chance.random() < 0.3 else 1
            self.add(f"{pick(chance, 'Add', 'Mul', 'Sub')} ({', '.join(inputs[::order])})", sizes)

    def spatial(self) -> None:
        chance, (name, (channels, high, wide)) = self.chance, self.live[-1]
        kind = int(chance.integers(4))
        if kind == 0 and channels % 4 == 0:
            mode = pick(chance, "DCR", "CRD")
            self.add(f'DepthToSpace <blocksize = 2, mode = "{mode}"> ({name})', [channels // 4, 2 * high, 2 * wide])
        elif kind == 1 and high % 2 == wide % 2 == 0:
            self.add(f"SpaceToDepth <blocksize = 2> ({name})", [4 * channels, high // 2, wide // 2])
        elif kind == 2:
            axes = pick(chance, [2], [-1, 2])
            sizes = [channels, 1, 1 if -1 in axes else wide]
            given = f", {self.constant(axes)}" if self.opset >= 18 else ""
            words = "" if given else f"<axes = {listed(axes)}> "
            self.add(f"{pick(chance, 'ReduceMean', 'ReduceMax')} {words}({name}{given})", sizes)
        elif channels > 1:
            if self.opset >= 18 and chance.random() < 0.5:
                each = -(-channels // 2)
                self.add(f"Split <axis = 1, num_outputs = 2> ({name})", [each, high, wide], 2)
            else:
                self.add(f"Split <axis = -3> ({name}, {self.constant([1, channels - 1])})", [1, high, wide], 2)

    def dense(self) -> None:
        chance, (name, (width,)) = self.chance, self.live[-1]
        new = int(chance.integers(3, 6))
        if chance.random() < 0.6:
            turned, bias = pick(chance, 0, 1), pick(chance, None, (new,), (1, new), (1,), ())
            words = f"transB = {turned}, alpha = {pick(chance, 1.0, 0.5)}, beta = {pick(chance, 1.0, -0.25)}"
            weight = self.weight(*((new, width) if turned else (width, new)))
            self.add(f"Gemm <{words}> ({name}, {weight}{f', {self.weight(*bias)}' if bias is not None else ''})", [new])
        else:
            self.add(f"MatMul ({name}, {self.weight(width, new)})", [new])
        if chance.random() < 0.5:
            self.normalized(new)

    def clamped(self) -> None:
        """A quantizer that clamps its codes (rule Q9)."""
        name, sizes = self.live[-1]
        low, high = (
            self.constant(np.int8(pick(self.chance, 0, 0, -127))),
            self.constant(np.int8(pick(self.chance, 127, 100))),
        )
        new = f"t{len(self.lines)}"
        self.lines.append(pair(name, new, extra=f"{new}_c = Clip ({new}_q, {low}, {high})"))
        self.live.append((new, sizes))


def network(seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    chance = np.random.default_rng([29, seed])
    text = Text(chance)
    steps = [
        text.conv, text.padded, text.nothing, text.nothing, text.activation, text.combined, text.spatial, text.clamped,
    ]  # fmt: skip
    for _ in range(int(chance.integers(2, 6))):
        pick(chance, *steps)()
    if chance.random() < 0.6:
        name, sizes = text.live[-1]
        flat = int(np.prod(sizes))
        text.add(pick(chance, f"Flatten ({name})", f"Reshape ({name}, {text.constant([0, flat])})"), [flat])
        for _ in range(int(chance.integers(1, 4))):
            pick(chance, text.dense, text.dense, text.nothing, text.activation)()
    ends = {text.live[-1][0]: text.live[-1][1], **dict([pick(chance, *text.live)] if chance.random() < 0.3 else [])}
    lines, outputs = text.lines, []
    for number, (name, sizes) in enumerate(ends.items()):
        end = f"y{number}"
        lines.append(pair(name, end).strip() if chance.random() < 0.3 else f"{end} = Abs ({name})")
        outputs.append(f"float[{', '.join(map(str, [2, *sizes]))}] {end}")
    body = "\n".join(lines)
    used = {name: values for name, values in text.arrays.items() if name in re.split(r"[ (),\n]+", body)}
    options = {
        "platform": pick(chance, "tensorrt-8.4.3", "jetpack-5.1.2", "jetpack-6.0", "jetpack-6.2"),
        "infer_bounds": bool(chance.random() < 0.5),
        "infer_mul_scales": bool(chance.random() < 0.5),
        "infer_add_scales": bool(chance.random() < 0.5),
    }
    return model(f"g (float[2, 4, 6, 6] x) => ({', '.join(outputs)}) {{\n{body}\n}}", text.opset, **used), options


def described(made: Translation) -> str:
    layers = []
    for node in made.graph.nodes:
        attributes = "".join(f" {key}={shown(node.get(key))}" for key in sorted(node.attributes) if key != "mode")
        layers.append(f"{node.op_type}{attributes} {','.join(node.inputs)} -> {','.join(node.outputs)}")
    rows = ((name, made.scales[name]) for name in made.tensor_scales)
    scales = " ".join(
        f"{name}={row.value:.4g}({row.origin.rule} {row.origin.node} {row.origin.source})" for name, row in rows
    )
    told = " ".join(f"{item.rule}({item.tensor or item.node})" for item in made.diagnostics)
    return f"{'; '.join(layers)} | {scales} | {' '.join(made.fp16_nodes)} | {told}"


def outcome(seed: int) -> str:
    explicit, options = network(seed)
    # values that the scales can hold: rule F12 removes a Clip that cuts no others
    feed = {name: values / 4 for name, values in random_inputs(explicit, 3).items()}
    return described(same_function(explicit, feed, **options))


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_same_function_and_the_same_layers(seed: int) -> None:
    assert outcome(seed) == RECORD.read_text(encoding="utf-8").splitlines()[seed]


def write_record() -> None:
    RECORD.write_text("".join(f"{outcome(seed)}\n" for seed in range(COUNT)), encoding="utf-8")
