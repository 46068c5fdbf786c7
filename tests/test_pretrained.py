"""The benchmark of trained networks: its own parts without a network, and its smoke mode where the packages can be had."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from e2e_workflow.pretrained import check, convert, fronts, packages, registry, run, sound, text, tfjs
from e2e_workflow.pretrained.task import Size, mean, split
from tests.small_models import model

ROOT = Path(__file__).resolve().parents[1]


def test_every_row_is_complete() -> None:
    """Names are unique, packages pinned, sizes large enough for a decision."""
    assert len(registry.BY_NAME) == len(registry.NETWORKS) >= 25
    assert sum(network.native for network in registry.NETWORKS) >= 5
    assert sum(network.smoke for network in registry.NETWORKS) >= 4
    for network in registry.NETWORKS:
        package = packages.PACKAGES[network.package]
        assert package.registry in ("pypi", "npm") and len(package.sha256) == 64 and package.licence
        decides = network.metric.startswith(("right d", "right o", "right p", "agreement: best", "agreement: same"))
        assert network.samples.evaluation >= (200 if decides else 50)
        assert network.metric and network.data and network.how and network.preprocessing


def test_an_archive_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is compared before anything is read, and nothing is left in the cache."""
    monkeypatch.setenv(packages.CACHE, str(tmp_path))
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("net.onnx", "x")
    content = (tmp_path / "a.whl").read_bytes()

    def download(package: packages.Package, folder: Path) -> None:
        (folder / package.file).write_bytes(content)

    monkeypatch.setattr(packages, "_download", download)
    rows = {
        "bad": packages.Package("pypi", "bad", "1", "bad.whl", "0" * 64, "MIT"),
        "good": packages.Package("pypi", "good", "1", "good.whl", hashlib.sha256(content).hexdigest(), "MIT"),
    }
    monkeypatch.setattr(packages, "PACKAGES", rows)
    with pytest.raises(packages.Unavailable, match=r"bad 1: .* known SHA-256"):
        packages.read("bad", "net.onnx")
    assert not list((tmp_path / "packages").iterdir())
    assert packages.read("good", "net.onnx") == b"x"
    monkeypatch.setattr(packages, "_download", None)  # offline afterwards
    assert packages.read("good", "net.onnx") == b"x"


def test_calibration_and_evaluation_are_disjoint() -> None:
    """Samples of several inputs keep together."""
    samples = [(np.full(2, i), np.full(1, -i)) for i in range(5)]
    network = model("g (float[1,2] a, float[1,1] b) => (float[1,2] c) { c = Add(a, b) }")
    first, second = split(Size(2, 3), samples, network)
    assert first["a"][:, 0].tolist() == [0, 1] and second["a"][:, 0].tolist() == [2, 3, 4]
    assert (second["a"][:, 0] == -second["b"][:, 0]).all()


def test_the_error_bar() -> None:
    """Half of the 95% interval; of equal scores the exact limit for a share of none in n."""
    centre, width = mean([0, 100] * 50)
    assert centre == 50 and width == pytest.approx(1.96 * 50.25 / 10, abs=0.01)
    assert mean([100.0] * 100) == (100.0, pytest.approx(2.95, abs=0.01))


