"""The laboratory of a translation: calibration data and the check of rule V1 in ONNX Runtime, and `translate` with it.

Modules that compute are imported by the method that needs them, so that a translation without data loads none.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

import numpy as np
from onnx import TensorProto

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import MissingDependency, UserError
from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.progress import Progress, silent
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.translation import translator
from qdq_translator.translation.ir.bounds import Range
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.operators import RANDOM
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.laboratory import Observer
from qdq_translator.translation.quantizers.saturation import saturate_both, saturate_weights
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.settings import Settings
from qdq_translator.translation.translator import Translation

if TYPE_CHECKING:
    from qdq_translator.lab.simulate.inputs import Samples

ROUNDED_SHARE = 0.1
"""Energy that a bound may cut to count as idle, relative to that of the rounding to 255 steps of its range."""
PAIRED_DB = 20.0
"""SQNR in dB of a tensor behind quantized weights below which a network with Q/DQ computes another function."""
MOST_ELEMENTS = 1 << 25
"""Elements of the largest tensor of a network that is still run to check its function (rule V1)."""


def translate(
    model: translator.Model,
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
    progress: Progress = silent,
    where: Evaluation = HERE,
    **more: Any,
) -> Translation:
    """`translation.translator.translate` with a laboratory. Where a board with a DLA was named and no device, it is for
    the GPU if the whole network is faster there by the estimate. progress: receives the progress of calibration. where:
    executes it (default: this process). more: its further arguments. Raises UserError, always with a remedy."""
    lab = OnnxRuntime(progress, where)
    made = translator.translate(model, options, name, lab, **more)
    if options is None or options.board is None or {"on", "target"} & options.typed or options.target == "gpu":
        return made
    cost = made.rows.cost
    dla, gpu = (cost.total_milliseconds, cost.all_gpu_milliseconds) if cost is not None else (None, None)
    if dla is None or gpu is None or gpu >= dla:
        return made
    return translator.translate(model, options.changed(on="gpu"), name, lab, **more)


@dataclasses.dataclass(frozen=True)
class OnnxRuntime:
    """The `Laboratory` of a translation. progress and where: see `translate`."""

    progress: Progress = silent
    where: Evaluation = HERE

    def samples(self, graph: Graph, settings: Settings) -> Samples:
        """The calibration data of `settings.calibration`, read for the inputs of `graph`. Raises UserError."""
        from qdq_translator.lab.simulate.calibration.data_scales import load_data
        from qdq_translator.lab.simulate.inputs import usable

        assert settings.calibration is not None
        samples = load_data(graph, settings.calibration, settings.input_shapes)
        return usable(samples, settings.calibration.ignore_nonfinite, where=self.where)

    def observer(self, settings: Settings, samples: Samples, diagnostics: Diagnostics) -> Observer:
        """The source of scales from `samples`."""
        from qdq_translator.lab.simulate.calibration.data_scales import DataScales

        assert settings.calibration is not None
        return DataScales(samples, settings.calibration, diagnostics, self.progress, self.where)

    def refit(self, network: Network, settings: Settings, samples: Samples) -> None:
        """Applies `--equalize` and `--unify_scales requantize`. Raises UserError for `--equalize` of a network with its
        own scales, because its quantized weights would change."""
        from qdq_translator.lab.simulate.calibration.equalize import equalize
        from qdq_translator.lab.simulate.calibration.requantize import requantize

        assert settings.calibration is not None
        equalizes = settings.calibration.equalize
        requantizes = settings.policy.unify == "requantize" and bool(settings.hardware.generation)
        if equalizes and (settings.keep_model or next(iter(network.scales.items()), None) is not None):
            raise UserError(
                "--equalize rescales weights, and this model has scales or weights that must stay as they are.",
                "Give the float model and --calibrate, without --keep_model.",
            )
        if equalizes:
            equalize(network, settings, samples, self.where).report(network.diagnostics)
        if requantizes:
            requantize(network, settings, samples, network.diagnostics, self.where)

    def exceeded(self, network: Network, samples: Samples, ranges: Mapping[str, Range]) -> dict[str, tuple[bool, bool]]:
        """Tensor -> whether the lower and the upper end of its range change its values in `samples` by more than
        `LEAST_DB` and than a tenth of what its rounding to INT8 does; both do if it is not in the network any more."""
        from qdq_translator.lab.simulate.calibration.observe import observe
        from qdq_translator.lab.simulate.faithful import LEAST_DB

        graph = network.graph
        stated = {name: scale.value for name, scale in network.scales.items() if scale.explicit and name not in ranges}
        names = [name for name in ranges if name in graph.producer or name in graph.inputs]
        found = dict.fromkeys(ranges, (True, True))
        seen = observe(graph, network.types, stated, names, samples, self.progress, where=self.where)
        for name, histogram in seen.items():
            (counts, values), (low, high) = histogram.signed(), ranges[name]
            cut = np.minimum(values - low, 0), np.maximum(values - high, 0)
            step = sum(abs(end) for end in (low, high) if math.isfinite(end)) / 255
            most = max(10 ** (-LEAST_DB / 10) * (counts @ values**2), ROUNDED_SHARE * counts.sum() * step**2 / 12)
            below, above = (bool(counts @ part**2 > most) for part in cut)
            found[name] = below, above
        return found

    def check_function(self, source: Network, network: Network, settings: Settings) -> None:
        """Rule V1: raises UserError if `network`, in float, computes another function than the model (`source`, before
        its quantizers are removed) with its quantizers replaced by their saturation. Adds a note if one of the two
        cannot be run, or is chaotic; does nothing without ONNX Runtime."""
        if settings.rewrites == "approximate" or settings.weights == "float":
            return
        written = Graph.from_picture(network.graph.picture())
        scales = {name: scale.value for name, scale in network.scales.items() if scale.explicit}
        ends = settings.missing_zero_point, settings.saturating, settings.idle
        saturated = {weight.source for weight in network.trained.values() if weight.saturated}

        def alike() -> None:
            saturate_weights(source.graph, saturated, settings.missing_zero_point)
            saturate_both(source.graph, written, scales, *ends)

        _same(source.graph, written, alike, settings.input_shapes, _least(source.graph), network.diagnostics)

    def check_pairs(
        self, network: Graph, explicit: Graph, shapes: Mapping[str, Sequence[int]], diagnostics: Diagnostics
    ) -> None:
        """Rule V1 for a network with Q/DQ that was made of `network`: raises UserError if it computes something else
        than rounding explains, with its weights quantized and its activations not."""
        plain, paired = (Graph.from_picture(graph.picture()) for graph in (network, explicit))
        # rule D16 gives an input other dimensions than the user's model has
        ranks = {name: len(value.type.tensor_type.shape.dim) for name, value in network.inputs.items()}
        shapes = {name: sizes for name, sizes in shapes.items() if len(sizes) == ranks.get(name)}

        def alike() -> None:
            from qdq_translator.lab.simulate.run import fold

            saturate_both(paired, plain, {})
            fold(paired)
            _take_rounded(plain, paired)

        _same(plain, paired, alike, shapes, PAIRED_DB, diagnostics)


def _same(
    source: Graph,
    written: Graph,
    alike: Callable[[], None],
    shapes: Mapping[str, Sequence[int]],
    least: float,
    diagnostics: Diagnostics,
) -> None:
    """Raises UserError if the two, after `alike`, compute different functions."""
    from qdq_translator.lab.simulate.faithful import difference

    doubles = any(t.data_type == TensorProto.DOUBLE for t in source.initializers.values())
    if doubles or any(node.is_op(*RANDOM, "Dropout") for node in source.nodes) or _rounds_otherwise(source):
        return
    if _largest(source, shapes) > MOST_ELEMENTS:
        diagnostics.info("V1", "The network is too large to be compared with the model by running both.")
        return
    try:
        alike()
        found = difference(source, written, shapes, least)
    except MissingDependency:
        return
    except (UserError, MemoryError) as error:
        diagnostics.info("V1", f"The network could not be compared with the model: {error}")
        return
    if found is None:
        return
    what = f"the written network's output '{found.output}' is {found.db:.1f} dB away from the model's, in float"
    if found.chaos:
        diagnostics.info("V1", f"The model amplifies its rounding: {what}, as by its own last bits.")
        return
    raise UserError(
        f"Nothing is written, because {what}; the first tensor that differs is '{found.tensor}' (rule V1).",
        "This is a bug: please report it with the model.",
    )


def _take_rounded(plain: Graph, paired: Graph) -> None:
    """Gives weights of `plain` the values that they have in `paired`, where both differ by at most half a step,
    of 127 up to the largest magnitude: an output that is the small rest of a large sum amplifies that without bound."""
    for node in list(plain.nodes):
        other = paired.producer.get(node.outputs[0])
        if other is None or other.op_type != node.op_type:
            continue
        for name, rounded in zip(node.inputs, other.inputs):
            given, values = plain.array(name), paired.array(rounded)
            if given is not None and values is not None and _is_rounded(given, values):
                plain.replace_use(node, name, plain.constant(f"{node.outputs[0]}/{name}/rounded", values))


def _is_rounded(given: np.ndarray, values: np.ndarray) -> bool:
    if given.shape != values.shape or not given.dtype == values.dtype == np.float32:
        return False
    with np.errstate(invalid="ignore"):  # infinite constants
        error, peak = np.abs(given - values).max(initial=0), np.abs(given).max(initial=0)
    return bool(0 < error <= 1.01 * peak / 254)


def _least(source: Graph) -> float:
    """SQNR in dB below which a tensor of both networks is computed by another function."""
    from qdq_translator.lab.simulate.faithful import HALF_DB, LEAST_DB

    halves = any(
        tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for tensor in source.initializers.values()
    )
    return HALF_DB if halves else LEAST_DB


def _largest(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> int:
    """Elements of the largest tensor whose shape is known."""
    types = TensorTypes(graph, shapes)
    known = (types.static_shape(name) for name in graph.tensors())
    return max((math.prod(shape) for shape in known if shape is not None), default=0)


def _rounds_otherwise(graph: Graph) -> bool:
    """Whether ONNX Runtime quantizes float16 weights otherwise than rule Q12 does: before 1.24 it divides by
    half precision scales in half precision."""
    if all(tensor.data_type != TensorProto.FLOAT16 for tensor in graph.initializers.values()):
        return False
    try:
        import importlib.metadata

        major, minor = importlib.metadata.version("onnxruntime").split(".")[:2]
    except (ImportError, ValueError):
        return False  # another distribution of it; without any the check does nothing
    return (int(major), int(minor)) < (1, 24)
