"""Draws assets/residual_block.svg: a residual block before and after translation, with the scale of every tensor.

    python assets/draw_residual_block.py [--model MODEL.onnx] [--block /layer1/Add] [-o assets/residual_block.svg]

Both sides are read off the models: the shipped example as it is, and what `translate` makes of it. What stays keeps its
place on the right side, so that what is gone leaves a gap.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from qdq_translator import TranslateOptions, translate  # noqa: E402
from qdq_translator.commands.located import EXAMPLE_MODEL  # noqa: E402
from qdq_translator.translation.ir.constants import Constants  # noqa: E402
from qdq_translator.translation.ir.graph import Graph, Node  # noqa: E402
from qdq_translator.translation.ir.io import load_model  # noqa: E402
from qdq_translator.translation.scales.table import ScaleTable  # noqa: E402

OPTIONS = TranslateOptions(target="orin-dla", platform="jetpack-6.2", add_unary_ew_scales_for_dla=True)
BOX_WIDTH, BOX_HEIGHT, ROW, PANEL, MARGIN, HEAD = 136, 30, 60, 410, 56, 62
INK, GREY, LINE = "#1f2933", "#6b7785", "#9aa5b1"
FILLS = {"float": ("#ffffff", "#8592a0"), "pair": ("#fff1d6", "#d98e04"), "int8": ("#e3f5e9", "#2f8f4e")}
ORIGINS = {
    "Q1": "from its Q/DQ pair",
    "S3": "handed on from the next tensor",
    "S9": "a sign to the DLA: fused with the Add",
}
"""Rules of this block's scales, in words."""


@dataclass(frozen=True)
class Box:
    """text: operator; name: the layer's, the same on both sides; output: tensor; kind: in FILLS."""

    text: str
    name: str
    output: str
    kind: str
    inputs: tuple[str, ...]
    note: str = ""


def block_tensors(graph: Graph, add: Node) -> tuple[str, str]:
    """(tensor where the branches of `add` part, tensor that leaves the block). Raises ValueError where there is no such."""
    paths = []
    for name in add.inputs:
        path = [name]
        while path[-1] in graph.producer and not graph.is_constant(path[-1]):
            path.append(graph.producer[path[-1]].inputs[0])
        paths.append(path)
    fork = next((name for name in paths[0] if name in paths[1]), None)
    readers = graph.consumers(add.outputs[0])
    if fork is None:
        raise ValueError(f"The branches of {add.name} do not meet.")
    return fork, readers[0].outputs[0] if len(readers) == 1 and readers[0].is_op("Relu") else add.outputs[0]


def boxes(graph: Graph, first: str, last: str, scales: ScaleTable | None) -> list[Box]:
    """The layers between two tensors in graph order; a Q/DQ pair is one box. `scales`: None for the model with Q/DQ."""
    constants = Constants(graph)
    wanted, queue = set(), [last]
    while queue:
        name = queue.pop()
        node = graph.producer.get(name)
        if name == first or node is None or node.name in wanted or constants.value(name) is not None:
            continue
        wanted.add(node.name)
        queue += [n for n in node.inputs if n]
    found = []
    for node in graph.nodes:
        if node.name not in wanted or node.is_op("QuantizeLinear", "Constant", "Identity"):
            continue
        if node.is_op("DequantizeLinear"):
            quantize = graph.producer[node.inputs[0]]
            scale = constants.value(quantize.inputs[1])
            if scale is None or constants.value(quantize.inputs[0]) is not None:
                continue  # a weight's pair is written beside its layer
            found.append(
                Box(
                    "Q, DQ",
                    node.name,
                    node.outputs[0],
                    "pair",
                    (quantize.inputs[0],),
                    f"scale {float(scale.item()):.5f}",
                )
            )
            continue
        weights = [graph.producer.get(n) for n in node.inputs[1:2]]
        pair = node.is_op("Conv") and weights[0] is not None and weights[0].is_op("DequantizeLinear")
        note = "weight: Q, DQ per channel" if pair else ""
        if node.is_op("Conv") and scales is not None:
            note = "weight on its int8 grid"
        inputs = tuple(n for n in node.inputs if n == first or (n in graph.producer and constants.value(n) is None))
        if pair:
            inputs = inputs[:1]
        kind = "float" if scales is None else "int8"
        found.append(Box(node.op_type, node.name, node.outputs[0], kind, inputs, note))
    return found


def rows(found: list[Box], first: str) -> dict[str, int]:
    """Layer (or `first`) -> row, by longest path. Raises ValueError where two layers stand side by side."""
    row = {first: 0}
    for box in found:
        row[box.output] = 1 + max(row[n] for n in box.inputs)
    if len(set(row.values())) < len(row):
        raise ValueError("The block has layers on both branches; choose one whose shortcut is none.")
    return {first: 0, **{box.name: row[box.output] for box in found}}


