"""The report as arguments of the tool that quantized the model (`report --fix-list TOOL`).

Two lists: operators to quantize as well (with the modules behind the root causes), and layers to leave out because they
run above INT8 anyway (layers by design in FP16, and those of --keep_fp16), so that training and calibration see the
network that will run. Made from NAME_report.json alone. Names are those of the user's model: nodes created by a rewrite
or a normal form have the name of the node that they replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Iterable, Iterator

from qdq_translator.core.formats.report_rows import LayerPlan, NodeRow, Report
from qdq_translator.translation.ir.operators import VIEWS


@dataclass(frozen=True)
class FixLists:
    """ops: every operator that is or should be quantized; more: those of them that no INT8 layer has so far. tensors:
    those that were never quantized, the first of each root cause. leave: nodes that stay above INT8, with their
    operators; leave_ops: operators that have no other nodes."""

    ops: list[str]
    more: list[str]
    tensors: list[str]
    leave: dict[str, str]
    leave_ops: list[str]


def fix_lists(report: Report) -> FixLists:
    quantized: dict[str, None] = {}
    wanted: dict[str, None] = {}
    by_design: dict[str, str] = {}
    others: dict[str, str] = {}
    found = report.root_causes.causes
    missing = {tensor for cause in found for tensor in (cause.tensor, *cause.follows)}
    for row, own in _own_nodes(report):
        if row.precision != "none" and not row.missing and not row.listed:
            quantized[own.op] = None
        elif missing.intersection(row.inputs):
            wanted[own.op] = None  # a quantizer works on a node's inputs
        apart = row.precision == "fp16" and row.by_design and own.op not in VIEWS
        (by_design if apart else others)[own.node] = own.op
    causes = dict.fromkeys(cause.users or cause.tensor for cause in found)
    leave = {name: op for name, op in by_design.items() if name not in others}
    leave_ops = set(leave.values()).difference(others.values())
    more = sorted({*wanted}.difference(quantized))
    return FixLists(sorted({*quantized, *wanted}), more, list(causes), leave, sorted(leave_ops))


def _own_nodes(report: Report) -> Iterator[tuple[LayerPlan, NodeRow]]:
    """The rows of the plan with their nodes in the user's model, without clamps that were part of a quantizer (Q9)."""
    added = {item.node for item in report.diagnostics if item.rule == "Q9"}
    for row in report.plan:
        own = report.nodes_in_your_model.get(row.name) or NodeRow(row.name, row.op)
        if own.node not in added:
            yield row, own


def module_of(name: str) -> str:
    """'/layer2/downsample/downsample.0/Conv' and '/layer2/downsample/downsample.0/Conv_output_0' ->
    'layer2.downsample.0', as PyTorch's exporter names a module's outputs; '' for names outside modules."""
    parts: list[str] = []
    for scope in filter(None, name.split("/")[:-1]):
        if parts and scope.startswith(f"{parts[-1]}."):
            parts.pop()  # a child of a container, named after it
        parts.append(scope)
    return ".".join(parts)


def _quantize_too(lists: FixLists, call: str) -> list[str]:
    lines = [f"# arguments of {call}"]
    if lists.more:
        lines.append(f"# quantize these too: {', '.join(map(_in_comment, lists.more))}")
    if lists.more or lists.tensors:
        lines += _assignment("op_types_to_quantize", lists.ops)
    if lists.leave:
        lines.append("# leave these out: they run above INT8 anyway")
    return lines


def _onnxruntime(lists: FixLists) -> list[str]:
    return _quantize_too(lists, "onnxruntime.quantization.quantize_static") + _assignment(
        "nodes_to_exclude", lists.leave
    )


def _modelopt(lists: FixLists) -> list[str]:
    lines = _quantize_too(lists, "modelopt.onnx.quantization.quantize")
    nodes = (name for name, op in lists.leave.items() if op not in lists.leave_ops)
    patterns = _assignment("nodes_to_exclude", (f"^{re.escape(name)}$" for name in nodes))
    return [*lines, *_assignment("op_types_to_exclude", lists.leave_ops), *patterns]


def _modules(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The modules, each once, and the names outside any module."""
    found: dict[str, None] = {}
    loose: list[str] = []
    for name in names:
        module = module_of(name)
        if module:
            found[module] = None
        else:
            loose.append(name)
    return list(found), loose


def _modelopt_torch(lists: FixLists) -> list[str]:
    """Entries of quant_cfg, a list in the form of ModelOpt 0.47; later entries override earlier ones."""
    too, loose = _modules(lists.tensors)
    leave, _ = _modules(lists.leave)
    entries = [
        *(
            {"quantizer_name": f"*{module}.output_quantizer", "cfg": {"num_bits": 8, "axis": None}, "enable": True}
            for module in too
        ),
        *({"quantizer_name": f"*{module}.*quantizer", "enable": False} for module in leave),
    ]
    head = '# more entries for config["quant_cfg"] of modelopt.torch.quantization.quantize, behind yours'
    return [head, "quant_cfg = [", *(f"    {entry!r}," for entry in entries), "]", *_loose(loose)]


def _pytorch_quantization(lists: FixLists) -> list[str]:
    too, loose = _modules(lists.tensors)
    leave, _ = _modules(lists.leave)
    return [
        "# modules of the network (names as in model.named_modules())",
        *_assignment("quantize", too, "# quantize these too: a quant_nn.TensorQuantizer on the output of each"),
        *_assignment("leave_out", leave, "# leave these out: disable() the TensorQuantizers below each"),
        *_loose(loose),
    ]


def _loose(names: Iterable[str]) -> list[str]:
    return [f"# belongs to no module; quantize it in forward(): {_in_comment(name)}" for name in names]


def _in_comment(name: str) -> str:
    """A model name that is safe in a comment: text after a line break would be executed."""
    return name if name.isprintable() else repr(name)


def _assignment(name: str, values: Iterable[str], *comment: str) -> list[str]:
    """Empty without values."""
    rows = [f"    {value!r}," for value in values]
    return [*comment, f"{name} = [", *rows, "]"] if rows else []


_WRITERS: dict[str, Callable[[FixLists], list[str]]] = {
    "onnxruntime": _onnxruntime,
    "modelopt": _modelopt,
    "modelopt-torch": _modelopt_torch,
    "pytorch-quantization": _pytorch_quantization,
}


def format_fix_list(report: Report, tool: str) -> str:
    """Python to paste into the script that quantizes. `tool`: one of TOOLS of `core/command_options.py`."""
    lists = fix_lists(report)
    if not (lists.tensors or lists.more or lists.leave):
        return "# Nothing to change: no layer is in FP16 because of a missing scale, and none has unused quantizers.\n"
    return "\n".join(_WRITERS[tool](lists)) + "\n"
