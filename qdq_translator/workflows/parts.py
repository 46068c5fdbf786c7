"""Split one network into up to three: the part before the DLA, the DLA's part, and the part after it.

`choose` finds the cuts: the DLA subgraph of the plan with the longest estimated time, among equal ones the one with the
fewest tensors at its borders; none of its layers has to wait for the GPU. `cut` makes the parts, at any tensors;
constants are copied into each part that reads them. `prove` runs the whole and the chained parts in ONNX Runtime and
compares every bit of every output. `cut_tail` adds parts without decode tail to a whole translation.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Callable, Container, Iterable, Mapping, Optional, Sequence, Tuple

import onnx

from qdq_translator.core.disk import appear_together, file_digest, write_file, write_json
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.files import SPLIT_SUFFIX, TranslationFiles, model_name
from qdq_translator.core.formats.rows import plain, read
from qdq_translator.core.options import TranslateOptions, options_of
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.io import Source, open_graph, write_graph
from qdq_translator.ir.operators import PARTS, RANDOM, REARRANGES
from qdq_translator.ir.types import TensorTypes, open_sizes
from qdq_translator.output.report.data import format_report
from qdq_translator.scales.network import Applied
from qdq_translator.scales.table import Origin, TensorScale
from qdq_translator.simulate.inputs import input_specs, random_samples
from qdq_translator.simulate.metrics import same_bits
from qdq_translator.simulate.run import Sliced
from qdq_translator.workflows.translator import Translation, translate, translate_part

SCHEMA_VERSION = 1
ROLES = ("before", "dla", "after")
_LARGE = 0.01
"""Share of the multiply-accumulates on the DLA below which a subgraph is a remnant of the decode tail."""
_AGAIN = "Name other tensors with --begin and --end."


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the parts. inputs, outputs: tensors at its borders, in graph order."""

    role: str
    graph: Graph
    inputs: list[str]
    outputs: list[str]

    @property
    def layers(self) -> list[str]:
        return [node.name for node in self.graph.nodes]


@dataclasses.dataclass(frozen=True)
class Planned:
    """The network that a report describes. applied: rewrites of the network to be cut that led to it."""

    graph: Graph
    applied: Sequence[Applied] = ()

    def own(self, graph: Graph, names: Sequence[str], forward: bool, stop: Container[str] = ()) -> list[str]:
        """The tensors of `graph` that correspond to these; for a tensor that a rewrite added, the next ones, after it
        if `forward`, else before it. stop: layers that the search does not pass."""
        was = {new: old for a in self.applied for old, made in a.tensors.items() for new in made}
        found: dict[str, None] = {}
        pending, seen = list(names), set(names)
        for name in pending:
            old = name if name in graph.producer else was.get(name, "")
            if old in graph.producer:
                found[_behind_pair(graph, old)] = None
                continue
            nodes = self.graph.consumers(name) if forward else filter(None, [self.graph.producer.get(name)])
            tensors = [(n.outputs if forward else n.reads()) for n in nodes if n.name not in stop]
            following = [other for other in dict.fromkeys(itertools.chain(*tensors)) if other not in seen]
            pending += following
            seen.update(following)
        return list(found)


def choose(graph: Graph, report: rows.Report) -> tuple[list[str], list[str]]:
    """(tensors at which the DLA's part begins, tensors at which it ends). Raises UserError without a DLA layer."""
    if report.dla is None:
        raise UserError(
            "This translation is for a GPU, so it has no DLA part to cut out.",
            "Translate it with --target orin-dla or --preset dla, or name tensors with --begin and --end.",
        )
    milliseconds = {row.name: (row.cost and row.cost.milliseconds) or 0.0 for row in report.plan}
    subgraph = _subgraphs(report.dla)
    inside: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.name in subgraph:
            inside.setdefault(subgraph[node.name], []).append(node)
    found = []
    for nodes in inside.values():
        begin = [name for name in _read_from_outside(graph, nodes) if name in graph.producer]
        end = _read_outside(graph, nodes)
        time = sum(milliseconds.get(node.name, 0.0) for node in nodes)
        found.append(((time, len(nodes), -len(begin) - len(end)), (begin, end)))
    if not found:
        raise UserError("No layer of this network runs on the DLA, so there is nothing to cut out for it.", _AGAIN)
    return max(found, key=lambda row: row[0])[1]


def _subgraphs(dla: rows.Dla) -> dict[str, int]:
    """Layer of the DLA -> its subgraph."""
    return {row.name: row.subgraph for row in dla.layers if row.subgraph >= 0}


