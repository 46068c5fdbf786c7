"""The cases that went wrong in 0.3.0: what was reported of them, and what happens now.

`python -m benchmarks.cases` prints the second table of docs/tables/faithful.md. Figures are of the simulated engine against the model, of `relu6`
against the float network; a sentence is the program's own, up to its first full stop or colon.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import tempfile
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx

from qdq_translator.cli import main as program
from qdq_translator.lab.simulate.run import Session
from tests.conftest import SHARED

CASES = SHARED / "cases"
Now = Callable[[Path], str]


def run(*words: Any) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = program([str(word) for word in words])
    return status, out.getvalue(), errors.getvalue()


def said(*words: Any) -> str:
    """The first sentence of an error, or that there is none."""
    status, _, errors = run(*words)
    sentence = re.sub(r"^(qdq-translator \w+|\S+): ", "", " ".join(errors.split()))
    return "refused: " + re.split(r"[.;]\s|[.]$", re.sub(r" \([^)]*\)", "", sentence))[0] if status else "works"


def verified(model: str, *words: Any, data: str = "", more: tuple[Any, ...] = (), pair: int = 0) -> Now:
    """Translated, and verified on data. words: options of `translate`; more: of `verify`."""

    def now(folder: Path) -> str:
        known = [CASES / word[1:] if str(word).startswith("@") else word for word in words]
        failed = said("translate", CASES / model, "-o", folder, *known)
        if failed != "works":
            return failed
        inputs = [CASES / data] if data else []
        status, out, errors = run("verify", CASES / model, *inputs, "-t", folder, "--json", *more)
        if not out.startswith("{"):
            return f"exit {status}: {errors}"
        found = json.loads(out)
        rows = found["outputs"]["pairs"][pair]["outputs"].values()
        db = "equal" if all(row["identical"] for row in rows) else f"{min(row['sqnr_db'] for row in rows):.1f} dB"
        return f"{db}, {found['verdict']['overall']}"

    return now


def relu6(*words: Any) -> Now:
    float_network = ("--float", CASES / "faithful/relu6/float.onnx")
    return verified("faithful/relu6/qdq.onnx", *words, data="faithful/relu6/val.npz", more=float_network, pair=2)


def clamped(folder: Path) -> str:
    run(
        "translate",
        CASES / "faithful/clip_out.onnx",
        *DLA,
        "--calibrate",
        CASES / "faithful/clip_cal.npz",
        "-o",
        folder,
    )
    written = onnx.load(next(folder.glob("*_noqdq.onnx")))
    ((name, shape),) = ((v.name, [d.dim_value or 1 for d in v.type.tensor_type.shape.dim]) for v in written.graph.input)
    found = Session(written, "written").run({name: np.full(shape, 5, np.float32)})
    return f"{max(float(values.max()) for values in found.values()):g}"


def explicit(folder: Path) -> str:
    network, model = folder / "made.onnx", CASES / "ranges/tiny_range_qdq.onnx"
    failed = said("explicit", model, "-o", folder)
    network = next(iter(folder.glob("*_explicit.onnx")), network)
    out = run("verify", model, CASES / "ranges/tiny_range.npz", "--explicit_network", network)[1]
    return failed if failed != "works" else ", ".join(re.findall(r"[\d.]+ dB|equal", out))


def planned(model: str, *words: Any, find: Callable[[dict[str, Any]], str]) -> Now:
    def now(folder: Path) -> str:
        failed = said("translate", CASES / model, "-o", folder, *words)
        report = next(iter(folder.glob("*_report.json")), None)
        return failed if report is None else find(json.loads(report.read_text()))

    return now


def runs(*words: str) -> Now:
    """`words` with @CASE and $ (the folder)."""
    return lambda folder: said(
        *(CASES / word[1:] if word[0] == "@" else folder if word == "$" else word for word in words)
    )


def estimated(model: str) -> Now:
    """What `plan` says of the time."""

    def now(folder: Path) -> str:
        lines = run("plan", CASES / model)[1].splitlines()
        start = next(index for index, line in enumerate(lines) if line.startswith(" time "))
        rest = itertools.takewhile(lambda line: line.startswith("    "), lines[start + 1 :])
        return re.split(r"[;,] ", " ".join(" ".join((lines[start][6:], *rest)).split()))[0]

    return now


def resized(folder: Path) -> str:
    """Calibrated on random inputs, and compared in float."""
    model = onnx.load(CASES / "forms/resize_tf_half_ceil.onnx")
    (given,) = model.graph.input
    shape = [size.dim_value or 1 for size in given.type.tensor_type.shape.dim]
    feed = {given.name: np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)}
    np.savez(folder / "data.npz", **{given.name: feed[given.name]})
    run("translate", CASES / "forms/resize_tf_half_ceil.onnx", *DLA, "--calibrate", folder / "data.npz", "-o", folder)
    networks = model, onnx.load(next(folder.glob("*_noqdq.onnx")))
    one, other = (next(iter(Session(network, "float").run(feed).values())) for network in networks)
    return f"at most {np.abs(one - other).max():.1g} apart" if (one != other).any() else "equal"


def first_conv(report: dict[str, Any]) -> str:
    return next(f"Conv in {row['precision'].upper()}" for row in report["plan"] if row["op"] == "Conv")


def kept_weights(report: dict[str, Any]) -> str:
    rows = report["weights"]
    return f"{sum(row['exact'] for row in rows)} of {len(rows)} weights keep every trained value"


GPU, DLA = ("--preset", "gpu"), ("--preset", "dla", "--platform", "jetpack-6.2")
TWO = ("--keep_fp16", "conv1", "conv2")
CALIBRATED = ("--calibrate", "@faithful/relu6/cal.npz")
ROWS: tuple[tuple[str, str, Now], ...] = (
    ("relu6, `--preset gpu`", "29.9 dB", relu6(*GPU)),
    ("relu6, two layers in FP16", "7.7 dB", relu6(*GPU, *TWO)),
    ("relu6, `--preset dla --calibrate`", "-3.7 dB", relu6(*DLA, *CALIBRATED)),
    ("clip_out, input 5 of a Clip to 1", "5", clamped),
    ("s3_residual_conv_unit, calibrated", "16.1 dB", verified("ranges/s3_residual_conv_unit.onnx", *GPU, "--calibrate", "@ranges/s3_cal.npz", "--shapes", "x:1x4x10x10", data="ranges/s3_test.npz")),
    ("tiny_range_qdq, `explicit` in FP16", "33 dB without a word", explicit),
    ("conv_tanh", "Conv in FP16", planned("regions/conv_tanh.onnx", *DLA, find=first_conv)),
    ("dw_centre", "0 of 1 weights keep every trained value", planned("regions/dw_centre.onnx", *DLA, find=kept_weights)),
    ("many_classes", "broken, by one rare class", verified("verdict/many_classes/net.onnx", *GPU, "--calibrate", "@verdict/many_classes/cal.npz", data="verdict/many_classes/val.npz")),
    ("fa_gap", "44.6 dB, suspicious", verified("verdict/fa_gap.onnx", *GPU, "--calibrate", "@verdict/fa_gap_cal.npz", data="verdict/fa_gap_test.npz")),
    ("upsample_clip", "They do not belong together", verified("verdict/upsample_clip.onnx", *DLA, "--calibrate", "@verdict/uc_cal.npz", data="verdict/uc_test.npz")),
    ("int8_input/reshape, float data", "cannot run", verified("forms/int8_input/reshape.onnx", *GPU, data="forms/int8_input/reshape_float.npz")),
    ("int8_input/reshape, int8 data", "cannot run", verified("forms/int8_input/reshape.onnx", *GPU, data="forms/int8_input/reshape_int8.npz")),
    ("opset11_per_channel", "taken; ONNX Runtime cannot run it", runs("translate", "@forms/opset11_per_channel/qdq.onnx", "-o", "$")),
    ("input_is_output, `explicit`", "crash", runs("explicit", "@forms/input_is_output.onnx", "-o", "$")),
    ("formulas_indexerror", "crash", runs("translate", "@forms/formulas_indexerror.onnx", "-o", "$", *DLA)),
    ("resize_tf_half_ceil", "shifted", resized),
    ("invalid_depthtospace, `plan`", "This is a bug", runs("plan", "@forms/invalid_depthtospace.onnx")),
    ("plan_custom_operator, `plan`", "shapes are dynamic", estimated("forms/plan_custom_operator.onnx")),
    ("batch1_impossible, `plan`", "a time, exit 0", runs("plan", "@forms/plan/batch1_impossible.onnx")),
    ("if_branches, `plan`", "0 ms", estimated("forms/plan/if_branches.onnx")),
    ("weight_only_cast", "nothing to translate", planned("forms/plan/weight_only_cast.onnx", find=lambda report: f"{len(report['weights'])} weight recognized")),
)  # fmt: skip


def main() -> None:
    print("| case | reported of 0.3.0 | now |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as work:
        for number, (case, before, now) in enumerate(ROWS):
            folder = Path(work) / str(number)
            folder.mkdir()
            print(f"| {case} | {before} | {now(folder)} |", flush=True)


if __name__ == "__main__":
    main()
