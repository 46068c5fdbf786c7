"""The Python API: values in the place of files and flags, the same results and the same errors as the command line."""

from __future__ import annotations

import dataclasses
import gc
import html
import inspect
import json
import multiprocessing
import re
import shutil
import subprocess
import sys
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import onnx
import pytest
from jsonschema import Draft7Validator

import qdq_translator as qt
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.core.formats.schemas import EXPLICIT_REPORT, report_schema, results_schema, tuning_schema
from tests import public_api
from tests.test_schemas import hold

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


def test_what_is_public_is_recorded() -> None:
    """Names, signatures, options with types and defaults, schemas. `python -m tests.renew` writes what was meant to change."""
    assert public_api.RECORD.read_text(encoding="utf-8") == public_api.record()
    assert public_api.KEYWORDS.read_text(encoding="utf-8") == public_api.keywords()
    undocumented = [
        f"{name}.{key}"
        for name in dir(qt)
        if isinstance(getattr(qt, name), type)
        for key, _ in public_api.public_members(getattr(qt, name))
        if inspect.getdoc(getattr(getattr(qt, name), key, "a field")) is None
    ]
    assert undocumented == []


def test_the_package_imports_nothing_heavy() -> None:
    probe = (
        "import sys, qdq_translator; sys.exit(any(m in sys.modules for m in ('onnx', 'onnxruntime', 'numpy', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


@pytest.mark.parametrize("form", ["path", "text", "proto", "bytes"])
def test_models(form: str, tmp_path: Path) -> None:
    forms = {"path": Path, "text": str, "proto": onnx.load, "bytes": Path.read_bytes}
    made = qt.translate(forms[form](EXAMPLE_MODEL), preset="dla", platform="jetpack-6.2", name="m")
    made.save(tmp_path)
    asked = ["translate", str(EXAMPLE_MODEL), "-o", str(tmp_path / "cli")]
    assert main([*asked, "--preset", "dla", "--platform", "jetpack-6.2"]) == 0
    cache = tmp_path / "cli" / "digits_resnet_qat_precision_config_calib.cache"
    assert (tmp_path / "m_precision_config_calib.cache").read_bytes() == cache.read_bytes()
    assert made.layers[0].name and len(made.layers) == len(made.report["plan"])


def test_wrong_options_are_value_errors() -> None:
    """Their sentences are in the transcripts (desk/python.txt)."""
    with pytest.raises(ValueError, match=r"^max_bits_lost 10{19} is not possible"):
        qt.translate(EXAMPLE_MODEL, max_bits_lost=10**400)


def test_options_and_results_are_frozen() -> None:
    made = qt.translate(EXAMPLE_MODEL)
    for thing, name in (
        (made, "name"),
        (made.options, "preset"),
        (qt.report(made), "_results"),
        (qt.explain("S7"), "_results"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, "dla")


def test_plan_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    made = qt.plan(EXAMPLE_MODEL, platform="jetpack-6.2", shapes=["input:1x1x16x16"])
    asked = ["plan", str(EXAMPLE_MODEL), "--platform", "jetpack-6.2", "--shapes", "input:1x1x16x16"]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["milliseconds"] == made.report["cost"]["milliseconds"] > 0


@pytest.mark.parametrize("form", ["array", "mapping", "loader", "path"])
def test_data(form: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", input=INPUTS[:48])
    array, path = INPUTS[:48], tmp_path / "data.npz"
    forms: dict[str, Any] = {"array": array, "mapping": {"input": array}, "loader": Loader(), "path": path}
    made = qt.calibrate(EXAMPLE_MODEL, forms[form], platform="jetpack-6.2")
    expected = qt.translate(EXAMPLE_MODEL, calibrate=str(tmp_path / "data.npz"), platform="jetpack-6.2")
    assert made.tensor_scales == expected.tensor_scales
    assert any(origin.rule == "K1" for origin in made.scale_origins.values())


def test_verify_with_a_callable(tmp_path: Path) -> None:
    made = qt.translate(EXAMPLE_MODEL, platform="jetpack-6.2")
    found = qt.verify(EXAMPLE_MODEL, made, data=Loader(), metric=top1)
    logits = qt.verify(EXAMPLE_MODEL, made, data={"input": INPUTS[:48]}, labels=LABELS[:48], metric=top1)
    assert found.ok and found.metric == logits.metric and found.metric["explicit"] > 90
    assert found.verdict in ("equal", "within expected rounding") and len(repr(found).splitlines()) <= 10
    found.save(tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text()) == found.to_dict()
    Draft7Validator(results_schema()).validate(found.to_dict())
    copy = found.to_dict()
    copy.clear()
    assert found.to_dict()
    missed = qt.verify(EXAMPLE_MODEL, made, data=Loader(), min_cosine=1.0)
    assert not missed.ok


def test_tune_with_a_callable(tmp_path: Path) -> None:
    more: dict[str, Any] = {"preset": "dla", "shapes": ["input:1x1x16x16"], "output_dir": tmp_path}
    found = qt.tune(EXAMPLE_MODEL, Loader(), metric=top1, max_drop=3.0, passes=6, **more)
    assert found.holds and found.to_dict()["metric"]["name"] == "top1"
    Draft7Validator(tuning_schema()).validate(found.to_dict())
    assert (tmp_path / "digits_resnet_qat_noqdq.onnx").exists() and len(repr(found).splitlines()) <= 10


def test_report_and_explain(tmp_path: Path) -> None:
    made = qt.translate(EXAMPLE_MODEL, preset="dla", platform="jetpack-6.2")
    made.save(tmp_path / "t")
    found = qt.report(tmp_path / "t", html=tmp_path / "page.html")
    assert found.to_dict() == json.loads((tmp_path / "t" / "digits_resnet_qat_report.json").read_text())
    assert {key: value for key, value in found.to_dict().items() if key != "integrity"} == made.to_dict()
    hold(found.to_dict(), report_schema())
    assert (tmp_path / "page.html").stat().st_size > 10_000 and qt.report(made).layers == found.layers
    (tmp_path / "log").write_text("[E] Cannot create DLA engine, 0 not available\n[E] something else went wrong\n")
    assert len(qt.explain(tmp_path / "log").paragraphs) == 2


def test_deploy(tmp_path: Path) -> None:
    told: list[str] = []
    made = qt.deploy(
        qt.translate(EXAMPLE_MODEL).model,  # float
        INPUTS[:32],
        board="jetpack-6.2",
        consumers=["trtexec", "onnxruntime"],
        output_dir=tmp_path / "bundle",
        shapes=["input:1x1x16x16"],
        progress=lambda what, done, total: told.append(what),
    )
    assert (made.folder / "README.md").exists() and set(made.to_dict()["consumers"]) == {"trtexec", "onnxruntime"}
    assert told and len(repr(made).splitlines()) <= 10 and made.good is True
    assert made.milliseconds and "(estimate)" in repr(made) and made.to_dict()["next"] in repr(made)


def test_explicit(tmp_path: Path) -> None:
    made = qt.explicit(EXAMPLE_MODEL, platform="tensorrt-11.4.1")
    Draft7Validator(EXPLICIT_REPORT).validate(made.to_dict())
    assert 1 < len(repr(made).splitlines()) <= 10
    model = onnx.load(made.save(tmp_path))
    assert sum(node.op_type == "QuantizeLinear" for node in model.graph.node) > 5


def test_the_overview_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    made = qt.translate(EXAMPLE_MODEL, preset="dla", platform="jetpack-6.2")
    page = html.unescape(made._repr_html_())
    assert '<section id="overview"' in page and "run in INT8 on the DLA" in page and "</svg>" in page
    assert "<script>" not in page and len(page) < len(qt.report(made).page()) / 2
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert made._repr_html_() == f"<pre>{html.escape(repr(made))}</pre>"


def test_layers_as_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    made = qt.translate(EXAMPLE_MODEL, preset="dla", platform="jetpack-6.2")
    frame = pandas.DataFrame(made.layers)
    assert list(frame["name"]) == [row["name"] for row in made.report["plan"]]
    assert set(pandas.DataFrame(qt.report(made).layers)["precision"]) == {"int8", "fp16"}


def test_nothing_is_printed_and_warnings_are_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    told: list[str] = []
    made = qt.calibrate(
        EXAMPLE_MODEL, INPUTS[:8], preset="dla", platform="jetpack-6.2", progress=lambda what, *_: told.append(what)
    )
    made.save(tmp_path)
    qt.plan(EXAMPLE_MODEL).save(tmp_path)
    shutil.copy(tmp_path / "digits_resnet_qat_report.json", tmp_path / "other_report.json")
    qt.verify(EXAMPLE_MODEL, made, data=INPUTS[:8], per_layer=True)
    qt.translate(EXAMPLE_MODEL, name="second").save(tmp_path)
    qt.report(tmp_path, html=tmp_path / "page.html")
    assert capfd.readouterr() == ("", "")
    assert {record.name for record in caplog.records} == {"qdq_translator"} and told
    texts = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("W-U1 The DLA requires one range") for text in texts)
    assert any("holds 2 translations" in text for text in texts)


def _saved(folder: str) -> list[bytes]:
    """Bytes of all files of one calibrated translation."""
    qt.calibrate(EXAMPLE_MODEL, {"input": INPUTS[:16]}, preset="dla", platform="jetpack-6.2").save(folder)
    return [path.read_bytes() for path in sorted(Path(folder).iterdir())]


def test_threads_and_processes_write_the_same_bytes(tmp_path: Path) -> None:
    here = _saved(str(tmp_path / "here"))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(_saved, [str(tmp_path / "a"), str(tmp_path / "b")])) == [here, here]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        assert processes.submit(_saved, str(tmp_path / "c")).result() == here
    assert len(here) == 5


def test_memory_is_given_back(tmp_path: Path) -> None:
    """No result, graph or data are held by the package once the caller holds none."""
    data = INPUTS[:16].copy()
    made = qt.calibrate(EXAMPLE_MODEL, data, preset="dla", platform="jetpack-6.2")
    checked = qt.verify(EXAMPLE_MODEL, made, data=data)
    made.save(tmp_path)
    held = [weakref.ref(thing) for thing in (data, made, made.graph, made.scales, checked)]
    del data, made, checked
    gc.collect()
    assert [ref() for ref in held] == [None] * len(held)


def test_a_deprecated_parameter_still_works_and_warns() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"assume_scales=True\) is deprecated since 0\.3: use plan\(\)"
    ) as caught:
        made = qt.translate(EXAMPLE_MODEL, target="orin-dla", assume_scales=True)
    assert caught[0].filename == __file__ and made.assumed


PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def test_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in one namespace; each is at most 20 lines."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE_MODEL, "model.onnx")
    onnx.save(qt.translate(EXAMPLE_MODEL).model, "float.onnx")
    names: dict[str, Any] = {"loader": Loader()}
    assert len(BLOCKS) == 4 and max(len(block.splitlines()) for block in BLOCKS) <= 20
    for block in BLOCKS:
        exec(block, names)
    assert names["found"].holds
    assert names["plan"].report["cost"]["milliseconds"] > 0 and len(names["made"].tensor_scales) > 10


WRONG = """\
import qdq_translator as qt

qt.verify("m.onnx")  # no translation
qt.TranslateOptions(target="orin")
qt.translate("m.onnx", preset="DLA")
qt.plan("m.onnx", platfrom="jetpack-6.2")
qt.tune("m.onnx", "data.npz", passes="many")
"""


def test_examples_are_typed(tmp_path: Path) -> None:
    """`mypy --strict` accepts those of the documentation, and refuses each wrong call."""
    pytest.importorskip("mypy")
    # with the package's own settings, so that mypy's cache of it is used; and what these leave out of --strict
    strict = "# mypy: disallow-any-generics, disallow-subclassing-any, warn-return-any, warn-unused-ignores"
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("\n".join([strict, "from typing import Any", "", "loader: Any = []", *BLOCKS]))
    bad.write_text(f"{strict}\n{WRONG}")
    command = [sys.executable, "-m", "mypy", str(good), str(bad)]
    done = subprocess.run(command, cwd=PAGE.parents[1], capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [Path(line.split(":")[0]).name for line in errors] == ["bad.py"] * 5, done.stdout
    assert [line.split(":")[1] for line in errors] == [str(row) for row in range(4, 9)], done.stdout
