"""Section 6 (bad input), C1's error in files, and that every rule that `translate` follows has a test.

Quantizers: `test_rules_quantizers.py`; folding and names: `test_rules_folding.py`; scales: `test_rules_inference.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main_translate
from qdq_translator.core.errors import UserError
from tests.small_models import f32, model, pair, scales_of

S = {"s": np.float32(0.05), "z": np.int8(0)}


def plain() -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32)  # 12 KiB: external when asked
    text = f"g (float[1,3,16,16] x) => (float[1,4,1,1] y) {{ {pair('x', 'd')} {pair('w', 'wd')} y = Conv(d, wd) }}"
    return model(text, w=weight, **S)


def one_or_two_sentences(text: str) -> bool:
    return 0 < len(re.findall(r"[.?!](?:\s|$)", text)) <= 3 and "Traceback" not in text


@pytest.mark.parametrize("change, words", [
    ({"s": np.float32(0)}, ["scale 0", "'x'", "QuantizeLinear_d_q", "calibrate"]),
    ({"z": np.uint8(3)}, ["zero point 3", "'x'", "--asymmetric widen"]),
    ({"s": np.arange(1, 4, dtype=np.float32), "z": np.zeros(3, np.int8)}, ["3 scales", "'x'", "--per_channel_activations"]),
])  # fmt: skip
def test_section_6_what_where_and_how_to_fix(
    change: dict[str, np.ndarray], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bad model is told on stderr, the good one is translated, and an earlier output stays."""
    good, bad, out = tmp_path / "good.onnx", tmp_path / "bad.onnx", tmp_path / "out"
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}"
    onnx.save(model(text, **S), good)
    onnx.save(model(text, **S), bad)
    assert main_translate(["-i", str(bad), "-o", str(out)]) == 0
    earlier = {p.name: p.read_bytes() for p in out.iterdir()}
    onnx.save(model(text, **{**S, **change}), bad)
    capsys.readouterr()
    assert main_translate(["-i", str(bad), str(good), "-o", str(out)]) == 1
    said = capsys.readouterr().err
    assert all(word in said for word in words) and one_or_two_sentences(said.replace("bad.onnx:", "")), said
    assert {n: (out / n).read_bytes() for n in earlier} == earlier
    assert (out / "good_noqdq.onnx").exists() and not list(out.glob(".qdq_unfinished-*"))


def external(tmp_path: Path) -> tuple[Path, onnx.ModelProto]:
    path = tmp_path / "model.onnx"
    onnx.save(plain(), path, save_as_external_data=True, location="w.data", size_threshold=0)
    return path, onnx.load(path, load_external_data=False)


def entry(tensor: TensorProto, key: str) -> onnx.StringStringEntryProto:
    return next(e for e in tensor.external_data if e.key == key)


def test_section_6_external_data_is_read(tmp_path: Path) -> None:
    path, _ = external(tmp_path)
    assert scales_of(translate(path)) == scales_of(translate(plain()))


@pytest.mark.parametrize("key, value, words", [
    ("location", "../w.data", ["outside", "'../w.data'"]),
    ("location", "/etc/passwd", ["outside"]),
    ("location", "sub/../../w.data", ["outside"]),
    ("location", "link.data", ["outside"]),
    ("location", "gone.data", ["cannot be read", "'gone.data'"]),
    ("location", "", ["outside"]),
    ("location", ".", ["outside"]),
    ("location", "a\0b", ["no location of its external"]),
    ("offset", "-4", ["no location of its external"]),
    ("offset", "abc", ["no location of its external"]),
    ("length", "-1", ["no location of its external"]),
    ("offset", "999999999", ["ends inside"]),
    ("length", "8", ["8 bytes instead of the"]),
])  # fmt: skip
def test_section_6_external_data_that_cannot_be(tmp_path: Path, key: str, value: str, words: list[str]) -> None:
    (tmp_path / "inner").mkdir()
    path, loaded = external(tmp_path / "inner")
    (tmp_path / "w.data").write_bytes(b"\0" * 100_000)
    (tmp_path / "inner" / "link.data").symlink_to(tmp_path / "w.data")
    tensor = next(t for t in loaded.graph.initializer if t.name == "w")
    entry(tensor, key).value = value
    path.write_bytes(loaded.SerializeToString())
    with pytest.raises(UserError) as error:
        translate(path)
    assert all(w in str(error.value) for w in [*words, "'w'"]) or words == ["ends inside"], str(error.value)


