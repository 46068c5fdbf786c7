"""The order of passes as data, with the requirements of each and the conditions that it ensures from then on.

A pass is a function of the network and the settings, and a row here. `requires` contains the conditions before it,
`ensures` those after it and every later pass: an order that violates one fails by name if the checks are on
(`check=True`, or the environment variable QDQ_TRANSLATOR_CHECK_PASSES; the tests enable it for every translation).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Optional

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.layer_precisions import is_expressible
from qdq_translator.core.rules import RULES
from qdq_translator.translation.ir.constants import is_quantizer
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.passes import cleanup, names
from qdq_translator.translation.passes.dialects import convert_dialects, observe_scales
from qdq_translator.translation.passes.fold_batchnorm import fold_batchnorm, fold_pads
from qdq_translator.translation.passes.half_precision import to_float32
from qdq_translator.translation.passes.matmul_2d import matmul_as_matrices
from qdq_translator.translation.passes.no_ops import remove_no_ops
from qdq_translator.translation.passes.normal_forms import RULES as NORMAL_FORMS
from qdq_translator.translation.passes.normal_forms import apply_normal_forms
from qdq_translator.translation.passes.opset import (
    check_operators,
    complete_convolutions,
    fit_opset,
    opset_is_readable,
    settle_windows,
)
from qdq_translator.translation.passes.rewrites import rewrite_for_dla
from qdq_translator.translation.passes.strip import strip
from qdq_translator.translation.quantizers.sidecars import activation_scales
from qdq_translator.translation.quantizers.steps import ASYMMETRIC
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.settings import Settings

CHECK = "QDQ_TRANSLATOR_CHECK_PASSES"

Condition = Callable[[Network, Settings], str]
"""Description of the violation; '' if the condition holds."""


class BrokenPass(AssertionError):
    """A pass ran too early, or violated a condition that it or another pass ensured: a bug in the program."""


@dataclass(frozen=True)
class Pass:
    """rules: those of docs/rules.md that it implements. ensures: conditions that hold from here to the end of the
    pipeline. keeps: does not change the network for a parser, so the pass also runs with `--keep_model`."""

    name: str
    rules: tuple[str, ...]
    run: Callable[[Network, Settings], None]
    requires: tuple[Condition, ...] = ()
    ensures: tuple[Condition, ...] = ()
    keeps: bool = False


# ---------------- conditions


def nothing_refers_to_names(network: Network, settings: Settings) -> str:
    """Renaming many parts at once is only free before other records refer to them."""
    books = (network.scales.observed, network.trained, network.applied, network.derived)
    return "books refer to names already" if any(len(book) for book in books) else ""


def node_names_are_legal(network: Network, settings: Settings) -> str:
    """Unique, not empty, and expressible in `--layerPrecisions` (rule F6)."""
    seen: set[str] = set()
    for node in network.graph.nodes:
        if not is_expressible(node.name) or node.name in seen:
            return f"node name {node.name!r} is illegal or not unique"
        seen.add(node.name)
    return ""


def tensor_names_are_legal(network: Network, settings: Settings) -> str:
    """Ensures names of tensors without line breaks, which a calibration cache cannot hold."""
    graph = network.graph
    bad = [n for n in (*graph.inputs, *graph.initializers, *graph.producer) if "\n" in n or "\r" in n]
    return f"tensor name {bad[0]!r}" if bad else ""


def no_quantizer_is_left(network: Network, settings: Settings) -> str:
    left = [node.label for node in network.graph.nodes if is_quantizer(node)]
    return f"quantizer {left[0]}" if left else ""


def scales_are_settled(network: Network, settings: Settings) -> str:
    """All quantizers are read and each tensor has one scale (rule C1): folding checks for separate scales."""
    return "" if network.scales.settled else "scales are observed, not settled"


def constants_are_initializers(network: Network, settings: Settings) -> str:
    graph = network.graph
    left = [n for n in graph.nodes if n.is_op("Constant") and n.outputs[0] not in graph.outputs]
    return f"Constant {left[0].label}" if any(graph.array(n.outputs[0]) is not None for n in left) else ""


def opset_is_the_exporters(network: Network, settings: Settings) -> str:
    """Rewrites create nodes of this opset; passes that lower it follow them."""
    return "" if network.graph.opset() == network.opset_given else f"opset {network.graph.opset()}"


def opset_is_for_the_parser(network: Network, settings: Settings) -> str:
    """Rule F6. Without a specified platform, a model that cannot be lowered remains, with a warning."""
    readable = opset_is_readable(network.graph, settings) or settings.hardware.origin == "default"
    return "" if readable else f"opset {network.graph.opset()}"


def no_automatic_name_exists(network: Network, settings: Settings) -> str:
    """Rule F6: checked last, because any name that a pass creates may equal one that TensorRT's parser generates."""
    found = names.automatic_collisions(network.graph)
    return f"'{found[0]}' collides with a name of the parser's" if found else ""


