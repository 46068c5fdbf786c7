"""`verify` from files to one row of results."""

from __future__ import annotations

import dataclasses
import math
import shlex
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

import onnx

from qdq_translator.core.command_options import VerifyOptions
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats import report_rows
from qdq_translator.core.formats.files import TranslationFiles, named_in, read_layer_argument, refuse_mixture
from qdq_translator.core.formats.report_rows import Texts
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.formats.verify_rows import (
    BROKEN,
    FITS,
    SUSPICIOUS,
    Audit,
    ComparedOutput,
    Cure,
    Inputs,
    Judged,
    MetricDrop,
    Outputs,
    Sensitivity,
    Simulation,
    Verification,
)
from qdq_translator.core.hypotheses import BETWEEN, FUSION, GPU_INT8, HYPOTHESES, RANGES, SIGMOID
from qdq_translator.core.options import check_metric_drop, parse_shapes, parse_values, words_of
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.rules import RULES, STATED
from qdq_translator.lab.simulate.account import Account, Judge, account
from qdq_translator.lab.simulate.calibration.audit import audit_network
from qdq_translator.lab.simulate.compare import EXPLICIT, SIMULATED, DeviceResults, Setup, compare_outputs
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, Simulated, SimulationOptions, chained, simulate
from qdq_translator.lab.simulate.inputs import Samples, given_samples, input_specs, random_samples, usable
from qdq_translator.lab.simulate.metrics import SlicedComparison
from qdq_translator.lab.simulate.per_layer import Row, compare_layers
from qdq_translator.lab.simulate.run import ExplicitNetwork
from qdq_translator.lab.simulate.sensitivity import cures, measure_sensitivity
from qdq_translator.lab.simulate.user_metric import metric_for
from qdq_translator.lab.simulate.verdict import float_twin, judge_all
from qdq_translator.translation.files.integrity import disagreements
from qdq_translator.translation.files.trtexec.request import Remembered
from qdq_translator.translation.ir.fixed import fix_inputs
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import Source, load_model
from qdq_translator.translation.ir.operators import SIGMOIDS
from qdq_translator.translation.passes.cleanup import remove_dead_nodes
from qdq_translator.translation.qdq.restore import with_qdq_opset
from qdq_translator.translation.quantizers.dialects import OPERATORS, convert
from qdq_translator.translation.quantizers.sidecars import apply_scales

PARTS = "parts"
"""Stage: the chained parts of a translation whose tail was cut off."""
SCHEMA_VERSION = 1
NETWORK = "explicit network"
"""Stage: the network that `explicit` wrote."""
CAUSE_RUNS = 8
"""Samples of the account behind the reason of a verdict; its cures are measured on all."""
MOST_FAULTS = 5
"""Faults of the set of files that are added before the message of another error."""
KIND = "qdq-translator verification"
_ABOUT_DEVICE = ("device", "tensorrt", "target", "dla_core", "engines")


def verify(options: VerifyOptions, progress: Progress = silent, where: Evaluation = HERE) -> dict[str, Any]:
    """The result of `verified` in JSON types."""
    found: dict[str, Any] = plain(verified(options, progress, where))
    return found


def verified(options: VerifyOptions, progress: Progress = silent, where: Evaluation = HERE) -> Verification:
    """All requested results. where: executes the computation.

    Raises UserError for files that do not belong together or cannot be run.
    """
    files = TranslationFiles.locate(options.translation, options.model, only_one=True)
    refuse_mixture(files, edited=True)
    network = ImplicitNetwork.read(files)
    faults = disagreements(files, network.graph(), network.config, network.report)
    try:
        return _verified(_given(options, files, network, progress, where), faults)
    except UserError as error:
        if not faults:
            raise
        more = f" ({len(faults) - MOST_FAULTS} more like that.)" if len(faults) > MOST_FAULTS else ""
        first = f"{' '.join(faults[:MOST_FAULTS])}{more}"
        raise UserError(f"{first} A possible consequence: {error.what}", error.hint) from error


