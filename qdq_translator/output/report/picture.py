"""The network as a picture: boxes, labels and edges with their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from qdq_translator.output.report.layout import BOX_HEIGHT, BOX_WIDTH, Layout, lay_out
from qdq_translator.output.report.model import Layer, Network, Tensor


@dataclass(frozen=True)
class Box:
    """One box of the picture: a layer, or a graph input or output (layer None)."""

    x: int
    y: int
    title: str
    name: str
    layer: Optional[Layer] = None
    tensor: int = -1


@dataclass(frozen=True)
class Label:
    """The scale of a tensor, below the box that makes it."""

    x: int
    y: int
    text: str
    tensor: int
    style: str


@dataclass(frozen=True)
class Edge:
    path: str
    tensor: int
    style: str


@dataclass(frozen=True)
class Picture:
    """The network drawn. left_out: layers without float data, which stand in the table only."""

    width: int
    height: int
    boxes: list[Box]
    edges: list[Edge]
    labels: list[Label]
    left_out: int
    columns: int

    @property
    def deep(self) -> bool:
        """Too many boxes to read their text when all of them show."""
        return len(self.boxes) > 400


def draw(network: Network) -> Picture:
    """Graph inputs, layers and graph outputs as boxes; every float activation as edges to its readers."""
    shown = [layer for layer in network.layers if layer.inputs or layer.outputs]
    if len(shown) > 1:  # layers that only feed shape arithmetic stand alone
        joined = {t for layer in shown for t in layer.inputs} & {t for layer in shown for t in layer.outputs}
        ends = {*network.inputs, *network.outputs}
        shown = [
            x
            for x in shown
            if x.kind != "none" or (x.inputs and x.outputs and {*x.inputs, *x.outputs} & (joined | ends))
        ]
    inputs = [t for t in network.inputs if network.tensors[t].producer < 0]
    maker = {tensor: number for number, tensor in enumerate(inputs)}
    for number, layer in enumerate(shown, len(inputs)):
        maker.update((tensor, number) for tensor in layer.outputs)
    links: list[tuple[int, int, int]] = []
    for number, layer in enumerate(shown, len(inputs)):
        links += [(maker[t], number, t) for t in layer.inputs if maker.get(t, number) < number]
    first_output = len(inputs) + len(shown)
    links += [(maker[t], first_output + i, t) for i, t in enumerate(network.outputs) if t in maker]
    layout = lay_out(first_output + len(network.outputs), [(a, b) for a, b, _ in links])
    boxes: list[Box] = []
    for number, (x, y) in enumerate(layout.boxes):
        if number < len(inputs):
            boxes.append(Box(x, y, "input", network.tensors[inputs[number]].name, tensor=inputs[number]))
        elif number < first_output:
            layer = shown[number - len(inputs)]
            boxes.append(Box(x, y, layer.op, layer.name, layer=layer))
        else:
            tensor = network.outputs[number - first_output]
            boxes.append(Box(x, y, "output", network.tensors[tensor].name, tensor=tensor))
    edges = [Edge(path, t, _edge_style(network.tensors[t])) for path, (_, _, t) in zip(layout.edges, links)]
    return Picture(
        layout.width,
        layout.height,
        boxes,
        edges,
        _labels(network, layout, maker),
        len(network.layers) - len(shown),
        len(layout.columns),
    )


def _labels(network: Network, layout: Layout, maker: dict[int, int]) -> list[Label]:
    made: dict[int, list[int]] = {}
    for tensor, number in maker.items():
        made.setdefault(number, []).append(tensor)
    labels = []
    for number, tensors in made.items():
        x, y = layout.boxes[number]
        for line, tensor in enumerate(tensors[:2]):
            row = network.tensors[tensor]
            text = "" if row.assumed else "no scale" if row.scale is None else f"{row.scale:.4g}"
            if line and len(tensors) > 2:
                text += f" +{len(tensors) - 2}"
            labels.append(
                Label(x + BOX_WIDTH // 2 + 7, y + BOX_HEIGHT + 14 + 13 * line, text, tensor, _edge_style(row))
            )
    return labels


def _edge_style(tensor: Tensor) -> str:
    return (
        "inferred"
        if tensor.assumed
        else "missing"
        if tensor.scale is None
        else "explicit"
        if tensor.explicit
        else "inferred"
    )
