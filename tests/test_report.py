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
from tests.test_unify import concat, excitation
from tests.test_what_if import mixed

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


def test_report_holds_what_the_translation_found(dla_report: dict[str, Any]) -> None:
    made = translate(
        zoo("yolov5n__nvpq13"), TranslateOptions(target="orin-dla", infer_mul_scales=True, platform="jetpack-6.0")
    )
    assert dla_report == made.report
    assert dla_report["schema_version"] == 3
    (first,) = dla_report["inputs"]
    assert first["shape"] == [1, 3, 64, 64] and first["hex"] == "3cde03d4"
    assert np.frombuffer(bytes.fromhex(first["hex"]), ">f4")[0] == np.float32(first["scale"])
    assert [row["scale"] for row in dla_report["outputs"]] == [None, None, None]
    assert len(dla_report["plan"]) == len(dla_report["dla"]["layers"]) == 199
    assert sum(dla_report["dla"]["counts"].values()) == 199
    assert {row["tensor"] for row in dla_report["scales"]} == set(made.tensor_scales)
    assert {row["rule"] for row in dla_report["scales"] if not row["explicit"]} >= {"S5", "S8"}


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


def test_drawing_names_causes_options_and_gains(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_report(read(Report, translate(zoo("yolov5n__nvpq13"), as_is=True).report), everything=True)
    out = capsys.readouterr().out
    assert (
        re.search(r"\d+ Sigmoid outputs +\d+", out) and "--infer_concat_scales" in out and "--infer_mul_scales" in out
    )
    assert "+97.2%" in out and "196   98.5%" in out
    assert "was never quantized" in out


def test_names_with_markup_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = onnx.load(small(tmp_path))
    made.graph.node[3].name = "[red]conv[/red]"
    print_report(read(Report, translate(made).report), everything=True)
    assert "[red]conv[/red]" in capsys.readouterr().out


def test_further_options_have_their_share_of_the_macs(capsys: pytest.CaptureFixture[str]) -> None:
    made = translate(mixed(), TranslateOptions(target="orin-dla"))
    print_report(made.rows, everything=True)
    said, rows = capsys.readouterr().out, made.causes.what_if
    total = made.rows.coverage.macs.total
    assert rows and total and "What further options would do" in said
    for row in rows:
        assert re.search(rf"{re.escape(row.options[0])} .*{percent(row.int8_macs, total)}", said), row


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        (lambda: concat("max"), ["raised"]),
        (lambda: concat("warn"), ["not raised (--unify_scales max)"]),
        (lambda: excitation("HardSigmoid", 10.5), ["raised", "not raised, layers stay FP16 (--max_bits_lost)"]),
    ],
)
def test_ranges_that_must_be_equal_by_what_became_of_them(
    made: Any, kinds: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(made().rows, everything=True)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("requires to be equal:") == len(kinds) and all(f"be equal: {kind}" in said for kind in kinds)


def test_several_operators_without_scale_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the first screen; --verbose has a line for each."""
    monkeypatch.setenv("COLUMNS", "80")
    argv = ["translate", zoo("mobilenet_v2__mo_fp32"), "--board", "agx-orin", "-o", str(tmp_path)]
    assert main(argv) == 0
    short = " ".join(capsys.readouterr().out.split())
    assert "without scale: 1 graph input, 9 Conv outputs, 4 Add outputs; use --calibrate DATA" in short
    assert main([*argv, "--verbose"]) == 0
    assert "9 Conv outputs without scale: 24 layers" in " ".join(capsys.readouterr().out.split())


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


def test_an_example_that_the_file_does_not_describe_is_left_out(
    dla_report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    causes, groups = dla_report["root_causes"]["causes"], dla_report["root_causes"]["groups"]
    others = [cause for cause in causes if cause["tensor"] != groups[0]["tensors"][0]]
    for found in (causes, others):
        causes = {**dla_report["root_causes"], "causes": found}
        print_report(read(Report, {**dla_report, "root_causes": causes}), everything=True)
        drawn = " ".join(capsys.readouterr().out.split())
        assert f"{len(found)} tensor" in drawn


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


def test_threshold_of_int8_macs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["-i", small(tmp_path), "-o", str(tmp_path / "out"), "--fail_under_int8_macs", "50"]
    assert main_translate(command) == 1
    assert "unknown because shapes are dynamic; give them with --shapes" in capsys.readouterr().err
    assert main_translate([*command, "--shapes", "x:1x4x8x8"]) == 1
    assert "0.0% of the MACs are planned in INT8, below --fail_under_int8_macs 50" in capsys.readouterr().err
    cured = [*command, "--shapes", "x:1x4x8x8", "--addtl_ops_to_infer_adjacent_scales", "Elu"]
    assert main_translate(cured) == 0  # 36 of 52 parts: the other Conv makes the graph output
    assert "69.2% of MACs" in capsys.readouterr().out
    assert (tmp_path / "out" / "small_report.json").exists()


def test_threshold_of_gpu_fallback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["-i", small(tmp_path), "-o", str(tmp_path / "out"), "--fail_on_gpu_fallback"]
    assert main_translate(command) == 2
    assert "--on dla" in capsys.readouterr().err
    assert main_translate([*command, "--target", "orin-dla"]) == 1
    assert "Elu 'Elu_e' cannot run on the DLA (operator is not native through TensorRT)" in capsys.readouterr().err
    text = "g (float[1,4,8,8] x) => (float[1,4,6,6] y) {" + pair("x", "xq") + "y = Conv (xq, w) }"
    fine = ["-i", small(tmp_path, text), "-o", str(tmp_path / "out"), "--fail_on_gpu_fallback", "--target", "orin-dla"]
    assert main_translate(fine) == 0


def test_summary_as_json_names_the_missed_threshold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["-i", small(tmp_path), "-o", str(tmp_path), "--target", "orin-dla", "--fail_on_gpu_fallback", "--json"]
    assert main_translate(command) == 1
    result = json.loads(capsys.readouterr().out)
    (summary,) = result["translated"]
    assert result["status"] == 1 and "cannot run on the DLA" in summary["failed"]
    assert summary["dla"]["counts"] == {"dla-int8": 0, "dla-fp16": 2, "gpu": 1, "folded": 0}
    assert summary["root_causes"]["groups"][0]["op"] == "Conv"


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