class Picture:
    """SVG elements, one panel after the other."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, size: int = 12, fill: str = INK, extra: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" {extra}>{escape(text)}</text>')

    def box(self, x: float, y: float, box: Box) -> None:
        fill, stroke = FILLS[box.kind]
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="1.5"/>'
        )
        self.text(x + BOX_WIDTH / 2, y + 19, box.text, 12, INK, 'text-anchor="middle" font-weight="600"')
        if box.note:
            self.text(x + BOX_WIDTH + 8, y + 19, box.note, 11, FILLS["pair"][1] if box.kind == "pair" else GREY)

    def line(self, points: list[tuple[float, float]]) -> None:
        path = " ".join(f"{'L' if i else 'M'}{x:g},{y:g}" for i, (x, y) in enumerate(points))
        self.parts.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.5" marker-end="url(#arrow)"/>')

    def panel(self, left: float, found: list[Box], first: str, places: dict[str, int]) -> None:
        """`places`: rows of the left side's layers."""
        made = {box.output: box.name for box in found}
        order = [first, *made]
        half = BOX_WIDTH / 2
        self.parts.append(f'<circle cx="{left + half:g}" cy="{top(0) + BOX_HEIGHT - 4:g}" r="4" fill="{LINE}"/>')
        for number, box in enumerate(found, 1):
            y = top(places[box.name])
            for name in box.inputs:
                out = top(places[made.get(name, name)]) + BOX_HEIGHT
                if name == order[number - 1]:
                    self.line([(left + half, out), (left + half, y - 2)])
                else:  # the shortcut
                    middle = y + BOX_HEIGHT / 2
                    self.line([(left + half, out + 8), (left - 28, out + 8), (left - 28, middle), (left - 2, middle)])
        for box in found:
            self.box(left, top(places[box.name]), box)


def top(row: int) -> float:
    return HEAD + row * ROW


def draw(model: Path, add_name: str) -> str:
    """The picture as SVG. Raises ValueError where the model has no such block."""
    explicit = Graph.from_model(load_model(model)[0])
    translation = translate(model, OPTIONS)
    stripped = Graph.from_model(translation.model)
    add = next((n for n in stripped.nodes if n.name == add_name), None)
    if add is None or not add.is_op("Add"):
        raise ValueError(f"{model.name} has no Add '{add_name}'.")
    first, last = block_tensors(stripped, add)
    before, after = boxes(explicit, first, last, None), boxes(stripped, first, last, translation.scales)
    places = rows(before, first)
    bottom = top(max(places.values()) + 1) + 46
    picture = Picture()
    for index, (title, subtitle) in enumerate(
        (
            ("Before", f"{count(explicit)} Q/DQ nodes in the whole model; explicit mode only"),
            ("After", "a float network and one scale per tensor, in a calibration cache"),
        )
    ):
        left = 28 + index * PANEL
        picture.text(left, 36, title, 18, INK, 'font-weight="700"')
        picture.text(left, 56, subtitle, 12, GREY)
    picture.panel(MARGIN, before, first, places)
    picture.panel(MARGIN + PANEL, after, first, places)
    made = {box.output: box.name for box in after}
    for tensor in (first, *made):
        label(picture, MARGIN + PANEL, tensor, places[made.get(tensor, tensor)], translation.scales)
    for number, line in enumerate(LEGEND):
        picture.text(28, bottom - 26 + 16 * number, line, 11, GREY)
    body = "\n".join(picture.parts)
    width = 2 * PANEL
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom}" width="{width}" height="{bottom}" '
        f'font-family="Helvetica, Arial, sans-serif" role="img">\n<title>{escape(ALT)}</title>\n'
        f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 Z" fill="{LINE}"/></marker></defs>\n'
        f'<rect width="{width}" height="{bottom}" rx="10" fill="#ffffff"/>\n'
        f'<path d="M{PANEL},24 V{bottom - 52}" stroke="#e1e6eb"/>\n{body}\n</svg>\n'
    )


MONO = 'font-family="Menlo, Consolas, monospace"'
ALT = "A residual block with Q/DQ nodes, and the same block translated: float layers with one scale per tensor"
LEGEND = (
    "Names and scales are those of the shipped example. BatchNormalization is folded into the Conv before it.",
    "1.0 on the Conv before the Add is what --add_unary_ew_scales_for_dla sets: the DLA fuses the two (rule S9).",
)


def label(picture: Picture, left: float, tensor: str, row: int, scales: ScaleTable) -> None:
    """Name, scale and origin of a tensor under the layer that makes it. Raises ValueError where it has none."""
    found = scales.get(tensor)
    if found is None:
        raise ValueError(f"'{tensor}' has no scale.")
    x, y = left + BOX_WIDTH / 2 + 8, top(row) + BOX_HEIGHT
    colour = "#7a3fb8" if found.origin.rule == "S9" else FILLS["int8"][1]
    picture.text(x, y + 13, tensor, 10, GREY, MONO)
    value = f"{found.value:.5f}" if found.value != 1 else "1.0"
    picture.text(x, y + 26, value, 11, colour, 'font-weight="700"')
    picture.text(x + 8 + 6.6 * len(value), y + 26, ORIGINS[found.origin.rule], 10, GREY)


def count(graph: Graph) -> int:
    return sum(node.is_op("QuantizeLinear", "DequantizeLinear") for node in graph.nodes)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", type=Path, default=EXAMPLE_MODEL)
    parser.add_argument("--block", default="/layer1/Add", help="name of its Add (default: /layer1/Add)")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("residual_block.svg"))
    options = parser.parse_args()
    try:
        options.output.write_text(draw(options.model, options.block), encoding="utf-8")
    except ValueError as error:
        print(f"draw_residual_block.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