def _read_from_outside(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """Graph inputs and outputs of other nodes that these nodes read."""
    made = {name for node in nodes for name in node.outputs}
    reads = dict.fromkeys(name for node in nodes for name in node.reads())
    return [name for name in reads if name not in made and name not in graph.initializers]


def _read_outside(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """Outputs of these nodes that are graph outputs or that other nodes read."""
    own = {id(node) for node in nodes}
    return [
        name
        for node in nodes
        for name in node.outputs
        if name in graph.outputs or any(id(reader) not in own for reader in graph.consumers(name))
    ]


def cut(graph: Graph, types: TensorTypes, begin: Sequence[str], end: Sequence[str]) -> list[Part]:
    """The parts that have nodes. Everything that `begin` depends on is the part before; all else that `end` depends on
    is the DLA's part (without `end`, all else); the remainder is the part after. Raises UserError for tensors that no
    node makes, and if nothing is between them.
    """
    for name in (*begin, *end):
        if name not in graph.producer:
            known = "a graph input" if name in graph.inputs else "not a tensor that a node of the network makes"
            raise UserError(f"Tensor '{name}' is {known}, so the network cannot be cut there.", _AGAIN)
    constant = _constant(graph)
    before = _needed(graph, begin)
    needed = _needed(graph, end) if end else {id(node) for node in graph.nodes}
    nodes: dict[str, list[Node]] = {role: [] for role in ROLES}
    for node in graph.nodes:
        if id(node) not in constant:
            role = "before" if id(node) in before else "dla" if id(node) in needed else "after"
            nodes[role].append(node)
    if not nodes["dla"]:
        raise UserError("There is no node between the tensors at which the DLA part begins and ends.", _AGAIN)
    return [_part(graph, types, role, nodes[role], constant, [*begin, *end]) for role in ROLES if nodes[role]]


def tail(graph: Graph, planned: Planned, report: rows.Report) -> list[str]:
    """Layers on which no DLA subgraph with at least 1% of the multiply-accumulates depends: a decode tail, which should
    not be quantized."""
    if report.dla is None:
        return []
    there = _in_large_subgraphs(report.dla, report.plan)
    made = [name for node in planned.graph.nodes if node.name in there for name in node.outputs if name]
    own = planned.own(graph, made, True, {node.name for node in graph.nodes})
    needed = _needed(graph, own) | _constant(graph)
    return [node.name or f"node_of_{node.outputs[0]}" for node in graph.nodes if id(node) not in needed]


def _in_large_subgraphs(dla: rows.Dla, plan: Sequence[rows.LayerPlan]) -> set[str]:
    """The layers of all DLA subgraphs with at least 1% of the DLA's multiply-accumulates."""
    subgraph = _subgraphs(dla)
    macs = dict.fromkeys(subgraph.values(), 0)
    for row in plan:
        if row.name in subgraph:
            macs[subgraph[row.name]] += row.macs or 0
    least = _LARGE * sum(macs.values())
    return {name for name, number in subgraph.items() if macs[number] >= least}


def tail_begins(graph: Graph, report: rows.Report) -> list[str]:
    """Tensors after which it is useful to cut off a tail. [] if none of its layers computes on the GPU (data movement
    does not count, up to one layer per output), or if at least as many GPU layers are before it: the DLA's part would
    still need the GPU.
    """
    behind = set(tail(graph, Planned(graph), report))
    gpu = [row for row in report.dla.layers if row.verdict == "gpu"] if report.dla and behind else []
    inside = [row for row in gpu if row.name in behind]
    moves = all(row.op in (*REARRANGES, *PARTS) for row in inside)
    if 2 * len(inside) <= len(gpu) or (moves and len(inside) <= len(graph.outputs)):
        return []
    constant = _constant(graph)
    return _read_outside(graph, [n for n in graph.nodes if n.name not in behind and id(n) not in constant])


def _needed(graph: Graph, tensors: Iterable[str]) -> set[int]:
    """The nodes that the tensors depend on."""
    found: set[int] = set()
    pending = list(tensors)
    while pending:
        node = graph.producer.get(pending.pop())
        if node is not None and id(node) not in found:
            found.add(id(node))
            pending += node.reads()
    return found


def _constant(graph: Graph) -> set[int]:
    """Nodes that depend on no graph input."""
    found: set[int] = set()
    for node in graph.nodes:
        makers = [graph.producer.get(name) for name in node.reads()]
        # a random operator that is copied into two parts would give different values there
        if not node.is_op(*RANDOM) and all(
            name in graph.initializers or (maker is not None and id(maker) in found)
            for name, maker in zip(node.reads(), makers)
        ):
            found.add(id(node))
    return found


def _part(
    graph: Graph, types: TensorTypes, role: str, nodes: list[Node], constant: set[int], borders: Sequence[str]
) -> Part:
    copied = _needed(graph, [name for node in nodes for name in node.reads()]) & constant
    everything = [node for node in graph.nodes if id(node) in copied] + nodes
    left = {*_read_outside(graph, nodes), *borders}
    outputs = [name for node in nodes for name in node.outputs if name in left]
    inputs = _read_from_outside(graph, everything)
    ends = ([_value(graph, types, name) for name in names] for names in (inputs, outputs))
    picture = graph.submodel(everything, f"{graph.name or 'graph'}_{role}", *ends)
    return Part(role, Graph.from_picture(picture), inputs, outputs)


def _value(graph: Graph, types: TensorTypes, name: str) -> onnx.ValueInfoProto:
    if name in graph.inputs:
        return graph.inputs[name]
    if name in graph.outputs:
        return graph.outputs[name]
    return onnx.helper.make_tensor_value_info(name, types.elem_type(name) or onnx.TensorProto.FLOAT, types.shape(name))


def prove(whole: Graph, parts: Sequence[Part], shapes: Mapping[str, Sequence[int]], samples: int) -> int:
    """Runs both on random inputs; returns the number of runs. Raises UserError if a single bit of an output differs."""
    inputs = random_samples(input_specs(whole.picture()[0], shapes), {}, samples, 0)
    graphs = (whole, *(part.graph for part in parts))
    types = [TensorTypes(g, {n: sizes for n, sizes in shapes.items() if n in g.inputs}) for g in graphs]
    session, *chain = (Sliced(g, own, "split") for g, own in zip(graphs, types))
    for feed in inputs:
        wanted, known = dict(session.run(feed)), dict(feed)
        for part, own in zip(parts, chain):
            known.update(own.run({name: known[name] for name in part.inputs}))
        for name, value in wanted.items():
            if name in known and not same_bits(value, known[name]):
                raise UserError(
                    f"The parts, one after the other, do not give the bits of the whole at output '{name}'.",
                    "Nothing was written; cut it at other tensors with --begin and --end.",
                )
    return inputs.runs


# ---------------- from files to files


@dataclasses.dataclass(frozen=True)
class Request:
    """begin, end: tensors, [] for those that `choose` finds. samples: number of random inputs of the proof."""

    begin: list[str]
    end: list[str]
    output: Path
    samples: int


def split_translation(files: TranslationFiles, request: Request, graph: Optional[Graph] = None) -> rows.SplitManifest:
    """Split a translation into several, each with all files, and a manifest. graph: of the model file, if it was read
    before. Raises UserError if it cannot be cut."""
    report, config = files.report_rows(), files.read_config()
    options = options_of(config.get("options", {}), _KEPT)
    if graph is None:
        graph, source = open_graph(files.model)
    else:
        source = Source(files.model.name, file_digest(files.model), files.model_data.exists())
    origins = config.get("scale_origins", {})
    scales = {
        name: TensorScale(value, Origin(**origins.get(name, {"rule": "S1"})))
        for name, value in config["int8_tensor_scales"].items()
    }
    listed = set(config["fp16_nodes"])

    def save(part: Part, name: str, folder: Path) -> tuple[str, Optional[Translation]]:
        own = Graph.from_picture(part.graph.picture())
        held = {tensor: scales[tensor] for tensor in own.tensors() if tensor in scales}
        kept = [layer for layer in part.layers if layer in listed]
        made = translate_part(own, held, dataclasses.replace(options, shapes=[], keep_fp16=kept), name, source)
        return made.save(folder).model.name, made

    return _split(graph, Planned(graph), report, options, request, files.name, scales, save)


def cut_tail(translation: Translation, files: TranslationFiles) -> Optional[rows.CutParts]:
    """Write the DLA's part and the tail to `NAME_parts/`, in addition to the whole, and list them in its report.
    Returns the parts; None if there is no tail to cut off.

    files: of `translation`. Raises UserError as `split_translation`; the whole is kept.
    """
    ends = tail_begins(translation.graph, translation.rows)
    if not ends:
        return None
    manifest = split_translation(files, Request([], ends, files.parts, 2), translation.graph)
    told = plain(manifest)
    translation.report["parts"] = {
        "folder": files.parts.name,
        **{key: told[key] for key in ("parts", "tail", "tail_macs_share", "proof")},
    }
    report = {**files.read_report(), "parts": translation.report["parts"]}
    write_file(files.report, format_report(report).encode("utf-8", "surrogateescape"))
    return read(rows.CutParts, {**told, "folder": str(files.parts)})


def split_model(path: Path, options: TranslateOptions, request: Request) -> rows.SplitManifest:
    """Split an ONNX model, float or with Q/DQ, into several untranslated ONNX models, and a manifest.

    Planned as in `qdq-translator plan`. Raises UserError if it cannot be cut.
    """
    planned = translate(path, options, assume_scales=True)
    known = Planned(planned.graph, planned.rewrites.applied)
    graph, source = open_graph(path)
    if not request.begin and not request.end:
        begin, end = choose(planned.graph, planned.rows)
        request = dataclasses.replace(request, begin=known.own(graph, begin, False), end=known.own(graph, end, True))

    def save(part: Part, name: str, folder: Path) -> tuple[str, Optional[Translation]]:
        write_graph(part.graph, folder / f"{name}.onnx", f"{name}.onnx.data", source.external_data)
        return f"{name}.onnx", None

    report = dataclasses.replace(planned.rows, source=rows.Source(source.file, source.sha256))
    del planned
    known.graph.initializers.clear()  # only its layers are needed
    return _split(graph, known, report, options, request, model_name(str(path)), {}, save)


_Save = Callable[[Part, str, Path], Tuple[str, Optional[Translation]]]
"""Writes a part under a name into a folder; returns its model file, and its translation if there is one."""


def _split(
    graph: Graph,
    planned: Planned,
    report: rows.Report,
    options: TranslateOptions,
    request: Request,
    name: str,
    scales: Mapping[str, TensorScale],
    save: _Save,
) -> rows.SplitManifest:
    sizes = open_sizes(graph, options.sizes)
    types = TensorTypes(graph, sizes)
    ends = (request.begin, request.end) if request.begin or request.end else choose(graph, report)
    parts = cut(graph, types, *ends)
    runs = prove(graph, parts, sizes, request.samples)
    behind = tail(graph, planned, report)
    macs = {row.name: row.macs or 0 for row in report.plan}
    total = sum(macs.values())
    with appear_together(request.output) as scratch:
        manifest = rows.SplitManifest(
            schema_version=SCHEMA_VERSION,
            kind="qdq-translator split",
            generator=rows.GENERATOR,
            source=report.source,
            parts=tuple(_row(part, types, scales, *save(part, f"{name}_{part.role}", scratch)) for part in parts),
            tail=tuple(behind),
            tail_macs_share=sum(macs.get(name, 0) for name in behind) / total if total else None,
            proof=rows.Proof(runs, True),
        )
        write_json(scratch / f"{name}{SPLIT_SUFFIX}", manifest)
    return manifest


_KEPT = ("trt_calib_version", "platform", "target", "power_mode", "dla_clock", "cost_model", "shapes", "no_auto_names")
"""Options of a translation that apply to its parts. They inherit graph and scales."""


def _behind_pair(graph: Graph, tensor: str) -> str:
    """Output of the Q/DQ pair through which all readers read `tensor`, so that a cut does not separate the pair."""
    for op in ("QuantizeLinear", "DequantizeLinear"):
        reader = graph.only_consumer(tensor)
        if reader is None or reader.op_type != op:
            return tensor
        tensor = reader.outputs[0]
    return tensor


def _row(
    part: Part, types: TensorTypes, scales: Mapping[str, TensorScale], file: str, made: Optional[Translation]
) -> rows.UnplacedPart:
    def end(name: str) -> rows.Border:
        scale = scales[name].value if name in scales else None
        kind, shape = types.elem_type(name), types.shape(name)
        form = "fp16:chw16" if scale is None else "int8:chw32"
        return rows.Border(
            name,
            onnx.TensorProto.DataType.Name(kind).lower() if kind else None,
            None if shape is None else tuple(shape),
            scale,
            form if part.role == "dla" else "",
        )

    inputs, outputs = (tuple(map(end, names)) for names in (part.inputs, part.outputs))
    common = (part.role, file, len(part.layers), inputs, outputs)
    if made is None or made.dla is None or made.costs is None:
        return rows.UnplacedPart(*common)
    return rows.Part(*common, len(made.dla.fallbacks), made.dla.subgraphs, made.costs.milliseconds)
