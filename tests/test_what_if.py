"""What further options would do on a DLA: every promise is what the translation with these options then holds."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.networks import residual
from qdq_translator import TranslateOptions
from qdq_translator.cli import main
from qdq_translator.core.formats.report_rows import WhatIf
from qdq_translator.core.options import PRESETS, TranslateCommand, effective, words_of
from qdq_translator.core.parsing import make_parser
from qdq_translator.translation.targets.dla import verdicts
from qdq_translator.translation.targets.dla.verdicts import DlaPlan, judge
from qdq_translator.translation.targets.settings import resolve
from qdq_translator.translation.translator import Translation, translate
from tests.conftest import ZOO, need_shared
from tests.dla.check import graph
from tests.dla.test_error_function import ARRAYS as GELU_ARRAYS
from tests.dla.test_error_function import GELU
from tests.small_models import model, pair


def asked(row: WhatIf) -> dict[str, Any]:
    """The options that a row names, as fields."""
    found: dict[str, Any] = {}
    for flag in row.options:
        name, _, value = flag[2:].partition(" ")
        found[name] = value or True
    return found


def what_it_is(made: Translation) -> tuple[int, int, float]:
    assert made.dla is not None and made.costs is not None and made.costs.ends is not None
    return made.dla.count("dla-int8"), made.dla.count("gpu"), made.costs.ends[1]


def mixed() -> onnx.ModelProto:
    """A Concat without scale of its own, an Add of unequal ranges, and a GlobalAveragePool that the DLA does not run."""
    text = "g (float[1,4,8,8] x) => (float[1,8,1,1] y) {" + pair("x", "xq") + "a = Conv (xq, w)" + pair("a", "aq")
    text += "b = Relu (xq) k = Concat <axis=1> (aq, b) r = Relu (k)" + pair("r", "rq", "t")
    text += "u = Relu (rq)" + pair("u", "uq") + "v = Add (rq, uq)" + pair("v", "vq") + "y = GlobalAveragePool (vq) }"
    arrays = {"w": np.ones((4, 4, 1, 1), np.float32), "s": np.float32(0.05), "t": np.float32(0.1), "z": np.int8(0)}
    return model(text, 17, 8, **arrays)


@pytest.mark.parametrize("name", ["residual", "mixed", "yolov8n__nvpq13", "resnet18__nvpq13", "unet__nvpq13"])
def test_every_row_holds_what_it_promises(name: str) -> None:
    made_here = {"residual": lambda: residual(8), "mixed": mixed}
    read = made_here[name]() if name in made_here else onnx.load(need_shared(ZOO / "mini" / f"{name}.onnx"))
    options = TranslateOptions(target="orin-dla")
    made = translate(read, options, "m")
    now = what_it_is(made)
    assert made.causes.what_if
    for row in made.causes.what_if:
        other = translate(read, dataclasses.replace(options, **asked(row)), "m")
        assert (row.int8_layers, row.gpu_layers, row.milliseconds) == what_it_is(other), row.options
        assert row.gpu_layers is not None and row.milliseconds is not None
        assert (row.milliseconds, row.gpu_layers, -row.int8_layers) < (now[2], now[1], -now[0])
        raised = [ranges.bits_lost(ranges.worst) for ranges in other.shared_ranges if ranges.raised]
        assert row.bits_lost == pytest.approx(max(raised, default=0.0))


def test_what_changes_no_scale_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option that is off is tried, and none of them has anything to work on."""
    judged = []

    def counted(*given: Any) -> DlaPlan:
        judged.append(given)
        return judge(*given)

    monkeypatch.setattr(verdicts, "judge", counted)
    reads = "".join(f"y{i} = Relu (xq) " for i in range(3))
    text = f"g (float[1,4,8,8] x) => (float[1,4,8,8] y0, float[1,4,8,8] y1, float[1,4,8,8] y2) {{{pair('x', 'xq')}{reads}}}"
    arrays = {"s": np.float32(0.05), "z": np.int8(0)}
    made = translate(model(text, 17, 8, **arrays), TranslateOptions(target="orin-dla", dla_rewrites=True), "m")
    assert [layer.missing for layer in made.plan] == [("y0",), ("y1",), ("y2",)]
    assert not made.causes.what_if and len(judged) == 1


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets(preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(mixed(), path)
    assert main(["translate", "-i", str(path), "-o", str(tmp_path / "out"), "--preset", preset, "--verbose"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    options = TranslateCommand(preset=preset)
    for name, value in PRESETS[preset].items():
        assert getattr(options, name) == value
        assert f"--{name}" in said
    assert not options.infer_average_pool_scales and options.unify_scales == "warn"
    mine = TranslateOptions(preset=preset, target="xavier-dla", inference="reference")
    assert (mine.target, mine.inference) == ("xavier-dla", "reference")
    asked = ["translate", str(path), "-o", str(tmp_path / "out")]
    less = TranslateOptions(preset=preset, without=["--infer-add-scales", "infer_bounds"])
    assert not less.infer_add_scales and not less.infer_bounds and less.infer_mul_scales
    assert main([*asked, "--preset", preset, "--verbose", "--without", "infer_add_scales"]) == 0
    said = " ".join(capsys.readouterr().out.split()).partition(" added ")[2]
    assert "--infer_add_scales" not in said[: said.index("scales ")]
    assert main(["translate", str(path), "--preset", preset, "--without", "infer_ad_scales"]) == 2
    assert "infer_add_scales" in capsys.readouterr().err
    assert main(["translate", str(path), "--as_is", "--without", "infer_add_scales"]) == 2
    assert "--as_is" in capsys.readouterr().err
    plain = translate(mixed(), TranslateCommand(**PRESETS[preset]), "m")
    assert translate(mixed(), options, "m").tensor_scales == plain.tensor_scales


SET = [(preset, name) for preset, values in PRESETS.items() for name in values]


@pytest.mark.parametrize(("preset", "name"), SET)
def test_an_option_that_was_typed_wins_over_the_preset(preset: str, name: str, tmp_path: Path) -> None:
    """Also one with the value that is the default without a preset, in Python, on the command line and in the words
    that a report prints for it."""
    field = TranslateCommand.__dataclass_fields__[name]
    options = TranslateCommand(preset=preset, **{name: field.default})
    assert getattr(options, name) == field.default
    assert pickle.loads(pickle.dumps(options)).typed == {"preset", name}
    assert getattr(options.changed(max_bits_lost=2.0), name) == field.default
    assert getattr(options.changed(preset=None), name) == field.default
    typed = ["--without", name] if field.default is False else [f"--{name}", str(field.default)]
    parser = make_parser(TranslateCommand, "translate")
    parsed: Any = parser.parse_args(["m.onnx", "--preset", preset, *typed])
    assert getattr(parsed, name) == field.default
    others = {key for key in PRESETS[preset] if getattr(parsed, key) != PRESETS[preset][key]} - {name}
    assert others <= {"dla_rewrites": {"dla_output"}, "target": {"parts"}}.get(name, set())
    resolve(parsed)
    again: Any = parser.parse_args(["m.onnx", *words_of(effective(options))])
    assert name not in effective(options) or getattr(again, name) == field.default


def test_a_refusal_that_was_typed_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A preset widens asymmetric quantizers, unless --asymmetric error is there; it keeps the shapes that were asked for."""
    text = f"g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{{pair('x', 'xq')} y = Relu (xq) }}"
    onnx.save(model(text, 17, 8, s=np.float32(0.05), z=np.int8(3)), tmp_path / "m.onnx")
    argv = ["translate", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out"), "--preset", "dla"]
    assert main([*argv, "--asymmetric", "error"]) == 1
    assert "--asymmetric widen" in capsys.readouterr().err
    assert main(argv) == 0
    assert main([*argv, "--dla_rewrites", "off"]) == 0
    assert main([*argv, "--without", "dla_rewrites"]) == 0


def test_d22_is_advised_with_and_without_rewrites() -> None:
    """Among what is worth trying, on top of the rewrites and without them."""
    body = pair("x", "q") + GELU + "y = MaxPool <kernel_shape = [2, 2]> (h)"
    gelu = graph("float[{N},3,4,5] x", "float[b,c,h,w] y", body, **GELU_ARRAYS)
    for base in (False, True):
        found = translate(gelu, TranslateOptions(target="orin-dla", dla_rewrites=base))
        rows = {row.options: row.gpu_layers for row in found.causes.what_if}
        assert rows[("--dla_rewrites approximate",)] == 0
    done = translate(gelu, TranslateOptions(target="orin-dla", dla_rewrites="approximate"))
    assert not [row for row in done.causes.what_if if any("approximate" in flag for flag in row.options)]