@dataclasses.dataclass(frozen=True)
class _Given:
    """made: options of the translation. source: the explicit model's file."""

    options: VerifyOptions
    files: TranslationFiles
    made: Remembered
    source: Source
    setup: Setup


def _given(
    options: VerifyOptions, files: TranslationFiles, network: ImplicitNetwork, progress: Progress, where: Evaluation
) -> _Given:
    if options.layer_arg is not None:
        network = dataclasses.replace(network, precisions=read_layer_argument(options.layer_arg))
    model, source = load_model(options.model)
    made = Remembered.of_options(network.option)
    settings = SimulationOptions.on(made.target)
    settings = SimulationOptions(
        rounding=settings.rounding if options.rounding == "auto" else options.rounding,
        fp16=options.higher == "fp16",
        fuse=options.fuse != "off",
        sigmoid_fp16=options.sigmoid == "fp16" or (options.sigmoid == "auto" and settings.sigmoid_fp16),
    )
    explicit = ExplicitNetwork.of(runnable(_fixed(model, network), network.option.get("scales")))
    float_model = _fixed(load_model(options.float)[0], network) if options.float else None
    samples, random = _samples(options, network, made, explicit), options.data is None
    if not random:
        ranges = {name: 127 * network.scales[name] for name in explicit.graph.inputs if name in network.scales}
        samples = usable(samples, options.ignore_nonfinite, progress, where, ranges)
    metric = metric_for(options.metric, samples, network.model)
    check_metric_drop(options.max_drop, metric)
    both = (network, settings, explicit, simulate(network, settings), samples, random)
    return _Given(options, files, made, source, Setup(*both, float_model, metric, progress, where))


def _verified(given: _Given, faults: list[str]) -> Verification:
    """`faults`: result of `disagreements`."""
    options, setup, source = given.options, given.setup, given.source
    samples = setup.samples
    device, parts, others = _device_results(given), _parts(given), _other_ends(given)
    measured = compare_outputs(setup, device, _stages(given, others, parts))
    found, outputs = measured.simulated, measured.outputs
    setup.progress("expected rounding", 0, 1)
    verdict = judge_all(setup, measured, options.max_drop)
    layers = compare_layers(setup) if options.per_layer else None
    audit, sensitivity, account_of = _accounted(given, outputs)
    samples.check_unchanged()
    # "": translated from a ModelProto
    stale = setup.network.config.get("source", {}).get("sha256", "") not in ("", source.sha256)
    failed = [f"{source.file} is not the file that was translated (its SHA-256 differs): translate it again."] * stale
    failed += faults
    verdict = explained(given, verdict, outputs, audit, account_of, tuple(failed))
    failed += missed(options, outputs)
    if verdict.overall == BROKEN or (verdict.overall == SUSPICIOUS and not options.allow_suspicious):
        failed.append(f"The verdict is '{verdict.overall}'. {verdict.reason} Try: {verdict.remedy}")
    return Verification(
        schema_version=SCHEMA_VERSION,
        kind=KIND,
        generator=report_rows.GENERATOR,
        model=report_rows.Source(source.file, source.sha256),
        translation=given.files.name,
        stale=stale,
        simulation=_simulation(given, parts, others),
        integrity=tuple(faults),
        inputs=Inputs(samples.source, len(samples), samples.batch, setup.random),
        outputs=outputs,
        verdict=verdict,
        notes=tuple(_notes(setup, found, device, layers.rows if layers is not None else ())),
        device=device and {key: device.about.get(key) for key in _ABOUT_DEVICE},
        metric=measured.drop and MetricDrop(measured.drop.name, measured.drop.lost, measured.drop.stages),
        per_layer=layers.row(account_of) if layers is not None else None,
        audit=audit,
        sensitivity=sensitivity,
        account=account_of.row() if account_of is not None else None,
        failed=tuple(failed),
    )


