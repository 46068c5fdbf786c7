"""The report page and the comparison page, in headless Chromium where there is one."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from benchmarks.networks import residual
from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import MissingDependency, UserError
from qdq_translator.core.words import percent
from qdq_translator.translation import translator
from qdq_translator.translation.report import html
from qdq_translator.translation.report.embed import ridge
from qdq_translator.translation.report.html import write_page
from tests import browser as browsers
from tests.pages import Page, compare, comparison_page, network, report_page, rows

MARKUP = (
    """<script>window.hacked=1</script>"><img src=x onerror="window.hacked=2"></script><script>window.hacked=3//'"""
)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Four blocks of two Convs; the Convs in front of each Add have no scale."""
    return translate(residual(8), TranslateOptions(target="orin-dla", platform="jetpack-6.2"), "blocks").report


@pytest.fixture(scope="module")
def cured() -> dict[str, Any]:
    options = TranslateOptions(target="orin-dla", platform="jetpack-6.2", add_unary_ew_scales_for_dla=True)
    return translate(residual(8), options, "blocks").report


@pytest.fixture(scope="module")
def verified(report: dict[str, Any]) -> dict[str, Any]:
    """What `verify --per_layer --save` writes: the error jumps at the output of the third Conv."""
    layers, sqnr = [], 70.0
    for row in report["plan"]:
        if row["name"] == report["plan"][4]["name"]:
            sqnr = 21.5
        result = {"identical": False, "sqnr_db": sqnr, "cosine": 0.99, "max_abs": 0.1}
        layers.append(
            {"tensor": row["outputs"][0], "node": row["name"], "op": row["op"], "made": result, "read": result}
        )
    at = layers[4]
    jump = {**{k: at[k] for k in ("tensor", "node", "op")}, "where": "read", "lost_db": 48.5, "notes": ["scale halved"]}
    output = {"identical": False, "cosine": 0.987654, "sqnr_db": 21.5, "max_abs": 0.25, "top1_agreement": 87.5}
    return {
        "generator": "qdq-translator test",
        "inputs": {"samples": 3, "source": "/" + "a_long_path/" * 9 + "samples.npz"},
        "outputs": {"pairs": [{"reference": "explicit", "other": "simulated", "outputs": {"out": output}}]},
        "per_layer": {"layers": layers, "jumps": [jump], "first_jump": jump},
    }


# ---------------------------------------------------------------- figures


def test_results_of_another_file_are_marked(report: dict[str, Any], verified: dict[str, Any]) -> None:
    warning = "belong to another file"
    sha256 = report["source"]["sha256"]
    assert warning not in report_page(report, {**verified, "model": {"file": "a.onnx", "sha256": sha256}})
    assert warning in report_page(report, {**verified, "model": {"file": "b.onnx", "sha256": "0" * 64}})


def test_percentages_round_without_claiming_all_or_nothing() -> None:
    assert [percent(x) for x in (0.0, 0.01, 49.96, 99.97, 100.0, None)] == [
        "0.0%", "<0.1%", "50.0%", ">99.9%", "100.0%", "",
    ]  # fmt: skip


def test_nothing_is_loaded_and_only_our_script_runs(report: dict[str, Any]) -> None:
    page = report_page(report)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy and "default-src 'none'" in policy[1]
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", policy[1])
    assert "unsafe" not in policy[1]
    assert re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page) == []
    assert "style=" not in page.replace('name="style', "")


def test_the_same_report_gives_the_same_page(report: dict[str, Any]) -> None:
    assert report_page(report) == report_page(json.loads(json.dumps(report)))


def test_without_jinja2_the_error_says_what_to_install(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match=re.escape("pip install '.[report]'")):
        write_page(rows(report), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_folder_that_cannot_be(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_page(rows(report), tmp_path / "file" / "report.html")


def test_names_that_utf8_cannot_hold(report: dict[str, Any], tmp_path: Path) -> None:
    odd = {**report, "model": "bad\udcff"}
    write_page(rows(odd), tmp_path / "page.html")
    assert "bad?" in (tmp_path / "page.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    started = browsers.start()
    yield started
    started.quit()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, report: dict[str, Any], verified: dict[str, Any]) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(report_page(report, verified), encoding="utf-8")
    return path


@pytest.fixture()
def page(browser: Any, drawn: Path) -> Page:
    return Page(browser, drawn)


def avoidable(report: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return next((i, r) for i, r in enumerate(report["plan"]) if r["precision"] == "fp16" and not r["by_design"])


def test_it_opens_quietly_and_loads_nothing(page: Page) -> None:
    assert page.complaints() == []
    assert page.js("return performance.getEntriesByType('resource').length") == 0
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")


def test_numbers_read_back(page: Page, report: dict[str, Any]) -> None:
    macs, layers = report["coverage"]["macs"], report["coverage"]["layers"]
    assert page.text("#int8-share") == f"{100 * macs['int8'] / macs['total']:.1f}%"
    assert page.text("#int8-layers") == str(layers["int8"])
    rows = page.rows("layer-table")
    assert [row[1] for row in rows] == [row["name"] for row in report["plan"]]
    assert [row[3].split()[0] for row in rows].count("16!") == layers["avoidable"]
    ends = {row[0].split()[0]: row for row in page.rows("ends-table")}
    given = report["inputs"][0]
    assert ends[given["name"]][2].startswith(f"{given['scale']:.9g}")
    assert ends[given["name"]][3].startswith(given["hex"])
    scales = {row[0]: (row[1], row[2]) for row in page.rows("scale-table")}
    assert scales == {row["tensor"]: (f"{row['scale']:.9g}", row["hex"]) for row in report["scales"]}


def test_the_roofline_holds_every_layer_of_the_dla(page: Page, report: dict[str, Any]) -> None:
    paths = page.js("return Array.from(document.querySelectorAll('#roofline .dots')).map(p => p.getAttribute('d'))")
    found = sorted(tuple(map(float, dot)) for path in paths for dot in re.findall(r"M(\S+) (\S+)h0", path))
    timed = [row for row in report["plan"] if row["cost"] and not row["cost"]["fused_into"]]
    times = [math.log10(row["cost"]["milliseconds"]) for row in timed]
    low, high = math.floor(min(times)), math.ceil(max(times))
    wanted = []
    for row, power in zip(timed, times):
        intensity = row["macs"] / row["cost"]["bytes"]
        x = 112 + (970 - 112) * math.log10(intensity) / 4 if intensity >= 1 else 78
        wanted.append((x, 280 - (280 - 14) * (power - low) / (high - low)))
    assert [round(v, 1) for dot in found for v in dot] == [
        pytest.approx(v, abs=0.06) for dot in sorted(wanted) for v in dot
    ]
    model = report["cost"]["model"]
    assert ridge(model) == pytest.approx(model["int8_rate"] * model["clock_ghz"] * 1e9 / model["bytes_per_second"])
    assert ridge({"a": [1]}) is ridge({**model, "bytes_per_second": 0}) is ridge(None) is None
    assert 'id="roofline"' not in report_page({**report, "plan": [{**row, "cost": None} for row in report["plan"]]})


def test_search_filters_and_counts(page: Page, report: dict[str, Any]) -> None:
    page.one("#search-layers").send_keys("add")
    rows = page.rows("layer-table")
    assert rows and len(rows) < len(report["plan"])
    assert all("add" in " ".join(row).lower() for row in rows)
    assert page.text('[data-count="layer-table"]') == f"{len(rows)} of {len(report['plan'])} rows"
    page.one("#search-layers").send_keys(" zzz")
    assert page.rows("layer-table") == []


def test_the_precision_buttons_filter(page: Page, report: dict[str, Any]) -> None:
    page.click('#layers .chip[data-kind="avoidable"]')
    assert len(page.rows("layer-table")) == report["coverage"]["layers"]["avoidable"]
    page.click('#layers .chip[data-kind="avoidable"]')
    assert len(page.rows("layer-table")) == len(report["plan"])


def test_tables_sort_both_ways(page: Page, report: dict[str, Any]) -> None:
    macs = {row["name"]: row["macs"] for row in report["plan"]}
    page.click("#layer-table th.c-m button")
    most = [macs[row[1]] for row in page.rows("layer-table")]
    assert most == sorted(macs.values(), reverse=True)
    assert page.one("#layer-table th.c-m").get_attribute("aria-sort") == "descending"
    page.click("#layer-table th.c-m button")
    assert [macs[row[1]] for row in page.rows("layer-table")] == sorted(macs.values())
    page.click("#layer-table th.c-n button")
    names = [row[1] for row in page.rows("layer-table")]
    assert names == sorted(names, key=str.lower)


def test_clicking_a_box_tells_the_reason(page: Page, report: dict[str, Any]) -> None:
    index, row = avoidable(report)
    page.click(f"#layer-{index}")
    panel = page.text("#panel")
    assert row["name"] in panel and row["reason"] in panel and row["cause"] in panel
    assert page.js("return location.hash") == f"#layer-{index}"


def test_clicking_a_scale_tells_its_origin(page: Page, report: dict[str, Any]) -> None:
    page.js("document.querySelector('.l.inferred').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    name = page.text("#panel .name")
    row = next(row for row in report["scales"] if row["tensor"] == name)
    panel = page.text("#panel")
    assert row["hex"] in panel and f"{row['scale']:.9g}" in panel and "Inferred" in panel


def test_root_causes_lead_to_their_place(page: Page, report: dict[str, Any]) -> None:
    cause = report["root_causes"]["causes"][0]
    page.click("#causes .cause li a")
    assert cause["tensor"] in page.text("#panel")
    assert "No scale" in page.text("#panel")
    assert page.js("return document.querySelectorAll('#graph .b.on, #graph .e.on, #graph .l.on').length") > 0


def test_find_counts_and_goes_from_match_to_match(page: Page, report: dict[str, Any]) -> None:
    from selenium.webdriver.common.keys import Keys

    names = [row["name"] for row in report["plan"] if row["op"] == "Add"]
    rows = [*((row["name"], row["op"]) for row in report["plan"]), *((t, "") for t in tensors_of(report))]
    matches = [name for name, op in rows if "add" in f"{name} {op}".lower()]
    page.one("#find-layer").send_keys("add")
    assert page.text("#find-count") == f"{len(matches)} found"
    seen = []
    for key in (Keys.ENTER, Keys.ENTER):
        page.one("#find-layer").send_keys(key)
        seen.append(page.text("#panel .name"))
    assert seen == names[:2] and page.text("#find-count") == f"2 of {len(matches)}"
    page.click('[data-find="-1"]')
    assert page.text("#panel .name") == names[0]
    page.click('[data-find="-1"]')
    assert page.text("#find-count") == f"{len(matches)} of {len(matches)}"
    page.one("#find-layer").send_keys("zzz")
    assert page.text("#find-count") == "Nothing found"
    assert page.one("#find-layer").get_attribute("aria-invalid") == "true"


def tensors_of(report: dict[str, Any]) -> list[str]:
    return [tensor.name for tensor in network(report).tensors]


def test_the_graph_moves_and_zooms(page: Page) -> None:
    def wide() -> float:
        return float(page.js("return document.querySelector('#graph').viewBox.baseVal.width"))

    page.click('[data-zoom="fit"]')
    before = wide()
    page.click('[data-zoom="in"]')
    assert wide() == pytest.approx(before / 1.4, rel=1e-3)
    page.click('[data-zoom="fit"]')
    assert wide() == pytest.approx(before, rel=1e-3)


def test_the_keyboard_reaches_everything(page: Page, report: dict[str, Any]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    focused = "return document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
    seen = []
    for _ in range(300):
        ActionChains(page.browser).send_keys(Keys.TAB).perform()
        seen.append(page.js(focused))
        if seen[-1] == "search-scales":
            break
    assert {"theme", "copy", "find-layer", "graph", "chart", "search-layers", "search-scales"} <= set(seen)

    page.js("document.querySelector('#graph').focus()")
    first = report["plan"][0]
    ActionChains(page.browser).send_keys(Keys.ARROW_DOWN).perform()
    assert first["name"] in page.text("#panel")
    ActionChains(page.browser).send_keys(Keys.ARROW_DOWN).perform()
    following = next(row for row in report["plan"] if first["outputs"][0] in row["inputs"])
    assert following["name"] in page.text("#panel")
    assert page.js("return document.activeElement.id") == f"layer-{report['plan'].index(following)}"
    ActionChains(page.browser).send_keys(Keys.ARROW_UP).perform()
    assert page.js("return location.hash") == "#layer-0"


def test_the_graph_fits_again_after_a_change_of_size(page: Page) -> None:
    """As long as nobody moved it; then what is in the middle stays there."""
    shown = "return document.querySelector('#graph').viewBox.baseVal.width"
    whole = "return document.querySelector('#graph').getBoundingClientRect().width"
    page.click('[data-zoom="fit"]')
    before = page.js(shown)
    try:
        page.browser.set_window_size(900, 1000)
        page.settle()
        fitted = page.js(shown)
        assert page.js(whole) < 900 and fitted != before
        page.click('[data-zoom="fit"]')
        assert page.js(shown) == pytest.approx(fitted)
        page.click('[data-zoom="in"]')
        scale = page.js(whole) / page.js(shown)
        page.browser.set_window_size(1440, 1000)
        page.settle()
        assert page.js(whole) / page.js(shown) == pytest.approx(scale, rel=1e-3)
    finally:
        page.browser.set_window_size(1440, 1000)


def test_everything_that_can_be_focused_has_a_name(page: Page) -> None:
    page.browser.execute_cdp_cmd("Accessibility.enable", {})
    page.settle()
    nodes = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("button", "link", "searchbox", "textbox", "img", "region", "navigation", "complementary")
    found = [n for n in nodes if not n["ignored"] and n["role"]["value"] in roles]
    assert len(found) > 50
    assert [n["role"]["value"] for n in found if not n.get("name", {}).get("value", "").strip()] == []


OVERLAPS = """
// lines are told apart by their baselines: how high the box of a letter is depends on the font
const baseline = (text) => text.getStartPositionOfChar(0).matrixTransform(text.getScreenCTM()).y;
const sameLine = (one, other) =>
  Math.abs(baseline(one) - baseline(other)) < parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().d;
