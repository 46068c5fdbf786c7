"""`qdq-translator split`: parts that give the bits of the whole, with files of their own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import scale_to_hex
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
from qdq_translator.lab.parts import split_model, split_translation
from tests.dla.check import graph, ints, pair, weights
from tests.explicit_reference import random_inputs, run

ORIN = TranslateOptions(target="orin-dla", platform="jetpack-6.2", dla_rewrites=True, infer_mul_scales=True)


def detector() -> onnx.ModelProto:
    """Erf on the GPU, two convolutions on the DLA, a decode tail of three dimensions; weights behind their own Q/DQ."""
    body = (
        "e = Erf (x)\n" + pair("e", "eq") + "wq = QuantizeLinear (w1, s, z)\nwd = DequantizeLinear (wq, s, z)\n"
        "c1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (eq, wd)\n" + pair("c1", "q1") + "r = Relu (q1)\n"
        "c2 = Conv (r, w2)\n" + pair("c2", "q2") + "f = Reshape (q2, to)\nt = Transpose <perm = [0, 2, 1]> (f)\n"
        "o = Softmax (t)\ny = Exp (o)"
    )
    arrays = {"w1": weights(1, 8, 3, 3, 3), "w2": weights(2, 6, 8, 1, 1), "to": ints(0, 6, -1)}
    return graph("float[1,3,10,12] x", "float[1,h,6] y, float[1,h,6] o", body, **arrays)


def chained(folder: Path, manifest: dict[str, Any], feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    known = dict(feed)
    for part in manifest["parts"]:
        model = onnx.load(str(folder / part["file"]))
        onnx.checker.check_model(model, full_check=True)
        names = [row["name"] for row in part["outputs"]]
        known.update(zip(names, run(model, {row["name"]: known[row["name"]] for row in part["inputs"]}, names)))
    return known


def at(*begin: str, end: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(begin, end)]


def test_a_translation_becomes_three(tmp_path: Path) -> None:
    explicit = detector()
    whole = translate(explicit, ORIN, "net")
    files = whole.save(tmp_path / "whole")
    manifest = plain(split_translation(files, tmp_path / "parts"))
    parts = {row["role"]: row for row in manifest["parts"]}
    assert list(parts) == ["before", "dla", "after"]
    assert [row["name"] for row in parts["dla"]["inputs"]] == ["e"]
    assert [row["name"] for row in parts["dla"]["outputs"]] == ["c2"]
    assert parts["dla"]["outputs"][0]["scale"] == pytest.approx(1 / 32) and parts["dla"]["gpu_layers"] == 0
    assert parts["dla"]["outputs"][0]["format"] == "int8:chw32" and parts["dla"]["subgraphs"] == 1
    assert manifest["proof"]["runs"] and json.loads((tmp_path / "parts" / "net_split.json").read_text()) == manifest
    feed = random_inputs(whole.model, 3)
    known = chained(tmp_path / "parts", manifest, feed)
    for name, want in zip(whole.graph.outputs, run(whole.model, feed, list(whole.graph.outputs))):
        np.testing.assert_array_equal(known[name], want)
    # every part is a translation of its own: no scale is lost, and none is new
    found: dict[str, float] = {}
    listed: list[str] = []
    for role in parts:
        own = TranslationFiles(tmp_path / "parts", f"net_{role}")
        assert all(path.exists() for path in (own.model, own.config, own.cache, own.layer_arg, own.report))
        scales = own.read_config()["int8_tensor_scales"]
        assert own.read_cache().scales.keys() >= scales.keys()
        assert all(found.setdefault(name, value) == value for name, value in scales.items())
        listed += own.read_config()["fp16_nodes"]
    assert found == whole.tensor_scales and listed == whole.fp16_nodes


def test_the_parts_are_built_and_looked_at_like_any_translation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(detector(), tmp_path / "net.onnx")
    asked = ["translate", str(tmp_path / "net.onnx"), "-o", str(tmp_path), "--as_is", "--target", "orin-dla"]
    assert main([*asked, "--parts", "always", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["translated"][0]["split"]["parts"]
    assert [row["role"] for row in parts] == ["before", "dla", "after"]
    assert main([*asked, "--parts", "model", "-o", str(tmp_path / "cut"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "qdq-translator split"
    assert main([*asked, "--begin", "c2"]) == 2 and "--parts always" in capsys.readouterr().err
    part = str(tmp_path / "net_parts" / "net_dla_noqdq.onnx")
    formats = ["--dla_standalone", "--input_io_formats", "int8:chw32", "--output_io_formats", "int8:chw32"]
    assert main(["report", "-t", part]) == 0 and main(["build", "--print", "-t", part, *formats]) == 0


@pytest.mark.parametrize("quantized", [True, False])
def test_a_model_is_cut_as_it_is(tmp_path: Path, quantized: bool) -> None:
    """Behind the pair that its readers have in common, so that the DLA's part ends in its quantizer."""
    explicit = detector()
    path = tmp_path / "net.onnx"
    if not quantized:
        explicit = translate(explicit, TranslateOptions()).model
    onnx.save(explicit, str(path))
    manifest = plain(split_model(path, ORIN, tmp_path / "parts"))
    assert [row["role"] for row in manifest["parts"]] == ["before", "dla", "after"]
    ends = [row["name"] for row in manifest["parts"][1]["outputs"]]
    assert ends == (["q2"] if quantized else ["c2"])
    tail = ["f", "t", "o", "y"]
    made = {node.name or f"node_of_{node.output[0]}": node.output[0] for node in explicit.graph.node}
    assert [made[name] for name in manifest["tail"]] == tail
    feed = random_inputs(explicit, 3)
    names = [v.name for v in explicit.graph.output]
    known = chained(tmp_path / "parts", manifest, feed)
    for name, want in zip(names, run(explicit, feed, names)):
        np.testing.assert_array_equal(known[name], want)
    if quantized:  # and what is cut out translates, with its output's scale (rule Q7)
        part = translate(tmp_path / "parts" / "net_dla.onnx", ORIN)
        assert part.tensor_scales["q2"] == 1 / 32 and part.dla is not None and part.dla.fallbacks == []


