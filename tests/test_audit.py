"""`verify --audit` and `translate --recalibrate` (rule K2): scales that are there, held against data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.verify import Options
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.progress import silent
from qdq_translator.lab.simulate.calibration.audit import audit_network
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.lab.simulate.metrics import Comparison
from qdq_translator.lab.simulate.run import Session
from qdq_translator.lab.verification import verify
from qdq_translator.translation.planning.placement import Placement
from tests.small_models import model, pair

GRAPH = f"""net (float[N, 4, 8, 8] x) => (float[N, 4, 8, 8] y) {{
    {pair("x", "xq", "sx")}
    a = Conv(xq, u)
    {pair("a", "aq", "sa")}
    b = Conv(aq, u)
    {pair("b", "bq", "sb")}
    y = Conv(bq, u)
}}"""


def network(sx: float = 4 / 127, sa: float = 4 / 127, sb: float = 4 / 127) -> onnx.ModelProto:
    """Orthogonal 1x1 convolutions: every tensor is about normal, with deviation 1."""
    u = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0].astype(np.float32)[:, :, None, None]
    scales = {"sx": np.float32(sx), "sa": np.float32(sa), "sb": np.float32(sb)}
    return model(GRAPH, u=u, z=np.int8(0), **scales)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((64, 4, 8, 8)).astype(np.float32))
    return tmp_path / "x.npy"


def audited(explicit: onnx.ModelProto, data: Path, folder: Path):  # type: ignore[no-untyped-def]
    translate(explicit, name="net").save(folder)
    found = ImplicitNetwork.read(TranslationFiles.locate(str(folder)))
    return audit_network(found, load_samples(data, input_specs(found.model, {}), None), silent)


def test_figures_are_those_of_the_values(data: Path, tmp_path: Path) -> None:
    """'a' clips, 'b' wastes bits; each row against the tensor's own values in the explicit model."""
    explicit = network(sa=1 / 127, sb=40 / 127)
    rows = {row.tensor: row for row in audited(explicit, data, tmp_path / "t").tensors}
    values = Session(explicit, "explicit", ["x", "a", "b"]).run({"x": np.load(data)})
    for name, amax in (("x", 4.0), ("a", 1.0), ("b", 40.0)):
        row, seen = rows[name], values[name].astype(np.float64)
        scale = np.float32(amax / 127)
        error = Comparison()
        error.add(seen, np.clip(np.rint(seen / scale), -128, 127) * scale)
        assert row.sqnr_db == pytest.approx(error.sqnr_db, abs=0.1)
        assert row.clipped == pytest.approx((np.abs(seen) > amax).mean(), abs=1e-3)
        assert row.unused_bits == pytest.approx(max(0, np.log2(amax / np.abs(seen).max())), abs=1e-4)
        assert (row.lowest, row.highest) == (pytest.approx(seen.min()), pytest.approx(seen.max()))
    assert "too tight" in rows["a"].cause and "too wide" in rows["b"].cause and rows["x"].cause == "fits"


def test_histograms_hold_every_value_and_the_clip_lines(data: Path, tmp_path: Path) -> None:
    explicit = network(sa=1 / 127)
    row = next(r for r in plain(audited(explicit, data, tmp_path / "t"))["tensors"] if r["tensor"] == "x")
    counts, end = row["histogram"]["counts"], row["histogram"]["end"]
    magnitudes = np.abs(np.load(data)).ravel()
    assert counts == np.histogram(magnitudes, len(counts), (0, end))[0].tolist() and sum(counts) == magnitudes.size
    assert row["amax"] == pytest.approx(4.0) and row["best_amax"] == pytest.approx(127 * row["best"])


def weights_of(explicit: onnx.ModelProto, data: Path, folder: Path, *more: str) -> list:  # type: ignore[type-arg]
    onnx.save(explicit, folder / "net.onnx")
    net, out = str(folder / "net.onnx"), str(folder / "t")
    assert main(["translate", net, "-o", out, *more]) == 0
    saved = str(folder / "results.json")
    assert (
        main(["verify", "-i", net, "-t", out, "--inputs", str(data), "--audit", "--save", saved, "--allow_suspicious"])
        == 0
    )
    return list(json.loads(Path(saved).read_text())["audit"]["weights"])


