"""The map of the page: groups, colours, what keeping a layer in FP16 costs, engine truth and print; in headless Chromium."""

from __future__ import annotations

import base64
import functools
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.networks import residual
from qdq_translator import TranslateOptions, translate
from qdq_translator.board.engine.inspector import check_engine, engine_truth
from qdq_translator.board.engine.layer_info import parse_layer_info
from qdq_translator.cli import main
from qdq_translator.core.formats import rows
from qdq_translator.core.formats.verify_rows import Account, Rounding
from qdq_translator.core.words import milliseconds
from qdq_translator.translation.report.embed import share_noise
from tests import browser as browsers
from tests.conftest import SHARED, need_shared
from tests.pages import Page, comparison_page, network, report_page
from tests.test_html import MARKUP, poisoned

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


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, report: dict[str, Any]) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(report_page(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def plain() -> Any:
    """The same without unary scales."""
    options = {key: value for key, value in DLA.items() if key != "add_unary_ew_scales_for_dla"}
    return translate(scoped(), TranslateOptions(**options), "scoped")


@pytest.fixture()
def page(browser: Any, drawn: Path) -> Page:
    return Page(browser, drawn)


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
    page.select("layer", last)
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


def test_boxes_do_not_overlap(page: Page) -> None:
    for grouping in ("scope", "region", "order"):
        assert page.js(f"regroup('{grouping}'); redraw(); {OVERLAPS}") == 0
        assert page.js(f"for (const g of root.kids.filter(isGroup)) open.add(g); redraw(); {OVERLAPS}") == 0


def test_colours_by_number_add_up(page: Page, report: dict[str, Any]) -> None:
    total = page.js("colour = 'ms'; return numberOf(root)")
    assert total == pytest.approx(report["cost"]["milliseconds"])
    page.choose("#colour", "ms")
    assert "ms" in page.text("#legend") and "INT8" not in page.text("#legend")
    page.choose("#colour", "device")
    assert "DLA, INT8" in page.text("#legend")
    assert page.complaints() == []


@pytest.mark.parametrize("command, name", [("translate", "scoped"), ("plan", "scoped"), ("translate", "vit")])
def test_keeping_layers_in_fp16_gives_the_times_of_the_command(
    browser: Any, tmp_path: Path, report: dict[str, Any], command: str, name: str, capsys: Any
) -> None:
    """The page's sum against the estimate of the command that the page shows, `translate` or `plan` with --keep_fp16."""
    model = tmp_path / f"{name}.onnx"
    forced: dict[str, Any] = {"preset": None}
    if name == "vit":
        shutil.copy(need_shared(SHARED / "zoo" / "mini" / "vit__nvpq17.onnx"), model)
        forced = {"preset": "dla", "dla_rewrites": "force"}  # otherwise all but one layer is faster on the GPU
        report = translate(model, TranslateOptions(**{**DLA, **forced})).report
    else:
        onnx.save(scoped(), model)
    words = ["plan", "-i", str(model), "--target", DLA["target"], "--platform", DLA["platform"]]
    if command == "plan":
        assert main([*words, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
    page = Page(browser, tmp_path / "page.html", report_page(report))
    offered = page.js("return data.layers.filter(canKeep).map(x => x.index)")
    assert len(offered) > 5 and all(report["plan"][i]["precision"] == "int8" for i in offered)
    chosen = sorted({*offered[:: max(1, len(offered) // 6)], offered[-1]})
    page.select("layer", chosen[0])
    page.click("#keep")
    page.js("arguments[0].forEach(keep)", chosen[1:])
    said = shlex.split(page.text("#kept code"))
    assert said[:2] == ["qdq-translator", command]
    kept = said[said.index("--keep_fp16") + 1 :]
    assert {report["plan"][i]["name"] for i in chosen} <= set(kept)
    shown = float(page.js("return document.querySelector('#kept').dataset.milliseconds"))
    if command == "plan":
        assert main([str(model) if word == model.name else word for word in said[1:]] + ["--json"]) == 0
        again = json.loads(capsys.readouterr().out)
    else:
        options = {key: report["options"][key] for key in (*forced, *DLA)}
        again = translate(model, TranslateOptions(**options, keep_fp16=kept)).report
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


def truth_of(made: Any) -> dict[str, Any]:
    """What `report --layer_info --profile` makes of `engine_of`."""
    info, profile = engine_of(made.report)
    parsed = parse_layer_info(json.dumps(info))
    times = {row["name"]: row["averageMs"] for row in profile[1:]}
    found: dict[str, Any] = rows.plain(engine_truth(check_engine(made.plan, parsed), times))
    return found


def slower(info: dict[str, Any], profile: list[dict[str, Any]]) -> None:
    """Another board: the third Conv is in FP16, and all times are others."""
    layer = info["Layers"][2]
    layer["Weights"]["Type"] = layer["Inputs"][0]["Format/Datatype"] = "Half"
    for index, row in enumerate(profile[1:]):
        row["averageMs"] *= 0.5 if index % 3 else 1.75


def test_two_boards_on_one_map(
    browser: Any, tmp_path: Path, built: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (_, info, _, profile) = built
    report = json.loads((folder / "scoped_report.json").read_text(encoding="utf-8"))
    other = engine_of(report)
    slower(*other)
    for name, content in zip(("info", "profile"), other):
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    words = ["report", "-t", str(folder), "--layer_info", info, str(tmp_path / "info.json")]
    words += ["--profile", profile, str(tmp_path / "profile.json")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    compared, names = found["engines"], [row["name"] for row in report["plan"] if row["op"] == "Conv"]
    a, b = ({row["name"]: row[side] for row in compared["layers"]} for side in "ab")
    differ = [row["name"] for row in compared["layers"] if row["differs"]]
    assert (
        names[2] in differ and compared["differ"] == len(differ) == len(found["engine"]["layers"][0]["fused_with"]) + 1
    )
    assert (a[names[2]]["actual"], b[names[2]]["actual"]) == ("int8", "fp16")
    assert a[names[0]]["milliseconds"] == pytest.approx(0.01) and b[names[0]]["milliseconds"] == pytest.approx(0.0175)
    path = tmp_path / "boards.html"
    assert main([*words, "--html", str(path)]) == 0
    page = Page(browser, path)
    assert page.complaints() == []
    more = sum(row["difference"] or 0.0 for row in compared["layers"])
    totals = [whole - part for whole, part in zip(compared["milliseconds"], compared["unmatched_milliseconds"])]
    assert (
        page.js("colour = 'moreReal'; return numberOf(root)")
        == pytest.approx(more)
        == pytest.approx(totals[1] - totals[0])
    )
    assert page.js("return data.layers.filter(x => x.changed).map(x => [x.name, x.changed])") == [
        [row["name"], "worse"] for row in report["plan"] if row["name"] in differ
    ]
    page.select("layer", next(i for i, row in enumerate(report["plan"]) if row["name"] == names[2]))
    assert page.sides()["Engine"] == ["INT8, GPU", "FP16, GPU"]
    assert page.sides()["Measured"] == [milliseconds(side[names[2]]["milliseconds"]) for side in (a, b)]
    page.js("showGroup(root)")
    assert page.sides()["Measured"] == [milliseconds(total) for total in totals]
    assert pages_of(browser) <= 2
    assert [row[0] for row in page.rows("engines-table")] == [row["name"] for row in compared["layers"]][:80]
    capsys.readouterr()
    assert main(words) == 0
    assert f"Engines A and B: {len(differ)} layers" in capsys.readouterr().out.replace("\n", " ")
    assert main([*words, "--layer_info", "a", "b", "c"]) == 2
    assert "two engines at most" in capsys.readouterr().err


def test_two_translations_with_an_engine_each(browser: Any, tmp_path: Path, built: tuple[Path, list[str]]) -> None:
    """Each engine is compared with its own plan: a layer that A keeps in FP16 on purpose does not disagree with it."""
    folder, (_, info, _, profile) = built
    made = translate(scoped(), TranslateOptions(), "scoped")
    made.save(tmp_path / "old")
    words = ["report", "-t", str(folder), "--against", str(tmp_path / "old"), "--layer_info", info, info]
    assert main([*words, "--profile", profile, profile, "--html", str(tmp_path / "both.html")]) == 0
    page = Page(browser, tmp_path / "both.html")
    assert page.complaints() == []
    fused = engine_of(made.report)[0]["Layers"][1]["Name"].split(" + ")
    planned = {row["name"]: row["precision"] for row in made.report["plan"]}
    assert [row[0] for row in page.rows("against-table")] == fused
    assert (
        [row[0] for row in page.rows("against-table-a")] == [name for name in fused if planned[name] == "int8"] != fused
    )
    assert page.text("#engines-differ") == "0 layers" and page.js("colour = 'moreReal'; return numberOf(root)") == 0


def test_two_translations_on_one_map(browser: Any, tmp_path: Path, report: dict[str, Any], plain: Any) -> None:
    """A without scales for the Convs in front of an Add, B with: time, precision and scale of each layer on both sides."""
    page = Page(browser, tmp_path / "two.html", comparison_page(report, plain.report))
    before, after = ({row["name"]: row for row in side["plan"]} for side in (plain.report, report))
    assert before.keys() == after.keys()
    own = {name: [side[name]["cost"]["milliseconds"] or 0.0 for side in (before, after)] for name in after}
    found = page.js("return Object.fromEntries(data.layers.map(x => [x.name, colours.moreMs.number(x)]))")
    assert {name: value or 0.0 for name, value in found.items()} == {
        name: pytest.approx(b - a) for name, (a, b) in own.items()
    }
    total = page.js("colour = 'moreMs'; return numberOf(root)")
    assert total == pytest.approx(report["cost"]["milliseconds"] - plain.report["cost"]["milliseconds"]) and total < 0
    page.choose("#colour", "moreMs")
    assert "\u2212" in page.text("#graph .group .m") and page.js("return document.querySelectorAll('.k-f5').length") > 0
    index, row = next((i, r) for i, r in enumerate(report["plan"]) if before[r["name"]]["precision"] != r["precision"])
    page.select("layer", index)
    assert page.sides()["Estimated"] == [milliseconds(value) for value in own[row["name"]]]
    assert page.sides()["Planned"] == ["FP16 avoidable \u00b7 DLA, FP16", "DLA, INT8"]
    assert f"In A: {before[row['name']]['reason']}" in page.text("#panel")
    new = {row["tensor"] for row in report["scales"]} - {row["tensor"] for row in plain.report["scales"]}
    page.select("tensor", page.js("return data.tensors.find(t => t.name === arguments[0]).index", sorted(new)[0]))
    assert "In A: no scale" in page.text("#panel")
    page.js("showGroup(root)")
    assert page.sides()["Estimated"] == [milliseconds(side["cost"]["milliseconds"]) for side in (plain.report, report)]


def test_five_questions_take_three_clicks_at_most(browser: Any, tmp_path: Path, plain: Any) -> None:
    """Each answer on the page is the report's."""
    report, engine = plain.report, truth_of(plain)
    block = next(i for i, row in enumerate(report["plan"]) if row["precision"] == "fp16" and row["cause"])
    found = account(*(((), (report["plan"][i]["name"],), 0.02 * i) for i in range(0, 10, 3)))
    text = report_page(report, {"account": rows.plain(found)}, None, [engine])
    page = Page(browser, tmp_path / "asked.html", text)
    group = "return [...shown.boxes.values()].find((b) => b.group && b.group.layers.includes(arguments[0])).key"
    most = "return [...shown.boxes.values()].filter((b) => b.group).sort((a, b) => numberOf(b.group) - numberOf(a.group))[0].key"

    def ask(*clicks: Any) -> str:
        """Text of the panel, after clicks on the page as it opens."""
        page.js("regroup(kindsOfGroups[0][0]); redraw(); fit('readable'); panel.replaceChildren(); scrollTo(0, 0)")
        page.clicks = 0
        for click in clicks:
            click()
        assert 0 < page.clicks <= 3
        return page.text("#panel")

    def open_group() -> None:
        page.click(f'[data-key="{page.js(group, block)}"]')

    def darkest() -> None:
        key = page.js(most)
        assert "k-h5" in page.one(f'[data-key="{key}"]').get_attribute("class")
        page.click(f'[data-key="{key}"]')

    row = report["plan"][block]
    said = ask(open_group, lambda: page.click(f"#layer-{block}"))
    assert page.text("#panel .why") == row["reason"] and f"Cure: {row['cure']}" in said
    saved = row["cost"]["fp16_milliseconds"] - row["cost"]["int8_milliseconds"]
    assert f"INT8 would save {milliseconds(saved)}" in said
    ask(lambda: page.click("nav a[href='#causes']"))
    assert milliseconds(report["root_causes"]["groups"][0]["milliseconds"]) in page.text(".cause .gain")

    def by_block(values: dict[str, float]) -> tuple[str, str]:
        """The block with the largest sum, and its largest layer."""
        sums: dict[str, float] = {}
        for name, value in values.items():
            sums[name.split("/")[2]] = sums.get(name.split("/")[2], 0.0) + value
        largest = max(sums, key=lambda name: sums[name])
        return largest, max((n for n in values if n.split("/")[2] == largest), key=lambda name: values[name])

    times = {r["name"]: r["cost"]["milliseconds"] or 0.0 for r in report["plan"] if not r["cost"]["fused_into"]}
    shares = {entry.weights[0]: entry.share for entry in found.entries}
    for colour, values, words in (("ms", times, milliseconds), ("noise", shares, lambda share: f"{100 * share:.1f}%")):
        said = ask(functools.partial(page.choose, "#colour", colour), darkest)
        name, layer = by_block(values)
        assert page.text("#panel h3").endswith(name) and layer in said and words(values[layer]) in said
    ask(lambda: page.click("nav a[href='#engine']"), lambda: page.click("#against-table a"))
    (first, *_) = engine["disagreements"]
    built = next(row for row in engine["layers"] if row["name"] == first)
    assert page.rows("against-table")[0][0] == first
    assert f"Engine: {built['actual'].upper()}" in page.text("#panel") and built["actual"] != built["planned"]


def test_hostile_names_of_engines_stay_text(browser: Any, tmp_path: Path, plain: Any) -> None:
    engine = truth_of(plain)
    pair = {
        "layer": "q", "node": "q", "tensor": "t", "readers": [engine["layers"][0]["name"]], "pattern": "p",
        "cure": "c",
    }  # fmt: skip
    bad = poisoned({**engine, "unfused": [{**pair, "milliseconds": 0.5}]})
    text = report_page(poisoned(plain.report), None, None, [bad, bad], (MARKUP, MARKUP))
    assert "<img" not in text and text.count("<script") == 2
    page = Page(browser, tmp_path / "bad.html", text)
    page.select("layer", 0)
    assert f"q{MARKUP}. p{MARKUP}. c{MARKUP}" in page.text("#panel") and MARKUP in page.text("#unmatched-table")
    assert page.js("return window.hacked === undefined") and page.complaints() == []


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
    board.write_text(json.dumps({"kind": "qdq-translator board", "engine": told}), encoding="utf-8")
    assert main(["report", "-t", str(folder), "--layer_info", str(board), str(board), "--json"]) == 0
    same = json.loads(capsys.readouterr().out)["engines"]
    assert same["milliseconds"] == [told["milliseconds"]] * 2 and (same["differ"], same["layers"]) == (0, [])
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


def account(*entries: tuple[tuple[str, ...], tuple[str, ...], float]) -> Account:
    """Of tensors, weights and share of each entry."""
    rows = (Rounding("", tensors, weights, (), share, 30.0, ()) for tensors, weights, share in entries)
    return Account(30.0, 30.0, 0.0, 1, 1.0, tuple(rows))


def test_the_noise_share_is_that_of_the_account(report: dict[str, Any]) -> None:
    """Each entry goes to the layers that make its tensors or hold its weights; nothing is lost between them."""
    rows = report["plan"]
    tensors = (*rows[2]["outputs"], *rows[4]["outputs"])
    drawn = network(report)
    share_noise(account((tensors, (), 0.6), ((), (rows[2]["name"],), 0.4)), drawn)
    found = {layer.index: layer.noise for layer in drawn.layers if layer.noise is not None}
    assert found == {2: pytest.approx(0.7), 4: pytest.approx(0.3)}


def explicit_network(layers: list[dict[str, Any]]) -> Any:
    """The network of the real engine: its nodes, tensors and shapes as its layers name them, weights made up. A convolution that writes
    INT8 has a Q behind it; one that writes more feeds a Q that is a layer of its own."""
    nodes: list[Any] = []
    constants = {"scale": np.float32(0.05), "zero": np.int8(0), "codes": np.zeros((), np.int8)}
    given = helper.make_tensor_value_info("input1", TensorProto.FLOAT, [1, 3, 224, 224])
    made: dict[str, str] = {"input1": "input1"}  # tensor of the engine -> the float tensor that a layer reads

    def node(op: str, inputs: list[str], output: str, name: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name or f"{op}_of_{output}", **attributes))
        return output

    def pair(source: str, name: str, tensor: str) -> str:
        node("QuantizeLinear", [source, "scale", "zero"], f"{tensor}_q", name)
        return node("DequantizeLinear", [f"{tensor}_q", "scale", "zero"], f"{tensor}_dq")

    for layer in layers:
        source, *others = [made.get(row["Name"], row["Name"]) for row in layer["Inputs"]]
        target = layer["Outputs"][0]
        names = re.findall(r"\b(?:QuantizeLinear|Conv|Clip|Add|Gemm|GlobalAveragePool)_\d+", layer["Name"])
        if layer.get("Origin") == "REFORMAT" or layer["LayerType"] == "NoOp":
            made[target["Name"]] = source
            continue
        if layer.get("Origin") == "QDQ":
            made[target["Name"]] = pair(source, names[0], target["Name"])
            continue
        if names[0].startswith("Quantize"):
            shape = (target["Dimensions"][1], layer["Inputs"][0]["Dimensions"][1] // layer.get("Groups", 1), 1, 1)
            constants[f"{names[0]}.codes"] = np.ones(shape, np.int8)
            names[0] = node("DequantizeLinear", [f"{names[0]}.codes", "scale", "zero"], f"{names[0]}_w")
        for name in names[names[0].endswith("_w") :]:
            op, last = name.split("_")[0], name == names[-1]
            more = {"Conv": [names[0]], "Gemm": [names[0]], "Add": others}.get(op, [])
            words = {"strides": stride(layer), "group": layer.get("Groups", 1)} if op == "Conv" else {}
            output = f"{target['Name']}_float" if last else f"{name}_out"
            source = node("Conv" if op == "Gemm" else op, [source, *more], output, name, **words)
        quantized = "Int8" in target["Format/Datatype"] and layer["LayerType"] != "TiledPooling"
        made[target["Name"]] = pair(source, "", target["Name"]) if quantized else source
    end = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "mobilenet", [given], [end], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def stride(layer: dict[str, Any]) -> list[int]:
    before, after = (layer[side][0]["Dimensions"][2] for side in ("Inputs", "Outputs"))
    return [before // after] * 2


def test_which_qdq_of_a_real_explicit_engine_did_not_fuse(browser: Any, tmp_path: Path, capsys: Any) -> None:
    """TensorRT's own files of MobileNet-v2 (TensorRT 8, explicit), read here without our reader."""
    folder = need_shared(SHARED / "engine_info")
    info, profile = (folder / f"mobilenet.qat.onnx.engine.{kind}.json" for kind in ("graph", "profile"))
    layers = json.loads(info.read_text(encoding="utf-8"))["Layers"]
    times = {row["name"]: row["averageMs"] for row in json.loads(profile.read_text(encoding="utf-8"))[1:]}
    wanted = [layer["Name"] for layer in layers if layer.get("Origin") == "QDQ"]
    onnx.save(explicit_network(layers), tmp_path / "mobilenet.onnx")
    words = ["report", "-t", str(tmp_path / "mobilenet.onnx"), "--layer_info", str(info), "--profile", str(profile)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["engine"]
    assert main([*words, "--json", "--strict"]) == 1 and found["summary"]["obeys"]
    assert [row["layer"] for row in found["unfused"]] == wanted and len(wanted) == 17
    assert [row["milliseconds"] for row in found["unfused"]] == [times[name] for name in wanted]
    patterns = {row["layer"]: row["pattern"] for row in found["unfused"]}
    assert "graph input 'input1'" in patterns["QuantizeLinear_2"]
    assert patterns["QuantizeLinear_98"] == "Add 'Add_144' reads '410_float' without a pair"
    assert patterns["QuantizeLinear_147"] == "behind Add 'Add_144', which reads no pair"
    assert found["unfused"][2]["cure"] == "Put a pair on '410_float'."
    assert "behind GlobalAveragePool" in patterns["QuantizeLinear_854"] and all(patterns.values())
    assert main([*words, "--html", str(tmp_path / "page.html")]) == 0
    page = Page(browser, tmp_path / "page.html")
    assert page.complaints() == [] and page.js("return data.layers.some(canKeep)") is False
    assert [row[0] for row in page.rows("unfused-table")] == wanted
    assert page.js("return [...unfusedAt.values()].flat().length") == sum(
        len(row["readers"]) for row in found["unfused"]
    )
    page.click("#unfused-table tr:nth-child(2) td:nth-child(4) a")
    assert "Q/DQ that did not fuse" in page.text("#panel") and "QuantizeLinear_98" in page.text("#panel")
    assert page.js("colour = 'real'; return numberOf(root)") == pytest.approx(
        sum(times.values()) - sum(row["milliseconds"] or 0 for row in found["unmatched"])
    )