def explained(
    given: _Given,
    verdict: Judged,
    outputs: Outputs,
    audit: Optional[Audit],
    account_of: Optional[Account],
    faults: Sequence[str],
) -> Judged:
    """The verdict with one reason, cures and one command, if the verdict is not good or `--max_drop` is missed. audit,
    account_of: as far as they are known. faults: of the files."""
    if verdict.overall not in (SUSPICIOUS, BROKEN) and not _drops_too_far(given.options, outputs):
        return verdict
    options, setup = given.options, given.setup
    if faults or verdict.reason:
        return dataclasses.replace(verdict, reason=(*faults, verdict.reason)[0], remedy=_translate_again(given))
    unbounded = any(one.verdict == verdict.overall and one.expected_db == -math.inf for one in verdict.outputs.values())
    if unbounded and options.higher == "fp16":
        what = "Values leave the range of FP16: those layers need FP32."
        return dataclasses.replace(verdict, reason=what, remedy=_translate_again(given, float_type="fp32"))
    if setup.random:
        more = f"qdq-translator verify {shlex.quote(options.model)} DATA"
        what = "The inputs are random, which no range of the network was made for."
        return dataclasses.replace(verdict, reason=what, remedy=more)
    setup.progress("looking for the cause", 0, 1)
    if audit is None:
        placed = setup.simulated.placement.weights
        audit = audit_network(setup.network, setup.samples, setup.progress, placed, setup.where, setup.explicit)
    if account_of is None:
        account_of = account(_judge_of(setup, setup.samples.some(CAUSE_RUNS)), audit=audit)
    found = () if audit.unlike else tuple(_cures(given, outputs, account_of))
    reason, remedy = _cause(given, audit, account_of, [cure.layers for cure in found])
    return dataclasses.replace(verdict, reason=reason, remedy=remedy, cures=found)


def _cures(given: _Given, outputs: Outputs, account_of: Account) -> Iterator[Cure]:
    """Layers in FP16 by the account, measured on all samples, with the command for each."""
    most = given.options.max_drop
    enough = None if most is None else outputs.metric[EXPLICIT] - most
    for cure in cures(_judge_of(given.setup, given.setup.samples), account_of, enough):
        yield dataclasses.replace(cure, command=_translate_again(given, keep_fp16=cure.layers))


def _cause(given: _Given, audit: Audit, account_of: Account, kept: Sequence[Texts]) -> tuple[str, str]:
    """What adds the most noise to the outputs, in a sentence, and the command that helps. kept: layers of measured
    cures, the best last."""
    options, network = given.options, given.setup.network
    data, calibrated = str(options.data), bool(network.option.get("calibrate"))
    if audit.unlike:
        return audit.unlike, _translate_again(given, calibrate=data)
    entry = next((one for one in account_of.entries if one.candidate.layers), None)
    if entry is None:
        what = "Every layer that is rounded adds to it."
        return what, f"qdq-translator verify {shlex.quote(options.model)} {shlex.quote(data)} --sensitivity"
    one, share = entry.candidate, f"{100 * account_of.share(entry.noise):.0f}% of the noise at the outputs"
    row = next((row for row in audit.tensors if row.tensor in one.tensors), None)
    if row is None or row.cause == FITS or row.origin in STATED:
        what = f"The rounding of tensor '{one.tensor}'" if one.tensor else f"The rounding of the {one.label}"
        why = f" ({'; '.join(entry.causes)})" if entry.causes else ""
        return f"{what} makes {share}{why}.", _translate_again(given, keep_fp16=(*reversed(kept), one.layers)[0])
    by = f" ({RULES[row.origin].words})" if row.origin in RULES else ""
    reason = f"The scale of tensor '{row.tensor}'{by} makes {share}: {row.cause}."
    chosen = {"recalibrate": [row.tensor]} if calibrated else {}
    return reason, _translate_again(given, calibrate=network.option.get("calibrate") or data, **chosen)


