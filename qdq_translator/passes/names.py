"""Names that every file can express (rules F5, F6 and the naming part of section 3).

1. Every node gets a unique, non-empty name without what `--layerPrecisions` cannot say (fact sheet 3.6, 3.7, 4.3).
2. Tensor names lose line breaks, which a calibration cache cannot hold; graph inputs and outputs keep theirs.
3. What would collide with a name that TensorRT's parser makes up is renamed (fact sheet 4.12): an initializer called
   like a node, a node or an initializer `n` beside a tensor `n_output`.
"""

from __future__ import annotations

import re

from qdq_translator.diagnostics import Diagnostics
from qdq_translator.emit.layer_precisions import FORBIDDEN_IN_LAYER_NAMES, is_expressible
from qdq_translator.errors import UnsupportedQuantizer
from qdq_translator.graph import Graph

_BAD = re.compile("[" + re.escape(FORBIDDEN_IN_LAYER_NAMES) + r"\x00-\x1f\x7f]")


def name_nodes(graph: Graph, diagnostics: Diagnostics) -> None:
    """Rule 1. The first of several equal names keeps it; others become `name_1`, `name_2` ... in graph order."""
    taken: set[str] = set()
    names = {n.name for n in graph.nodes}
    changed: dict[str, str] = {}
    unnamed = 0
    count: dict[str, int] = {}
    for node in graph.nodes:
        old = node.name
        name = old if is_expressible(old) else _BAD.sub("_", old)
        if not name:
            unnamed += 1
            name = f"{node.op_type}_{_BAD.sub('_', node.outputs[0]) if node.outputs else unnamed}"
        base = name
        while name in taken or (name != old and name in names):
            count[base] = count.get(base, 0) + 1
            name = f"{base}_{count[base]}"
        taken.add(name)
        if name != old:
            node.name = name
            changed[name] = old
    if changed:
        renamed = {new: old for new, old in changed.items() if old}
        diagnostics.info(
            "F6",
            f"{len(changed)} nodes got new names ({unnamed} had none, {len(renamed)} were not unique or held , ' * or "
            "control characters).",
            data={"renamed": changed},
        )


def clean_tensor_names(graph: Graph) -> None:
    """Rule 2. Raises UnsupportedQuantizer where a graph input or output has such a name."""
    for name in [n for n in (*graph.producer, *graph.inputs, *graph.initializers) if "\n" in n or "\r" in n]:
        if graph.is_graph_tensor(name):
            raise UnsupportedQuantizer(
                f"The graph input or output {name!r} has a line break in its name, which no calibration cache can hold.",
                "Rename it before the export.",
            )
        clean = graph.unique_name(re.sub(r"[\r\n]+", "_", name))
        if name in graph.initializers:
            graph.rename_initializer(name, clean)
        else:
            graph.rename_output(graph.producer[name], name, clean)


def rename_node_outputs(graph: Graph) -> dict[str, str]:
    """Rule F5: every tensor is called like its node, further outputs `_1`, `_2` ...; returns old -> new names."""
    fixed = set(graph.inputs) | set(graph.outputs) | set(graph.initializers) | graph.body_names()
    mapping: dict[str, str] = {}
    for node in graph.nodes:
        for index, old in enumerate(node.outputs):
            if not old or old in graph.outputs:
                continue
            wanted = node.name if index == 0 else f"{node.name}_{index}"
            name, count = wanted, 0
            while name in fixed:
                count += 1
                name = f"{wanted}_t{count}"
            fixed.add(name)
            mapping[old] = name
    graph.rename_tensors(mapping)
    return mapping


def avoid_automatic_names(graph: Graph, diagnostics: Diagnostics) -> dict[str, str]:
    """Rule 3, for constants that become layers of their own and for Gemm and Softmax; returns old -> new initializers."""
    renamed: dict[str, str] = {}
    nodes = {n.name: n for n in graph.nodes}
    operands = {
        name
        for n in graph.nodes
        if not n.is_op("Conv", "ConvTranspose")
        for name in n.inputs
        if name in graph.initializers
    }
    for name in [n for n in graph.initializers if n in operands]:
        if name in nodes or f"{name}_output" in graph.producer or f"{name}_output" in graph.inputs:
            new = graph.unique_name(f"{name}_const")
            graph.rename_initializer(name, new)
            renamed[name] = new
            diagnostics.info(
                "F6",
                f"Initializer '{name}' is now '{new}': TensorRT's parser would make up a name that exists.",
                tensor=new,
            )
    for node in list(graph.nodes):
        automatic = f"{node.name}_output"
        if node.is_op("Gemm", "Softmax") and (automatic in graph.producer or automatic in graph.inputs):
            old = node.name
            node.name = graph.unique_name(f"{old}_node")
            diagnostics.info(
                "F6",
                f"Node '{old}' is now '{node.name}': TensorRT's parser would make up the tensor name '{automatic}', which exists.",
                node=node.name,
                data={"renamed": {node.name: old}},
            )
    return renamed