def mentions_exist(network: Network, settings: Settings) -> str:
    """All names in the log and the scale rules of rewrites exist, or were removed later."""
    graph, applied = network.graph, network.applied
    there = {*graph.inputs, *graph.initializers, *graph.producer}.union(*(a.tensors for a in applied))
    named = list(network.withheld)
    for derived in network.derived:
        named += derived.tensors
    for a in applied:
        named += (name for kept in a.tensors.values() for name in kept)
    unknown = [name for name in named if name not in there]
    if unknown:
        return f"tensor '{unknown[0]}' is named and does not exist"
    nodes = {node.name for node in graph.nodes}.union(*(dict(a.before) for a in applied))
    missing = [node.name for a in applied for node, _ in a.after if node.name not in nodes]
    return f"node '{missing[0]}' is named and does not exist" if missing else ""


# ---------------- the order


def _name_nodes(network: Network, settings: Settings) -> None:
    names.name_nodes(network.graph, network.diagnostics)


def _clean_tensor_names(network: Network, settings: Settings) -> None:
    if settings.keep_model:
        _refuse_to_keep(network, settings)
    names.clean_tensor_names(network.graph)


def _refuse_to_keep(network: Network, settings: Settings) -> None:
    """Raises UserError for a model for which no cache can be made without changes."""
    wrong = tensor_names_are_legal(network, settings)
    if wrong:
        raise UserError(
            f"A calibration cache cannot contain {wrong}.", "Rename it before the export, or drop --keep_model."
        )
    if not opset_is_readable(network.graph, settings):
        raise UserError(
            f"The parser of the platform's TensorRT does not read opset {network.graph.opset()} correctly (fact 4.12).",
            "Export the model with opset 17, or drop --keep_model.",
        )


def _dialects(network: Network, settings: Settings) -> None:
    convert_dialects(network, None if settings.keep_model else settings.scales)


def _rename_node_outputs(network: Network, settings: Settings) -> None:
    if settings.rename_node_outputs:
        names.rename_node_outputs(network.graph)


def _strip(network: Network, settings: Settings) -> None:
    network.users = frozenset((*network.graph.inputs, *network.graph.producer))
    strip(network, settings)
    given = settings.given
    if settings.keep_model and settings.scales is not None:
        given = activation_scales(settings.scales)
    if given is not None:
        network.changed()
        observe_scales(network, given, f"file {settings.scales}" if settings.scales else "calibration cache")


def _settle(network: Network, settings: Settings) -> None:
    if settings.asymmetric == "data":  # rule K1 finds the best symmetric range of each
        network.scales.forget(ASYMMETRIC, network.graph.outputs)
    network.scales.settle(settings.on_conflict, network.diagnostics)


def _constants(network: Network, settings: Settings) -> None:
    cleanup.constants_to_initializers(network.graph)
    if not settings.keep_model:
        cleanup.fold_constants(network.graph, network.trained)
    if settings.rewrites == "off" and network.graph.of("Shape"):  # else rule D1 folds and records it
        cleanup.fold_integers(network.graph, TensorTypes(network.graph, believe=False))


def _onnxoptimizer(network: Network, settings: Settings) -> None:
    if settings.graph_optimizer == "onnxoptimizer":
        from qdq_translator.translation.passes.onnxoptimizer_backend import optimize

        optimize(network)


def _dead(network: Network, settings: Settings) -> None:
    cleanup.remove_dead_nodes(network.graph)
    cleanup.remove_unused_initializers(network.graph)