const graph = document.querySelector("#graph");
for (const name of ["far", "mid"]) graph.classList.remove(name);
if (arguments[0]) graph.classList.add(arguments[0]);
return Array.from(graph.querySelectorAll(".b[id]")).map((box) => {
  const [rect, op, mark] = ["rect", ".o", ".m"].map((part) => box.querySelector(part).getBoundingClientRect());
  const [text, over] = [op, mark].map((r) => r.width > 0);
  const clash = text && over && op.right > mark.left && op.left < mark.right && sameLine(box.querySelector(".o"), box.querySelector(".m"));
  return clash || (text && op.right > rect.right) ? box.querySelector(".o").textContent : "";
}).filter(Boolean);
"""


@pytest.mark.parametrize("level", ["", "mid"])
def test_no_operator_stands_under_its_mark(browser: Any, tmp_path: Path, report: dict[str, Any], level: str) -> None:
    names = ["GlobalAveragePool", "WWWWWWWWWWWWW", "ConvTranspose", "LayerNormalization", "Conv", "DepthToSpace"]
    plan = [{**row, "op": names[i % len(names)]} for i, row in enumerate(report["plan"])]
    for row, runs in zip(plan, (("gpu", "fp16"), ("dla", "fp16"), ("dla", "int8")) * len(plan)):
        row["device"], row["precision"] = runs
    page = Page(browser, tmp_path / "long.html", report_page({**report, "plan": plan}))
    page.js("document.querySelector('#network').scrollIntoView()")
    assert page.js(OVERLAPS, level) == []
    shown = page.js("return Array.from(document.querySelectorAll('#graph .b[id] .o')).map((o) => o.textContent)")
    assert "Conv" in shown and "ConvTranspose" in shown and any(text.endswith("\u2026") for text in shown)


@pytest.mark.parametrize("width", [1400, 800, 400])
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    device = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    try:
        page.settle()
        assert page.js("return document.documentElement.scrollWidth") <= width
        # tables scroll in their own frames, and at 400 pixels none has to
        wide = page.js(
            "return Array.from(document.querySelectorAll('.scroll')).filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.querySelector('table').id)"
        )
        assert width > 400 or wide == []
        assert page.js("return document.querySelector('#layer-table .name').getBoundingClientRect().width") > 20
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_tables_come_as_csv(page: Page, report: dict[str, Any], tmp_path: Path) -> None:
    page.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": False}
    )
    page.one("#search-layers").send_keys("conv")
    page.click("#layers .csv")
    path = tmp_path / "blocks_layers.csv"
    until = time.monotonic() + 20
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    wanted = [row for row in report["plan"] if row["op"] == "Conv"]
    assert [row["Layer"] for row in rows] == [row["name"] for row in wanted]
    assert [int(row["MACs"]) for row in rows] == [row["macs"] for row in wanted]
    assert [row["Reason"] for row in rows] == [row["reason"] for row in wanted]
    for row, plan in zip(rows, wanted):
        assert row["Estimated ms"] == ("" if plan["cost"]["fused_into"] else f"{plan['cost']['milliseconds']!r}")


def test_a_name_is_no_formula_in_a_csv(browser: Any, tmp_path: Path, report: dict[str, Any]) -> None:
    plan = [{**row, "name": f'=1+"{i}",2'} for i, row in enumerate(report["plan"])]
    page = Page(browser, tmp_path / "formula.html", report_page({**report, "plan": plan, "dla": None}))
    text = page.js("return csv(document.querySelector('#layer-table'))")
    assert [row["Layer"] for row in csv.DictReader(text.splitlines())] == [f"'{row['name']}" for row in plan]


# ---------------------------------------------------------------- the DLA


@pytest.fixture(scope="module")
def mixed() -> dict[str, Any]:
    """Two layers that no DLA runs, one in the middle."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    network (float[1,4,8,8] image) => (float[1,4,8,8] result)
    <float s = {0.02}, int8 z = {0}, float[4,4,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
    {
       q = QuantizeLinear (image, s, z)
       d = DequantizeLinear (q, s, z)
       a = Conv (d, w)
       qa = QuantizeLinear (a, s, z)
       da = DequantizeLinear (qa, s, z)
       b = Erf (da)
       c = Conv (b, w)
       result = Erf (c)
    }
    """
    options = TranslateOptions(target="orin-dla", platform="jetpack-6.2")
    return translate(onnx.parser.parse_model(text), options, "mixed").report


def test_the_dla_section_has_limits_layers_and_subgraphs(browser: Any, tmp_path: Path, mixed: dict[str, Any]) -> None:
    page = Page(browser, tmp_path / "mixed.html", report_page(mixed))
    dla = mixed["dla"]
    on_gpu = [row for row in dla["layers"] if row["verdict"] == "gpu"]
    assert [row["op"] for row in on_gpu] == ["Erf", "Erf"]
    rows = page.rows("gpu-table")
    assert [row[0].split()[1] for row in rows] == [row["name"] for row in on_gpu]
    for shown, row in zip(rows, on_gpu):
        for finding in row["findings"]:
            if finding["effect"] == "gpu":
                assert finding["text"] in shown[2] and finding["source"] in shown[3]
    limits = {row[0]: row for row in page.rows("limit-table")}
    assert set(limits) == {finding["limit"] for row in dla["layers"] for finding in row["findings"]}
    for key, shown in limits.items():
        assert int(shown[3]) == sum(any(f["limit"] == key for f in row["findings"]) for row in dla["layers"])
    graphs = page.rows("subgraph-table")
    assert len(graphs) == dla["subgraphs"] == 2
    assert [int(row[1]) for row in graphs] == [
        sum(row["subgraph"] == number for row in dla["layers"]) for number in range(2)
    ]
    page.click("#gpu-table a")
    assert on_gpu[0]["name"] in page.text("#panel")


def test_gpu_layers_have_a_colour_a_legend_and_a_filter(browser: Any, tmp_path: Path, mixed: dict[str, Any]) -> None:
    page = Page(browser, tmp_path / "mixed.html", report_page(mixed))
    names = [row["name"] for row in mixed["dla"]["layers"] if row["verdict"] == "gpu"]
    page.click('#layers .chip[data-kind="gpu"]')
    assert [row[1] for row in page.rows("layer-table")] == names
    for name in (*names, names[0]):  # the legend goes round
        page.click('[data-next="gpu"]')
        assert page.text("#panel .name") == name
    colours = page.js(
        "return ['gpu', 'int8', 'expected', 'avoidable', 'limit'].map(k => {"
        "const r = document.createElementNS('http://www.w3.org/2000/svg', 'g');"
        "r.setAttribute('class', `b k-${k}`); r.append(document.createElementNS('http://www.w3.org/2000/svg', 'rect'));"
        "document.querySelector('#graph').append(r); return getComputedStyle(r.firstChild).fill})"
    )
    assert len(set(colours)) == 5


def test_copy_copies(page: Page, report: dict[str, Any]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.click("#ends-table td:nth-of-type(3) .copy")
    until = time.monotonic() + 10
    while "Copied" not in page.text("#said") and time.monotonic() < until:
        time.sleep(0.02)
    page.one("#search-scales").click()
    ActionChains(page.browser).key_down(Keys.CONTROL).send_keys("v").key_up(Keys.CONTROL).perform()
    assert page.one("#search-scales").get_property("value") == report["inputs"][0]["hex"]


def test_light_and_dark(page: Page) -> None:
    def background() -> str:
        return str(page.js("return getComputedStyle(document.body).backgroundColor"))

    def emulate(value: str) -> None:
        page.browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": value}]}
        )

    emulate("light")
    light = background()
    emulate("dark")
    dark = background()
    assert light != dark
    page.click("#theme")
    assert page.text("#theme") == "Theme: light" and background() == light
    page.click("#theme")
    assert page.text("#theme") == "Theme: dark" and background() == dark
    page.click("#theme")
    emulate("light")
    assert background() == light


def test_verify_marks_the_first_jump(page: Page, report: dict[str, Any]) -> None:
    assert page.js("return document.querySelectorAll('#chart .jump').length") == 1
    assert "48.5 dB lost" in page.text("#verify .jumps") and "scale halved" in page.text("#verify .jumps")
    page.click("#verify .jumps a")
    assert report["plan"][4]["name"] in page.text("#panel")
    assert "SQNR 21.5 dB" in page.text("#panel")
    assert "0.987654" in page.text("#verify table") and "87.5%" in page.text("#verify table")
    assert page.rows("layer-table")[4][9] == "21.5"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model that ships, with what `verify --audit --save` says of it."""
    folder = tmp_path_factory.mktemp("audited")
    samples = next(EXAMPLE_MODEL.parent.glob("*.npz"))
    made = translate(EXAMPLE_MODEL, TranslateOptions(infer_add_scales=True), "digits")
    made.save(folder)
    saved = folder / "results.json"
    command = ["verify", "-i", str(EXAMPLE_MODEL), "-t", str(folder), "--inputs", str(samples), "--samples", "32"]
    assert main([*command, "--audit", "--save", str(saved)]) == 0
    return made.report, json.loads(saved.read_text(encoding="utf-8"))


LINES = """
return Array.from(document.querySelectorAll(".plot[data-tensor]")).map((plot) => {
  const at = (name) => plot.querySelector(`.${name}`).getBBox().x;
  const area = plot.querySelector(".hist"), box = area.getBBox();
  return [plot.dataset.tensor, at("clipline"), at("bestline"), box.x, box.width, area.getAttribute("d")];
});
"""


def test_histograms_show_where_scales_clip(
    browser: Any, tmp_path: Path, audited: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    report, results = audited
    audit = results["audit"]
    page = Page(browser, tmp_path / "audit.html", report_page(report, results))
    assert page.complaints() == []
    drawn = page.js(LINES)
    assert [row[0] for row in drawn] == [row["tensor"] for row in audit["tensors"]][: html.PLOTS[0]]
    for (_, clip, best, left, width, path), row in zip(drawn, audit["tensors"]):
        end = row["histogram"]["end"]
        # one scale of pixels for the bins and both lines: their places are proportional to the values
        pixels = width / end
        assert clip - left == pytest.approx(row["amax"] * pixels, abs=0.3)
        assert best - left == pytest.approx(row["best_amax"] * pixels, abs=0.3)
        heights = [76 - float(y) for y in re.findall(r"V([\d.]+)H", path)]
        counts = row["histogram"]["counts"]
        assert len(heights) == len(counts)
        most = math.log1p(max(counts))
        assert heights == pytest.approx([68 * math.log1p(count) / most for count in counts], abs=0.06)
    rows = page.rows("audit-table")
    assert [row[0] for row in rows] == [row["tensor"] for row in audit["tensors"]]
    assert [row[7] for row in rows] == [row["cause"] for row in audit["tensors"]]
    page.click(".plot a")
    assert audit["tensors"][0]["tensor"] in page.text("#panel")


def test_weights_show_every_output_channel(
    browser: Any, tmp_path: Path, audited: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    report, results = audited
    weights = results["audit"]["weights"]
    page = Page(browser, tmp_path / "weights.html", report_page(report, results))
    drawn = page.js(
        "return Array.from(document.querySelectorAll('.plot[data-weight]')).map(p => [p.dataset.weight,"
        " p.querySelector('.hist').getAttribute('d'), p.querySelector('.worst').getBBox().x, p.textContent])"
    )
    assert [row[0] for row in drawn] == [row["weight"] for row in weights][: html.PLOTS[1]] and drawn
    for (_, path, worst, text), row in zip(drawn, weights):
        heights = [76 - float(y) for y in re.findall(r"V([\d.]+)H", path)]
        amax = row["channel_amax"]
        assert heights == pytest.approx([68 * value / max(amax) for value in amax], abs=0.06)
        assert worst == pytest.approx(6 + 308 * row["worst_channel"] / len(amax), abs=0.1)
        assert f"the noisiest is {row['worst_channel']}" in text


def test_many_channels_are_drawn_as_the_largest_of_neighbours(
    browser: Any, tmp_path: Path, audited: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    report, results = audited
    amax = [float(i) for i in range(1000)]
    many = {"channel_amax": amax, "channel_codes": [127] * 1000, "worst_channel": 999, "worst_sqnr_db": None}
    audit = {**results["audit"], "weights": [{**results["audit"]["weights"][0], **many}]}
    page = Page(browser, tmp_path / "many.html", report_page(report, {**results, "audit": audit}))
    path, left, width = page.js(
        "const p = document.querySelector('.plot[data-weight]'), w = p.querySelector('.worst').getBBox();"
        "return [p.querySelector('.hist').getAttribute('d'), w.x, w.width]"
    )
    heights = [76 - float(y) for y in re.findall(r"V([\d.]+)H", path)]
    assert heights == pytest.approx([68 * max(amax[i : i + 4]) / 999 for i in range(0, 1000, 4)], abs=0.06)
    assert left + width == pytest.approx(314, abs=0.5)  # at least a pixel and a half wide


def poisoned(value: Any) -> Any:
    """Every string of a report with markup behind it, but those that the page decides by."""
    kept = ("precision", "dla", "verdict", "severity", "effect", "where", "hex")
    if isinstance(value, dict):
        return {k: v if k in kept else poisoned(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v) for v in value]
    return value + MARKUP if isinstance(value, str) else value


def test_hostile_names_in_an_audit_stay_text(audited: tuple[dict[str, Any], dict[str, Any]]) -> None:
    report, results = audited
    text = report_page(poisoned(report), poisoned(results))
    assert 'class="plot"' in text and "<img" not in text and text.count("<script") == 2


@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_a_hostile_name_runs_nothing(
    browser: Any, tmp_path: Path, report: dict[str, Any], cured: dict[str, Any], verified: dict[str, Any], kind: str
) -> None:
    bad = poisoned(report)
    text = report_page(bad, poisoned(verified)) if kind == "report" else comparison_page(poisoned(cured), bad)
    assert "<img" not in text and text.count("<script") == 2
    page = Page(browser, tmp_path / "bad.html", text)
    index, row = avoidable(report)
    page.click(f"#layer-{index}")
    assert (row["name"] if kind == "report" else "") + MARKUP in page.text("#panel")
    page.js("document.querySelector('#graph .e').dispatchEvent(new MouseEvent('pointerover', {bubbles: true}))")
    assert MARKUP in page.text("#tip")
    page.one("#search-layers").send_keys("hacked")
    assert page.rows("layer-table")
    assert page.js("return window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert page.complaints() == []


def test_even_unescaped_script_would_not_run(browser: Any, tmp_path: Path, report: dict[str, Any]) -> None:
    """The policy holds where the escaping would fail."""
    text = report_page(report).replace('<main id="main">', f'<main id="main">{MARKUP}', 1)
    page = Page(browser, tmp_path / "bad.html", text)
    assert page.js("return window.hacked === undefined")
    assert any("Content Security Policy" in line for line in page.complaints())


def test_comparison(browser: Any, tmp_path: Path, report: dict[str, Any], cured: dict[str, Any]) -> None:
    page = Page(browser, tmp_path / "both.html", comparison_page(cured, report))
    assert page.complaints() == []
    before = {row["name"]: row for row in report["plan"]}
    changed = [r["name"] for r in cured["plan"] if r["precision"] != before[r["name"]]["precision"]]
    assert changed
    rows = page.rows("layer-table")
    assert set(changed) <= {row[0] for row in rows}
    assert page.text("#changed-layers") == str(len(rows))
    assert rows[0][2].startswith("16!") and rows[0][3].startswith("8")
    old = {row["tensor"] for row in report["scales"]}
    new = {row["tensor"] for row in cured["scales"]}
    assert {row[0] for row in page.rows("scale-table")} == old ^ new
    assert "--add_unary_ew_scales_for_dla" in page.text("#options") and "no" in page.text("#options")
    assert report["root_causes"]["causes"][0]["tensor"] in page.text("#causes")
    for macs in (report["coverage"]["macs"], cured["coverage"]["macs"]):
        assert percent(macs["int8"], macs["total"]) in page.text(".changes")
    assert page.js("return document.querySelectorAll('#graph .ch').length") == len(rows)
    assert page.text("#left-out") == ""
    shorter = {**cured, "plan": cured["plan"][:-1], "dla": None}
    page = Page(browser, tmp_path / "less.html", comparison_page(shorter, report))
    assert page.text("#left-out") == "1 layer only in A: in the table only."


def test_which_is_which_is_said_by_folder_and_options(
    browser: Any, tmp_path: Path, report: dict[str, Any], cured: dict[str, Any]
) -> None:
    page = Page(browser, tmp_path / "ab.html", comparison_page(cured, report, names=("old/", "new/")))
    (a, b) = page.js("return Array.from(document.querySelectorAll('.which dd')).map(e => e.textContent)")
    assert "old/" in a and "--add_unary_ew_scales_for_dla" not in a and "--target orin-dla" in a
    assert "new/" in b and "--add_unary_ew_scales_for_dla" in b


def test_worse_is_less_int8_or_more_time(report: dict[str, Any], cured: dict[str, Any]) -> None:
    assert compare(report, cured)["worse"] == compare(report, report)["worse"] == ""
    assert "MACs are in INT8" in compare(cured, report)["worse"]
    slower = {**report, "cost": {**report["cost"], "milliseconds": 2 * report["cost"]["milliseconds"]}}
    assert "before" in compare(report, slower)["worse"]
    plan = [{**report["plan"][0], "device": "gpu"}, *report["plan"][1:]]
    fallback = {**slower, "plan": plan}
    assert "1 layer on the GPU, 0 before" in compare(report, fallback)["worse"]
    assert "ms" not in compare(fallback, {**slower, "cost": {**slower["cost"], "milliseconds": 1e9}})["worse"]
    gpu = {**report, "target": "gpu"}
    assert compare(cured, gpu)["worse"] == ""


def test_two_thousand_layers(browser: Any, tmp_path: Path) -> None:
    large = translator.translate(residual(800, channels=4), TranslateOptions(target="orin-dla"), "deep").report
    assert len(large["plan"]) >= 1999
    text = report_page(large)
    assert len(text.encode()) < 5_000_000
    page = Page(browser, tmp_path / "deep.html", text)
    assert page.complaints() == []
    page.one("#search-layers").send_keys(large["plan"][1500]["name"])
    assert large["plan"][1500]["name"] in [row[1] for row in page.rows("layer-table")]
    page.js("location.hash = '#layer-1500'; dispatchEvent(new PopStateEvent('popstate'))")
    assert large["plan"][1500]["name"] in page.text("#panel")
    assert page.js("return !document.querySelector('#graph').classList.contains('far')")
