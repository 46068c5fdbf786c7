"""verify finds real faults: each is planted in a translation, and --per_layer has to name the right layer and why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import qdq_translator
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.verify import Options
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.lab.simulate.metrics import Comparison
from qdq_translator.lab.simulate.per_layer import LayerComparison, Row
from qdq_translator.lab.verification import verify

pytest.importorskip("onnxruntime")
MODELS = Path(qdq_translator.__file__).parent / "models"
DIGITS, SAMPLES = MODELS / "digits_resnet_qat.onnx", MODELS / "digits_samples.npz"
COVERED = TranslateOptions(add_unary_ew_scales_for_dla=True)
"""With them every layer of the example is INT8 but the last, whose output is the graph's."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> TranslationFiles:
    return translate(DIGITS, COVERED).save(tmp_path_factory.mktemp("clean"))


@pytest.fixture
def files(clean: TranslationFiles, tmp_path: Path) -> TranslationFiles:
    """A translation that a test may spoil."""
    shutil.copytree(clean.folder, tmp_path / "t")
    return TranslationFiles(tmp_path / "t", clean.name)


def look(files: TranslationFiles, **more: Any) -> dict[str, Any]:
    options = {"data": str(SAMPLES), "samples": 16, **more}
    return verify(Options(model=str(DIGITS), translation=str(files.folder), per_layer=True, **options))


def edit_cache(files: TranslationFiles, change: Callable[[dict[str, float]], None]) -> None:
    cache = files.read_cache()
    change(cache.scales)
    files.cache.write_text(cache.to_text())


def edit_weight(files: TranslationFiles, node: str, change: Callable[[np.ndarray], np.ndarray], index: int = 1) -> None:
    model = onnx.load(files.model)
    name = next(n for n in model.graph.node if n.name == node).input[index]
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(tensor))), name))
    onnx.save(model, files.model)


def test_nothing_is_found_where_nothing_is_wrong(clean: TranslationFiles) -> None:
    results = look(clean)
    row = results["outputs"]["pairs"][0]["outputs"]["logits"]
    assert results["per_layer"]["first_jump"] is None
    # the last layer reads float, because its output has no scale: the explicit model rounds its input
    assert row["sqnr_db"] > 40 and row["top1_agreement"] == 100
    by_tensor = {r["tensor"]: r for r in results["per_layer"]["layers"]}
    assert by_tensor["/layer3/relu_1/Relu_output_0"]["read"]["identical"]
    assert "no INT8 layer reads it" in by_tensor["/Flatten_output_0"]["notes"][0]


@pytest.mark.parametrize(("factor", "worst_db"), [(2.0, 42), (0.5, 25)])
def test_a_wrong_scale(files: TranslationFiles, factor: float, worst_db: float) -> None:
    tensor = "/layer2/relu/Relu_output_0"
    edit_cache(files, lambda scales: scales.update({tensor: scales[tensor] * factor}))
    jump = look(files)["per_layer"]["first_jump"]
    assert (jump["tensor"], jump["node"], jump["where"]) == (tensor, "/layer2/relu/Relu", "read")
    assert jump["sqnr_db"] < worst_db
    assert f"{factor:g} times" in jump["notes"][0] and jump["notes"][0].startswith("the cache has ")


def test_a_scale_on_a_graph_output(files: TranslationFiles) -> None:
    edit_cache(files, lambda scales: scales.update(logits=0.25, logits_before_bias=0.25))
    files.layer_arg.write_text("")
    results = look(files)
    jumps = results["per_layer"]["jumps"]
    assert [(j["tensor"], j["where"]) for j in jumps] == [("logits", "read")]
    assert any("rule S2" in note for note in jumps[0]["notes"])
    assert results["outputs"]["pairs"][0]["outputs"]["logits"]["sqnr_db"] < 45


