"""NAME_report.json against its documented schema, the drawing in 80 columns, and thresholds for pipelines."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main, main_translate
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.formats.report_rows import Report
from qdq_translator.core.formats.rows import read
from qdq_translator.core.words import amount, percent
from qdq_translator.translation.report.data import format_report
from qdq_translator.translation.report.terminal import print_report
from tests import renew
from tests.conftest import ZOO, need_shared
from tests.small_models import model, pair

MODELS = ("yolov5n__nvpq13", "yolov8n__mo_dla_fp32", "vit__nvpq13", "resnet18__nvpq13", "unet__nvpq13")


def zoo(name: str) -> str:
    return str(need_shared(ZOO / "mini" / f"{name}.onnx"))


def small(tmp_path: Path, text: str = "", **arrays: np.ndarray) -> str:
    """A Conv and an Elu that was not quantized, dynamic unless `text` says otherwise."""
    text = text or "g (float[n,4,h,w] x) => (float[n,4,i,j] y) {" + pair("x", "xq") + (
        "c = Conv (xq, w) e = Elu (c)" + pair("e", "eq") + "y = Conv (eq, w) }"
    )
    constants = {"w": np.ones((4, 4, 3, 3), np.float32), "s": np.float32(0.05), "z": np.int8(0), **arrays}
    path = tmp_path / "small.onnx"
    onnx.save(model(text, **constants), str(path))
    return str(path)


@pytest.fixture(scope="module")
def dla_report() -> dict[str, Any]:
    options = TranslateOptions(target="orin-dla", infer_mul_scales=True, platform="jetpack-6.0")
    report: dict[str, Any] = json.loads(format_report(translate(zoo("yolov5n__nvpq13"), options).report))
    return report


def test_the_page_of_the_schema_is_made_from_the_rows() -> None:
    """Its text is current, and each field with a description in its docstring has it in the table."""
    text = renew.SCHEMA.read_text(encoding="utf-8")
    assert renew.pages()[renew.SCHEMA] == text
    assert "| `shared_layers` | list of string | avoidable layers that need further causes too" in text
    assert "| `subgraph` | integer | number of its DLA subgraph, -1 for none |" in text


def test_report_has_a_line_for_every_row(dla_report: dict[str, Any]) -> None:
    text = format_report(dla_report)
    assert json.loads(text) == dla_report
    lines = text.splitlines()
    row = json.dumps(next(row for row in dla_report["scales"] if row["tensor"] == "/b0/act/Sigmoid_output_0"))
    assert sum(line.strip().rstrip(",") == row for line in lines) == 1
    assert len(lines) > len(dla_report["plan"]) + len(dla_report["scales"])


def test_names_that_look_like_borders_of_rows_are_names() -> None:
    hostile = {"rows": [{"name": f"a, {10**39}, b"}, {"name": "}, {"}, ["x", 1.5], None, "text"]}
    lines = [f"    {json.dumps(row)}" for row in hostile["rows"]]
    expected = '{\n  "rows": [\n' + ",\n".join(lines) + "\n  ]\n}\n"
    assert format_report(hostile) == expected
    assert format_report({"rows": hostile["rows"][1:]}) == expected.replace(lines[0] + ",\n", "")
    many = [row for number in range(300) for row in (hostile["rows"] if number == 280 else [{"row": number}])]
    expected = ",\n".join(f"    {json.dumps(row)}" for row in many)
    assert format_report({"a": 1, "rows": many}) == f'{{\n  "a": 1,\n  "rows": [\n{expected}\n  ]\n}}\n'
    assert format_report({}) == "{\n\n}\n"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("everything", [False, True])
def test_drawing_fits_80_columns(
    name: str, everything: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    report = translate(zoo(name), TranslateOptions(target="orin-dla")).report
    print_report(read(Report, report), everything)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert all(words in out for words in ("DLA INT8", "DLA FP16", "±20% INT8"))
    if not everything:
        assert len(out.splitlines()) <= 35
        return
    assert all(words in out for words in ("DLA (orin), predicted", "Scales and weights", "Graph inputs and outputs"))
    for row in (*report["inputs"], *report["outputs"]):
        assert row["name"] in out and (row["hex"] or "float") in out


def test_names_with_markup_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = onnx.load(small(tmp_path))
    made.graph.node[3].name = "[red]conv[/red]"
    print_report(read(Report, translate(made).report), everything=True)
    assert "[red]conv[/red]" in capsys.readouterr().out


def test_command_draws_from_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main_translate(["-i", small(tmp_path), "-o", str(out)]) == 0
    short = capsys.readouterr().out
    assert "MACs unknown" in short and "--shapes NAME:DIMS for x" in short
    assert "1 Conv output without scale: 2 layers in FP16; " in short
    for path in out.iterdir():
        if not path.name.endswith(("_report.json", "_noqdq.onnx")):
            path.unlink()
    assert main(["report", "-t", str(out)]) == 0
    drawn = capsys.readouterr().out
    assert "MACs of 2 layers are unknown, as their shapes are. Translate with --shapes NAME:DIMS for x." in " ".join(
        drawn.split()
    )
    assert main(["report", "-t", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((out / "small_report.json").read_text(encoding="utf-8"))


def test_unknown_schema_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_translate(["-i", small(tmp_path), "-o", str(tmp_path)]) == 0
    path = tmp_path / "small_report.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text(encoding="utf-8")), "schema_version": 99}), encoding="utf-8"
    )
    assert main(["report", "-t", str(tmp_path)]) == 1
    assert "schema version 99" in capsys.readouterr().err


def test_page_gets_reports_and_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr("qdq_translator.commands.report.write_page", lambda *arguments: calls.append(arguments))
    source = small(tmp_path)
    for folder in ("a", "b"):
        assert main_translate(["-i", source, "-o", str(tmp_path / folder)]) == 0
    results = tmp_path / "verify.json"
    results.write_text('{"per_layer": {}}', encoding="utf-8")
    page = tmp_path / "page.html"
    one = ["report", "-t", str(tmp_path / "a"), "--html", str(page)]
    assert main([*one, "--against", str(tmp_path / "b"), "--verify", str(results)]) == 0
    report, path, against, verify, names, tuned, engines = calls[0]
    assert report.model == against.model == "small" and path == page and verify == {"per_layer": {}}
    assert names == (str(tmp_path / "b"), str(tmp_path / "a")) and tuned is None and engines == []
    assert main(one) == 0 and calls[1][2:4] == (None, None)
    assert main([*one[:3], "--verify", str(results)]) == 2
    assert "Give the page with --html" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["hello", "[1]"])
def test_wrong_results_are_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_translate(["-i", small(tmp_path), "-o", str(tmp_path / "a")]) == 0
    results = tmp_path / "results.json"
    results.write_text(content)
    page = tmp_path / "page.html"
    assert main(["report", "-t", str(tmp_path / "a"), "--html", str(page), "--verify", str(results)]) == 1
    assert "Give a file of 'qdq-translator verify --save FILE'." in capsys.readouterr().err
    assert not page.exists()


def test_numbers() -> None:
    assert [amount(n) for n in (None, 7, 1234, 1234567, 2.5e9)] == ["unknown", "7", "1.23 k", "1.23 M", "2.5 G"]
    assert (percent(1, 3), percent(1, 0)) == ("33.3%", "")


def test_what_does_not_fit_is_cut_between_rows() -> None:
    """Never inside a sentence that continues on the next line."""
    from rich.console import Console

    from qdq_translator.translation.report import tables

    rows = [("limit" if n % 3 else "", f"{n}: " + "several words " * (1 + n % 5)) for n in range(30)]
    out = Console(file=io.StringIO(), width=50)
    tables.print_fitted(out, [lambda console: tables.print_pairs(console, rows), lambda c: c.print("end")], 20)
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 20 and lines[-1] == "end" and "more lines" in lines[-2]
    last = int(re.findall(r"(\d+):", "\n".join(lines))[-1])
    shown = " ".join(line.strip() for line in lines[:-2])
    assert shown.endswith(rows[last][1].strip().split(": ")[1]) and shown.count("several") == sum(
        1 + n % 5 for n in range(last + 1)
    )


def test_results_of_another_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page would draw them beside this translation."""
    model, out, results = tmp_path / "m.onnx", tmp_path / "out", tmp_path / "results.json"
    model.write_bytes(EXAMPLE_MODEL.read_bytes())
    assert main(["translate", str(model), "-o", str(out)]) == 0
    assert main(["verify", "-i", str(model), "-t", str(out), "--samples", "1", "--save", str(results)]) == 0
    page = ["report", "-t", str(out), "--html", str(tmp_path / "page.html"), "--verify", str(results)]
    assert main(page) == 0
    content = json.loads(results.read_text())
    results.write_text(json.dumps({**content, "model": {**content["model"], "sha256": "0" * 64}}))
    capsys.readouterr()
    assert main(page) == 1
    assert "results of another model than m" in capsys.readouterr().err