def test_scores_of_text_and_sound() -> None:
    assert text.edit_distance("kitten", "sitting") == 3 and text.edit_distance("", "ab") == 2
    assert text.overlap((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert text.f1_of_boxes([(0, 0, 2, 2)], [(0, 0, 2, 2), (9, 9, 10, 10)]) == pytest.approx(200 / 3)
    assert text.f1_of_boxes([], []) == 100 and text.f1_of_boxes([(0, 0, 1, 1)], []) == 0
    network = model("g (float[1,1024] audio) => (float[1,1024] y) { y = Relu(audio) }")
    task = sound.pitch(np.random.default_rng(0), Size(1, 2), network)
    cents = np.array(task.truth)
    for bins, right in ((np.rint((cents - 1997.38) / 20), 100), (np.rint((cents - 1997.38) / 20) + 4, 0)):
        outputs = [[np.eye(360)[int(b)][None]] for b in bins]
        assert [task.score(o, c) for o, c in zip(outputs, cents)] == [right] * 2


def test_the_independent_check_rounds_tensors_and_weights(tmp_path: Path) -> None:
    """Against the same arithmetic in NumPy: a grouped ConvTranspose and a Gemm with scales for their inputs. Neither the weights
    of a layer above INT8 nor what only such layers read is rounded."""
    import onnx
    import onnxruntime

    random = np.random.default_rng(0)
    weight = random.normal(size=(4, 3, 2, 2)).astype(np.float32)
    dense = random.normal(size=(5, 96)).astype(np.float32)
    network = model(
        """g (float[1,4,2,2] x) => (float[1,5] y) {
            c = ConvTranspose<group=2, strides=[2,2]>(x, w)  f = Flatten(c)  y = Gemm<transB=1>(f, d) }""",
        w=weight,
        d=dense,
    )
    for node in network.graph.node:
        node.name = node.op_type
    onnx.save(network, str(tmp_path / "net.onnx"))
    steps = {"x": np.float32(0.02), "f": np.float32(0.1)}
    lines = [f"{name}: {step.view(np.uint32):08x}" for name, step in steps.items()]
    (tmp_path / "cache").write_text("\n".join(["TRT-8600-EntropyCalibration2", *lines, "gone: 3f800000"]) + "\n")

    def rounded(values: np.ndarray, step: np.ndarray) -> np.ndarray:
        return (np.clip(np.rint(values / step), -128, 127) * step).astype(np.float32)

    def grid(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return rounded(values, np.abs(values).max(axes, keepdims=True) / 127)

    x = random.normal(size=(1, 4, 2, 2)).astype(np.float32)
    w = grid(weight.reshape(2, 2, 3, 2, 2), (1, 3, 4)).reshape(weight.shape)
    by_group = [np.einsum("nchw,cokl->nohkwl", rounded(x, steps["x"])[:, i : i + 2], w[i : i + 2]) for i in (0, 2)]
    c = np.concatenate(by_group, 1).reshape(1, 6, 4, 4)
    flat = c.reshape(1, -1)
    for above, read, matrix in (([], rounded(flat, steps["f"]), grid(dense, (1,))), (["Gemm"], flat, dense)):
        faked = check.fake_quantized(tmp_path / "net.onnx", tmp_path / "cache", above)
        (found,) = onnxruntime.InferenceSession(faked.SerializeToString()).run(None, {"x": x})
        np.testing.assert_allclose(found, read @ matrix.T, rtol=1e-4, atol=1e-4)


def test_the_check_names_what_an_engine_may_omit(tmp_path: Path) -> None:
    """Inside a fusion, and before movement with one scale to a layer above INT8; not with two scales, nor if INT8 reads it, too."""
    import onnx

    network = model(
        """g (float[1,2,2,2] x) => (float[1,2,2,2] y, float[1,2,2,2] z) {
            a = Conv(x, w)  b = Relu(a)  c = Transpose<perm=[0,1,3,2]>(b)  y = Sigmoid(c)
            d = Transpose<perm=[0,1,3,2]>(x)  e = Transpose<perm=[0,1,3,2]>(d)  z = Sigmoid(e) }""",
        w=np.ones((2, 2, 1, 1), np.float32),
    )
    for node in network.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    onnx.save(network, str(tmp_path / "net.onnx"))
    steps = {"x": 1, "a": 2, "b": 1, "c": 1, "d": 1, "e": 2}
    lines = [f"{name}: {np.float32(step).view(np.uint32):08x}" for name, step in steps.items()]
    (tmp_path / "cache").write_text("\n".join(["TRT-8600-EntropyCalibration2", *lines]) + "\n")
    found = check.omitted(tmp_path / "net.onnx", tmp_path / "cache", ["Sigmoid_y", "Sigmoid_z"])
    assert found & steps.keys() == {"a", "b", "c", "e"}


def test_quantized_networks_get_float_ends() -> None:
    """Inputs and outputs keep their names and mean the same; an input that is moved before it is dequantized, a state that is only cut."""
    import onnxruntime

    network = model(
        """g (int8[1,4] x, int8[1,2] state_0) => (uint8[1,4] y, int8[1,2] next_state_0) {
            c = Concat<axis=1>(state_0, x)  next_state_0 = Slice(c, from, to, axis)  r = Reshape(x, shape)
            f = DequantizeLinear(r, s, z)  p = Sigmoid(f)  t = Reshape(p, flat)  y = QuantizeLinear(t, sy, zy)
            g = DequantizeLinear(c, s, z) }""",
        **{"from": np.array([4], np.int64), "to": np.array([6], np.int64), "axis": np.array([1], np.int64)},
        shape=np.array([1, 1, 2, 2], np.int64),
        flat=np.array([1, 4], np.int64),
        s=np.float32(0.5),
        z=np.int8(-3),
        sy=np.float32(1 / 256),
        zy=np.uint8(0),
    )
    made = convert.float_ends(lambda _: network)(b"")
    x, state = np.array([[-8, 0, 5, 9]], np.int8), np.zeros((1, 2), np.int8)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    y, after = session.run(None, {"x": (x + np.float32(3)) / 2, "state_0": (state + np.float32(3)) / 2})
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-(x + 3.0) / 2)), atol=1 / 256)
    np.testing.assert_array_equal(after, (x[:, 2:] + 3.0) / 2)


