"""Rule D4: means over H and W become AveragePool of at most 8 x 8."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation.passes.dla.spatial_mean import factors, steps
from tests.dla.check import ORIN, SCALE, both, case, covers, decibels, engine, graph, ints, milliseconds, pair, same
from tests.explicit_reference import run

END = pair("m", "p") + "y = Relu (p)"
STRIDE = covers(
    "in case 5 windows above 32, or strides above 8, that are padded, overlap or have a prime factor above 8"
)


def window(kernel: int, stride: int) -> str:
    return f"kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}]"


@pytest.mark.parametrize("size", range(1, 600))
def test_factors(size: int) -> None:
    found = factors(size)
    smooth = size
    for prime in (2, 3, 5, 7):
        while smooth % prime == 0:
            smooth //= prime
    assert (found is None) == (smooth != 1)
    if found is not None:
        assert math.prod(found) == size and all(1 < f <= 8 for f in found)
        assert len(found) >= math.log(size, 8) - 1e-9


@pytest.mark.parametrize("size", [*range(1, 300), 1023, 4099, 8191, 8192])
def test_steps(size: int) -> None:
    """Every value is in exactly one window, and none in padding alone where there is other data to read."""
    known = steps(size)
    rest = np.ones(size)
    for number, (window, pad) in enumerate(known):
        assert window <= (32 if number == len(known) - 1 else 8) and (pad < window or not pad)
        padded = np.pad(rest, pad)
        rest = padded[: len(padded) // window * window].reshape(-1, window).sum(1)
    assert rest.tolist() == [size]


def apart(op: str, size: str, batch: str, opset: int = 17, shape: str = "b,c,h,w", **arrays: np.ndarray):  # type: ignore[no-untyped-def]
    """The mean has a range of its own, a sixteenth of that of what it averages."""
    body = pair("x", "q") + f"m = {op}\n" + pair("m", "p", "s2") + "y = Relu (p)"
    arrays = {"s2": np.float32(SCALE / 16), **arrays}
    return graph(f"float[{{N}},4,{size}] x", f"float[{shape}] y", body, batch, opset, **arrays)


@pytest.mark.parametrize("op", ["GlobalAveragePool (q)", "ReduceSum (q, axes)"])
def test_means_and_sums_lose_nothing_but_one_rounding(op: str) -> None:
    """SQNR in the simulated engine: above 40 dB, where AveragePool on one range gave 17 and a Scale behind it 18. It takes no
    longer than the pooling by 10 microseconds, and is as exact in FP16."""
    more = {"axes": ints(2, 3), "s2": np.float32(16 * 7 * 7 * SCALE / 16)} if "Sum" in op else {}
    found = same(apart(op, "7,7", "1", **more))
    x = np.random.default_rng(1).uniform(-0.5, 1, (1, 4, 7, 7)).astype(np.float32)
    body = pair("x", "q") + f"m = {op}\n" + pair("m", "p", "s2") + "y = Add (p, p)"
    assert found.ops == ["Conv", "Relu"]
    finer = {"s2": np.float32((49 if more else 1) / 4 / 127), **{k: v for k, v in more.items() if k == "axes"}}
    found = same(graph("float[1,4,7,7] x", "float[b,c,h,w] y", body, **finer))
    assert decibels(found.rewritten, {"x": x}) > 36
    assert decibels(found.rewritten, {"x": x}, fp16=True) > 60
    assert milliseconds(found)[1] < 0.03


def test_data_give_a_mean_a_scale_of_its_own(tmp_path: Path) -> None:
    """A float model: where scales come from data, every mean is a Conv."""
    model = graph("float[1,4,7,7] x", "float[b,c,h,w] y", "m = GlobalAveragePool (x)\ny = Relu (m)")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((16, 4, 7, 7)).astype(np.float32))
    options = TranslateOptions(calibrate=str(tmp_path / "x.npy"), dla_rewrites=True, infer_bounds=True, **ORIN)
    made = translate(model, options)
    assert [n.op_type for n in made.graph.nodes] == ["Conv", "Relu"]
    assert made.tensor_scales["m"] < made.tensor_scales["x"] / 3


@covers(6)
def test_case_6_a_pooling_between_two_scales() -> None:
    """Faster in INT8 than the pooling in FP16; bits equal to those of the pooling, which reads and makes codes too."""
    body = pair("x", "q") + "m = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (q)\n" + pair("m", "p", "s2")
    scales = {"s2": np.float32(SCALE / 2)}
    found = same(graph("float[1,64,56,56] x", "float[b,c,h,w] y", body + "y = Relu (p)", **scales))
    assert found.ops == ["Conv", "Relu"] and found.rules == ["D4"]
    before, after = milliseconds(found)
    assert after < 0.8 * before
    verdicts = [t.dla.layers[0].verdict for t in (found.plain, found.rewritten)]  # type: ignore[union-attr]
    assert verdicts == ["dla-fp16", "dla-int8"]
    x = np.random.default_rng(0).standard_normal((1, 64, 56, 56)).astype(np.float32)
    results = [run(engine(t).model, {"x": x}, ["y"])[0] for t in (found.plain, found.rewritten)]
    assert np.abs(results[0] - results[1]).max() <= SCALE / 2 * 1.001
    # 128 multiply-accumulates of the hardware for each of a depthwise Conv: a large window is faster in FP16
    wide = body.replace("[2, 2]", "[8, 8]").replace("strides = [8, 8]", "strides = [1, 1]") + "y = Relu (p)"
    assert not same(graph("float[1,64,56,56] x", "float[b,c,h,w] y", wide, **scales)).rules


@pytest.mark.parametrize(("op", "size", "why"), [
    pytest.param(f"AveragePool <{window(37, 37)}> (q)", "74,74", "windows or strides", marks=STRIDE),
    case("an unknown H or W", "GlobalAveragePool (q)", "h,w", "known"),
    case("reductions over other axes", "ReduceMean <axes = [1, 2]> (q)", "4,4", "H and W only"),
    case("padded windows whose padding does not count", f"AveragePool <{window(10, 10)}, pads = [1, 1, 1, 1]> (q)", "20,20", "padding does not count"),
    pytest.param(f"AveragePool <{window(16, 9)}> (q)", "25,20", "strides", marks=STRIDE),
    pytest.param(f"AveragePool <{window(33, 1)}> (q)", "34,34", "strides", marks=STRIDE),
    case("ceil_mode if windows do not divide H or W", f"AveragePool <{window(10, 8)}, ceil_mode = 1> (q)", "20,25", "rounds"),
])  # fmt: skip
def test_not(op: str, size: str, why: str) -> None:
    body = pair("x", "q") + f"m = {op}\n" + END
    explicit = graph(f"float[1,4,{size}] x", "float[b,c,h2,w2] y", body)
    found = both(explicit) if "h" in size else same(explicit)
    assert "D4" not in found.rules
    node = next(n.name for n in found.rewritten.graph.nodes if n.op_type in op)
    assert why in found.reason(node)


@pytest.mark.parametrize("attributes, size, out", [
    case("padded windows whose padding does not count", 'kernel_shape = [16, 16], auto_pad = "SAME_UPPER"', 16, 16),
    case("dilated windows", f"{window(10, 10)}, dilations = [2, 2]", 20, 1),
])  # fmt: skip
def test_not_where_windows_are_padded_by_auto_pad_or_dilated(attributes: str, size: int, out: int) -> None:
    body = pair("x", "q") + f"m = AveragePool <{attributes}> (q)\n" + pair("m", "p") + "y = Relu (p)"
    explicit = graph(f"float[1,2,{size},{size}] x", f"float[1,2,{out},{out}] y", body, opset=19)
    if "dilations" in attributes:
        with pytest.raises(UserError, match="dilations of a pooling"):
            both(explicit, platform="jetpack-6.2")
        return
    found = same(explicit, platform="jetpack-6.2")
    assert found.ops == ["AveragePool", "Relu"] and not found.rules


@covers("more than 8192 channels")
def test_not_of_more_channels_than_a_conv_has() -> None:
    body = pair("x", "q") + "m = GlobalAveragePool (q)\n" + END
    found = both(graph("float[1,8200,2,2] x", "float[b,c,h,w] y", body))
    assert not found.rules and "8192" in found.reason(found.rewritten.graph.producer["m"].name)
