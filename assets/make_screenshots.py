"""Makes the pictures of the report pages for README.md, docs/page.md and docs/cost.md; needs Chromium with its driver, and selenium.

    python assets/make_screenshots.py [--trained]

README's is the bundle of a trained network of a public package (e2e_workflow/pretrained); --trained makes it alone. The other networks have random weights: what their scales and layers are is what the translator finds in them, what `verify` would say of
their accuracy means nothing. The engine beside ResNet-18 is made up, to show how a disagreement looks.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import onnx  # noqa: E402

from benchmarks.networks import Builder, residual  # noqa: E402
from qdq_translator import TranslateOptions, translate  # noqa: E402
from qdq_translator.core.formats.report_rows import Report, Source  # noqa: E402
from qdq_translator.translation.report.html import write_page  # noqa: E402

WIDTH, HEIGHT = 1440, 1000


def resnet18() -> onnx.ModelProto:
    b = Builder()
    x = b.node("Relu", b.conv_bn("input", 3, 64, 7, 2))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if block == 0 and stage > 0 else 1
            y = b.node("Relu", b.conv_bn(x, cin, width, 3, stride))
            y = b.conv_bn(y, width, width)
            shortcut = b.conv_bn(x, cin, width, 1, stride) if stride == 2 else x
            x = b.node("Relu", b.node("Add", y, b.pair(shortcut)))
            cin = width
    x = b.node("Flatten", b.node("GlobalAveragePool", b.pair(x)))
    return b.model(b.node("Gemm", b.pair(x), b.weight(1000, 512), transB=1), [1, 3, 224, 224])


def trained(folder: Path) -> Path:
    """The page of the bundle that `deploy` makes of a trained network for an AGX Orin. Raises Unavailable."""
    from e2e_workflow.pretrained import program, registry, run

    network = registry.BY_NAME["iris"]
    ready = run.prepare(network, network.samples, folder / network.name)
    program.deploy(ready.model, "DLA", folder / "bundle", ready.task.calibration, ready.judge(), verify=True)
    return next((folder / "bundle").glob("*.html"))


def browser() -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    size = f"--window-size={WIDTH},{HEIGHT}"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def take(
    window: Any,
    page: Path,
    name: str,
    theme: str = "light",
    section: str = "",
    script: str = "",
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> None:
    window.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False},
    )
    window.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    )
    window.get("about:blank")
    window.get(page.as_uri())
    if section:
        window.execute_script(f"document.querySelector('{section}').scrollIntoView()")
    if script:
        window.execute_script(script)
    window.execute_async_script(
        "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0], 100)))"
    )
    window.save_screenshot(str(HERE / name))
    print(name)


def engine_of(report: Report) -> dict[str, Any]:
    """What a made-up engine did: each Conv runs as planned but for one in FP16, the rest is fused into the Convs."""
    rows: list[dict[str, Any]] = []
    head = ""
    for row in report.plan:
        head = row.name if row.op in ("Conv", "Gemm") or not head else head
        actual = "fp16" if row.name == "Conv_30" else row.precision
        against = actual != row.precision
        layer = {"name": row.name, "op": row.op, "planned": row.precision, "actual": actual, "engine_layer": head}
        verdict, why = ("disobeyed", "CaskConvolution, reads fp16, writes fp16") if against else ("obeyed", "")
        time = (row.macs or 0) / 4e9 + 0.004 if head == row.name else None
        rows.append({**layer, "verdict": verdict, "against": against, "why": why, "milliseconds": time})
        rows[-1].update(device="GPU", format="", fused_with=[])
    total = sum(row["milliseconds"] or 0.0 for row in rows)
    int8 = {"obeyed": sum(row["planned"] == row["actual"] == "int8" for row in rows), "disobeyed": 1}
    summary = {"obeys": False, "int8": int8}
    return {"summary": summary, "milliseconds": total, "layers": rows, "unmatched": [], "missing": []}


def choose(colour: str, layer: int = -1) -> str:
    """Script that sets the colour, and shows a layer."""
    hash_ = f"location.hash = '#layer-{layer}'; dispatchEvent(new PopStateEvent('popstate'));" if layer >= 0 else ""
    return f"const s = document.querySelector('#colour'); s.value = '{colour}'; s.dispatchEvent(new Event('change')); {hash_}"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        take(window, trained(Path(folder)), "page_iris.png")
    if "--trained" in sys.argv:
        return 0
    dla = {"target": "orin-dla", "platform": "jetpack-6.2"}
    models = HERE.parent / "tests" / "data" / "models"
    model = resnet18()
    plain = translate(model, TranslateOptions(**dla), "resnet18").rows
    unary = translate(model, TranslateOptions(**dla, add_unary_ew_scales_for_dla=True), "resnet18").rows
    on_gpu = translate(model, TranslateOptions(add_unary_ew_scales_for_dla=True), "resnet18").rows
    vit = translate(models / "vit__ort_u8.onnx", TranslateOptions(**dla, preset="dla", asymmetric="widen"), "vit").rows
    unet = translate(models / "unet__mo_dla_fp32.onnx", TranslateOptions(**dla, preset="dla"), "unet").rows
    deep = translate(residual(4000, channels=4), TranslateOptions(**dla), "ten_thousand_layers").rows
    plain, unary, on_gpu = (
        dataclasses.replace(rows, source=Source("resnet18.onnx", "")) for rows in (plain, unary, on_gpu)
    )
    pages = {"plain": plain, "vit": vit, "unet": unet, "deep": deep}
    avoidable = next(i for i, row in enumerate(plain.plan) if row.precision == "fp16")
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        paths = {name: Path(folder) / f"{name}.html" for name in (*pages, "engine", "comparison")}
        for name, report in pages.items():
            write_page(report, paths[name])
        write_page(on_gpu, paths["engine"], engines=[engine_of(on_gpu)])
        write_page(unary, paths["comparison"], against=plain)
        take(window, paths["plain"], "page_resnet18.png", section="#network", script=choose("precision", avoidable))
        take(window, paths["unet"], "page_unet.png", section="#network", script=choose("ms"))
        take(window, paths["vit"], "page_vit_dark.png", theme="dark", section="#network", script=choose("device"))
        take(window, paths["deep"], "page_deep.png", section="#network")
        take(window, paths["engine"], "page_engine.png", section="#engine")
        take(window, paths["comparison"], "page_comparison.png", section="#network", script=choose("moreMs", avoidable))
        take(window, paths["plain"], "page_narrow.png", section="#network", size=(390, 1000))
        take(window, paths["plain"], "report_cost.png", section="#layers", script="scrollBy(0, 400)", size=(1400, 1500))
        take(window, paths["plain"], "report_cost_narrow.png", section="#layers", size=(400, 1500))
    return 0


if __name__ == "__main__":
    sys.exit(main())
