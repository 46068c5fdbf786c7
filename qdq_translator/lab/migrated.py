"""A network for TensorRT 11 compared with the model that it was made from, without a translation."""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, NamedTuple, Tuple

import onnx
from onnx import numpy_helper

from qdq_translator.core.command_options import VerifyOptions
from qdq_translator.core.formats.verify_rows import ComparedOutput, Outputs
from qdq_translator.core.options import check_metric_drop, parse_shapes
from qdq_translator.core.progress import Progress
from qdq_translator.lab.simulate.compare import EXPLICIT, Comparing, compared_outputs, outputs_of, scoring
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.inputs import Samples, given_samples, input_specs, random_samples, usable
from qdq_translator.lab.simulate.run import ExplicitNetwork
from qdq_translator.lab.simulate.user_metric import metric_for
from qdq_translator.lab.simulate.verdict import BRIEF_RUNS, apart, float_twin
from qdq_translator.lab.verification import NETWORK, missed, runnable, with_same_ends
from qdq_translator.translation.ir.io import load_model

UNLIKE = 0.5
"""Cosine of the outputs below which two networks do not compute the same function, even on random inputs."""
DOUBTED, TWO_ROUNDINGS_DB = 0.9, 3.0
"""Cosine below which a difference is compared with what the model's own quantizers change; how much lower the SQNR of
two networks is that round independently than that of one of them and a network that does not round."""

ROUNDED = "  The model's own rounding changes '%s' as much (cosine %.3f)."
SATURATED = "  Random inputs exceed the model's ranges, which changes '%s' as much (cosine %.3f): give DATA."


class Migrated(NamedTuple):
    """A model and its explicit network, compared. samples: how many were run, and of what. failed: a sentence for each
    missed threshold. notes: one for each output that the model's own quantizers change as much."""

    model: str
    explicit_network: str
    samples: int
    inputs: str
    outputs: Outputs
    failed: Tuple[str, ...]
    notes: Tuple[str, ...] = ()
    random: bool = False

    def lines(self) -> Iterator[str]:
        """The lines that `verify` prints of it."""
        yield f"{self.explicit_network} against {self.model}, {self.samples} samples ({self.inputs}), in ONNX Runtime:"
        for name, row in self.outputs.pairs[0].outputs.items():
            top1 = "" if row.top1_agreement is None else f", same Top-1 {row.top1_agreement:.1f}%"
            ratio = "equal" if row.identical else f"{row.sqnr_db:.1f} dB"
            yield f"  {name}: {ratio}, cosine {row.cosine:.5f}, largest difference {row.max_abs:.4g}{top1}"
        if self.random:
            yield "Random inputs prove little: give real ones as DATA."
        yield from self.notes
        for stage, value in self.outputs.metric.items():
            yield f"  metric of the {'model' if stage == EXPLICIT else stage}: {value:.6g}"


def _steps(network: onnx.ModelProto) -> Dict[str, float]:
    """Input -> step size of the quantizer that reads it, through Casts at most: random inputs stay in its range."""
    source = {value.name: value.name for value in network.graph.input}
    steps: Dict[str, float] = {}
    constants = {tensor.name: tensor for tensor in network.graph.initializer}
    for node in network.graph.node:
        if node.op_type == "Cast" and node.input[0] in source:
            source[node.output[0]] = source[node.input[0]]
        elif node.op_type == "QuantizeLinear" and node.input[0] in source and node.input[1] in constants:
            steps[source[node.input[0]]] = float(numpy_helper.to_array(constants[node.input[1]]).max())
    return steps


def _amplified(
    explicit: ExplicitNetwork, rows: Mapping[str, ComparedOutput], samples: Samples, where: Evaluation, random: bool
) -> Dict[str, str]:
    """Output that differs -> a sentence, if the model's own quantizers change it as much: by rounding, or on random
    inputs by saturation."""
    doubted = [name for name, row in rows.items() if row.cosine < DOUBTED and not row.non_finite]
    found: Dict[str, str] = {}
    for text, symmetric in ((ROUNDED, True), (SATURATED, False))[: 1 + random]:
        left = [name for name in doubted if name not in found]
        if left:
            twin = float_twin(explicit, symmetric).to_model()
            own = apart(explicit.model, explicit.ends, twin, samples, BRIEF_RUNS, where).outputs
            alike = {n: own[n][0] for n in left if rows[n].sqnr_db >= own[n][0].sqnr_db - TWO_ROUNDINGS_DB}
            found.update((name, text % (name, row.cosine)) for name, row in alike.items())
    return found


def migrated(options: VerifyOptions, network: str, progress: Progress, where: Evaluation) -> Migrated:
    """Compare the model with the explicit network on the same inputs. Raises UserError if their inputs or outputs
    differ in name or type."""
    model = load_model(options.model)[0]
    other = with_same_ends(network, model)
    explicit = ExplicitNetwork.of(runnable(model))
    sizes = parse_shapes(options.shapes)
    if options.data is None:
        samples = random_samples(input_specs(model, sizes), _steps(other), options.samples, options.seed)
    else:
        samples = given_samples(options.data, options.labels, model, sizes, options, explicit.ends.inputs)
        samples = usable(samples, options.ignore_nonfinite, progress, where)
    metric = metric_for(options.metric, samples, model)
    check_metric_drop(options.max_drop, metric)
    stages, names, pairs = (
        {EXPLICIT: explicit.model, NETWORK: other},
        list(explicit.graph.outputs),
        [(EXPLICIT, NETWORK)],
    )
    scores = {stage: metric.start(stage) for stage in stages} if metric is not None else {}
    work = Comparing(stages, explicit.ends, outputs_of(pairs, names), samples, where.provider, names, keep=bool(metric))
    found = where.over(work, samples.runs, progress, "comparing outputs", watch=scoring(scores, samples))
    outputs = compared_outputs(found, scores, pairs, names, len(samples))
    rows = outputs.pairs[0].outputs
    amplified = _amplified(explicit, rows, samples, where, options.data is None)
    unlike = [
        f"Output '{name}' of {network} is not that of the model (cosine {row.cosine:.3f})."
        for name, row in rows.items()
        if row.non_finite or (row.cosine < UNLIKE and name not in amplified)
    ]
    return Migrated(
        options.model,
        network,
        len(samples),
        samples.source,
        outputs,
        (*missed(options, outputs, NETWORK), *unlike),
        tuple(amplified.values()),
        options.data is None,
    )