def _notes(
    setup: Setup, found: Mapping[str, SlicedComparison], device: Optional[DeviceResults], rows: Iterable[Row]
) -> Iterator[str]:
    """What to know about samples, outputs and hardware, a sentence each. rows: of --per_layer."""
    samples, network = setup.samples, setup.network
    yield from (*samples.doubts, *samples.notes)
    yield from device.notes if device is not None else ()
    for name, row in found.items():
        if samples.runs > 1 and len(row.references) == 1:
            same = f"the model's output '{name}' has the same values for all {len(samples)} samples"
            yield f"{same}: comparing it shows nothing"
        if row.lengths is not None:
            told = "has {} rows in the model and {} in the simulation, as its values decide".format(*row.lengths)
            yield f"output '{name}' {told}: each row is compared with the nearest one; a --metric judges lists better"
    for layer in rows:
        if layer.tensor in network.unary:
            yield f"'{layer.tensor}': {'; '.join(layer.notes)}"
    if "integrity" not in network.report:
        yield "the files were written without digests, so changes in the model go unnoticed"


def _stages(given: _Given, others: Mapping[str, Simulated], parts: Mapping[str, Simulated]) -> dict[str, Simulated]:
    """Stages in addition to the explicit model and the simulated plan."""
    stages = {HYPOTHESES[name].stage: other for name, other in others.items()}
    if given.options.explicit_network:
        stages[NETWORK] = _explicit_network(given.options.explicit_network, given.setup.simulated)
    if parts:
        stages[PARTS] = chained(parts, given.setup.simulated)
    return stages


def _device_results(given: _Given) -> Optional[DeviceResults]:
    """The results of `--device_results`, None without the option. Raises UserError for results of other files or of
    another target."""
    options, made = given.options, given.made
    if not options.device_results:
        return None
    used = {"model": given.files.model, "cache": given.files.cache, "inputs": Path(options.data or "")}
    names = [value.name for value in given.setup.simulated.model.graph.output]
    device = DeviceResults.read(Path(options.device_results), used, names)
    ran = device.about.get("target") or made.target
    if made.on_dla and ran != made.target:
        raise UserError(
            f"{options.device_results} was made on the target {ran}, but the model was translated for {made.target}.",
            "Run the kit without --target, which then uses the translation's.",
        )
    return device


def _simulation(given: _Given, parts: Mapping[str, Simulated], others: Iterable[str]) -> Simulation:
    """Precisions in the simulation. others: hypotheses whose opposite is shown too."""
    network, settings, placement = given.setup.network, given.setup.options, given.setup.simulated.placement
    gates = any(node.op_type in SIGMOIDS for node in network.model.graph.node)
    return Simulation(
        rounding=settings.rounding,
        higher_layers="fp16" if settings.fp16 and "fp32" not in network.precisions.values() else "fp32",
        layers_in_fp16_on_dla=len(placement.higher & network.on_dla),
        sigmoid=("fp16" if settings.sigmoid_fp16 else "int8") if gates else "",
        fuse=given.options.fuse,
        layer_arg=given.options.layer_arg is not None,
        tensors_held_in_int8=len(placement.held),
        tensors_inside_fusions=len(placement.fused),
        layers_in_int8=len(placement.int8),
        layers_above_int8=len(placement.higher),
        weights_rounded=len(placement.weights),
        parts={role: len(part.placement.int8) for role, part in parts.items()},
        hypotheses=tuple(HYPOTHESES[name] for name in others),
    )


def _judge_of(setup: Setup, samples: Samples) -> Judge:
    """Measures against the float model, or else the function of the model as given."""
    reference = setup.float_model or float_twin(setup.explicit).to_model()
    return Judge(setup.network, setup.options, samples, reference, metric=setup.metric, where=setup.where)


