"""`--keep_fp16`: honoured by plan, layer argument, verify and trtexec; by name, pattern and file, through rewrites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.layer_precisions import parse_layer_precisions
from qdq_translator.translation.targets.precision import FP16, INT8

SAMPLES = next(EXAMPLE_MODEL.parent.glob("*.npz"))
LAYER = "/layer2/conv1/Conv"


def kept(*items: str, **options: object) -> set[str]:
    """Layers that are above INT8 with the option and were in INT8 without it."""
    base = {"infer_average_pool_scales": True, "add_unary_ew_scales_for_dla": True, **options}
    before = translate(EXAMPLE_MODEL, TranslateOptions(**base))
    after = translate(EXAMPLE_MODEL, TranslateOptions(keep_fp16=list(items), **base))
    changed = {a.name for b, a in zip(before.plan, after.plan) if (b.precision, a.precision) == (INT8, FP16)}
    assert {a.name for b, a in zip(before.plan, after.plan) if b.precision != a.precision} == changed
    rows = {row.name: row for row in after.plan}
    assert all(rows[name].listed and not rows[name].avoidable and name in after.fp16_nodes for name in changed)
    assert after.tensor_scales == before.tensor_scales
    return changed


def test_by_name_pattern_and_file(tmp_path: Path) -> None:
    assert kept(LAYER) == {LAYER}
    layer2 = kept("/layer2/*")
    assert LAYER in layer2 and len(layer2) > 3 and all(name.startswith("/layer2/") for name in layer2)
    (tmp_path / "names").write_text(f"{LAYER}\n\n/layer1/conv1/Conv\n")
    (tmp_path / "argument").write_text(f"{LAYER}:fp16,/layer1/conv1/Conv:fp32,/layer3/conv1/Conv:int8")
    assert kept(f"@{tmp_path}/names") == kept(f"@{tmp_path}/argument") == {LAYER, "/layer1/conv1/Conv"}


def test_through_a_rewrite_of_the_dla() -> None:
    """The classifier is a Conv with rule D5; its old name still keeps it."""
    options = TranslateOptions(
        target="orin-dla",
        platform="jetpack-6.2",
        dla_rewrites=True,
        infer_average_pool_scales=True,
        keep_fp16=["/fc/Gemm"],
    )
    made = translate(EXAMPLE_MODEL, options)
    rows = {row.name: row for row in made.plan if row.reason.startswith("kept")}
    assert rows and {row.precision for row in rows.values()} == {FP16}
    assert set(rows) <= set(made.rewrites.nodes.get("/fc/Gemm", ["/fc/Gemm"]))


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'/layer2/conv9/Conv'.*Did you mean /layer2/conv"):
        translate(EXAMPLE_MODEL, TranslateOptions(keep_fp16=["/layer2/conv9/Conv"]))
    with pytest.raises(UserError, match="cannot be read"):
        translate(EXAMPLE_MODEL, TranslateOptions(keep_fp16=[f"@{tmp_path}/none"]))


def test_verify_and_trtexec_honour_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """verify simulates as many more layers above INT8 as the plan has; the command and its file name them."""
    above, arguments = {}, {}
    for name, more in (("plain", []), ("kept", ["--keep_fp16", "/layer*"])):
        out = str(tmp_path / name)
        assert main(["translate", str(EXAMPLE_MODEL), "-o", out, "--platform", "jetpack-6.2", *more]) == 0
        capsys.readouterr()
        assert main(["verify", "-i", str(EXAMPLE_MODEL), "-t", out, "--inputs", str(SAMPLES), "--json"]) == 0
        above[name] = json.loads(capsys.readouterr().out)["simulation"]["layers_above_int8"]
        assert main(["build", "--print", "-t", out, "--opt_shapes", "input:1x1x16x16"]) == 0
        command = capsys.readouterr().out
        argument = next((tmp_path / name).glob("*_layer_arg.txt"))
        assert (f"{LAYER}:fp16" in command) == (name == "kept")
        arguments[name] = set(parse_layer_precisions(argument.read_text()))
        report = json.loads(next((tmp_path / name).glob("*_report.json")).read_text())
        assert above[name] == sum(row["precision"] == FP16 for row in report["plan"])
    assert LAYER in arguments["kept"] - arguments["plain"] and above["kept"] > above["plain"]
