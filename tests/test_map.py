"""The map of the page: groups, colours, what keeping a layer in FP16 costs, engine truth and print; in headless Chromium."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.networks import residual
from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.output.report.charts import share_noise
from qdq_translator.output.report.html import report_page
from qdq_translator.output.report.model import Network
from tests import browser as browsers
from tests.conftest import SHARED, need_shared
from tests.test_html import Page

DLA: dict[str, Any] = {"target": "orin-dla", "platform": "jetpack-6.2", "add_unary_ew_scales_for_dla": True}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    started = browsers.start()
    yield started
    started.quit()


def scoped(convolutions: int = 24) -> Any:
    """A chain of residual blocks whose nodes are called /stage0/block0/Conv and so on."""
    model = residual(convolutions)
    for index, node in enumerate(model.graph.node):
        node.name = f"/stage{index // 60}/block{index // 20}/{node.name.replace('/', '_')}"
    return model


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return translate(scoped(), TranslateOptions(**DLA), "scoped").report


@pytest.fixture()
def page(browser: Any, tmp_path: Path, report: dict[str, Any]) -> Page:
    return Page(browser, tmp_path / "page.html", report_page(report))


def test_groups_are_closed_at_first_and_show_their_totals(page: Page, report: dict[str, Any]) -> None:
    page.js("document.querySelector('#close-all').click()")
    stages = sorted({row["name"].split("/")[1] for row in report["plan"]})
    assert page.js("return document.querySelectorAll('#graph [id^=layer-]').length") == 0
    texts = page.js(
        "return Array.from(document.querySelectorAll('#graph .group')).map(g => g.getAttribute('aria-description'))"
    )
    assert len(texts) == len(stages) > 1
    for stage, text in zip(stages, texts):
        rows = [row for row in report["plan"] if row["name"].split("/")[1] == stage]
        assert f"Group {stage}, closed: {len(rows)} layers" in text
        assert f"{sum(row['precision'] == 'int8' for row in rows)} INT8" in text
        (shown,) = re.findall(r"([\d.]+) ms", text)
        assert float(shown) == pytest.approx(sum(row["cost"]["milliseconds"] for row in rows), rel=5e-3)


def test_a_group_opens_and_closes_by_mouse_and_keys(page: Page, report: dict[str, Any]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.js("document.querySelector('#close-all').click()")
    page.click("#graph .group")
    assert page.js("return document.querySelectorAll('#graph .frame').length") == 1
    assert "stage0" in page.text("#panel")
    page.click("#graph .close")
    assert page.js("return document.querySelectorAll('#graph .frame').length") == 0
    page.js("document.querySelector('#graph .group').focus()")
    ActionChains(page.browser).send_keys(Keys.ENTER).perform()
    assert page.js("return document.querySelectorAll('#graph .frame').length") == 1
    ActionChains(page.browser).send_keys(Keys.BACKSPACE).perform()
    assert page.js("return document.querySelectorAll('#graph .frame').length") == 0
    last = len(report["plan"]) - 1
    page.js(f"location.hash = '#layer-{last}'; dispatchEvent(new PopStateEvent('popstate'))")
    assert page.one(f"#layer-{last}") and report["plan"][last]["name"] in page.text("#panel")


def test_every_float_activation_is_an_edge(page: Page, report: dict[str, Any]) -> None:
    page.js(
        "for (const g of (function all(g) { return [g, ...g.kids.filter(isGroup).flatMap(all)] })(root)) open.add(g); redraw()"
    )
    drawn = page.js("return shown.edges.map(e => [e.from, e.to])")
    maker = {name: f"l{i}" for i, row in enumerate(report["plan"]) for name in row["outputs"]}
    wanted = {(maker[name], f"l{i}") for i, row in enumerate(report["plan"]) for name in row["inputs"] if name in maker}
    layers = {(a, b) for a, b in drawn if a[0] == b[0] == "l"}
    assert layers == wanted
    given = report["inputs"][0]["name"]
    assert len(drawn) == len(wanted) + sum(given in row["inputs"] for row in report["plan"]) + len(report["outputs"])
    styles = page.js(
        "return Array.from(new Set(shown.edges.map(e => e.path.getAttribute('class').split(' ')[1]))).sort()"
    )
    assert styles == ["explicit", "inferred", "missing"]


OVERLAPS = """
const boxes = [...shown.boxes.values()].map((box) => [...box.at, ...sizes[box.kind]]);
return boxes.flatMap(([x, y, w, h], i) => boxes.slice(0, i).filter(([u, v, a, b]) =>
  Math.abs(x - u) < (w + a) / 2 - 1 && Math.abs(y - v) < (h + b) / 2 - 1)).length;