def test_a_lost_batchnormalization_sign(files: TranslationFiles) -> None:
    def lose(weight: np.ndarray) -> np.ndarray:
        weight = weight.copy()
        weight[3] *= -1
        return weight

    edit_weight(files, "/layer2/conv1/Conv", lose)
    jump = look(files)["per_layer"]["first_jump"]
    assert (jump["node"], jump["where"]) == ("/layer2/conv1/Conv", "made")
    assert jump["sqnr_db"] < 20 and any("folded into it (rule F1)" in note for note in jump["notes"])


def test_a_swapped_weight_axis(files: TranslationFiles) -> None:
    edit_weight(files, "/layer1/conv2/Conv", lambda weight: weight.transpose(1, 0, 2, 3))
    results = look(files)
    jump = results["per_layer"]["first_jump"]
    assert (jump["node"], jump["where"]) == ("/layer1/conv2/Conv", "made") and jump["sqnr_db"] < 6
    assert results["outputs"]["pairs"][0]["outputs"]["logits"]["top1_agreement"] < 100


def test_a_change_that_cannot_run_is_named_all_the_same(files: TranslationFiles) -> None:
    model = onnx.load(files.model)
    node = next(n for n in model.graph.node if n.name == "/layer1/conv2/Conv")
    next(a for a in node.attribute if a.name == "pads").ints[:] = [0, 0, 0, 0]
    onnx.save(model, files.model)
    with pytest.raises(UserError, match=r"'/layer1/conv2/Conv' has other attributes.*A possible consequence"):
        look(files)


def test_thresholds_turn_a_fault_into_a_sentence(files: TranslationFiles) -> None:
    edit_weight(files, "/layer1/conv2/Conv", lambda weight: weight.transpose(1, 0, 2, 3))
    failed = look(files, min_cosine=0.99, min_top1_agreement=99.5)["failed"]
    assert len(failed) == 4 and "has other values" in failed[0] and "'broken'" in failed[-1]
    assert "--min_cosine requires 0.99" in failed[1] and "agrees on" in failed[2]


UNARY = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,4,4,4] x, float[1,4,4,4] r) => (float[1,4,4,4] y)
<float sx = {0.05}, float sr = {2.0}, float sb = {4.0}, int8 z = {0}>
{
    [qx] xq = QuantizeLinear(x, sx, z) [dx] xd = DequantizeLinear(xq, sx, z)
    [qr] rq = QuantizeLinear(r, sr, z) [dr] rd = DequantizeLinear(rq, sr, z)
    [qw] wq = QuantizeLinear<axis=0>(w, ws, wz) [dw] wd = DequantizeLinear<axis=0>(wq, ws, wz)
    [conv] a = Conv<kernel_shape=[1,1]>(xd, wd)
    [add] b = Add(a, rd)
    [qb] bq = QuantizeLinear(b, sb, z) [db] bd = DequantizeLinear(bq, sb, z)
    [qv] vq = QuantizeLinear<axis=0>(v, vs, wz) [dv] vd = DequantizeLinear<axis=0>(vq, vs, wz)
    [last] y = Conv<kernel_shape=[1,1]>(bd, vd)
}"""


def unary_model(size: float) -> onnx.ModelProto:
    model = parser.parse_model(UNARY)
    rng = np.random.default_rng(0)
    for name, factor in (("w", size), ("v", 1.0)):
        weight = (rng.normal(size=(4, 4, 1, 1)) * factor).astype(np.float32)
        scale = np.abs(weight).max(axis=(1, 2, 3)) / np.float32(127)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
        model.graph.initializer.append(numpy_helper.from_array(scale, f"{name}s"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.int8), "wz"))
    return model


def test_a_unary_scale_that_saturates(tmp_path: Path) -> None:
    onnx.save(unary_model(60.0), tmp_path / "m.onnx")
    files = translate(tmp_path / "m.onnx", TranslateOptions(add_unary_ew_scales_for_dla=True)).save(tmp_path / "t")
    assert files.read_cache().scales["a"] == 1.0
    options = {"model": str(tmp_path / "m.onnx"), "translation": str(files.folder), "per_layer": True}
    fused = verify(Options(**options))
    assert fused["per_layer"]["first_jump"] is None
    assert fused["outputs"]["pairs"][1]["other"] == "unfused"
    ends = [fused["outputs"]["pairs"][i]["outputs"]["y"]["sqnr_db"] for i in (0, 1)]
    assert ends[0] > 13 > 10 > ends[1]
    assert any("'a': unary scale 1.0 (rule S9), taken for fused" in n and "127 cuts them" in n for n in fused["notes"])
    applied = verify(Options(**options, fuse="off"))
    jump = applied["per_layer"]["first_jump"]
    assert (jump["node"], jump["tensor"], jump["where"]) == ("conv", "a", "read") and jump["sqnr_db"] < 20
    assert "unary scale 1.0 (rule S9), applied" in jump["notes"][0]


CONFLICT = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,4,4,4] x) => (float[1,4,4,4] y, float[1,4,4,4] u)
<float sx = {0.03}, float small = {0.004}, float large = {0.05}, float st = {0.008}, int8 z = {0}>
{
    [qx] xq = QuantizeLinear(x, sx, z) [dx] xd = DequantizeLinear(xq, sx, z)
    [first] a = Sigmoid(xd)
    [second] b = Mul(a, xd)
    [q1] b1q = QuantizeLinear(b, small, z) [d1] b1 = DequantizeLinear(b1q, small, z)
    [q2] b2q = QuantizeLinear(b, large, z) [d2] b2 = DequantizeLinear(b2q, large, z)
    [left] t = Tanh(b1)
    [right] v = Neg(b2)
    [qt] tq = QuantizeLinear(t, st, z) [dt] td = DequantizeLinear(tq, st, z)
    [qv] vq = QuantizeLinear(v, large, z) [dv] vd = DequantizeLinear(vq, large, z)
    [end] y = Neg(td)
    [abs] u = Abs(vd)
}"""


