"""Layers by chance, near every limit of the DLA and with sizes that are not known: the verdicts that they had before
(`tests/data/verdicts.txt`).

    python -m tests.records --write        writes that file anew; read what has changed
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.conftest import DATA
from tests.dla.test_by_chance import Chance, listed, pick
from tests.test_dla import plan_of

RECORD = DATA / "verdicts.txt"
COUNT = 400
UNARY = "Relu LeakyRelu Sigmoid Tanh Abs Elu Erf Exp Softplus Cos Atanh Floor HardSwish Identity Dropout Neg GlobalAveragePool"


def near(chance: Chance, *limits: int) -> int:
    """1 or 2 as a rule; at times one of the limits or one beyond."""
    if chance.random() < 0.7:
        return pick(chance, 1, 1, 2)
    return max(0, pick(chance, *limits) + pick(chance, -1, 0, 0, 1))


def window(chance: Chance, kernels: tuple[int, ...], strides: tuple[int, ...], axes: int) -> str:
    kernel = [max(1, near(chance, *kernels)) for _ in range(axes)]
    words = [f"kernel_shape = {listed(kernel)}"]
    if chance.random() < 0.5:
        words.append(f"strides = {listed(max(1, near(chance, *strides)) for _ in range(axes))}")
    if chance.random() < 0.3:
        words.append(f"dilations = {listed(max(1, near(chance, 32)) for _ in range(axes))}")
    kind = chance.random()
    if kind < 0.4:
        begins = [int(chance.integers(0, k + 1)) for k in kernel]
        words.append(f"pads = {listed(begins * 2 if chance.random() < 0.6 else begins + [0] * axes)}")
    elif kind < 0.6:
        words.append(f'auto_pad = "{pick(chance, "SAME_UPPER", "SAME_LOWER", "VALID")}"')
    return ", ".join(words)


def layer(chance: Chance) -> tuple[str, dict[str, Any]]:
    """A node that makes `o` of `x`, and perhaps `v`."""
    kind = int(chance.integers(14))
    axes = pick(chance, 2, 2, 2, 2, 2, 1, 3)
    if kind < 4:
        op = pick(chance, "Conv", "Conv", "ConvTranspose")
        words = window(chance, (32, 64) if op == "ConvTranspose" else (32,), (8, 32), axes)
        kernel = [int(k) for k in words.partition("[")[2].partition("]")[0].split(",")]
        group = pick(chance, 1, 1, 1, 2, 4)
        shape = (8, 4 // group, *kernel) if op == "Conv" else (4, 8 // group, *kernel)
        if op == "ConvTranspose" and chance.random() < 0.2:
            words += f", output_padding = {listed([1] * axes)}"
        if chance.random() < 0.1:
            return f"k = Relu (v)\no = {op} <group = {group}> (x, k)", {"rank": axes + 2}
        return f"o = {op} <{words}, group = {group}> (x, w)", {"w": np.ones(shape, np.float32), "rank": axes + 2}
    if kind < 6:
        op = pick(chance, "MaxPool", "AveragePool")
        words = window(chance, (8,), (16,), axes).replace(
            "dilations", "strides" if op == "AveragePool" else "dilations"
        )
        words = words if words.count("strides") < 2 else words.partition(", strides")[0]
        words += f", count_include_pad = {pick(chance, 0, 1)}" if op == "AveragePool" else ""
        return f"o{', i' if op == 'MaxPool' and chance.random() < 0.2 else ''} = {op} <{words}> (x)", {"rank": axes + 2}
    if kind == 6:
        low, high = pick(chance, 0.0, 0.0, -1.0), pick(chance, 0.5, 1.0, 6.0, 127.0, 128.0)
        return "o = Clip (x, low, high)", {"low": np.float32(low), "high": np.float32(high)}
    if kind == 7:
        axis = pick(chance, 0, 1, 1, 1, 2, -1, -3)
        return f"o = Concat <axis = {axis}> ({pick(chance, 'x', 'x, x', 'x, v')})", {}
    if kind == 8:
        mode, where = (
            pick(chance, "nearest", "linear", "cubic"),
            pick(chance, "asymmetric", "half_pixel", "align_corners"),
        )
        words = f'mode = "{mode}", coordinate_transformation_mode = "{where}", '
        words += f'nearest_mode = "{pick(chance, "floor", "round_prefer_floor", "round_prefer_ceil", "ceil")}"'
        factors = [pick(chance, 1, 1, 1, 2), 1, pick(chance, 1, 2, 4, 5, 32, 33, 1.5), pick(chance, 1, 2, 0.5, 4)]
        return f"o = Resize <{words}> (x, , factors)", {"factors": np.float32(factors), "rank": 4}
    if kind == 9:
        given = {"b": np.array([0]), "e": np.array([1]), "a": np.array([pick(chance, 0, 1, -1, -4)])}
        if chance.random() < 0.3:
            return "c = Cast <to = 7> (v)\no = Slice (x, b, c, a)", {key: given[key] for key in "ba"}
        return f"o = Slice (x, b, e{pick(chance, ', a', '')})", given
    if kind == 10:
        return f"o = Softmax <axis = {pick(chance, 1, 2, 3, -1)}> (x)", {"rank": 4}
    if kind == 11:
        if chance.random() < 0.5:
            return f"o = Transpose <perm = {listed([0, *(1 + chance.permutation(3))])}> (x)", {"rank": 4}
        return "o = Reshape (x, r)", {
            "r": np.array(pick(chance, [0, -1], [-1, 2], [0, 2, -1], [0, 1, 2, -1], [2, 1, 2, -1]))
        }
    if kind == 12:
        op = pick(chance, "Add", "Mul", "Div", "Min", "Greater", "MatMul", "PRelu", "Pow")
        cast = "\nz = Cast <to = 1> (o)" if op == "Greater" and chance.random() < 0.7 else ""
        return f"o = {op} (x, {pick(chance, 'v', 'k')}){cast}", {"k": np.ones(1, np.float32), "op": op}
    return f"o = {pick(chance, *UNARY.split())} (x)", {}


def described(seed: int) -> str:
    chance = np.random.default_rng([17, seed])
    body, more = layer(chance)
    rank = more.pop("rank", pick(chance, 2, 3, 4, 4, 4, 4, 5))
    op = more.pop("op", "")
    used = {name: values for name, values in more.items() if name in re.split(r"[ (),]+", body)}
    sizes = [
        near(chance, 4096),
        pick(chance, 4, 4, 4, 8192, 8193),
        *(pick(chance, 8, 33, 70, 1024, 1025, 8192, 8193) for _ in range(rank - 2)),
    ]
    if any(name in body for name in ("w)", "factors", "Reshape", "k)")) or op:
        sizes[1:] = [4, *(pick(chance, 8, 70) for _ in range(rank - 2))]
    shape = ",".join("n" if chance.random() < 0.15 else str(max(1, size)) for size in sizes[:rank])
    unknown = chance.random() < 0.1
    text = f"g (float[{shape}] x0, float[{shape}] v, int64[r] s) => (float[a] y) {{\n"
    text += ("x = Reshape (x0, s)\n" if unknown else "x = Relu (x0)\n") + body + "\ny = Shrink (o)\n}"
    options = {
        "target": pick(chance, "orin-dla", "orin-dla", "xavier-dla"),
        "tensorrt": pick(chance, (8, 5, 2), (8, 6, 2), (8, 6, 12), (10, 3, 0)),
        "scales": pick(chance, {}, {"o": 0.2}, {"v": 0.3}),
        "missing": pick(chance, (), (), ("x",), ("o",)),
    }
    plan = plan_of(text, **options, **used)
    rows = []
    for row in plan.layers:
        if row.op in ("Shrink", "Cast") and row.name != "o":
            continue
        found = " ".join(f"{finding.limit}({finding.found})" for finding in row.findings)
        rows.append(
            f"{row.op} {row.verdict}{' wants' * row.wants_scale} [{found}] {' '.join(row.unknown)} #{row.subgraph}"
        )
    return f"{options['target']} {'.'.join(map(str, options['tensorrt']))} {shape}: " + "; ".join(rows[1:])


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_same_verdicts(seed: int) -> None:
    assert described(seed) == RECORD.read_text(encoding="utf-8").splitlines()[seed]


def write_record() -> None:
    RECORD.write_text("".join(f"{described(seed)}\n" for seed in range(COUNT)), encoding="utf-8")