def test_at_tensors_by_name(tmp_path: Path) -> None:
    files = translate(detector(), ORIN, "net").save(tmp_path / "whole")
    manifest = plain(split_translation(files, tmp_path / "two", at(end=("r",))))
    assert [row["role"] for row in manifest["parts"]] == ["dla", "after"]
    assert [row["name"] for row in manifest["parts"][0]["outputs"]] == ["r"]
    manifest = plain(split_translation(files, tmp_path / "one", at("c2")))
    assert [row["role"] for row in manifest["parts"]] == ["before", "dla"]


def alternating(regions: int) -> onnx.ModelProto:
    """Convs of the DLA with an Erf of the GPU between two of them, each beside a path that skips it."""
    body, last, arrays = "", "x", {}
    for number in range(regions):
        body += pair(last, f"q{number}") + f"c{number} = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> "
        body += f"(q{number}, w{number})\n" + pair(f"c{number}", f"d{number}")
        arrays[f"w{number}"] = weights(number, 8, 8, 3, 3)
        body += f"e{number} = Erf (d{number})\ns{number} = Add (e{number}, d{number})\n"
        last = f"s{number}"
    return graph("float[1,8,10,12] x", "float[b,c,h,w] y", body + f"y = Relu ({last})", **arrays)


@pytest.mark.parametrize("as_it_is", [False, True])
def test_every_region_of_the_plan_becomes_a_part(tmp_path: Path, as_it_is: bool) -> None:
    """In order of execution, each for its device, and the bits are those of the whole."""
    explicit = alternating(3)
    options = TranslateOptions(target="orin-dla", platform="jetpack-6.2", infer_add_scales=True)
    whole = translate(explicit, options, "net")
    assert whole.dla is not None and whole.dla.subgraphs == 4
    if as_it_is:
        onnx.save(explicit, tmp_path / "net.onnx")
        manifest = plain(split_model(tmp_path / "net.onnx", options, tmp_path / "parts"))
    else:
        manifest = plain(split_translation(whole.save(tmp_path / "whole"), tmp_path / "parts"))
    assert [row["role"] for row in manifest["parts"]] == ["dla", "between", "dla", "between", "dla", "after"]
    files = ["net_dla", "net_between", "net_dla2", "net_between2", "net_dla3", "net_after"]
    assert [row["file"].partition("_noqdq")[0].partition(".onnx")[0] for row in manifest["parts"]] == files
    if not as_it_is:
        assert [row.get("gpu_layers") for row in manifest["parts"]][:5] == [0, None, 0, None, 0]
    model = explicit if as_it_is else whole.model
    feed = random_inputs(model, 3)
    known = chained(tmp_path / "parts", manifest, feed)
    np.testing.assert_array_equal(known["y"], run(model, feed, ["y"])[0])