def test_a_conflict_resolved_to_the_smaller_scale(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(CONFLICT), tmp_path / "m.onnx")
    files = translate(tmp_path / "m.onnx", TranslateOptions(on_conflict="min")).save(tmp_path / "t")
    results = verify(Options(model=str(tmp_path / "m.onnx"), translation=str(files.folder), per_layer=True))
    jump = results["per_layer"]["first_jump"]
    assert (jump["node"], jump["tensor"], jump["where"]) == ("second", "b", "read") and jump["sqnr_db"] < 10
    assert jump["notes"][0].startswith(
        "conflict (rule C1): the model quantizes it with 0.004, 0.05; the cache has 0.004"
    )
    outputs = results["outputs"]["pairs"][0]["outputs"]
    assert outputs["y"]["sqnr_db"] > 30 and outputs["u"]["sqnr_db"] < 10


def test_a_float_branch_that_is_rounded_now(tmp_path: Path) -> None:
    text = CONFLICT.replace("[q2] b2q = QuantizeLinear(b, large, z) [d2] b2 = DequantizeLinear(b2q, large, z)", "")
    onnx.save(parser.parse_model(text.replace("(b2)", "(b)").replace("{0.004}", "{0.03}")), tmp_path / "m.onnx")
    files = translate(tmp_path / "m.onnx", TranslateOptions()).save(tmp_path / "t")
    options = Options(model=str(tmp_path / "m.onnx"), translation=str(files.folder), per_layer=True, higher="fp32")
    jump = verify(options)["per_layer"]["first_jump"]
    assert (jump["tensor"], jump["where"]) == ("b", "read")
    assert jump["notes"][0] == "read as float by right in the model, rounded for them here (rule C2)"


def test_requantized_weights_are_named(tmp_path: Path) -> None:
    """A weight scale twice too large: codes reach 64 only, TensorRT takes its own scale."""
    model = unary_model(1.0)
    for tensor in model.graph.initializer:
        if tensor.name == "vs":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(8.3), "vs"))
    onnx.save(model, tmp_path / "m.onnx")
    files = translate(tmp_path / "m.onnx", TranslateOptions(calibration_type="histogram")).save(tmp_path / "t")
    edit_cache(files, lambda scales: scales.update(y=0.05))  # else the last layer stays float
    results = verify(Options(model=str(tmp_path / "m.onnx"), translation=str(files.folder), per_layer=True))
    row = next(r for r in results["per_layer"]["layers"] if r["node"] == "last")
    assert any("weights requantized" in note and "(rule W1)" in note for note in row["notes"])
    assert not row["made"]["identical"]