def test_weights_by_channel(data: Path, tmp_path: Path) -> None:
    """One scale for all channels leaves a small channel few codes; one large weight sets the step of its channel."""
    random = np.random.default_rng(5)
    w = random.standard_normal((4, 4, 3, 3)).astype(np.float32)
    w[1] *= 2 * np.abs(w).max() / 127 / np.abs(w[1]).max()
    v = random.standard_normal((4, 4, 9, 9)).astype(np.float32)
    v[2, 0, 0, 0] = 400
    u = random.standard_normal((4, 4, 3, 3)).astype(np.float32)
    text = f"""net (float[N, 4, 8, 8] x) => (float[N, 4, 4, 4] y) {{
        {pair("x", "xq", "s")}
        {pair("w", "wq", "sw")}
        a = Conv(xq, wq)
        {pair("a", "aq", "s")}
        b = Conv <pads=[4, 4, 4, 4]> (aq, v)
        {pair("b", "bq", "s")}
        c = Conv(bq, u)
        {pair("c", "y", "s")}
    }}"""
    sw = np.float32(np.abs(w).max() / 127)
    rows = weights_of(model(text, w=w, v=v, u=u, z=np.int8(0), s=np.float32(4 / 127), sw=sw), data, tmp_path)
    assert [row["worst_channel"] for row in rows[:2]] == [1, 2] and rows[2]["cause"] == "fits"
    first, second, third = rows
    codes = np.rint(np.abs(w).reshape(4, -1).max(1) / sw)
    assert first["channel_codes"] == codes.tolist() and codes[1] <= 3 and "one scale" in first["cause"]
    assert second["channel_codes"] == [127] * 4 and "few large weights" in second["cause"]
    for row, weight in ((second, v), (third, u)):
        steps = np.abs(weight).reshape(4, -1).max(1) / 127
        expected = 10 * np.log10(12 * np.mean(weight.reshape(4, -1).astype(np.float64) ** 2, axis=1) / steps**2)
        assert row["channel_sqnr_db"] == pytest.approx(expected.tolist())
        assert sum(row["histogram"]["counts"]) == weight.size


def test_the_worst_comes_first(data: Path, tmp_path: Path) -> None:
    audit = audited(network(sa=1 / 127, sb=40 / 127), data, tmp_path / "t")
    assert [row.tensor for row in audit.tensors] == ["a", "b", "b_clamp", "x"]  # a clamp before the output (rule Q9)
    assert audit.tensors[0].gain_db > 10 and audit.tensors[1].gain_db > 10 and audit.tensors[-1].gain_db < 1
    assert audited(network(), data, tmp_path / "fits").unlike == ""


@pytest.mark.parametrize(("factor", "word"), [(20.0, "clip"), (1 / 20, "unused")])
def test_data_unlike_those_of_the_scales_are_noticed(factor: float, word: str, tmp_path: Path, data: Path) -> None:
    np.save(tmp_path / "other.npy", np.load(data) * np.float32(factor))
    unlike = audited(network(), tmp_path / "other.npy", tmp_path / "t").unlike
    assert word in unlike and "preprocessing" in unlike


