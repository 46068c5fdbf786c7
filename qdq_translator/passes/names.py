"""Names that every file can express (rules F5, F6 and the naming part of section 3).

1. Every node gets a unique, non-empty name without what `--layerPrecisions` cannot say (fact 3.6, 3.7, 4.3).
2. Tensor names lose line breaks, which a calibration cache cannot hold; graph inputs and outputs keep theirs.
3. What would collide with a name that TensorRT's parser makes up is renamed (fact 4.12): an initializer called
   like a node, a node or an initializer `n` beside a tensor `n_output`, anything that begins with `ONNXTRT_`.
4. So is a node whose name the parser gives to a helper of another: `sp_0` beside a Split `sp` that has three parts.
"""

from __future__ import annotations

import re

from qdq_translator.core.diagnostics import RENAMED_NODES, Diagnostics
from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.core.formats.layer_precisions import legal_name
from qdq_translator.core.words import counted
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.scales.network import Network
from qdq_translator.targets.parser_network import MULTI_LAYER, PARSER_PREFIX, Version, misnamed, supports

_TRIES = 10
"""New names shift the parser's numbers, which may hit other names."""


def name_nodes(graph: Graph, diagnostics: Diagnostics) -> None:
    """Rule 1. The first of several equal names keeps it; others become `name_1`, `name_2` ... in graph order."""
    names = {node.name for node in graph.nodes}
    taken: set[str] = set()
    changed: dict[str, str] = {}
    unnamed = 0
    count: dict[str, int] = {}
    for node in graph.nodes:
        old = node.name
        name = legal_name(old)
        if not name:
            unnamed += 1
            name = legal_name(f"{node.op_type}_{node.outputs[0] if node.outputs else unnamed}")
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
            f"{counted(len(changed), 'node')} were renamed ({unnamed} had none, {len(renamed)} were not unique or contained , ' * or "
            "control characters).",
            data={RENAMED_NODES: changed},
        )


def clean_tensor_names(graph: Graph) -> None:
    """Rule 2. Raises UnsupportedQuantizer where a graph input or output has such a name."""
    names = [*graph.producer, *graph.inputs, *graph.initializers]
    for name in [name for name in names if "\n" in name or "\r" in name]:
        if graph.is_graph_tensor(name):
            raise UnsupportedQuantizer(
                f"The graph input or output {name!r} has a line break in its name, which a calibration cache cannot contain.",
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


def avoid_automatic_names(network: Network) -> None:
    """Rule 3, for constants that become layers of their own and for Gemm and Softmax."""
    graph, diagnostics = network.graph, network.diagnostics
    for name in _colliding_constants(graph):
        new = graph.unique_name(f"{name}_const" if not name.startswith(PARSER_PREFIX) else f"const_{name}")
        network.rename_tensor(name, new)
        diagnostics.info(
            "F6",
            f"Initializer '{name}' is now '{new}': TensorRT's parser would generate a name that exists already.",
            tensor=new,
        )
    for node in _colliding_nodes(graph):
        old, automatic = node.name, f"{node.name}_output"
        network.rename_node(
            node, graph.node_name(f"{old}_node" if not old.startswith(PARSER_PREFIX) else f"node_{old}")
        )
        diagnostics.info(
            "F6",
            f"Node '{old}' is now '{node.name}': TensorRT's parser would make up the tensor name '{automatic}', which exists."
            if not old.startswith(PARSER_PREFIX)
            else f"Node '{old}' is now '{node.name}': TensorRT's parser calls layers of its own so.",
            node=node.name,
            data={RENAMED_NODES: {node.name: old}},
        )


def avoid_helper_names(network: Network, version: Version) -> None:
    """Rule 4, for the version whose parser reads the model."""
    if not supports(version) or not network.graph.of(*MULTI_LAYER):
        return
    renamed: dict[str, str] = {}
    for _ in range(_TRIES):
        found = misnamed(network.graph, network.types, version)
        for node in found:
            old = node.name
            network.rename_node(node, network.graph.node_name(f"{old}_node"))
            renamed[node.name] = renamed.pop(old, old)
        if not found:
            break
    if renamed:
        network.diagnostics.info(
            "F6",
            "These nodes were renamed, because TensorRT's parser would give their names to layers of other nodes: "
            f"{', '.join(renamed.values())}.",
            data={RENAMED_NODES: renamed},
        )


def automatic_collisions(graph: Graph) -> list[str]:
    """Initializers and nodes for which TensorRT's parser would generate a name that exists already."""
    return [*_colliding_constants(graph), *(node.name for node in _colliding_nodes(graph))]


def _colliding_constants(graph: Graph) -> list[str]:
    nodes = {n.name for n in graph.nodes}
    operands = {
        name
        for n in graph.nodes
        if not n.is_op("Conv", "ConvTranspose")
        for name in n.inputs
        if name in graph.initializers
    }
    return [
        n
        for n in graph.initializers
        if n in operands and (n in nodes or n.startswith(PARSER_PREFIX) or _exists(graph, f"{n}_output"))
    ]


def _colliding_nodes(graph: Graph) -> list[Node]:
    return [
        n
        for n in graph.nodes
        if n.name.startswith(PARSER_PREFIX) or (n.is_op("Gemm", "Softmax") and _exists(graph, f"{n.name}_output"))
    ]


def _exists(graph: Graph, tensor: str) -> bool:
    return tensor in graph.producer or tensor in graph.inputs