HEALS = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,4,12,12] x) => (float[1,4,12,12] y)
<float sx = {0.9}, float fine = {0.008}, float sc = {0.05}, int8 z = {0}>
{
    [qx] xq = QuantizeLinear(x, sx, z) [dx] xd = DequantizeLinear(xq, sx, z)
    [left] a = Abs(xd) [less] b = Sub(xd, a)
    [qb] bq = QuantizeLinear(b, sx, z) [db] bd = DequantizeLinear(bq, sx, z)
    [up] c = Add(bd, one)
    [qc] cq = QuantizeLinear(c, sx, z) [dc] cd = DequantizeLinear(cq, sx, z)
    [pool] p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(cd)
    [qp] pq = QuantizeLinear(p, sx, z) [dp] pd = DequantizeLinear(pq, sx, z)
    [neg] n = Neg(pd)
    [qn] nq = QuantizeLinear(n, sx, z) [dn] nd = DequantizeLinear(nq, sx, z)
    [abs] m = Abs(nd)
    [qm] mq = QuantizeLinear(m, sx, z) [dm] md = DequantizeLinear(mq, sx, z)
    [end] y = Neg(md)
}"""


def test_a_healed_jump_hides_no_other(tmp_path: Path) -> None:
    """Most of `c` is cut off by a scale that is far too small, but the MaxPool behind it reads the few values that are not;
    `n` loses half of its range, and that goes on to the output."""
    model = parser.parse_model(HEALS)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1).reshape(1, 1, 1, 1), "one"))
    onnx.save(model, tmp_path / "m.onnx")
    x = np.full((1, 4, 12, 12), -50.0, np.float32)
    x[:, :, 1::2, 1::2] = 20.0
    np.savez(tmp_path / "x.npz", x=x)
    files = translate(tmp_path / "m.onnx", TranslateOptions()).save(tmp_path / "t")
    edit_cache(files, lambda scales: scales.update(c=scales["c"] / 50, n=scales["n"] * 0.003))
    options = {"model": str(tmp_path / "m.onnx"), "translation": str(files.folder), "data": str(tmp_path / "x.npz")}
    found = verify(Options(**options, per_layer=True))["per_layer"]
    rows = {row["tensor"]: row for row in found["layers"]}
    assert rows["c"]["read"]["sqnr_db"] < 5 and rows["p"]["read"]["identical"]
    assert [jump["tensor"] for jump in found["jumps"]] == ["n"] and found["first_jump"]["tensor"] == "n"


def test_a_partly_healed_jump_ranks_by_what_is_left_of_it() -> None:
    def row(tensor: str, noise: float, inherited: float, passed_on: float) -> Row:
        read = Comparison()
        read.add(np.array([1.0, 0.0]), np.array([1.0, noise**0.5]))
        return Row(tensor, f"of {tensor}", "Conv", None, read, 0.1, inherited=inherited, passed_on=passed_on)

    rows = [row("healed", 0.9, 0.0, 0.01), row("small", 0.005, 0.0, 0.005), row("large", 0.2, 0.01, 0.2)]
    found = LayerComparison(rows).row()
    assert found.first_jump is not None and found.first_jump.tensor == "healed"
    assert [jump.tensor for jump in found.jumps] == ["large", "healed", "small"]
    assert [jump.added for jump in found.jumps] == pytest.approx([0.19, 0.01, 0.005])


def test_the_cache_counts_not_the_config(files: TranslationFiles) -> None:
    """TensorRT reads the cache; a config that says otherwise changes nothing."""
    cache = CalibrationCache.from_text(files.cache.read_text())
    del cache.scales["input"]
    files.cache.write_text(cache.to_text())
    assert (
        look(files)["simulation"]["layers_above_int8"] == 3
    )  # Gemm and its bias before the output, and the first Conv
