"""Rule D17: Reshapes and Transposes in a row become what they come to."""

from __future__ import annotations

import itertools
import re
from unittest import mock

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.passes import pipeline
from qdq_translator.translation.planning import regions
from tests.conftest import DATA, PLAIN_PIPELINE
from tests.dla.check import BATCHES, SCALE, Pair, both, case, covers, graph, ints, pair, same, weights

TO = {
    "five": ints(0, 2, 4, 6, 4), "back": ints(0, 8, 6, 4), "six": ints(0, 2, 2, 2, 6, 4), "big": ints(0, 2, 12, 8),
    "blocks": ints(0, 8, 3, 2, 2, 2), "small": ints(0, 32, 3, 2), "three": ints(0, 8, 24), "rows": ints(-1, 6, 4),
    "one": ints(1),
}  # fmt: skip
SHUFFLE = "a = Reshape (q, five)\nb2 = Transpose <perm = [0, 2, 1, 3, 4]> (a)\nc = Reshape (b2, back)\n"


def chain(body: str, batch: str = "1", out: str = "float[b,c,h,w] y", **more: np.ndarray):  # type: ignore[no-untyped-def]
    words = set(re.findall(r"\w+", body))
    used = {name: values for name, values in {**TO, **more}.items() if name in words}
    return graph("float[{N},8,6,4] x", out, pair("x", "q") + body, batch, **used)


@pytest.mark.parametrize(("body", "why"), [
    case("other orders",
        "a = Reshape (q, six)\nb2 = Transpose <perm = [0, 3, 2, 1, 5, 4]> (a)\nc = Reshape (b2, back)\ny = Relu (c)",
        "no Conv"),
    case("between different scales of the model's own",
        "a = Reshape (q, five)\n" + pair("a", "p", "s2") + "c = Reshape (p, back)\ny = Relu (c)", "different scales"),
    case("case 1 to a graph output from a graph input or from a tensor that others read",
        "a = Reshape (q, three)\ny = Reshape (a, back)", "graph output"),
])  # fmt: skip
def test_not(body: str, why: str) -> None:
    found = same(chain(body, s2=np.float32(SCALE / 2), back=ints(1, 8, 6, 4)))
    assert "D17" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))


@covers("tensors in between that others read", "graph outputs in between")
@pytest.mark.parametrize("other", ["o = Relu (a)", ""])
def test_not_where_others_read_in_between(other: str) -> None:
    read = "o" if other else "a"
    found = both(chain(f"{SHUFFLE}y = Relu (c)\n{other}", out=f"float[b,c,h,w] y, float[b,g,c,h,w] {read}"))
    assert "Conv" not in found.ops and "Transpose" in found.ops


def blocks(op: str, size: int, channels: int = 2):  # type: ignore[no-untyped-def]
    """SpaceToDepth ("Conv") or PixelShuffle ("ConvTranspose") by blocks of `size`, from two rows or columns of blocks."""
    square = size * size
    if op == "Conv":
        shape, order = f"1,{channels},{2 * size},{size}", "0, 1, 3, 5, 2, 4"
        to, back = ints(0, channels, 2, size, 1, size), ints(0, square * channels, 2, 1)
    else:
        shape, order = f"1,{square * channels},1,2", "0, 1, 4, 2, 5, 3"
        to, back = ints(0, channels, size, size, 1, 2), ints(0, channels, size, 2 * size)
    body = pair("x", "q") + f"a = Reshape (q, to)\nb2 = Transpose <perm = [{order}]> (a)\nc = Reshape (b2, back)\n"
    return graph(f"float[{shape}] x", "float[b,c,h,w] y", body + "y = Relu (c)", to=to, back=back)


@covers("blocks or steps of more than 8 (22 in case 5)")
@pytest.mark.parametrize(("op", "most"), [("Conv", 8), ("ConvTranspose", 22)])
def test_not_with_larger_blocks(op: str, most: int) -> None:
    assert same(blocks(op, most), bits=True, relative=0).ops == [op, "Relu"]
    assert "D17" not in same(blocks(op, most + 1), bits=True, relative=0).rules


@covers("channels above 8192")
def test_not_with_more_channels() -> None:
    body = pair("x", "q") + SHUFFLE + "y = Relu (c)"
    more = {"five": ints(0, 2, 4097, 1, 2), "back": ints(0, 8194, 1, 2)}
    found = same(graph("float[1,8194,1,2] x", "float[b,c,h,w] y", body, **more))
    assert "D17" not in found.rules


@covers("sizes that are not known (the batch size may be)")
def test_not_with_unknown_sizes() -> None:
    body = pair("x", "q") + SHUFFLE + "y = Relu (c)"
    more = {"five": ints(0, 2, 4, -1, 4), "back": ints(0, 8, -1, 4)}
    found = both(graph("float[1,8,h,4] x", "float[b,c,h2,w] y", body, **more))
    assert "D17" not in found.rules and "not known" in found.reason(found.rewritten.graph.producer["c"].name)


@covers("cases 4 to 8 where the DLA supports every one of them")
def test_not_where_the_dla_takes_it() -> None:
    body = "a = Transpose <perm = [0, 2, 3, 1]> (q)\nc = Reshape (a, big)\ny = Relu (c)"
    assert "D17" not in both(chain(body)).rules


