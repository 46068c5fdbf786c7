"""What rules F7 (nodes that change nothing) and F9 (half precision) take away: the table in `docs/tables/dla_networks.md`.

    python -m benchmarks.no_ops ZOO [--write]

ZOO is a folder with Q/DQ models called ARCHITECTURE__DIALECT.onnx. "Before" is the same translation without the two passes.
Beside the models of ZOO, the translator meets them with a Cast of float to float in front of every activation quantizer, as
ModelOpt's PyTorch exports have it. Layers and subgraphs are the rule table's prediction for Orin's DLA.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from unittest import mock

import onnx
from onnx import TensorProto, helper

from benchmarks.dla_rewrites import PAGE, page
from qdq_translator import TranslateOptions
from qdq_translator.core.errors import UserError
from qdq_translator.translation.passes import pipeline
from qdq_translator.translation.translator import Translation, translate

OPTIONS = TranslateOptions(target="orin-dla", platform="jetpack-6.2", asymmetric="widen")
WITH_CASTS = ("mobilenet_v2__nvpq13", "yolov5n__nvpq13")
HEAD = (
    "| network | went | nodes | Casts | layers on the GPU | DLA subgraphs |\n"
    "| --- | --- | ---: | ---: | ---: | ---: |\n"
)


def with_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Cast of float to float in front of every QuantizeLinear of an activation."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    constant = {t.name for t in model.graph.initializer}
    for given in model.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(given)
        if node.op_type == "Constant" or (node.input and all(name in constant for name in node.input if name)):
            constant.update(node.output)
        elif node.op_type == "QuantizeLinear":
            cast = f"{node.output[0]}_cast"
            made.graph.node.append(
                helper.make_node("Cast", [node.input[0]], [cast], f"{node.name}_cast", to=TensorProto.FLOAT)
            )
            node.input[0] = cast
        made.graph.node.append(node)
    return made


def without(model: onnx.ModelProto) -> Translation:
    """The translation as it would be without rules F7 and F9."""
    rest = tuple(step for step in pipeline.PIPELINE if not {"F7", "F9"} & set(step.rules))
    with mock.patch.object(pipeline, "PIPELINE", rest):
        return translate(model, OPTIONS)


def _counts(done: Translation) -> list[int]:
    assert done.dla is not None
    nodes = list(done.graph.nodes)
    return [len(nodes), sum(node.is_op("Cast") for node in nodes), done.dla.count("gpu"), done.dla.subgraphs]


def row(name: str, model: onnx.ModelProto) -> str:
    """'' where nothing went."""
    done = translate(model, OPTIONS)
    went = [f"{count} {op}" for d in done.diagnostics.of_rule("F7") for op, count in d.data["operators"].items()]
    if not went:
        return ""
    pairs = " | ".join(f"{a} → {b}" if a != b else str(a) for a, b in zip(_counts(without(model)), _counts(done)))
    return f"| {name} | {', '.join(went)} | {pairs} |\n"


def table(zoo: Path) -> str:
    rows = HEAD
    for path in sorted(zoo.glob("*.onnx")):
        model = onnx.load(path)
        try:
            rows += row(path.stem, model)
            if path.stem in WITH_CASTS:
                rows += row(f"{path.stem}, Cast in every quantizer", with_casts(model))
        except UserError:
            continue  # refused, with or without these rules
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="What rules F7 and F9 take away.")
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--write", action="store_true", help="write the table into docs/tables/dla_networks.md")
    arguments = parser.parse_args()
    rows = table(arguments.zoo)
    print(rows, end="")
    if arguments.write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), "no-ops", rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
