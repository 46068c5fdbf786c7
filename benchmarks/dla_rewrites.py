"""What `--dla_rewrites` does for networks: the rule list and the table of `docs/dla_rewrites.md`.

    python -m benchmarks.dla_rewrites ZOO [--write]

ZOO is a folder with Q/DQ models called ARCHITECTURE__DIALECT.onnx. Every figure is the rule table's prediction.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path

from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.translate import EXAMPLE_MODEL
from qdq_translator.passes.dla import RULES
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
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--write", action="store_true", help="write rules and table into docs/dla_rewrites.md")
    arguments = parser.parse_args()
    rows = table(models_of(arguments.zoo))
    print(rows, end="")
    if arguments.write:
        text = page(page(PAGE.read_text(encoding="utf-8"), "rules", rules()), "table", rows)
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