def _accounted(given: _Given, outputs: Outputs) -> tuple[Optional[Audit], Optional[Sensitivity], Optional[Account]]:
    """Results of --audit and --sensitivity, and the noise account, to which jumps, sensitivity and audit refer."""
    options, setup = given.options, given.setup
    audit = sensitivity = None
    if not (options.per_layer or options.sensitivity or options.audit):
        return None, None, None
    if options.audit:
        asked = (setup.progress, setup.simulated.placement.weights, setup.where, setup.explicit)
        audit = audit_network(setup.network, setup.samples, *asked)
    judge = _judge_of(setup, setup.samples)
    if options.sensitivity:
        # the metric of the explicit model, less the accepted loss
        enough = outputs.metric[EXPLICIT] - (options.max_drop or 0.0) if outputs.metric else None
        measured, found = measure_sensitivity(judge, options.time_limit, setup.progress, enough, audit)
        sensitivity = dataclasses.replace(measured, command=_kept_command(given, measured.layers))
    else:
        setup.progress("measuring the noise account", 0, 1)
        found = account(judge, audit=audit)
    if audit is not None and found is not None:
        tensors, weights = map(found.with_share, audit.tensors), map(found.with_share, audit.weights)
        audit = dataclasses.replace(audit, tensors=tuple(tensors), weights=tuple(weights))
    return audit, sensitivity, found


def _parts(given: _Given) -> dict[str, Simulated]:
    """Role -> simulation of each part of the translation; {} if it was not cut."""
    made = given.setup.network.report.get("parts")
    if not made:
        return {}
    where = given.files.report
    folder = named_in(given.files.folder, made["folder"], where)
    files = {row["role"]: TranslationFiles.locate(named_in(folder, row["file"], where)) for row in made["parts"]}
    return {role: simulate(ImplicitNetwork.read(part), given.setup.options) for role, part in files.items()}


def _other_ends(given: _Given) -> dict[str, Simulated]:
    """Hypothesis -> the simulation of its opposite, if that rounds other tensors or layers than the plan."""
    options, network, settings = given.options, given.setup.network, given.setup.options
    simulated, both = given.setup.simulated, given.options.hypotheses == "both"
    held, rests_on = simulated.placement.held, set().union(*(row.hypotheses for row in network.plan))
    gates = {name for row in network.plan if SIGMOID in row.hypotheses for name in (*row.inputs, *row.outputs)}
    asked = {
        FUSION: options.fuse == "both" and bool(simulated.placement.open),
        SIGMOID: both and options.sigmoid == "auto" and not gates.isdisjoint(held),
        **{name: both and name in rests_on for name in (BETWEEN, GPU_INT8, RANGES)},
    }
    found = {name: simulate(network, settings.at_other_end(name)) for name, shown in asked.items() if shown}
    # FUSION and SIGMOID differ by the conditions above: they change how tensors are rounded, not only which
    return {name: other for name, other in found.items() if name in (FUSION, SIGMOID) or other.placement.held != held}


def _fixed(model: onnx.ModelProto, network: ImplicitNetwork) -> onnx.ModelProto:
    """The model with the inputs that the translation fixed."""
    fix_inputs(model, parse_values(network.option.get("shapes") or ()))
    return model


def runnable(model: onnx.ModelProto, sidecar: Optional[str] = None) -> onnx.ModelProto:
    """The model with all quantizers as Q/DQ pairs: other forms, and those of a sidecar file (rules Q13, Q14)."""
    if sidecar is None and OPERATORS.isdisjoint(node.op_type for node in model.graph.node):
        return model
    graph = Graph.from_model(model)
    convert(graph)
    remove_dead_nodes(graph)
    if sidecar is not None:
        apply_scales(graph, sidecar, Diagnostics())
    return with_qdq_opset(graph).to_model()


def _explicit_network(path: str, simulated: Simulated) -> Simulated:
    """The network to run."""
    return dataclasses.replace(simulated, graph=Graph.from_model(with_same_ends(path, simulated.model)))


