"""`--annotate` as a person sees it: the annotated model opened in Netron itself, and what its panel shows of a node read back."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.formats.calibration_cache import scale_to_hex
from qdq_translator.translation.passes.annotate import PREFIX
from tests import browser as browsers
from tests.test_annotate import model

pytest.importorskip("netron", reason="SKIPPED FOR LACK OF NETRON: no annotated model was opened in it")

SERVER = """
import sys, netron
address = netron.start(sys.argv[1], ("127.0.0.1", 0), browse=False)
print(f"port {address[1]}", flush=True)
netron.wait()
"""
CLICK = """
document.getElementById(arguments[0]).querySelector('.node-item').dispatchEvent(new MouseEvent('click', {bubbles: true}))
"""
PANEL = r"""
const items = Array.from(document.querySelectorAll("#sidebar .sidebar-item")).filter((item) => item.querySelector("input"));
return items.map((item) => {
  const key = item.querySelector("input"), lines = Array.from(item.querySelectorAll(".sidebar-item-value-line"));
  return [key.value, key.scrollWidth <= key.clientWidth, lines.map((line) => line.innerText).join("\n")];
});
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    started = browsers.start("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    yield started
    started.quit()


class Netron:
    """A model in Netron, served on this machine."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.browser = browser
        command = [sys.executable, "-c", SERVER, str(path)]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.server.stdout is not None
        line = next(text for text in self.server.stdout if "port " in text)
        address = f"http://127.0.0.1:{line.split('port ')[1].strip()}/"
        urllib.request.urlopen(address, timeout=30).read()
        browser.get(f"{address}favicon.ico")
        browser.add_cookie({"name": "consent", "value": "1"})
        browser.get(address)
        self.wait("document.querySelector('#canvas .node')")

    def wait(self, condition: str) -> None:
        until = time.monotonic() + 30
        while not self.browser.execute_script(f"return !!({condition})"):
            if "newest version" in self.browser.execute_script("return document.body.innerText"):
                pytest.skip("SKIPPED FOR AN OLD NETRON: it opens nothing more than 180 days after its release")
            assert time.monotonic() < until, f"Netron does not show {condition}"
            time.sleep(0.05)

    def panel(self, node: str) -> dict[str, tuple[bool, str]]:
        """Key -> (whether it is shown whole, value) of the node.

        Netron ignores a click while it still lays the graph out, so the click is repeated until the panel is there.
        """
        until = time.monotonic() + 60
        while time.monotonic() < until:
            self.browser.execute_script(CLICK, f"node-name-{node}")
            shown = time.monotonic() + 2
            while time.monotonic() < shown:
                found = {key: (whole, value) for key, whole, value in self.browser.execute_script(PANEL)}
                if found.get("name", (True, ""))[1] == node:
                    return found
                time.sleep(0.05)
        raise AssertionError(f"Netron's panel does not show {node}")


@pytest.mark.parametrize("ir", [8, 10])
def test_the_panel_shows_what_the_plan_says(browser: Any, tmp_path: Path, ir: int) -> None:
    """Below IR version 10 Netron gets the file of its own."""
    options = TranslateOptions(annotate=True, target="orin-dla", platform="jetpack-6.2")
    done = translate(model(ir=ir), options, "net")
    files = done.save(tmp_path)
    assert files.annotated.exists() == (ir == 8)
    shown = Netron(browser, files.annotated if ir == 8 else files.model)
    try:
        for node, row in zip(done.model.graph.node, done.report["plan"]):
            panel = {
                key[len(PREFIX) :]: value for key, value in shown.panel(node.name).items() if key.startswith(PREFIX)
            }
            assert all(whole for whole, _ in panel.values()), panel
            said = {key: value for key, (_, value) in panel.items()}
            assert said["precision"] == row["precision"]
            assert said["device"] == row["device"]
            assert said["reason"] == row["reason"]
            scale = done.tensor_scales.get(node.output[0])
            assert said.get("scale") == (None if scale is None else f"{scale:.9g} ({scale_to_hex(scale)})")
    finally:
        shown.server.terminate()
        shown.server.wait()


def test_netron_reads_a_line_for_each_output(browser: Any, tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 13]>
    network (float[1,4,8,8] image) => (float[1,2,8,8] first, float[1,2,8,8] second)
    <float s = {0.02}, int8 z = {0}, int64[2] sizes = {2, 2}>
    {
       q = QuantizeLinear (image, s, z)
       d = DequantizeLinear (q, s, z)
       a, b = Split <axis = 1> (d, sizes)
       first = Relu (a)
       second = Sigmoid (b)
    }
    """
    files = translate(onnx.parser.parse_model(text), TranslateOptions(annotate=True), "two").save(tmp_path)
    (split,) = [n.name for n in onnx.load(files.annotated).graph.node if n.op_type == "Split"]
    shown = Netron(browser, files.annotated)
    try:
        lines = shown.panel(split)[PREFIX + "scale"][1].splitlines()
        assert lines == [f"{name}: 0.0199999996 (3ca3d70a)" for name in "ab"]
    finally:
        shown.server.terminate()
        shown.server.wait()