def test_the_command_for_every_part_of_the_dla_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(alternating(2), tmp_path / "net.onnx")
    asked = ["translate", str(tmp_path / "net.onnx"), "-o", str(tmp_path), "--as_is", "--target", "orin-dla"]
    assert main([*asked, "--parts", "always"]) == 0
    assert "".join(capsys.readouterr().out.split()).count("net_partsgive") == 1  # a long path is folded
    assert main([*asked, "--parts", "always", "--verbose"]) == 0
    assert main(["report", "-t", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for name in ("net_dla", "net_dla2"):
        assert f"the DLA's part {name}_noqdq.onnx: no GPU layer" in printed
        assert f"build --print -t {tmp_path / 'net_parts' / name}_noqdq.onnx --dla_standalone" in printed


def test_begin_and_end_are_where_the_dlas_part_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(detector(), tmp_path / "net.onnx")

    def ends(*more: str) -> tuple[list[str], list[str]]:
        asked = ["--as_is", "--on", "dla", "--parts", "always", "--json", *more]
        assert main(["translate", str(tmp_path / "net.onnx"), "-o", str(tmp_path), *asked]) == 0
        parts = json.loads(capsys.readouterr().out)["translated"][0]["split"]["parts"]
        (dla,) = (row for row in parts if row["role"] == "dla")
        return [row["name"] for row in dla["inputs"]], [row["name"] for row in dla["outputs"]]

    assert ends() == (["e"], ["c2"])
    assert ends("--begin", "c1", "--end", "c2") == (["c1"], ["c2"])
    assert ends("--end", "c1")[1] == ["c1"]


def test_a_network_of_one_part_stays_whole(tmp_path: Path) -> None:
    body = pair("x", "q") + "c = Conv (q, w)\ny = Relu (c)"
    whole = translate(graph("float[1,3,4,4] x", "float[b,c,h,w] y", body, w=weights(1, 4, 3, 1, 1)), ORIN, "net")
    manifest = plain(split_translation(whole.save(tmp_path), tmp_path / "parts"))
    assert [row["role"] for row in manifest["parts"]] == ["dla"]


@pytest.mark.parametrize(
    ("begin", "end", "why"),
    [((), ("x",), "graph input"), ((), ("nowhere",), "not a tensor"), (("c2",), ("c2",), "There is no node between")],
)
def test_not_at(tmp_path: Path, begin: tuple[str, ...], end: tuple[str, ...], why: str) -> None:
    files = translate(detector(), ORIN, "net").save(tmp_path / "whole")
    with pytest.raises(UserError, match=why):
        split_translation(files, tmp_path / "parts", at(*begin, end=end))
    assert not (tmp_path / "parts").exists()


def test_not_without_a_dla(tmp_path: Path) -> None:
    files = translate(detector(), TranslateOptions(), "net").save(tmp_path / "gpu")
    with pytest.raises(UserError, match="for a GPU"):
        split_translation(files, tmp_path / "parts")
    alone = graph("float[1,3,4] x", "float[b,c,h] y", pair("x", "q") + "y = Erf (q)")
    with pytest.raises(UserError, match="No layer"):
        split_translation(translate(alone, ORIN, "net").save(tmp_path / "erf"), tmp_path / "parts")


def translated(model: onnx.ModelProto, folder: Path, *words: str) -> int:
    onnx.save(model, str(folder / "net.onnx"))
    preset = ["--preset", "dla", "--platform", "jetpack-6.2", "-o", str(folder / "out"), "--json"]
    return main(["translate", str(folder / "net.onnx"), *preset, *words])


def test_the_preset_cuts_a_tail_off_beside_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = pair("x", "q") + "c = Conv (q, w)\n" + pair("c", "p") + "f = Reshape (p, to)\nt = Exp (f)\ny = Div (t, w0)"
    arrays = {"w": weights(1, 6, 3, 1, 1), "to": ints(0, 6, -1), "w0": weights(2, 1) + 9}
    explicit = graph("float[1,3,10,12] x", "float[b,h,k] y", body, **arrays)
    assert translated(explicit, tmp_path, "--fail_on_gpu_fallback") == 0, "what is left for the DLA needs no GPU"
    summary = json.loads(capsys.readouterr().out)["translated"][0]
    files, parts = TranslationFiles(tmp_path / "out", "net"), tmp_path / "out" / "net_parts"
    manifest = json.loads((parts / "net_split.json").read_text())
    assert [row["role"] for row in manifest["parts"]] == ["dla", "after"] and summary["split"]["tail"] == manifest[
        "tail"
    ]
    assert manifest["parts"][0]["gpu_layers"] == 0 and [o["name"] for o in manifest["parts"][0]["outputs"]] == ["c"]
    whole = onnx.load(str(files.model))
    feed = random_inputs(whole, 3)
    np.testing.assert_array_equal(chained(parts, manifest, feed)["y"], run(whole, feed, ["y"])[0])
    written = {path.name: path.read_bytes() for path in files if path.exists()}
    assert translated(explicit, tmp_path, "--parts", "off") == 0
    assert {path.name for path in files if path.exists()} == written.keys(), "the whole is what it is without parts"
    assert all(path.read_bytes() == written[path.name] for path in (files.cache, files.layer_arg))
    assert onnx.load(str(files.model)).graph == whole.graph
    summary = json.loads(capsys.readouterr().out)["translated"][0]
    assert summary["split"] is None and not summary["not_cut"] and not parts.exists()  # no parts of an earlier one
    assert translated(explicit, tmp_path, "--parts", "off", "--fail_on_gpu_fallback") == 1


@pytest.mark.parametrize("name", ["../../x_noqdq.onnx", "/x_noqdq.onnx", "..", "up/x_noqdq.onnx"])
def test_a_manifest_leads_nowhere_else(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert translated(detector(), tmp_path) == 0
    files = TranslationFiles(tmp_path / "out", "net")
    (files.parts / "up").symlink_to(tmp_path)
    for path in (files.parts / "net_split.json", files.report):
        content = json.loads(path.read_text())
        (content if path != files.report else content["parts"])["parts"][0]["file"] = name
        path.write_text(json.dumps(content))
    for command in (["report"], ["verify", "-i", str(tmp_path / "net.onnx"), "--samples", "1"]):
        capsys.readouterr()
        assert main([*command, "-t", str(files.model)]) == 1
        assert "folder" in capsys.readouterr().err


def test_what_was_cut_is_verified_reported_and_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """verify runs the parts one behind the other, as their own plans have them."""
    assert translated(detector(), tmp_path) == 0
    files, parts = TranslationFiles(tmp_path / "out", "net"), tmp_path / "out" / "net_parts"
    report = files.read_report()
    manifest = json.loads((parts / "net_split.json").read_text())
    assert report["parts"]["folder"] == "net_parts" and report["parts"]["parts"] == manifest["parts"]
    capsys.readouterr()
    assert main(["verify", "-i", str(tmp_path / "net.onnx"), "-t", str(files.folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    dla = TranslationFiles(parts, "net_dla")
    planned = dla.read_report()["dla"]["counts"]
    # the Reshape and the Transpose of the part for the GPU move INT8
    assert found["simulation"]["parts"] == {"dla": planned["dla-int8"], "after": 2} and planned["dla-int8"] == 3
    rows = {row["other"]: row["outputs"] for row in found["outputs"]["pairs"]}
    assert rows["parts"].keys() == {"y", "o"} and 30 < rows["parts"]["o"]["sqnr_db"] < 60

    written = dla.cache.read_text()
    broken = {name: 16 * scale for name, scale in dla.read_cache().scales.items()}
    lines = (f"{name}: {scale_to_hex(scale)}\n" for name, scale in broken.items())
    dla.cache.write_text("".join([f"{written.splitlines()[0]}\n", *lines]))
    main(["verify", "-i", str(tmp_path / "net.onnx"), "-t", str(files.folder), "--json"])
    worse = {row["other"]: row["outputs"] for row in json.loads(capsys.readouterr().out)["outputs"]["pairs"]}
    assert worse["parts"]["o"]["sqnr_db"] < rows["parts"]["o"]["sqnr_db"] - 10, "the part's own files are read"
    assert worse["simulated"] == rows["simulated"]
    dla.cache.write_text(written)

    assert main(["report", "-t", str(parts)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        printed.startswith("net_dla") and f"build --print -t {parts}/net_dla_noqdq.onnx --allow_gpu_fallback" in printed
    )
    assert main(["report", "-t", str(files.folder), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert all(row["file"] in page for row in manifest["parts"]) and 'id="parts"' in page
    assert translated(detector(), tmp_path, "--parts", "off") == 0
    assert files.read_report()["parts"] is None


def test_a_tail_with_the_gpu_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Most layers for the GPU are the tail's, so it goes; what stays before it is told."""
    assert translated(detector(), tmp_path, "--fail_on_gpu_fallback") == 1
    summary = json.loads(capsys.readouterr().out)["translated"][0]
    assert summary["split"]["parts"][0]["gpu_layers"] == 1 and "Erf" in summary["failed"]


@pytest.mark.parametrize("body", [
    "y = Flatten (p)",  # moves data only
    "y = Relu (p)",  # no tail
])  # fmt: skip
def test_what_is_no_tail(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str) -> None:
    text = pair("x", "q") + "c = Conv (q, w)\n" + pair("c", "p") + body
    arrays = {"w": weights(1, 6, 3, 1, 1)}
    rank = "b,f" if "Flatten" in body else "b,c,h,w"
    assert translated(graph("float[1,3,10,12] x", f"float[{rank}] y", text, **arrays), tmp_path) == 0
    assert json.loads(capsys.readouterr().out)["translated"][0]["split"] is None
    assert not (tmp_path / "out" / "net_parts").exists()


def test_heads_that_only_move_data_are_cut_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SSD: each head ends in a Reshape, and all of them in one Concat of three dimensions."""
    body = pair("x", "q") + "c = Conv (q, w)\n" + pair("c", "p") + "d = Conv (p, w1)\n" + pair("d", "e")
    body += "f = Reshape (p, to)\ng = Reshape (e, to)\ny = Concat <axis = 2> (f, g)"
    arrays = {"w": weights(1, 6, 3, 1, 1), "w1": weights(1, 6, 6, 1, 1), "to": ints(0, 6, -1)}
    explicit = graph("float[1,3,10,12] x", "float[b,h,k] y", body, **arrays)
    assert translated(explicit, tmp_path, "--fail_on_gpu_fallback") == 0
    split = json.loads(capsys.readouterr().out)["translated"][0]["split"]
    assert [row["role"] for row in split["parts"]] == ["dla", "after"] and split["parts"][0]["gpu_layers"] == 0
    assert [row["name"] for row in split["parts"][0]["outputs"]] == ["c", "d"] and split["tail_macs_share"] == 0


def test_a_tail_with_macs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A product of two activations, which no DLA runs, holds most of the multiply-accumulates."""
    body = (
        pair("x", "q")
        + "c = Conv (q, w)\n"
        + pair("c", "p")
        + "f = Reshape (p, to)\nt = Transpose <perm = [0, 2, 1]> (f)\n"
    )
    explicit = graph(
        "float[1,3,10,12] x",
        "float[b,h,k] y",
        body + "u = MatMul (t, f)\ny = Exp (u)",
        w=weights(1, 6, 3, 1, 1),
        to=ints(0, 6, -1),
    )
    assert translated(explicit, tmp_path) == 0
    split = json.loads(capsys.readouterr().out)["translated"][0]["split"]
    products, conv = 120 * 6 * 120, 6 * 3 * 120
    assert split["tail_macs_share"] == pytest.approx(products / (products + conv))
    assert (
        main(
            [
                "translate",
                str(tmp_path / "net.onnx"),
                "--preset",
                "dla",
                "--platform",
                "jetpack-6.2",
                "-o",
                str(tmp_path),
            ]
        )
        == 0
    )
    assert "with 97.6% of the MACs, which are not on the DLA" in " ".join(capsys.readouterr().out.split())


def test_the_preset_ends_in_four_dimensions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A classifier is one loadable; the message contains both shapes, and `--without dla_output` keeps the exporter's."""
    body = pair("x", "q") + "c = Conv (q, w)\nf = Flatten (c)\ny = Gemm (f, v)"
    explicit = graph("float[1,3,4,4] x", "float[1,5] y", body, w=weights(1, 6, 3, 1, 1), v=weights(2, 96, 5))
    assert translated(explicit, tmp_path, "--fail_on_gpu_fallback") == 0
    summary = json.loads(capsys.readouterr().out)["translated"][0]
    told = next(d for d in summary["diagnostics"] if d["rule"] == "D16")
    assert "1x5x1x1" in told["message"] and "instead of 1x5," in told["message"]
    shape = onnx.load(str(tmp_path / "out" / "net_noqdq.onnx")).graph.output[0].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [1, 5, 1, 1]
    assert translated(explicit, tmp_path, "--without", "dla_output", "--fail_on_gpu_fallback") == 1


def test_a_tail_that_cannot_be_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole is there all the same, and the reason is told."""
    monkeypatch.setattr("qdq_translator.lab.parts.same_bits", lambda one, other: False)
    assert translated(detector(), tmp_path) == 0
    summary = json.loads(capsys.readouterr().out)["translated"][0]
    assert "not cut" in summary["not_cut"] and TranslationFiles(tmp_path / "out", "net").model.exists()
    assert not (tmp_path / "out" / "net_parts").exists()


def test_a_tail_needs_a_dla(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--example", "--parts", "tail"]) == 2 and "DLA" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "body", "sizes", "now"), [
    ("float[n,48] x", "i = Reshape (q, image)\nc = Conv (i, w)\ny = Flatten (c)", "3x48", [3, 3, 4, 4]),
    ("float[n,3,16] x", "c = Conv <kernel_shape = [1]> (q, v)\ny = Flatten (c)", "3x3x16", [3, 3, 16, 1]),
])  # fmt: skip
def test_sizes_of_an_input_whose_dimensions_change(
    tmp_path: Path, given: str, body: str, sizes: str, now: list[int]
) -> None:
    """Rule D16: --shapes name those of the model; proof, explicit network and parts have those of the DLA. A model as it is
    is cut at its own tensors."""
    arrays = {"image": ints(0, 3, 4, 4), "w": weights(1, 4, 3, 1, 1), "v": weights(1, 4, 3, 1)}
    explicit = graph(given, "float[b,c] y", pair("x", "q") + body, **{k: v for k, v in arrays.items() if k in body})
    model = tmp_path / "net.onnx"
    onnx.save(explicit, str(model))
    options = ["--preset", "dla", "--platform", "jetpack-6.2", "--shapes", f"x:{sizes}"]
    assert main(["translate", str(model), *options, "-o", str(tmp_path / "t")]) == 0
    translated = TranslationFiles.locate(tmp_path / "t")
    assert translated.read_report("inputs")["inputs"][0]["shape"] == now
    assert [row["shape"] for row in plain(split_translation(translated, tmp_path / "p"))["parts"][0]["inputs"]] == [now]
    asked = ["-i", str(model), *options[:2], "--platform", "jetpack-7.2", *options[4:], "-o", str(tmp_path / "e")]
    assert main(["explicit", *asked]) == 0
    made = onnx.load(str(tmp_path / "e" / "net_explicit.onnx")).graph.input[0]
    assert [dim.dim_value for dim in made.type.tensor_type.shape.dim] == now
    cut = plain(split_model(model, dataclasses.replace(ORIN, shapes=[f"x:{sizes}"]), tmp_path / "m"))
    dla = next(row for row in cut["parts"] if row["role"] == "dla")
    convs = [node.op_type for node in onnx.load(str(tmp_path / "m" / dla["file"])).graph.node if node.op_type == "Conv"]
    assert convs == ["Conv"] and len(cut["tail"]) <= 1
