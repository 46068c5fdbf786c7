"""What `--dla_rewrites` does for networks: the rule list and the table of `docs/dla_rewrites.md`.

    python -m benchmarks.dla_rewrites ZOO [--write]
    python -m benchmarks.dla_rewrites --full FOLDER [--write]

ZOO is a folder with Q/DQ models called ARCHITECTURE__DIALECT.onnx, FOLDER what `benchmarks.full_networks` wrote. Every figure is
the rule table's prediction, but for differences and codes: of one random input, in ONNX Runtime.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Optional

import numpy as np
import onnx

from benchmarks.full_networks import NETWORKS as NETWORKS_OF_FULL_SIZE
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.translate import EXAMPLE_MODEL
from qdq_translator.cost.summary import headline
from qdq_translator.passes.dla import RULES
from qdq_translator.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.simulate.inputs import input_specs
from qdq_translator.simulate.run import Session
from qdq_translator.translator import Translation

PAGE = Path(__file__).resolve().parents[1] / "docs" / "dla_rewrites.md"
NETWORKS = (
    ("YOLOv5", "yolov5n"),
    ("YOLOv8", "yolov8n"),
    ("MobileNetV2", "mobilenet_v2"),
    ("ResNet-18", "resnet18"),
    ("U-Net", "unet"),
    ("MLP", "mlp"),
)
DIALECTS = (("pytorch-quantization", "nvpq13"), ("ModelOpt, for DLA", "mo_dla_fp32"))
OPTIONS = TranslateOptions(
    target="orin-dla",
    platform="jetpack-6.0",
    infer_average_pool_scales=True,
    infer_concat_scales=True,
    infer_mul_scales=True,
    infer_bounds=True,
    infer_add_scales=True,
    add_unary_ew_scales_for_dla=True,
    unify_scales="max",
)
HEAD = (
    "| network | quantized by | | layers: DLA INT8 | DLA FP16 | GPU | MACs in DLA INT8 | DLA subgraphs |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
)


def rules() -> str:
    """The rules, one section each, from the docstrings of their modules."""
    parts = []
    for module in RULES:
        title, _, body = (module.__doc__ or "").strip().partition("\n")
        number, _, sentence = title.removeprefix("Rule ").partition(": ")
        if body.startswith("\n"):
            head, rest = sentence, body
        else:  # the first sentence runs over more lines
            more, _, rest = body.partition("\n\n")
            head, rest = f"{sentence} {more}", f"\n{rest}"
        parts.append(f"### {number}: {' '.join(head.split()).rstrip('.')}\n{rest.rstrip()}\n")
    return "\n".join(parts)


def _row(name: str, dialect: str, when: str, done: Translation) -> str:
    dla = done.dla
    assert dla is not None
    macs = {True: 0, False: 0}
    for layer, verdict in zip(done.plan, dla.layers):
        macs[verdict.verdict == "dla-int8"] += layer.macs or 0
    share = 100 * macs[True] / sum(macs.values())
    counts = " | ".join(str(dla.count(v)) for v in ("dla-int8", "dla-fp16", "gpu"))
    return f"| {name} | {dialect} | {when} | {counts} | {share:.1f}% | {dla.subgraphs} |\n"


def table(models: list[tuple[str, str, Path]]) -> str:
    rows = HEAD
    for name, dialect, path in models:
        rows += _row(name, dialect, "before", translate(path, OPTIONS))
        rows += _row("", "", "after", translate(path, dataclasses.replace(OPTIONS, dla_rewrites=True)))
    return rows


FULL = dataclasses.replace(OPTIONS, platform="jetpack-6.2", infer_average_pool_scales=False)
FULL_HEAD = (
    "| network | layers for the GPU | DLA subgraphs | DLA/GPU transitions | estimated ms | largest difference in float | "
    "equal codes | equal to the Q/DQ model's | first unequal tensor, by codes at most | the GPU keeps |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n"
)


def full_row(name: str, path: Path) -> str:
    """One network before and after, with --dla_output 4d after."""
    before, after = (
        translate(path, dataclasses.replace(FULL, dla_rewrites=rewrite, dla_output="4d" if rewrite else "same"))
        for rewrite in (False, True)
    )
    cells = []
    for done in (before, after):
        assert done.dla is not None and done.costs is not None
        crossing = headline(done.graph, done.types, done.plan, done.dla, done.costs).as_dict()["transitions"]
        time = done.costs.milliseconds
        cells.append(
            (
                str(len(done.dla.fallbacks)),
                str(done.dla.subgraphs),
                str(crossing["dla_gpu"]["tensors"]),
                "?" if time is None else f"{time:.2f}",
            )
        )
    pairs = [f"{a} → {b}" for a, b in zip(*cells)]
    kept = Counter(verdict.op for verdict in (after.dla.fallbacks if after.dla is not None else ()))
    left = ", ".join(f"{count} {op}" for op, count in kept.most_common(4))
    codes = codes_of(path, before, after)
    first = "" if codes.first is None else f"`{codes.first}` by {codes.most}"
    return (
        f"| {name} | {' | '.join(pairs)} | {difference(before, after):.1e} | {codes.equal:.2f}% in {codes.tensors} tensors | "
        f"{codes.before:.1f}% → {codes.after:.1f}% | {first} | {left} |\n"
    )


def feed_of(done: Translation) -> dict[str, np.ndarray]:
    """Noise like that of the calibration, but not the same: wider values would saturate, before and after differently."""
    generator = np.random.default_rng(1)
    specs = input_specs(done.model, {})
    return {spec.name: generator.standard_normal([d or 1 for d in spec.shape]).astype(np.float32) for spec in specs}


def difference(before: Translation, after: Translation) -> float:
    """Of all outputs, as a share of the largest value."""
    feed = feed_of(before)
    runs = [Session(done.model, "stripped").run(feed) for done in (before, after)]
    worst = 0.0
    for name, want in runs[0].items():
        got = runs[1][name].reshape(want.shape)
        worst = max(worst, float(np.abs(want - got).max() / max(float(np.abs(want).max()), 1e-12)))
    return worst


@dataclasses.dataclass
class Codes:
    """Of the tensors of the Q/DQ model that the simulated engine holds as codes of one scale before and after: how many there
    are, the shares that are equal before and after, in the Q/DQ model and before, in it and after; the first tensor that is
    not equal (None where all are) and by how many codes at most."""

    tensors: int
    equal: float
    before: float
    after: float
    first: Optional[str]
    most: int


def codes_of(path: Path, before: Translation, after: Translation) -> Codes:
    feed = feed_of(before)
    engines = []
    for done in (before, after):
        precisions = dict.fromkeys(done.fp16_nodes, "fp16")
        engines.append(simulate(ImplicitNetwork(done.model, dict(done.cache.scales), precisions, frozenset())))
    source = onnx.load(str(path))
    made = {name for node in source.graph.node for name in node.output}
    held = [engine.placement.held for engine in engines]
    names = [name for node in after.model.graph.node for name in node.output if name in made]
    names = [n for n in names if n in held[0] and held[0][n] == held[1].get(n) and n not in after.rewrites.tensors]
    runs = [Session(e.model, "engine", [e.read[n] for n in names]).run(feed) for e in engines] if names else []
    wanted = Session(source, "Q/DQ", names).run(feed) if names else {}
    equal, total, first, most = np.zeros(3, np.int64), 0, None, 0
    for name in names:
        values = [run[engine.read[name]] for run, engine in zip(runs, engines)]
        values = [v.reshape(wanted[name].shape) for v in values]
        was, now, want = (np.clip(np.rint(v / held[0][name]), -128, 127) for v in (*values, wanted[name]))
        equal += [int((one == other).sum()) for one, other in ((was, now), (want, was), (want, now))]
        total += was.size
        if first is None and (was != now).any():
            first, most = name, int(np.abs(was - now).max())
    shares = [100 * float(count) / max(total, 1) for count in equal]
    return Codes(len(names), shares[0], shares[1], shares[2], first, most)


def full_table(folder: Path) -> str:
    rows = FULL_HEAD
    for stem, (name, _, _) in NETWORKS_OF_FULL_SIZE.items():
        path = folder / f"{stem}__ort.onnx"
        if path.exists():
            rows += full_row(name, path)
            print(rows.splitlines()[-1], flush=True)
    return rows


def models_of(zoo: Path) -> list[tuple[str, str, Path]]:
    found = [(name, dialect, zoo / f"{stem}__{ending}.onnx") for name, stem in NETWORKS for dialect, ending in DIALECTS]
    example = ("digits_resnet_qat (ships with the package)", "PyTorch", EXAMPLE_MODEL)
    return [example, *(row for row in found if row[2].exists())]


def page(text: str, part: str, content: str) -> str:
    """The page with what stands between `<!-- part -->` and `<!-- end of part -->` replaced."""
    pattern = re.compile(rf"(<!-- {part} -->\n).*?(<!-- end of {part} -->)", re.S)
    return pattern.sub(lambda m: m[1] + content + m[2], text)


def main() -> int:
    parser = argparse.ArgumentParser(description="What --dla_rewrites does for networks.")
    parser.add_argument("zoo", type=Path, nargs="?")
    parser.add_argument("--full", type=Path, help="networks of full size, instead of ZOO")
    parser.add_argument("--write", action="store_true", help="write rules and table into docs/dla_rewrites.md")
    arguments = parser.parse_args()
    if arguments.full is not None:
        rows = full_table(arguments.full)
        if arguments.write:
            PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "full", rows), encoding="utf-8")
        return 0
    if arguments.zoo is None:
        parser.error("a folder is missing: ZOO, or --full FOLDER")
    rows = table(models_of(arguments.zoo))
    print(rows, end="")
    if arguments.write:
        text = page(page(PAGE.read_text(encoding="utf-8"), "rules", rules()), "table", rows)
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
