"""The Python API: values in the place of files and flags, the same results and the same errors as the command line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import onnx
import pytest

import qdq_translator as qt
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES

SAMPLES = np.load(EXAMPLE_SAMPLES)
INPUTS, LABELS = SAMPLES["input"], SAMPLES["labels"]


def top1(outputs: Any, labels: Any) -> float:
    (logits,) = outputs.values()
    return float(100 * np.mean(logits.argmax(1) == labels))


class Loader:
    """Batches (inputs, labels), as a PyTorch DataLoader gives them."""

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, 48, 16):
            yield INPUTS[start : start + 16], LABELS[start : start + 16]


def test_names() -> None:
    functions = {"calibrate", "deploy", "explain", "explicit", "plan", "report", "translate", "tune", "verify"}
    types = {
        "Bundle",
        "Explanation",
        "Explicit",
        "Report",
        "TranslateOptions",
        "Translation",
        "Tuning",
        "UserError",
        "Verification",
    }
    assert set(dir(qt)) == functions | types | {"__version__"}
    assert all(callable(getattr(qt, name)) for name in functions | types)


def test_the_package_imports_nothing_heavy() -> None:
    probe = (
        "import sys, qdq_translator; sys.exit(any(m in sys.modules for m in ('onnx', 'onnxruntime', 'numpy', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


@pytest.mark.parametrize("form", ["path", "text", "proto", "bytes"])
def test_models(form: str, tmp_path: Path) -> None:
    forms = {
        "path": EXAMPLE_MODEL,
        "text": str(EXAMPLE_MODEL),
        "proto": onnx.load(EXAMPLE_MODEL),
        "bytes": EXAMPLE_MODEL.read_bytes(),
    }
    made = qt.translate(forms[form], preset="dla", platform="jetpack-6.2", name="m")
    made.save(tmp_path)
    assert (
        main(
            [
                "translate",
                str(EXAMPLE_MODEL),
                "-o",
                str(tmp_path / "cli"),
                "--preset",
                "dla",
                "--platform",
                "jetpack-6.2",
            ]
        )
        == 0
    )
    cache = tmp_path / "cli" / "digits_resnet_qat_precision_config_calib.cache"
    assert (tmp_path / "m_precision_config_calib.cache").read_bytes() == cache.read_bytes()
    assert (
        len(repr(made).splitlines()) <= 10
        and repr(made).startswith("Translation")
        and "DLA" in made._repr_html_().upper()
    )
    assert made.layers[0].name and len(made.layers) == len(made.report["plan"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"asymmetric": "yes"}, "--asymmetric: 'yes' is none of error, widen"),
        ({"preset": "DLA"}, "--preset: 'DLA' is none of gpu, dla. Did you mean dla?"),
        ({"target": "orin"}, "--target: 'orin' is none of gpu, orin-dla, xavier-dla. Did you mean orin-dla?"),
        ({"max_bits_lost": "a"}, "--max_bits_lost: 'a' is not of the type float."),
        ({"keep_fp16": "conv"}, "--keep_fp16: 'conv' is not of the type"),
        ({"infer_bounds": 1}, "--infer_bounds: 1 is not of the type bool."),
        ({"presets": "dla"}, "There is no option 'presets'. Did you mean preset?"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        qt.translate(EXAMPLE_MODEL, **wrong)
    assert str(error.value).startswith(said)


def test_wrong_choices_are_said_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(EXAMPLE_MODEL), "--target", "orin"]) == 2
    assert "--target: 'orin' is none of gpu, orin-dla, xavier-dla. Did you mean orin-dla?" in capsys.readouterr().err


def test_plan_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    made = qt.plan(EXAMPLE_MODEL, platform="jetpack-6.2", shapes=["input:1x1x16x16"])
    assert (
        main(["plan", "-i", str(EXAMPLE_MODEL), "--platform", "jetpack-6.2", "--shapes", "input:1x1x16x16", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["cost"]["milliseconds"] == made.report["cost"]["milliseconds"] > 0


@pytest.mark.parametrize("form", ["array", "mapping", "loader", "path"])
def test_data(form: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", input=INPUTS[:48])
    data = {"array": INPUTS[:48], "mapping": {"input": INPUTS[:48]}, "loader": Loader(), "path": tmp_path / "data.npz"}[
        form
    ]
    made = qt.calibrate(EXAMPLE_MODEL, data, platform="jetpack-6.2")
    expected = qt.translate(EXAMPLE_MODEL, calibrate=tmp_path / "data.npz", platform="jetpack-6.2")
    assert made.tensor_scales == expected.tensor_scales
    assert any(origin["rule"] == "K1" for origin in made.scale_origins.values())


def test_verify_with_a_callable(tmp_path: Path) -> None:
    made = qt.translate(EXAMPLE_MODEL, platform="jetpack-6.2")
    found = qt.verify(EXAMPLE_MODEL, made, data=Loader(), metric=top1)
    logits = qt.verify(EXAMPLE_MODEL, made, data={"input": INPUTS[:48]}, labels=LABELS[:48], metric=top1)
    assert found.ok and found.metric == logits.metric and found.metric["explicit"] > 90
    assert found.verdict in ("equal", "within expected rounding") and len(repr(found).splitlines()) <= 10
    found.save(tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text()) == found.to_dict()
    copy = found.to_dict()
    copy.clear()
    assert found.to_dict()
    missed = qt.verify(EXAMPLE_MODEL, made, data=Loader(), min_cosine=1.0)
    assert not missed.ok


def test_tune_with_a_callable(tmp_path: Path) -> None:
    found = qt.tune(
        EXAMPLE_MODEL,
        Loader(),
        metric=top1,
        max_drop=3.0,
        evaluations=6,
        output_dir=tmp_path,
        preset="dla",
        shapes=["input:1x1x16x16"],
    )
    assert found.holds and found.to_dict()["metric"]["name"] == "top1"
    assert (tmp_path / "digits_resnet_qat_noqdq.onnx").exists() and len(repr(found).splitlines()) <= 10


def test_report_and_explain(tmp_path: Path) -> None:
    made = qt.translate(EXAMPLE_MODEL, preset="dla", platform="jetpack-6.2")
    made.save(tmp_path / "t")
    found = qt.report(tmp_path / "t", html=tmp_path / "page.html")
    assert found.to_dict() == json.loads((tmp_path / "t" / "digits_resnet_qat_report.json").read_text())
    assert (tmp_path / "page.html").stat().st_size > 10_000 and qt.report(made).layers == found.layers
    assert qt.explain("W-U1").title.startswith("Rule U1") and "four dimensions" in str(qt.explain("H1"))
    with pytest.raises(qt.UserError, match="Z9"):
        qt.explain("Z9")


def test_deploy(tmp_path: Path) -> None:
    told: list[str] = []
    made = qt.deploy(
        EXAMPLE_MODEL,
        "jetpack-6.2",
        data=INPUTS[:32],
        consumers=["trtexec", "onnxruntime"],
        output_dir=tmp_path / "bundle",
        shapes=["input:1x1x16x16"],
        progress=lambda what, done, total: told.append(what),
    )
    assert (made.folder / "README.md").exists() and set(made.to_dict()["consumers"]) == {"trtexec", "onnxruntime"}
    assert told and len(repr(made).splitlines()) <= 10 and made.to_dict()["verdict"] in repr(made)


def test_explicit(tmp_path: Path) -> None:
    made = qt.explicit(EXAMPLE_MODEL, platform="tensorrt-11.4.1")
    model = onnx.load(made.save(tmp_path))
    assert sum(node.op_type == "QuantizeLinear" for node in model.graph.node) > 5


def test_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in one namespace."""
    page = Path(__file__).resolve().parents[1] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE_MODEL, "model.onnx")
    onnx.save(qt.translate(EXAMPLE_MODEL).model, "float.onnx")
    names: dict[str, Any] = {"loader": Loader()}
    assert len(blocks) == 5
    for block in blocks:
        exec(block, names)
    assert names["found"].holds and names["rows"] == [row for row in names["rows"] if row["reason"]]
    assert names["plan"].report["cost"]["milliseconds"] > 0 and len(names["made"].tensor_scales) > 10


def test_examples_are_typed(tmp_path: Path) -> None:
    """`mypy --strict` accepts them; what it must refuse is in the second file."""
    pytest.importorskip("mypy")
    good = "import qdq_translator as qt\n\nmade: qt.Translation = qt.translate('m.onnx', name='m', preset='dla')\n"
    good += "ok: bool = qt.verify('m.onnx', made, metric=lambda outputs, labels: 1.0).ok\n"
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "bad.py").write_text(
        "import qdq_translator as qt\n\nqt.verify('m.onnx')\nqt.TranslateOptions(target='orin')\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(tmp_path / name)],
            capture_output=True,
            text=True,
        )
        for name in ("good.py", "bad.py")
    ]
    assert runs[0].returncode == 0, runs[0].stdout
    assert runs[1].returncode == 1 and "[call-arg]" in runs[1].stdout and "[arg-type]" in runs[1].stdout