def test_weights_of_scripts() -> None:
    """Object literals and base64 of minified modules, and weights in uint8 with a step and a minimum."""
    head = "!function(e){}(function(){return function e(a,n,i){}({1:[function(e,a,n){a.exports="
    tail = "},{}]},{},[1])(1)});"
    told = tfjs.of_script(
        head + '{weightsManifest:[{weights:[{name:"a/k",shape:[2],dtype:"float32"}]}],x:[!0,-.5,1e-3]}' + tail
    )
    assert told["x"] == [True, -0.5, 0.001] and told["weightsManifest"][0]["weights"][0]["name"] == "a/k"
    assert tfjs.of_script(head + '"AAE="' + tail) == b"\x00\x01"
    steps = {"dtype": "uint8", "scale": 0.5, "min": -1.0}
    rows = [
        {
            "weights": [
                {"name": "q", "shape": [2], "dtype": "float32", "quantization": steps},
                {"name": "f", "shape": [1], "dtype": "float32"},
            ]
        }
    ]
    found = tfjs.weights(rows, bytes([0, 4]) + np.float32(7).tobytes())
    assert found["q"].tolist() == [-1, 1] and found["f"].tolist() == [7]


def test_rows_that_were_not_measured_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A written table keeps its other rows, in the registry's order, with their lines about the check; they say that they are older."""
    monkeypatch.setattr(run, "TABLE", tmp_path / "table.md")
    monkeypatch.setattr(fronts, "PICTURE", tmp_path / "fronts.svg")
    width = len(run.HEADER)
    lost = {
        "DLA passes": 12.4,
        "DLA front": [[0.1, 100.0, 7.5], [None, 40.0, 0.5]],
        "GPU front": [[0.1, 100.0, 0.9], [0.2, 0.0, 0.0]],
    }
    old = [[name, "explicit", *[""] * (width - 4), "7"] for name in ("pitch", "iris")]  # without a commit
    run.write(old, [], ["- pitch, explicit, GPU: differs", "- iris, explicit, GPU: differs"], {"pitch": lost})
    run.write(
        [["iris", "explicit", *[""] * (width - 3), "abc"]],
        ["- pitch is SKIPPED: no", "- iris, x: failed"],
        [],
        {"iris": {}},
    )
    text = run.TABLE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if "| explicit |" in line]
    assert [line.split(" | ")[0] for line in rows] == ["| pitch", "| iris"]
    assert rows[0].endswith(f"| 7 | {run.EARLIER} |") and rows[1].endswith("| abc |")
    assert "- pitch, explicit, GPU: differs" in text and "- iris, explicit, GPU" not in text
    assert "- iris, x: failed" in text and "SKIPPED" not in text
    assert fronts.read(text) == {"pitch, DLA, 12 passes": lost["DLA front"]}, "the other loses less than a point"
    drawn = ElementTree.parse(fronts.PICTURE).getroot().iter("{http://www.w3.org/2000/svg}circle")
    assert [circle.get("cx") for circle in drawn] == ["45.0", "177.0"]


def test_smoke_mode() -> None:
    """Four small networks, each through every second path; the simulated engine and the independent check within their error bars."""
    missing = [name for name in ("PIL", "scipy", "sympy") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"LOUDLY: the trained networks are not run here, for lack of {', '.join(missing)}")
    command = [sys.executable, "-m", "e2e_workflow.pretrained.run", "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    if "SKIPPED" in done.stdout:
        pytest.skip("LOUDLY: " + next(line for line in done.stdout.splitlines() if "SKIPPED" in line))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if " | " in line]
    assert len(rows) >= 10 and {row[1] for row in rows} >= {
        run.ROUTES[name].title for name in run.ROUTES if name not in ("modelopt", "native")
    }
    for row in rows:
        original, _, gpu, gpu_check, dla, dla_check = (
            (float(cell.split(" ± ")[0]), float(cell.split(" ± ")[1])) if cell else None for cell in row[2:8]
        )
        assert original is not None and original[0] > 60, row
        for found, checked in ((gpu, gpu_check), (dla, dla_check)):
            if row[1] != "explicit":
                assert found and checked and abs(found[0] - checked[0]) <= max(found[1], checked[1]), row
