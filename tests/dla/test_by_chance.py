"""Small networks by chance, around one rewrite each: the same function (`check.same`), and the layers, their attributes and
scales as they were before (`tests/data/by_chance.txt`).

    python -m tests.records --write        writes that file anew; read what has changed
"""

from __future__ import annotations

import functools
import zlib
from typing import Any, Callable
from unittest import mock

import numpy as np
import onnx
import pytest

from qdq_translator.translation.passes import pipeline
from qdq_translator.translation.planning import regions
from tests.conftest import DATA, PLAIN_PIPELINE
from tests.dla.check import BATCHES, INFER, SCALE, Pair, graph, ints, pair, same, weights

Chance = np.random.Generator
RECORD = DATA / "by_chance.txt"
END = pair("m", "p") + "y = Relu (p)"


def pick(chance: Chance, *choices: Any) -> Any:
    return choices[int(chance.integers(len(choices)))]


def some(chance: Chance, count: int, below: int) -> list[int]:
    return [int(value) for value in chance.integers(0, below, count)]


def listed(values: Any) -> str:
    return f"[{', '.join(str(int(value)) for value in values)}]"


def padding(chance: Chance, batch: str) -> onnx.ModelProto:
    """Convs with padding of every kind."""
    kernel = [int(k) for k in chance.integers(1, 5, 2)]
    dilations = [pick(chance, 1, 1, 2, 3) for _ in range(2)]
    strides = [pick(chance, 1, 1, 2, 3) for _ in range(2)]
    group, size = pick(chance, 1, 1, 2, 4), [int(s) for s in chance.integers(13, 17, 2)]
    pads = f"pads = {listed(some(chance, 4, pick(chance, 3, 7)))}"
    if chance.random() < 0.15:
        pads, dilations = f'auto_pad = "SAME_{pick(chance, "UPPER", "LOWER")}"', [1, 1]
    attributes = f"{pads}, dilations = {listed(dilations)}, strides = {listed(strides)}, group = {group}"
    bias = chance.random() < 0.5
    body = pair("x", "q") + f"m = Conv <{attributes}> (q, w{', b' if bias else ''})\n" + END
    arrays = {"w": weights(1, 8, 4 // group, *kernel), **({"b": weights(2, 8)} if bias else {})}
    return graph(f"float[{{N}},4,{size[0]},{size[1]}] x", "float[b,c,h,w] y", body, batch, **arrays)


def resize(chance: Chance, batch: str) -> onnx.ModelProto:
    mode = pick(chance, "nearest", "nearest", "linear", "cubic")
    where = pick(chance, "asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
    rounding = pick(chance, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    size, factors = some(chance, 2, 4), [1 + value for value in some(chance, 2, pick(chance, 4, 9))]
    size = [1 + value for value in size]
    words = f'mode = "{mode}", coordinate_transformation_mode = "{where}", nearest_mode = "{rounding}"'
    count = 1 if batch == "N" else int(batch)
    if chance.random() < 0.4 or batch == "N":
        given, more = "scales", {"scales": np.float32([1, 1, *factors])}
    else:
        given, more = ", sizes", {"sizes": ints(count, 2, size[0] * factors[0], size[1] * factors[1])}
    body = pair("x", "q") + f"m = Resize <{words}> (q, , {given})\n" + END
    return graph(f"float[{{N}},2,{size[0]},{size[1]}] x", "float[b,c,h,w] y", body, batch, **more)


def pads(chance: Chance, batch: str) -> onnx.ModelProto:
    sizes = [0, *some(chance, 3, 3), 0, *some(chance, 3, 4)]
    for axis in range(1, 4):
        if chance.random() < 0.4:
            sizes[axis] = sizes[axis + 4] = 0
    body = pair("x", "q") + "m = Pad (q, sizes)\n" + END
    return graph("float[{N},3,4,5] x", "float[b,c,h,w] y", body, batch, sizes=ints(*sizes))


def max_pool(chance: Chance, batch: str) -> onnx.ModelProto:
    """One or more of one tensor."""
    lines, names = [], []
    for number in range(pick(chance, 1, 1, 2, 3)):
        kernel = [int(k) for k in chance.integers(1, 20, 2)]
        strides = pick(chance, [1, 1], [1, 1], kernel, [2, 3])
        begins, ends = ([int(chance.integers(0, k)) for k in kernel] for _ in range(2))
        if chance.random() < 0.4:
            begins, ends = ends, [0, 0]
        more = f"pads = {listed(begins + ends)}, ceil_mode = {pick(chance, 0, 0, 0, 1)}"
        if strides == [1, 1] and chance.random() < 0.6:
            kernel = [k | 1 for k in kernel]
            more = f"pads = {listed([k // 2 for k in kernel] * 2)}"
        lines.append(f"m{number} = MaxPool <kernel_shape = {listed(kernel)}, strides = {listed(strides)}, {more}> (q)")
        lines.append(f"y{number} = Relu (m{number})")
        names.append(f"float[b{number},c{number},h{number},w{number}] y{number}")
    if chance.random() < 0.15:
        lines[0] = "m0 = GlobalMaxPool (q)"
    size = pick(chance, "20,24", "36,28", "33,40")
    return graph(f"float[{{N}},2,{size}] x", ", ".join(names), pair("x", "q") + "\n".join(lines), batch)


def means(chance: Chance, batch: str) -> onnx.ModelProto:
    high, wide = (pick(chance, 1, 5, 8, 12, 13, 22, 35, 36, 40, 64) for _ in range(2))
    op = pick(chance, "GlobalAveragePool", "ReduceMean", "ReduceMean", "ReduceSum", "AveragePool", "AveragePool")
    out, more = "float[b,c,h,w] y", {}  # type: str, dict[str, np.ndarray]
    if op == "AveragePool":
        kernel = [pick(chance, size, max(1, size // 2), min(size, 9), min(size, 3)) for size in (high, wide)]
        strides = pick(chance, kernel, [1, 1], [2, 2])
        words = f"kernel_shape = {listed(kernel)}, strides = {listed(strides)}"
        words += f", count_include_pad = {pick(chance, 0, 1)}, ceil_mode = {pick(chance, 0, 0, 0, 1)}"
        if chance.random() < 0.4:
            words += f", pads = {listed([int(chance.integers(0, k)) for k in kernel * 2])}"
        line = f"m = AveragePool <{words}> (q)\n"
    elif op == "GlobalAveragePool":
        line = "m = GlobalAveragePool (q)\n"
    else:
        axes, keep = pick(chance, [2, 3], [-1, -2], [2], [3], [1], [1, 2]), pick(chance, 0, 1)
        out = f"float[{','.join('bcdw'[: 4 if keep else 4 - len(axes)])}] y"
        if op == "ReduceSum":
            line, more = f"m = ReduceSum <keepdims = {keep}> (q, axes)\n", {"axes": ints(*axes)}
        else:
            line = f"m = ReduceMean <axes = {listed(axes)}, keepdims = {keep}> (q)\n"
    end = pair("m", "p") if chance.random() < 0.6 else "p = Identity (m)\n"
    return graph(f"float[{{N}},4,{high},{wide}] x", out, pair("x", "q") + line + end + "y = Relu (p)", batch, **more)


class Text:
    """A network that grows layer by layer. live: tensors and their sizes behind the batch."""

    def __init__(self, chance: Chance, begin: str, sizes: list[int]) -> None:
        self.chance, self.lines, self.arrays = chance, [], {}  # type: Chance, list[str], dict[str, np.ndarray]
        self.live: list[tuple[str, list[int]]] = [(begin, sizes)]

    def constant(self, values: np.ndarray) -> str:
        name = f"k{len(self.arrays)}"
        self.arrays[name] = values
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(weights(len(self.arrays), *shape) * np.float32(0.7))

    def add(self, layer: str, sizes: list[int], count: int = 1) -> str:
        names = [f"t{len(self.lines)}{'abc'[part] if count > 1 else ''}" for part in range(count)]
        self.lines.append(f"{', '.join(names)} = {layer}")
        if self.chance.random() < 0.4:
            self.lines.append(pair(names[0], f"{names[0]}_q").strip())
            names[0] += "_q"
        self.live.append((names[0], sizes))
        return names[0]

    def partner(self, sizes: list[int]) -> str:
        return str(pick(self.chance, *[name for name, other in self.live if other == sizes]))

    def grow(self) -> None:
        """One more layer over the last axis, of what was made last."""
        chance, (name, sizes) = self.chance, self.live[-1]
        width = sizes[-1]
        kind = int(chance.integers(12))
        if kind < 3:
            new = int(chance.integers(3, 9))
            if len(sizes) == 1 and kind < 2:
                turned, bias = pick(chance, 0, 1), pick(chance, None, (new,), (1, new), (1,))
                words = f"transB = {turned}, alpha = {pick(chance, 1.0, 0.5)}, beta = {pick(chance, 1.0, 0.25)}"
                weight = self.weight(*((new, width) if turned else (width, new)))
                more = f", {self.weight(*bias)}" if bias else ""
                self.add(f"Gemm <{words}> ({name}, {weight}{more})", [new])
            else:
                self.add(f"MatMul ({name}, {self.weight(width, new)})", [*sizes[:-1], new])
        elif kind < 5:
            shape = pick(chance, (width,), (1, width), (1,), (), (1, *sizes))
            inputs = [name, self.weight(*shape)]
            self.add(f"{pick(chance, 'Add', 'Mul', 'Sub')} ({', '.join(inputs[:: pick(chance, 1, -1)])})", sizes)
        elif kind == 5:
            self.add(f"{pick(chance, 'Add', 'Mul')} ({name}, {self.partner(sizes)})", sizes)
        elif kind == 6:
            self.add(f"Concat <axis = {pick(chance, -1, len(sizes))}> ({name}, {self.partner(sizes)})",
                     [*sizes[:-1], 2 * width])  # fmt: skip
        elif kind == 7:
            self.add(f"Softmax <axis = {pick(chance, -1, len(sizes))}> ({name})", sizes)
        elif kind == 8 and width > 2:
            parts = self.constant(ints(2, width - 2))
            self.add(f"Split <axis = {pick(chance, -1, len(sizes))}> ({name}, {parts})", [*sizes[:-1], 2], 2)
        elif kind == 9:
            words = (self.constant(ints(value)) for value in (0, max(1, width - 1), pick(chance, -1, len(sizes))))
            self.add(f"Slice ({name}, {', '.join(words)})", [*sizes[:-1], max(1, width - 1)])
        elif kind == 10 and len(sizes) > 1:
            self.add(f"LayerNormalization <axis = -1> ({name}, {self.weight(width)})", sizes)
        else:
            self.add(f"{pick(chance, 'Relu', 'Sigmoid', 'Erf', 'LeakyRelu', 'Clip')} ({name})", sizes)

    def model(self, batch: str, given: str, begin: str) -> onnx.ModelProto:
        """Its outputs are the last layer and, at times, another."""
        ends = {self.live[-1][0]: self.live[-1][1]}
        if self.chance.random() < 0.4:
            name, sizes = pick(self.chance, *self.live)
            ends[name] = sizes
        lines, outputs = [begin.strip(), *self.lines], []
        for number, (name, sizes) in enumerate(ends.items()):
            lines.append(f"y{number} = Relu ({name})")
            outputs.append(f"float[{', '.join(f'd{number}{axis}' for axis in range(1 + len(sizes)))}] y{number}")
        return graph(f"float[{{N}},{given}] x", ", ".join(outputs), "\n".join(lines), batch, **self.arrays)


def flat(chance: Chance, batch: str) -> onnx.ModelProto:
    """Layers of [N, C], behind an image or not."""
    kind = pick(chance, "", "Flatten", "Reshape", "Squeeze")
    text = Text(chance, "x0", [12])
    begin = pair("x", "x1")
    if kind == "Squeeze":
        begin += f"x2 = GlobalAveragePool (x1)\nx0 = Squeeze (x2, {text.constant(ints(2, 3))})\n"
    elif kind == "Reshape":
        begin += f"x0 = Reshape (x1, {text.constant(ints(0, -1))})\n"
    else:
        begin += f"x0 = {kind or 'Identity'} (x1)\n"
    for _ in range(int(chance.integers(3, 8))):
        text.grow()
    return text.model(batch, {"": "12", "Squeeze": "12,3,2"}.get(kind, "3,2,2"), begin)


def rows(chance: Chance, batch: str) -> onnx.ModelProto:
    """Layers of [N, T, C] and [N, H, W, C]."""
    sizes = pick(chance, [5, 6], [4, 3, 6])
    text, begin = Text(chance, "x0", sizes), pair("x", "x1")
    image = len(sizes) == 3 and chance.random() < 0.6
    begin += "x0 = Transpose <perm = [0, 2, 3, 1]> (x1)\n" if image else "x0 = Identity (x1)\n"
    for _ in range(int(chance.integers(3, 8))):
        text.grow()
    if image:
        name, last = text.live[-1]
        text.add(f"Transpose <perm = [0, 3, 1, 2]> ({name})", [last[2], *last[:2]])
    return text.model(batch, "6,4,3" if image else ",".join(map(str, sizes)), begin)


def parts(chance: Chance, batch: str) -> onnx.ModelProto:
    """A Conv, layers value by value, and parts of its channels."""
    body, arrays = pair("x", "q"), {"w": weights(1, 9, 4, 3, 3), "b": weights(2, 9)}
    body += f"c = Conv <pads = [1, 1, 1, 1]> (q, w{pick(chance, ', b', '')})\n"
    current = "c"
    for number in range(int(chance.integers(0, 4))):
        shape = pick(chance, (9, 1, 1), (1, 9, 1, 1), (1,), (1, 1, 1), (1, 1, 1, 1))
        layer = pick(
            chance, "Relu ({0})", "Sigmoid ({0})", "Add ({0}, {1})", "Mul ({1}, {0})", "Add ({0}, c)", "Clip ({0})"
        )
        if "{1}" in layer:
            arrays[f"k{number}"] = weights(number, *shape)
        body += f"t{number} = {layer.format(current, f'k{number}')}\n"
        current = f"t{number}"
        if chance.random() < 0.3:
            body += pair(current, f"{current}_q")
            current += "_q"
    cuts = sorted({0, 9, *(int(at) for at in chance.integers(1, 9, 2))})
    sizes = [b - a for a, b in zip(cuts, cuts[1:])]
    names = [f"r{number}" for number in range(len(sizes))]
    if chance.random() < 0.5:
        body += f"{', '.join(names)} = Split <axis = {pick(chance, 1, -3)}> ({current}, sizes)\n"
        arrays["sizes"] = ints(*sizes)
    else:
        arrays["one"] = ints(pick(chance, 1, -3))
        for number, name in enumerate(names):
            arrays[f"a{number}"], arrays[f"e{number}"] = ints(cuts[number]), ints(cuts[number + 1])
            body += f"{name} = Slice ({current}, a{number}, e{number}, one)\n"
    outputs = []
    for number, name in enumerate(names):
        if chance.random() < 0.3:
            body += pair(name, f"{name}_q")
            name += "_q"
        body += f"y{number} = Relu ({name})\n"
        outputs.append(f"float[b{number},c{number},h{number},w{number}] y{number}")
    used = {name: value for name, value in arrays.items() if name != "b" or ", b)" in body}
    return graph("float[{N},4,5,6] x", ", ".join(outputs), body, batch, **used)


MAKERS: list[Callable[[Chance, str], onnx.ModelProto]] = [*(padding, resize, pads, max_pool, means, flat, rows, parts)]
COUNTS = {"padding": 40, "resize": 50, "pads": 15, "max_pool": 40, "means": 50, "flat": 60, "rows": 60, "parts": 40}


def made(kind: str, seed: int) -> tuple[onnx.ModelProto, str]:
    maker = next(m for m in MAKERS if m.__name__ == kind)
    batch = BATCHES[seed % 3]
    return maker(np.random.default_rng([zlib.crc32(kind.encode()), seed]), batch), batch


@functools.lru_cache(maxsize=1)
def outcome(kind: str, seed: int) -> Pair:
    model, batch = made(kind, seed)
    return same(
        model, batch, bits=kind not in ("flat", "rows", "resize", "means"), relative=2e-5, **(INFER if seed % 2 else {})
    )


def shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def described(found: Pair) -> str:
    layers = []
    for node in found.rewritten.graph.nodes:
        attributes = "".join(f" {key}={shown(node.get(key))}" for key in sorted(node.attributes))
        layers.append(f"{node.op_type}{attributes} {','.join(node.inputs)} -> {','.join(node.outputs)}")
    scales = " ".join(f"{name}={scale / SCALE:.6g}" for name, scale in found.rewritten.tensor_scales.items())
    rules = " ".join(sorted(set(found.rules)))
    why = found.rewritten.rewrites.reasons
    stay = " ".join(f"{node}{'' if why[node] else ' for no reason'}" for node in why)
    return f"{rules} | {'; '.join(layers)} | {scales} | GPU: {' '.join(found.gpu()[1])} | {stay}"


def recorded() -> dict[tuple[str, int], str]:
    lines = (line.split("\t") for line in RECORD.read_text(encoding="utf-8").splitlines())
    return {(kind, int(seed)): text for kind, seed, text in lines}


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, count in COUNTS.items() for seed in range(count)])
def test_the_same_function_and_the_same_layers(kind: str, seed: int) -> None:
    assert described(outcome(kind, seed)) == recorded()[kind, seed]


def write_record() -> None:
    alone = mock.patch.object(regions, "placed", lambda *given: None)
    with mock.patch.object(pipeline, "PIPELINE", PLAIN_PIPELINE), alone:  # as conftest.py has it
        found = [
            f"{kind}\t{seed}\t{described(outcome(kind, seed))}\n"
            for kind, count in COUNTS.items()
            for seed in range(count)
        ]
    RECORD.write_text("".join(found), encoding="utf-8")
