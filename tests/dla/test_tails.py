"""Rule D16: with --dla_output 4d, a graph output ends at its four-dimensional tensor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UsageError
from tests.dla.check import BATCHES, ORIN, SCALE, both, case, covers, feed_of, graph, ints, outputs, pair, weights

W = {"w": weights(1, 5, 12, 1, 1)}
ENDS = covers("if the tensor is another graph output, or a graph input")


def ends(body: str, out: str, batch: str = "1", **arrays: np.ndarray):  # type: ignore[no-untyped-def]
    return graph("float[{N},12,4,4] x", out, pair("x", "q") + body, batch, **W, **arrays)


def check(explicit, batch: str = "1", **options):  # type: ignore[no-untyped-def]
    """Translated with and without the option: the same values in the same order."""
    found = both(explicit, dla_rewrites=True, dla_output="4d", **options)
    plain = translate(explicit, TranslateOptions(**{**ORIN, **options}))
    assert list(plain.graph.outputs) == list(found.rewritten.graph.outputs)
    for seed in (1, 2):
        feed = feed_of(plain, batch, seed)
        sizes = {name: found.rewritten.types.shape(name) or () for name in feed}
        same = {name: values.reshape(len(values), *sizes[name][1:]) for name, values in feed.items()}
        for want, got in zip(outputs(plain, feed), outputs(found.rewritten, same)):
            assert want.shape[0] == got.shape[0]
            np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)
    return found


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("tail", "out"), [
    ("y = Flatten (c)", "float[b,k] y"),
    ("y = Reshape (c, to)", "float[b,c,d] y"),
    ("a = Squeeze (c, three)\nf = Flatten (a)\ny = Identity (f)", "float[b,k] y"),
])  # fmt: skip
def test_case_1(tail: str, out: str, batch: str) -> None:
    three = ints(3)
    body = "c = Conv <kernel_shape = [4, 4]> (q, w4)\n" + tail
    found = check(ends(body, out, batch, w4=weights(2, 5, 12, 4, 4), to=ints(0, -1, 5), three=three), batch)
    assert found.ops == ["Conv"] and found.gpu()[1] == []
    assert found.rewritten.types.shape("y")[1:] == (5, 1, 1)  # type: ignore[index]
    told = [d for d in found.rewritten.diagnostics if d.rule == "D16" and d.tensor == "y"]
    assert len(told) == 1
    declared = found.rewritten.model.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in declared][1:] == [5, 1, 1]


def of_three_dimensions(more: str = "", out: str = "float[{N},5,18] y", batch: str = "1"):  # type: ignore[no-untyped-def]
    body = pair("x", "q") + "c = Conv <kernel_shape = [3]> (q, w)\ny = Relu (c)" + more
    return graph("float[{N},12,20] x", out, body, batch, w=weights(1, 5, 12, 3))


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_2(batch: str) -> None:
    explicit = of_three_dimensions(batch=batch)
    found = check(explicit, batch)
    assert found.ops == ["Conv", "Relu"] and found.gpu()[1] == []
    assert found.rewritten.types.shape("x")[1:] == (12, 20, 1)  # type: ignore[index]
    assert found.rewritten.tensor_scales["x"] == SCALE
    assert [d.tensor for d in found.rewritten.diagnostics if d.rule == "D16" and d.tensor] == ["y", "x"]
    made = [(a.tensors, len(a.after)) for a in found.rewritten.rewrites.applied if a.rule == "D16"]
    assert made == [({"y_4d": ["y"]}, 1), ({"x_4d": ["x"]}, 0)]


def test_data_have_the_shape_of_the_model(tmp_path: Path) -> None:
    """The Q/DQ model has the input [1, 12, 20], its translation [1, 12, 20, 1]: the same data serve both."""
    explicit, given = of_three_dimensions(), tmp_path / "model.onnx"
    onnx.save(explicit, str(given))
    translate(given, TranslateOptions(**ORIN, dla_rewrites=True, dla_output="4d")).save(tmp_path)
    found = []
    for shape in ((3, 12, 20), (3, 12, 20, 1)):
        values = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        np.savez(tmp_path / "data.npz", x=values)
        result = tmp_path / "found.json"
        wanted = ["verify", "-t", str(tmp_path), "-i", str(given), "--inputs", str(tmp_path / "data.npz")]
        assert main([*wanted, "--save", str(result)]) == 0
        found.append(json.loads(result.read_text(encoding="utf-8"))["outputs"])
    assert found[0] == found[1]


@covers("if another layer reads the graph input or output")
def test_an_input_with_two_readers_stays() -> None:
    found = check(of_three_dimensions("\ng = Sin (x)", "float[{N},5,18] y, float[{N},12,20] g"))
    assert len(found.rewritten.types.shape("x")) == 3


@pytest.mark.parametrize(("body", "out", "why"), [
    case("if another layer reads the graph input or output", "c = Conv (q, w)\ny = Flatten (c)\no = Relu (y)",
        "float[b,k] y, float[b,k] o", "another layer or graph output"),
    pytest.param("c = Conv (q, w)\ny = Flatten (c)", "float[b,k] y, float[b,c,h,w] c", "end of the network",
        marks=ENDS),
    pytest.param("c = Conv (q, w)\nf = Flatten (c)\ny = Unsqueeze (f, three)", "float[b,k,d] y, float[b,k] f",
        "another", marks=ENDS),
    pytest.param("y = Flatten (x)", "float[b,k] y", "end of the network", marks=ENDS),
    case("between two different scales of the model",
        "c = Conv (q, w)\n" + pair("c", "p") + "f = Flatten (p)\n" + pair("f", "y", "s2"), "float[b,k] y",
        "two different scales"),
    case("if the graph input or output has four dimensions", "c = Conv (q, w)\ny = Reshape (c, four)",
        "float[b,k,h,w] y", ""),
    case("if the next tensor has another number of dimensions",
        "c = Conv (q, w)\nd = Reshape (c, flat)\ne = Relu (d)\ny = Unsqueeze (e, three)", "float[b,k,h] y", ""),
])  # fmt: skip
def test_not(body: str, out: str, why: str) -> None:
    more = {"three": ints(2), "s2": np.float32(SCALE / 2), "four": ints(0, 2, 4, -1), "flat": ints(0, -1)}
    found = check(ends(body, out, **{name: value for name, value in more.items() if name in body}))
    assert "D16" not in found.rules
    assert not why or why in found.reason(found.rewritten.graph.producer["y"].name)


@covers("without the option")
def test_not_without_the_option() -> None:
    body = "c = Conv (q, w)\ny = Flatten (c)"
    assert both(ends(body, "float[b,k] y")).ops == ["Conv", "Reshape"]
    with pytest.raises(UsageError, match="dla_output"):
        translate(ends(body, "float[b,k] y"), TranslateOptions(target="orin-dla", dla_output="4d"))


def test_the_shipped_example_is_one_loadable(tmp_path: Path) -> None:
    options = TranslateOptions(
        preset="dla", platform="jetpack-6.2", infer_average_pool_scales=True, dla_output="4d", unify_scales="max"
    )
    done = translate(EXAMPLE_MODEL, options)
    assert done.dla is not None and done.dla.fallbacks == [] and done.dla.subgraphs == 1
    done.save(tmp_path)
    common = ["-t", str(tmp_path), "-i", str(EXAMPLE_MODEL), "--samples", "2", "--min_cosine", "0.9"]
    assert main(["verify", *common]) == 0
    script = tmp_path / "loadable.sh"
    wanted = [
        "--dla_standalone", "--input_io_formats", "int8:dla_linear", "--output_io_formats", "fp16:chw16",
        "--opt_shapes", "input:1x1x16x16", "--script", str(script),
    ]  # fmt: skip
    assert main(["build", "--print", "-t", str(tmp_path), *wanted]) == 0
    assert "--allowGPUFallback" not in script.read_text()