"""


@pytest.mark.parametrize("grouping", ["scope", "region", "order"])
def test_boxes_do_not_overlap(page: Page, grouping: str) -> None:
    assert page.js(f"regroup('{grouping}'); redraw(); {OVERLAPS}") == 0
    assert page.js(f"for (const g of root.kids.filter(isGroup)) open.add(g); redraw(); {OVERLAPS}") == 0


def test_colours_by_number_add_up(page: Page, report: dict[str, Any]) -> None:
    total = page.js("colour = 'ms'; return numberOf(root)")
    assert total == pytest.approx(report["cost"]["milliseconds"])
    page.js("const s = document.querySelector('#colour'); s.value = 'ms'; s.dispatchEvent(new Event('change'))")
    assert "ms" in page.text("#legend") and "INT8" not in page.text("#legend")
    page.js("const s = document.querySelector('#colour'); s.value = 'device'; s.dispatchEvent(new Event('change'))")
    assert "DLA, INT8" in page.text("#legend")
    assert page.complaints() == []


@pytest.mark.parametrize("network", ["scoped", "vit"])
def test_keeping_layers_in_fp16_gives_the_times_of_translate(browser: Any, tmp_path: Path, network: str) -> None:
    """The page's sum against the estimate of a translation with the option that the page shows."""
    model = scoped() if network == "scoped" else need_shared(SHARED / "zoo" / "mini" / "vit__nvpq17.onnx")
    options = {**DLA, "preset": "dla"} if network == "vit" else DLA
    report = translate(model, TranslateOptions(**options), network).report
    page = Page(browser, tmp_path / "page.html", report_page(report))
    offered = page.js("return data.layers.filter(canKeep).map(x => x.index)")
    assert len(offered) > 5 and all(report["plan"][i]["precision"] == "int8" for i in offered)
    chosen = sorted({*offered[:: max(1, len(offered) // 6)], offered[-1]})
    for index in chosen:
        page.js(f"location.hash = '#layer-{index}'; dispatchEvent(new PopStateEvent('popstate'))")
        page.click("#keep")
    words = shlex.split(page.text("#kept code"))
    assert words[:2] == ["qdq-translator", "translate"]
    kept = words[words.index("--keep_fp16") + 1 :]
    assert {report["plan"][i]["name"] for i in chosen} <= set(kept)
    shown = float(page.js("return document.querySelector('#kept').dataset.milliseconds"))
    again = translate(model, TranslateOptions(**options, keep_fp16=kept), network).report
    assert shown == pytest.approx(again["cost"]["milliseconds"], rel=1e-12)
    assert shown > report["cost"]["milliseconds"]
    page.click("#kept button")
    assert page.js("return document.querySelector('#kept').hidden && keptLayers.size === 0")


def pages_of(browser: Any) -> int:
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", base64.b64decode(printed["data"])))


def test_print_is_a_summary_of_two_pages(page: Page, browser: Any, report: dict[str, Any]) -> None:
    assert pages_of(browser) <= 2
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        shown = page.js("return document.querySelector('.onpaper').innerText")
        above = next(row for row in report["plan"] if row["precision"] == "fp16")
        assert above["reason"][:60] in shown
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_verdict_of_verify_is_on_the_page(report: dict[str, Any]) -> None:
    verify = {"verdict": {"overall": "suspicious", "outputs": {}, "reasons": ["because of <this>"]}}
    text = report_page(report, json.loads(json.dumps(verify)))
    assert 'id="verdict">suspicious<' in text and "because of &lt;this&gt;" in text
    assert 'id="verdict"' not in report_page(report)


def engine_of(report: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Layer information and profile of an engine that fuses each Conv with what follows it, and runs the second Conv in FP16."""
    layers: list[dict[str, Any]] = []
    for row in report["plan"]:
        if row["op"] != "Conv" and layers:
            layers[-1]["Name"] += f" + {row['name']}"
            continue
        word = "Half" if len(layers) == 1 else "Int8"
        ends = [{"Name": name, "Format/Datatype": word} for name in ("in", "out")]
        more = {"Inputs": ends[:1], "Outputs": ends[1:], "Weights": {"Type": word}}
        layers.append({"Name": row["name"], "LayerType": "CaskConvolution", **more})
    copy = {"Name": "Reformatting CopyNode for Output Tensor 0", "LayerType": "Reformat", "Inputs": [], "Outputs": []}
    layers.append(copy)
    times = [{"name": layer["Name"], "averageMs": 0.01 * (i + 1)} for i, layer in enumerate(layers)]
    return {"Layers": layers, "Bindings": []}, [{"count": 10}, *times]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A translation for the GPU, and the words that name the engine that was built of it."""
    folder = tmp_path_factory.mktemp("built")
    made = translate(scoped(), TranslateOptions(add_unary_ew_scales_for_dla=True), "scoped")
    made.save(folder)
    words = []
    for name, content in zip(("layer_info", "profile"), engine_of(made.report)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        words += [f"--{name}", str(folder / f"{name}.json")]
    return folder, words


def test_the_engine_stands_beside_the_plan(
    browser: Any, tmp_path: Path, built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = built
    report = json.loads((folder / "scoped_report.json").read_text(encoding="utf-8"))
    path = tmp_path / "engine.html"
    assert main(["report", "-t", str(folder), *words, "--html", str(path)]) == 0
    assert main(["report", "-t", str(folder), *words, "--strict", "--json"]) == 1
    told = json.loads(capsys.readouterr().out.split("\n", 1)[1])["engine"]
    convs = [row["name"] for row in report["plan"] if row["op"] == "Conv"]
    rows = {row["name"]: row for row in told["layers"]}
    assert convs[1] in told["disagreements"] and rows[convs[1]]["actual"] == "fp16"
    assert rows[convs[0]]["milliseconds"] == pytest.approx(0.01) and rows[convs[0]]["fused_with"]
    assert all(rows[name]["milliseconds"] is None for name in rows[convs[0]]["fused_with"])
    assert [row["what"] for row in told["unmatched"]] == ["reformat"]
    page = Page(browser, path, path.read_text(encoding="utf-8"))
    assert page.complaints() == []
    assert [row[0] for row in page.rows("against-table")] == told["disagreements"]
    assert "Reformatting CopyNode" in page.text("#unmatched-table")
    assert page.js("return document.querySelector('#colour').value") == "engine"
    assert "against the plan" in page.text("#legend")
    page.click("#against-table a")
    assert "Engine: FP16" in page.text("#panel") and "0.02 ms (measured)" in page.text("#panel")
    total = page.js("colour = 'real'; return numberOf(root)")
    assert total == pytest.approx(told["milliseconds"] - told["unmatched"][0]["milliseconds"])


def test_an_engine_on_a_terminal_tells_its_disagreements_first(
    built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = built
    assert main(["report", "-t", str(folder), *words]) == 0
    shown = capsys.readouterr().out
    assert shown.index("The engine does not obey the plan.") < shown.index("next:")
    assert main(["report", "-t", str(folder), "--strict"]) == 2
    assert "--layer_info" in capsys.readouterr().err


def test_what_ingest_stored_is_the_same_engine(
    tmp_path: Path, built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = built
    assert main(["report", "-t", str(folder), *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["engine"]
    board = tmp_path / "scoped_board.json"
    for stored, status in (({"engine": told}, 0), ({}, 1)):
        board.write_text(json.dumps({"schema_version": 1, "kind": "qdq-translator board", **stored}), encoding="utf-8")
        assert main(["report", "-t", str(folder), "--layer_info", str(board), "--json"]) == status
        shown = capsys.readouterr()
        assert json.loads(shown.out)["engine"] == told if stored else "holds no layers of an engine" in shown.err
    board.write_text('{"kind": "qdq-translator board", "engine": {"layers": [7]}}', encoding="utf-8")
    assert main(["report", "-t", str(folder), "--layer_info", str(board), "--json"]) == 1


def test_the_overlay_is_node_data_of_model_explorer(tmp_path: Path, built: tuple[Path, list[str]]) -> None:
    """Ids are nodes of the stripped model; where Model Explorer is installed, its own classes write the same."""
    folder, words = built
    assert main(["report", "-t", str(folder), *words, "--overlay", str(tmp_path / "o.json")]) == 0
    nodes = {node.name for node in onnx.load(folder / "scoped_noqdq.onnx").graph.node}
    found = {name: json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("o.json", "o_ms.json")}
    assert found["o.json"]["results"].keys() == nodes > found["o_ms.json"]["results"].keys()
    assert found["o_ms.json"]["name"] == "measured ms"
    builder = pytest.importorskip("model_explorer.node_data_builder")
    kinds = {"results": builder.NodeDataResult, "gradient": builder.GradientItem}
    for data in found.values():
        results = {name: kinds["results"](**row) for name, row in data["results"].items()}
        gradient = [kinds["gradient"](**row) for row in data.get("gradient", [])]
        made = builder.GraphNodeData(**{**data, "results": results, "gradient": gradient})
        written = json.loads(made.to_json_string())
        assert {key: written[key] for key in data} == data


def test_the_noise_share_is_that_of_the_account(report: dict[str, Any]) -> None:
    """Each entry goes to the layers that make its tensors or hold its weights; nothing is lost between them."""
    rows = report["plan"]
    entries = [
        {"tensors": rows[2]["outputs"] + rows[4]["outputs"], "weights": [], "share": 0.6},
        {"tensors": [], "weights": [rows[2]["name"]], "share": 0.4},
    ]
    network = Network(report)
    share_noise({"entries": entries}, network)
    found = {layer.index: layer.noise for layer in network.layers if layer.noise is not None}
    assert found == {2: pytest.approx(0.7), 4: pytest.approx(0.3)}
