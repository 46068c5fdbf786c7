"""Makes the pictures of the report pages that stand beside this script; needs Chromium with its driver, and selenium.

    python assets/make_screenshots.py

The network is ResNet-18 in the style of NVIDIA pytorch-quantization with random weights: what its scales and layers are is
what the translator finds in it, what `verify` would say of its accuracy means nothing and is left out.
"""

from __future__ import annotations

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
from qdq_translator.output.report.html import write_page  # noqa: E402

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


def main() -> int:
    dla = {"target": "orin-dla", "platform": "jetpack-6.2"}
    model = resnet18()
    plain = translate(model, TranslateOptions(**dla), "resnet18").report
    unary = translate(model, TranslateOptions(**dla, add_unary_ew_scales_for_dla=True), "resnet18").report
    deep = translate(residual(800, channels=4), TranslateOptions(**dla), "two_thousand_layers").report
    for report in (plain, unary):
        report["source"] = {"file": "resnet18.onnx", "sha256": ""}
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        pages = {name: Path(folder) / f"{name}.html" for name in ("plain", "comparison", "deep")}
        write_page(plain, pages["plain"])
        write_page(unary, pages["comparison"], against=plain)
        write_page(deep, pages["deep"])
        avoidable = next(i for i, row in enumerate(plain["plan"]) if row["precision"] == "fp16")
        select = (
            f"document.querySelector('#layer-{avoidable}').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
        )
        take(window, pages["plain"], "report.png")
        take(window, pages["plain"], "report_network.png", section="#network", script=select)
        take(
            window,
            pages["plain"],
            "report_dark.png",
            theme="dark",
            section="#network",
            script=f"location.hash = '#layer-{avoidable}'; dispatchEvent(new PopStateEvent('popstate'))",
        )
        take(window, pages["comparison"], "comparison.png")
        take(window, pages["deep"], "report_deep.png", section="#network")
        take(window, pages["plain"], "report_cost.png", section="#layers", script="scrollBy(0, 400)", size=(1400, 1500))
        take(window, pages["plain"], "report_cost_narrow.png", section="#layers", size=(400, 1500))
    return 0


if __name__ == "__main__":
    sys.exit(main())