def test_an_outlier_channel_and_asymmetric_data_are_named(tmp_path: Path) -> None:
    values = np.random.default_rng(2).standard_normal((16, 4, 8, 8)).astype(np.float32)
    values[:, 2] = np.abs(values[:, 2]) * 9
    np.save(tmp_path / "x.npy", values)
    row = next(r for r in audited(network(sx=40 / 127), tmp_path / "x.npy", tmp_path / "t").tensors if r.tensor == "x")
    assert "channel 2 reaches" in row.cause and "asymmetric" not in row.cause
    values = np.random.default_rng(2).uniform(-0.5, 3.5, (16, 4, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    row = next(r for r in audited(network(sx=3.5 / 127), tmp_path / "x.npy", tmp_path / "t").tensors if r.tensor == "x")
    assert row.cause == f"asymmetric: from {values.min():.4g} to {values.max():.4g} under a symmetric scale"


def output_noise(explicit: onnx.ModelProto, data: Path, **options: object) -> float:
    """Of the network with the translation's scales applied, against the network in float."""
    translation = translate(explicit, TranslateOptions(**options))  # type: ignore[arg-type]
    rounded = simulate(ImplicitNetwork.of(translation), placement=Placement(translation.tensor_scales)).model
    feed = {"x": np.load(data)}
    comparison = Comparison()
    wanted = Session(translation.model, "float").run(feed)["y"]
    comparison.add(wanted, Session(rounded, "rounded").run(feed)["y"])
    return comparison.noise


def test_k2_replaces_named_scales_only_and_the_outputs_gain(data: Path) -> None:
    explicit = network(sa=1 / 127, sb=40 / 127)
    before = translate(explicit, TranslateOptions(calibrate=str(data))).scales
    named = translate(explicit, TranslateOptions(calibrate=str(data), recalibrate=["a"]))
    assert named.scales["a"].origin.rule == "K2" and "was 0.007874" in named.scales["a"].origin.note
    assert named.scales["x"] == before["x"] and named.scales["b"] == before["b"]
    assert {*before} == {*named.scales} == {"x", "a", "b"}  # no data exceed the range of b: no clamp (rule Q9)
    assert 2.5 < named.scales["a"].amax < 5 and any(d.rule == "K2" for d in named.diagnostics.warnings)
    noises = [
        output_noise(explicit, data),
        output_noise(explicit, data, calibrate=str(data), recalibrate=["worst:1"]),
        output_noise(explicit, data, calibrate=str(data), recalibrate=["worst:2"]),
        output_noise(network(), data),
    ]
    assert noises[0] > 10 * noises[1] and noises[1] > 2 * noises[2]
    assert noises[2] < 1.2 * noises[3]


def test_k2_scales_are_handed_on(data: Path) -> None:
    """What an exact rule takes from a scale follows the new one."""
    explicit = network(sb=40 / 127)
    explicit.graph.node[-1].input[0] = "r"
    explicit.graph.node.insert(len(explicit.graph.node) - 1, onnx.helper.make_node("Relu", ["bq"], ["r"]))
    translation = translate(explicit, TranslateOptions(calibrate=str(data), recalibrate=["b"]))
    assert translation.scales["r"].value == translation.scales["b"].value < 10 / 127


def test_what_cannot_be_recalibrated(data: Path) -> None:
    with pytest.raises(UserError, match=r"'aa' has no scale .*Did you mean a"):
        translate(network(), TranslateOptions(calibrate=str(data), recalibrate=["aa"]))
    with pytest.raises(UsageError, match="calibrate"):
        translate(network(), TranslateOptions(recalibrate=["a"]))


def pictures(count: int, seed: int) -> np.ndarray:
    """(count, 3, 16, 16), 0 to 1: smooth, with channels of different means as photographs have them."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.1, 0.9, (count, 1, 4, 4)).repeat(4, axis=2).repeat(4, axis=3)
    return (base * np.array([0.95, 0.75, 0.5])[None, :, None, None]).astype(np.float32)


WRONG = {
    "x255": lambda x: x * 255,
    "/255": lambda x: x / 255,
    "mean/std": lambda x: (x - 0.45) / 0.225,
    "BGR": lambda x: x[:, ::-1],
    "inverted": lambda x: 1 - x,
}


@pytest.fixture(scope="module", params=["Q/DQ", "calibrated"])
def photographic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model, translation) of a network with BatchNormalizations of its training data, as Q/DQ or calibrated."""
    folder, rng, x = tmp_path_factory.mktemp("photographic"), np.random.default_rng(3), pictures(64, 0)
    weights, made = {}, x
    for index, channels in enumerate((3, 8)):
        w = (rng.standard_normal((8, channels, 1, 1)) / np.sqrt(channels)).astype(np.float32)
        made = np.einsum("oi,nihw->nohw", w[:, :, 0, 0], made)
        mean, variance = made.mean(axis=(0, 2, 3)), made.var(axis=(0, 2, 3))
        weights.update({f"w{index}": w, f"m{index}": mean, f"v{index}": variance})
        made = np.maximum((made - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5), 0)
    ones = {"one": np.ones(8, np.float32), "zero": np.zeros(8, np.float32)}
    quantized = request.param == "Q/DQ"
    first, second = (
        (pair("x", "xq", "sx"), pair("r", "rq", "sr")) if quantized else ("xq = Identity(x)", "rq = Identity(r)")
    )
    text = f"""net (float[N, 3, 16, 16] x) => (float[N, 8, 16, 16] y) {{
        {first}
        a = Conv(xq, w0)
        b = BatchNormalization(a, one, zero, m0, v0)
        r = Relu(b)
        {second}
        c = Conv(rq, w1)
        d = BatchNormalization(c, one, zero, m1, v1)
        y = Relu(d)
    }}"""
    scales = {"sx": np.float32(0.95 / 127), "sr": np.float32(3 / 127), "z": np.int8(0)} if quantized else {}
    onnx.save(model(text, **weights, **ones, **scales), folder / "net.onnx")
    np.save(folder / "train.npy", x)
    more = {} if quantized else {"calibrate": str(folder / "train.npy")}
    translate(folder / "net.onnx", TranslateOptions(**more)).save(folder / "t")
    return folder / "net.onnx", folder / "t"


@pytest.mark.parametrize("wrong", ["", *WRONG])
def test_inputs_unlike_those_of_the_calibration(wrong: str, photographic: tuple[Path, Path], tmp_path: Path) -> None:
    values = pictures(64, 1)
    np.save(tmp_path / "x.npy", WRONG[wrong](values) if wrong else values)
    asked = Options(
        model=str(photographic[0]), translation=str(photographic[1]), data=str(tmp_path / "x.npy"), audit=True
    )
    unlike = verify(asked)["audit"]["unlike"]
    assert bool(unlike) == bool(wrong) and ("unlike those of the calibration" in unlike or not wrong)
