"""`qdq-translator plan`: any model as if every tensor had a scale, and the cost model fitted to a board."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
import pytest

from benchmarks.networks import residual
from qdq_translator import TranslateOptions, translate
from qdq_translator.api import requests
from qdq_translator.board.engine.board import fit_board
from qdq_translator.cli import main
from qdq_translator.core.command_options import PlanOptions
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.translation.targets.cost.fusing import fused_layers
from qdq_translator.translation.targets.cost.model import CostModel, Parameters, choose_model, published
from tests.conftest import zoo_paths
from tests.small_models import model

FLOAT = """g (float[1,3,32,32] x) => (float[1,8] y)
{ c = Conv <pads=[1,1,1,1]> (x, w)  r = Relu (c)  e = Erf (r)  d = Conv (e, v)  s = Softmax <axis=1> (d)
  p = GlobalAveragePool (s)  y = Flatten (p) }"""
ARRAYS = {"w": np.ones((8, 3, 3, 3), np.float32), "v": np.ones((8, 8, 1, 1), np.float32)}


def saved(made: onnx.ModelProto, folder: Path, name: str = "m.onnx") -> str:
    onnx.save(made, folder / name)
    return str(folder / name)


def planned(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["plan", *argv, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_model_with_quantizers_is_planned_like_the_float_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explicit = residual(8)
    made = translate(explicit, TranslateOptions(target="orin-dla"))
    first = planned(capsys, "-i", saved(explicit, tmp_path))
    second = planned(capsys, "-i", saved(made.model, tmp_path, "float.onnx"))
    assert [row["device"] for row in first["plan"]] == [row["device"] for row in second["plan"]]
    assert first["cost"]["milliseconds"] == second["cost"]["milliseconds"]
    assert first["dla"]["counts"]["dla-int8"] == first["coverage"]["layers"]["total"]


def test_the_page_says_that_it_is_a_plan(tmp_path: Path) -> None:
    path, page = saved(model(FLOAT, **ARRAYS), tmp_path), tmp_path / "page.html"
    assert main(["plan", "-i", path, "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "every tensor has a scale" in text and 'id="roofline"' in text and "±20% INT8" in text


# ---------------------------------------------------------------- a board of one's own

TRUTH = dataclasses.replace(Parameters(**published()["parameters"]), bytes_per_second=20e9, seconds_per_layer=9e-6)
BLOCKS = TranslateOptions(target="orin-dla", add_unary_ew_scales_for_dla=True)


@pytest.fixture
def board(tmp_path: Path) -> tuple[TranslationFiles, dict[str, float]]:
    """A translation of ten large blocks, and what a board with other parameters would take for each layer."""
    made = translate(residual(10, 64), BLOCKS, "blocks")
    assert made.dla is not None
    names = [node.name for node in made.graph.nodes]
    times = {}
    for layer in fused_layers(made.graph, made.types, [row.verdict for row in made.dla.layers]):
        total = sum(
            CostModel("", TRUTH, 1.6).estimate(work, layer.verdict == "dla-fp16").milliseconds
            for work in layer.works or ()
        )
        times[" + ".join(names[i] for i in layer.nodes)] = total
    return made.save(tmp_path / "out"), times


def trtexec_profile(times: dict[str, float]) -> str:
    rows = [
        {"name": name, "timeMs": 10 * t, "averageMs": t, "medianMs": t, "percentage": 1} for name, t in times.items()
    ]
    return json.dumps([{"count": 10}, {"name": "Reformatting CopyNode for Input Tensor 0", "averageMs": 0.2}, *rows])


def layerwise_csv(times: dict[str, float]) -> str:
    rows, now = ["layer_name,start_ms,end_ms"], 0.0
    for name, t in times.items():
        rows.append(f"{name},{now:.9f},{now + t:.9f}")
        now += t
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("write", [trtexec_profile, layerwise_csv])
def test_a_profile_refits_the_model(
    board: tuple[TranslationFiles, dict[str, float]],
    write: Callable[[dict[str, float]], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files, times = board
    profile, out = tmp_path / "profile", tmp_path / "board.json"
    profile.write_text(write(times))
    assert main(["report", "--profile", str(profile), "-t", str(files.model), "--fit", str(out)]) == 0
    assert "Wrote" in capsys.readouterr().out
    fitted, name = choose_model(cost_model=str(out))
    assert fitted is not None and "profile" in name and fitted.clock_ghz == 1.6
    again = fit_board(files, str(profile))
    assert again.after < 0.02 < again.before and again.rows == len(times)
    assert fitted.parameters.seconds_per_layer == pytest.approx(9e-6, rel=0.1)
    made = translate(residual(10, 64), dataclasses.replace(BLOCKS, cost_model=str(out)), "blocks")
    assert made.costs is not None
    assert made.costs.milliseconds == pytest.approx(sum(times.values()), rel=0.05)


def test_a_region_of_the_dla_is_one_row(board: tuple[TranslationFiles, dict[str, float]], tmp_path: Path) -> None:
    files, times = board
    names = list(times)
    first, last = names[0].split(" + ")[0], names[-1].split(" + ")[-1]
    profile = tmp_path / "profile.json"
    profile.write_text(trtexec_profile({f"{{ForeignNode[{first}...{last}]}}": sum(times.values())}))
    found = fit_board(files, str(profile))
    assert found.rows == 1 and found.after < 0.05 < found.before


def _families() -> dict[str, Path]:
    """Family of the zoo's small models -> its first export."""
    return {path.stem.partition("__")[0]: path for path in reversed(zoo_paths("mini/*.onnx"))}


@pytest.mark.parametrize("on", ["dla", "gpu"])
@pytest.mark.parametrize("family", sorted(_families()))
def test_plan_and_translate_agree(family: str, on: str) -> None:
    """The same layers on the same devices; in another precision only layers that lack a scale. The saturation of a
    quantizer (rule Q9) needs its range, which a plan before quantization has not."""
    path, asked = str(_families()[family]), {"board": "agx-orin", "on": on}
    try:
        made = translate(path, TranslateOptions(**asked))
    except UserError as error:
        pytest.skip(str(error))
    before = requests.planned(PlanOptions(path, **asked))
    rows, planned_rows = (
        {row.name.replace("_clamp", ""): row for row in one.plan if not row.name.endswith("_clamp")}
        for one in (made, before)
    )
    assert rows.keys() == planned_rows.keys()
    differ = {name: (row, planned_rows[name]) for name, row in rows.items()}
    assert [name for name, (a, b) in differ.items() if a.device != b.device] == []
    assert [a.reason for a, b in differ.values() if a.precision != b.precision and "scale" not in a.reason] == []