def test_section_6_truncated_data_file(tmp_path: Path) -> None:
    path, _ = external(tmp_path)
    data = tmp_path / "w.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(UserError, match="ends inside tensor"):
        translate(path)


def test_section_6_external_data_inside_bodies_and_functions(tmp_path: Path) -> None:
    """Constants of local functions have their data outside too; they are read, and refused, all the same."""
    explicit = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
        g (float[2] x) => (float[2] y) <float s = {0.05}, int8 z = {0}> {
            q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = pkg.shift(d) }
        <domain: "pkg", opset_import: ["" : 17]>
        shift (v) => (w) { k = Constant<value = float[2] {1.0, 2.0}>()  w = Add(v, k) }"""
    )
    tensor = explicit.functions[0].node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in [("location", "k.data"), ("offset", "0"), ("length", "8")]:
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "k.data").write_bytes(np.array([1, 2], "<f4").tobytes())
    path = tmp_path / "model.onnx"
    path.write_bytes(explicit.SerializeToString())
    t = translate(path)
    # "x_clamp" is the saturation before a layer in float (rule Q9)
    assert t.source.external_data and scales_of(t) == dict.fromkeys(("x", "x_clamp"), f32(0.05))
    (tmp_path / "k.data").unlink()
    with pytest.raises(UserError, match=r"k\.data"):
        translate(path)


def test_section_6_a_damaged_tensor(tmp_path: Path) -> None:
    for keep in (0, 5, 100):
        explicit = plain()
        explicit.graph.initializer[0].raw_data = explicit.graph.initializer[0].raw_data[:keep]
        with pytest.raises(UserError, match=f"'w'.*{keep} bytes instead of"):
            translate(explicit)


def test_section_6_an_unknown_operator_passes() -> None:
    """Plugins are the engine's business: the model is translated around them."""
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} a = my.Plugin(d) {pair('a', 'b')} y = Exp(b) }}"
    explicit = model(text, domains=("my",), **S)
    t = translate(explicit)
    # the Clip is the saturation of what a Plugin makes, before a layer in float (rule Q9)
    assert [n.op_type for n in t.model.graph.node] == ["Plugin", "Clip", "Exp"]
    assert scales_of(t) == dict.fromkeys(("x", "a", "a_clamp"), f32(0.05))
    assert {o.domain for o in t.model.opset_import} == {"", "my"}


def test_section_6_every_output_or_none_in_python(tmp_path: Path) -> None:
    t = translate(plain(), TranslateOptions(), name="net")
    files = t.save(tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    assert before == {files.model.name, files.config.name, files.cache.name, files.layer_arg.name, files.report.name}


def test_c1_no_output_when_conflicts_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'a')} {pair('x', 'b', scale='t')} y = Add(a, b) }}"
    path = tmp_path / "m.onnx"
    onnx.save(model(text, t=np.float32(0.1), **S), path)
    assert main_translate(["-i", str(path), "-o", str(tmp_path / "out"), "--on_conflict", "error"]) == 1
    said = capsys.readouterr().err
    assert "'x'" in said and "0.05" in said and "--on_conflict max" in said
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_section_6_weights_that_are_no_numbers(bad: float) -> None:
    weight = np.ones((2, 1, 1, 1), np.float32)
    weight[1] = bad
    text = (
        "g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float s = {0.1}, int8 z = {0}>"
        "{" + pair("x", "xd") + pair("w", "wd") + "y = Conv(xd, wd) }"
    )
    with pytest.raises(UserError, match=r"Constant 'wd' contains NaN or infinity.*Export a model"):
        translate(model(text, w=weight))
