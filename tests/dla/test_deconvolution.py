"""Rule D21: ConvTranspose with padding, groups or dilation."""

from __future__ import annotations

import pytest

from tests.dla.check import BATCHES, SCALE, both, case, covers, graph, pair, same, weights

END = pair("m", "p") + "y = Relu (p)"


@covers(1, 2, 3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("attributes", "dims", "ops"),
    [
        ("kernel_shape = [4, 4], strides = [2, 2], pads = [1, 1, 1, 1]", (4, 3, 4, 4), ["ConvTranspose", "Slice"]),
        (
            "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]",
            (4, 3, 3, 3),
            ["ConvTranspose", "Slice"],
        ),
        ("kernel_shape = [2, 2], strides = [2, 2], output_padding = [1, 0]", (4, 3, 2, 2), ["ConvTranspose"]),
        ("kernel_shape = [3, 2], strides = [3, 2], pads = [0, 1, 2, 0]", (4, 3, 3, 2), ["ConvTranspose", "Slice"]),
        ("kernel_shape = [2, 2], strides = [2, 2], group = 4", (4, 1, 2, 2), ["ConvTranspose"]),
        ("kernel_shape = [2, 3], strides = [2, 2], group = 2", (4, 3, 2, 3), ["ConvTranspose"]),
        ("kernel_shape = [2, 3], strides = [2, 1], dilations = [3, 2]", (4, 3, 2, 3), ["ConvTranspose"]),
        (
            "kernel_shape = [3, 3], strides = [2, 2], pads = [2, 1, 1, 2], dilations = [2, 2], group = 2, "
            "output_padding = [1, 1]",
            (4, 2, 3, 3),
            ["ConvTranspose", "Slice"],
        ),
        ('kernel_shape = [2, 2], strides = [2, 2], group = 4, auto_pad = "VALID"', (4, 1, 2, 2), ["ConvTranspose"]),
    ],
)
def test_cases(attributes: str, dims: tuple[int, ...], ops: list[str], batch: str) -> None:
    body = pair("x", "q") + f"m = ConvTranspose <{attributes}> (q, w, b)\n" + END
    group = int(attributes.partition("group = ")[2][:1] or 1)
    arrays = {"w": weights(1, *dims), "b": weights(2, dims[1] * group)}
    found = same(graph("float[{N},4,5,6] x", "float[n,c,h,w] y", body, batch, **arrays), batch, bits=True)
    assert found.ops == [*ops, "Relu"] and found.gpu() == (["ConvTranspose"], [])
    if "Slice" in ops:
        row = found.rewritten.scales["m_uncut"]
        assert row.value == SCALE and row.origin.rule == "D21"


def test_codes_of_the_weights_stay() -> None:
    """A weight behind its quantizer: every code that it was trained with is TensorRT's."""
    body = pair("x", "q") + (
        "v = QuantizeLinear <axis = 1> (w, ws, wz)\nu = DequantizeLinear <axis = 1> (v, ws, wz)\n"
        "m = ConvTranspose <kernel_shape = [4, 4], strides = [2, 2], pads = [1, 1, 1, 1], dilations = [2, 2]> (q, u)\n"
    )
    values = weights(1, 4, 3, 4, 4)
    arrays = {"w": values, "ws": abs(values).max(axis=(0, 2, 3)) / 127, "wz": (0 * values[0, :, 0, 0]).astype("int8")}
    found = same(graph("float[1,4,5,6] x", "float[n,c,h,w] y", body + END, **arrays), bits=True)
    (check,) = found.rewritten.weights
    assert found.ops == ["ConvTranspose", "Slice", "Relu"] and check.codes == check.reproduced > values.size


@pytest.mark.parametrize(("attributes", "shape", "dims", "why"), [
    case("sizes that are not known", "pads = [1, 1, 1, 1]", "1,4,5,h", (4, 3, 3, 3), "sizes"),
    case("auto_pad and output_shape", 'strides = [2, 2], group = 2, auto_pad = "SAME_UPPER"', "1,4,5,6", (4, 3, 3, 3), "stated"),
    pytest.param("group = 2, strides = [2, 2], output_shape = [11, 13]", "1,4,5,6", (4, 3, 3, 3), "stated", id="output_shape"),
    case("parameters that do not fit them, or are negative", "pads = [-1, 0, 0, 0]", "1,4,5,6", (4, 3, 3, 3), "negative"),
    case("other than two spatial dimensions", "pads = [1, 1, 1, 1, 1, 1]", "1,4,5,5,5", (4, 3, 3, 3, 3), "two spatial"),
    case("a kernel that comes out above 32 (a square one above 22)", "dilations = [11, 11], pads = [1, 1, 1, 1]", "1,4,5,6", (4, 3, 3, 3), "23x23"),
    case("weights that are not constant", "pads = [1, 1, 1, 1]", "1,4,5,6", None, "not constant"),
])  # fmt: skip
def test_not(attributes: str, shape: str, dims: tuple[int, ...] | None, why: str) -> None:
    weight, more = ("w", "") if dims else ("k", ", float[4,3,3,3] k")
    body = pair("x", "q") + f"m = ConvTranspose <{attributes}> (q, {weight})\n" + END
    target = "float[n,c,h,w] y" if shape.count(",") == 3 else "float[n,c,d,h,w] y"
    arrays = {"w": weights(1, *dims)} if dims else {}
    found = both(graph(f"float[{shape}] x{more}", target, body, **arrays))
    assert "D21" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))