def _avoid_automatic_names(network: Network, settings: Settings) -> None:
    names.avoid_automatic_names(network)
    names.avoid_helper_names(network, settings.hardware.tensorrt)


_NAMED = (nothing_refers_to_names, node_names_are_legal)
_STRIPPED = (scales_are_settled, constants_are_initializers)
_REWRITTEN = (*_STRIPPED, opset_is_the_exporters)
_Q = (*(f"Q{number}" for number in range(1, 13)), "C2", "W1", "W2", "W3")
_D = tuple(rule for rule in RULES if rule.startswith("D"))

PIPELINE: tuple[Pass, ...] = (
    Pass("node names", ("F6",), _name_nodes, _NAMED[:1], (node_names_are_legal,), keeps=True),
    Pass("tensor names", ("F6",), _clean_tensor_names, _NAMED[:1], (tensor_names_are_legal,), keeps=True),
    Pass("dialects", ("Q13", "Q14"), _dialects, _NAMED, keeps=True),
    Pass("tensors named after nodes", ("F5",), _rename_node_outputs, _NAMED),
    Pass("quantizers", _Q, _strip, (node_names_are_legal, tensor_names_are_legal), (no_quantizer_is_left,), keeps=True),
    Pass("one scale a tensor", ("C1",), _settle, (no_quantizer_is_left,), (scales_are_settled,), keeps=True),
    Pass("windows", ("F11",), lambda n, s: settle_windows(n), (scales_are_settled,)),  # before sizes become constants
    Pass("constants", ("F3",), _constants, (no_quantizer_is_left,), (constants_are_initializers,), keeps=True),
    Pass("float32", ("F9",), lambda n, s: to_float32(n), _STRIPPED),
    Pass("no-ops", ("F7",), lambda n, s: remove_no_ops(n), _STRIPPED),
    Pass("onnxoptimizer", ("F4",), _onnxoptimizer, _STRIPPED),
    Pass("BatchNormalization", ("F1",), lambda n, s: fold_batchnorm(n), _STRIPPED),
    Pass("Pad", ("F2",), lambda n, s: fold_pads(n), _STRIPPED),
    Pass("dead nodes", ("F3",), _dead),
    Pass("DLA rewrites", _D, rewrite_for_dla, _REWRITTEN, (mentions_exist,)),
    Pass("MatMul as matrices", ("W1",), lambda n, s: matmul_as_matrices(n), _STRIPPED),
    Pass("normal forms", NORMAL_FORMS, apply_normal_forms, _REWRITTEN, (mentions_exist,)),
    Pass("convolutions", ("F6",), lambda n, s: complete_convolutions(n), (constants_are_initializers,)),
    Pass("opset", ("F6",), fit_opset, (), (opset_is_for_the_parser,)),
    Pass("operators", ("F6",), check_operators, keeps=True),
    Pass("automatic names", ("F6",), _avoid_automatic_names, (node_names_are_legal,), (no_automatic_name_exists,)),
    Pass("declared shapes", ("F3",), lambda n, s: cleanup.remove_wrong_shapes(n.graph, n.types, n.diagnostics)),
)


def run_passes(network: Network, settings: Settings, check: Optional[bool] = None, before: str = "") -> None:
    """Run every pass of `PIPELINE` in order, or those `before` the one of this name. check: test each `requires` and
    `ensures`; None: as set in the environment. Raises UserError if the model or the options make it impossible,
    BrokenPass in a check."""
    check = bool(os.environ.get(CHECK)) if check is None else check
    promises: dict[Condition, str] = {}
    for step in PIPELINE:
        if step.name == before:
            break
        if settings.keep_model and not step.keeps:
            continue
        if check:
            for condition in step.requires:
                _hold(condition, network, settings, f"'{step.name}' requires")
        step.run(network, settings)
        network.end_of_pass()
        if check:
            promises.update((condition, step.name) for condition in step.ensures)
            for condition, by in promises.items():
                _hold(condition, network, settings, f"'{by}' ensures, and after '{step.name}' not so:")


def _hold(condition: Condition, network: Network, settings: Settings, who: str) -> None:
    wrong = condition(network, settings)
    if wrong:
        raise BrokenPass(f"{who} {getattr(condition, '__name__', '')}: {wrong}")