def with_same_ends(path: str, wanted: onnx.ModelProto) -> onnx.ModelProto:
    """The model at `path`. Raises UserError if its inputs or outputs differ from the wanted ones in name or type."""
    model = load_model(path)[0]
    for end in ("input", "output"):
        given, other = (
            {v.name: v.type.tensor_type.elem_type for v in getattr(one.graph, end)} for one in (model, wanted)
        )
        if given != other:
            raise UserError(
                f"The {end}s of {path} ({', '.join(given)}) differ from those of the model in name or type.",
                "Write it from the same model, without --io_types.",
            )
    return model


def _samples(options: VerifyOptions, network: ImplicitNetwork, made: Remembered, explicit: ExplicitNetwork) -> Samples:
    sizes = made.sizes_for(parse_shapes(options.shapes), "--shapes")
    if options.data is None:
        return random_samples(input_specs(network.model, sizes), network.scales, options.samples, options.seed)
    return given_samples(options.data, options.labels, network.model, sizes, options, explicit.ends.inputs)


def _drops_too_far(options: VerifyOptions, outputs: Outputs, stage: str = SIMULATED) -> bool:
    """Whether the metric loses more than `--max_drop` from the explicit model to the simulated engine (`stage`)."""
    most = options.max_drop
    return most is not None and outputs.metric[EXPLICIT] - outputs.metric[stage] > most


def _kept_command(given: _Given, layers: Sequence[str]) -> str:
    """The command that translates with `layers` above INT8; '' for none."""
    saved = given.options.save_layers
    return _translate_again(given, keep_fp16=[f"@{saved}"] if saved else layers) if layers else ""


def _translate_again(given: _Given, **more: Any) -> str:
    """The command that translates with the same options and more; lists are appended to those of the translation."""
    options, files, network = given.options, given.files, given.setup.network
    words = ["qdq-translator", "translate", options.model]
    if files.folder != Path("translated"):
        words += ["-o", str(files.folder)]
    added = {k: v if isinstance(v, str) else [*network.option.get(k, []), *v] for k, v in more.items()}
    return shlex.join([*words, *words_of({**network.option, **added})])


def missed(options: VerifyOptions, outputs: Outputs, stage: str = SIMULATED) -> list[str]:
    """One sentence for each threshold of the options that the outputs of `stage` miss, compared with those of the
    explicit model."""
    rows = outputs.pairs[0].outputs
    failed = [sentence for name, row in rows.items() for sentence in _failed_output(options, name, row)]
    if _drops_too_far(options, outputs, stage):
        before, after = outputs.metric[EXPLICIT], outputs.metric[stage]
        failed.append(
            f"The metric '{options.metric}' {'falls' if after < before else 'goes'} from {before:.6g} to {after:.6g}; "
            f"--max_drop allows {options.max_drop:g}."
        )
    if options.min_top1_agreement is not None and all(r.top1_agreement is None for r in rows.values()):
        failed.append(
            "No output looks like class scores (samples x classes), so --min_top1_agreement cannot be checked; "
            "use --min_cosine."
        )
    return failed


def _failed_output(options: VerifyOptions, name: str, row: ComparedOutput) -> Iterator[str]:
    """Sentences about missed thresholds of one output."""
    least, worst = options.min_cosine, row.worst_slice
    if least is not None and (row.cosine < least or row.non_finite):
        yield (
            f"Output '{name}' has the cosine {row.cosine:.6f}"
            + (f" and {row.non_finite} values that are not finite" if row.non_finite else "")
            + f"; --min_cosine requires {least:g}. --per_layer shows the first wrong layer."
        )
    elif least is not None and worst and worst.cosine < least:
        yield (
            f"Output '{name}' has the cosine {worst.cosine:.6f} in {worst}, {row.cosine:.6f} as a whole; --min_cosine "
            f"requires {least:g} of both. --per_layer shows the first wrong layer."
        )
    agreement = row.top1_agreement
    if options.min_top1_agreement is not None and agreement is not None and agreement < options.min_top1_agreement:
        yield (
            f"Output '{name}' agrees on {agreement:.2f}% of Top-1; --min_top1_agreement requires "
            f"{options.min_top1_agreement:g}. --per_layer shows the first wrong layer."
        )