def test_what_no_runtime_would_run_is_left() -> None:
    """An axis before the first; sizes that a graph output claims and that nothing can have."""
    body = "u = Relu (q)\na, b2 = Split <axis = -9> (u)\nc = Transpose <perm = [0, 2, 3, 1]> (a)\n"
    body += "d = Transpose <perm = [0, 2, 3, 1]> (b2)\ny = Add (c, d)"
    split = graph("float[{N},8,6,4] x", "float[b,c,h,w] y", pair("x", "q") + body, "N")
    body = pair("x", "q") + "r = Transpose <perm = [0, 2, 3, 1]> (q)\nv = Reshape (r, to)\ny = Relu (v)"
    claimed = graph("float[1,8,6,4] x", "float[b,c,h,w] y", body, "1", to=ints(1, 4, 6, 8))
    claimed.graph.output.append(onnx.helper.make_tensor_value_info("v", 6, [-1, 0, 2**40, 7, 2**40]))
    for explicit, kept in ((split, "Split"), (claimed, "Reshape")):
        made = translate(explicit, TranslateOptions(target="orin-dla", dla_rewrites=True))
        assert kept in [node.op_type for node in made.graph.nodes]


def moved_by_chance(seed: int) -> tuple[str, dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Two to four moves of [3, 8, 6, 4], along every axis but the first: their text and constants, and what they make of the
    numbers 0, 1, 2, ..."""
    chance = np.random.default_rng(seed)
    start = np.arange(3 * 8 * 6 * 4).reshape(3, 8, 6, 4)
    values, lines, more, current = start, [], {}, "u"
    for number in range(int(chance.integers(2, 5))):
        kind = chance.choice(["Transpose", "Reshape", "Slice", "Gather"], p=[0.4, 0.4, 0.1, 0.1])
        name, given = f"m{number}", f"k{number}"
        axis = int(chance.integers(1, values.ndim))
        if kind == "Transpose":
            order = [0, *(1 + chance.permutation(values.ndim - 1))]
            lines.append(f"{name} = Transpose <perm = [{', '.join(map(str, order))}]> ({current})")
            values = values.transpose(order)
        elif kind == "Reshape":
            primes = [2] * 6 + [3] + [5, 7]
            left, sizes = values[0].size, [1] * int(chance.integers(2, 5))
            for prime in primes:
                if left % prime == 0:
                    left //= prime
                    sizes[int(chance.integers(len(sizes)))] *= prime
            more[given] = ints(0, *sizes[:-1], -1)
            lines.append(f"{name} = Reshape ({current}, {given})")
            values = values.reshape(3, *sizes[:-1], -1)
        elif kind == "Slice":
            begin, step = int(chance.integers(0, (values.shape[axis] + 1) // 2)), int(chance.integers(1, 3))
            more.update({f"{given}b": ints(begin), f"{given}e": ints(2**40), f"{given}a": ints(axis - values.ndim)})
            more[f"{given}s"] = ints(step)
            lines.append(f"{name} = Slice ({current}, {given}b, {given}e, {given}a, {given}s)")
            values = values[(slice(None),) * axis + (slice(begin, None, step),)]
        else:
            indices = chance.integers(-values.shape[axis], values.shape[axis], 2)
            more[given] = indices
            lines.append(f"{name} = Gather <axis = {axis}> ({current}, {given})")
            values = np.take(values, indices, axis)
        current = name
    return "\n".join([*lines, f"y = Relu ({current})"]), more, start, values


def came_to(seed: int) -> tuple[Pair, np.ndarray, np.ndarray]:
    body, more, start, moved = moved_by_chance(seed)
    batch = BATCHES[seed % 3]
    explicit = graph(
        "float[{N},8,6,4] x",
        f"float[{','.join('btuvwz'[: moved.ndim])}] y",
        pair("x", "q") + "u = Conv <kernel_shape = [1, 1]> (q, w)\n" + body,
        batch,
        w=weights(1, 8, 8, 1, 1),
        **more,
    )
    return same(explicit, batch, bits=True, relative=0), start, moved


def line_of(found: Pair) -> str:
    return " ".join([*found.ops, "| GPU:", *found.gpu()[1]])


COUNT = 150
MOVES = DATA / "moves.txt"
"""What D17 makes of each of them: `python -m tests.records --write` writes it anew."""


@pytest.mark.parametrize("seed", range(COUNT))
def test_chains_of_any_kind(seed: int) -> None:
    """The same bits; nothing, one Reshape or one Transpose wherever that is enough; and what it was before."""
    found, start, moved = came_to(seed)
    ops = [op for op in found.ops if op not in ("Conv", "ConvTranspose", "Relu")]
    allowed: list[list[str]] = []
    if start.shape == moved.shape and np.array_equal(start, moved):
        allowed = [[]]
    elif start.size == moved.size:
        orders = itertools.permutations(range(1, start.ndim)) if start.ndim == moved.ndim else ()
        if np.array_equal(start.reshape(-1), moved.reshape(-1)):
            allowed.append(["Reshape"])
        if any(np.array_equal(start.transpose(0, *order), moved) for order in orders):
            allowed.append(["Transpose"])
    assert not allowed or ops in allowed
    assert line_of(found) == MOVES.read_text(encoding="utf-8").splitlines()[seed]


def write_record() -> None:
    alone = mock.patch.object(regions, "placed", lambda *given: None)
    with mock.patch.object(pipeline, "PIPELINE", PLAIN_PIPELINE), alone:  # as conftest.py has it
        found = "".join(f"{line_of(came_to(seed)[0])}\n" for seed in range(COUNT))
    MOVES.write_text(found, encoding="utf-8")
