"""`verify` from files to one plain object of results, and that object on a terminal."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any, Optional, Protocol, Sequence

import onnx

from qdq_translator._version import __version__
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles, read_layer_argument
from qdq_translator.core.hypotheses import BETWEEN, FUSION, GPU_INT8, HYPOTHESES, SIGMOID
from qdq_translator.core.options import words_of
from qdq_translator.core.progress import Progress, silent
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.io import load_model
from qdq_translator.output.emit.integrity import disagreements
from qdq_translator.output.emit.remembered import Remembered
from qdq_translator.output.report.tables import table_of
from qdq_translator.passes.cleanup import remove_dead_nodes
from qdq_translator.qdq.restore import with_qdq_opset
from qdq_translator.quantizers.dialects import OPERATORS, convert
from qdq_translator.quantizers.sidecars import apply_scales
from qdq_translator.simulate.account import Judge, account, print_account
from qdq_translator.simulate.calibration.audit import audit_network, print_audit
from qdq_translator.simulate.chain import chained
from qdq_translator.simulate.compare import (
    EXPLICIT,
    SIMULATED,
    DeviceResults,
    OutputComparison,
    compare_outputs,
)
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.finite import only_finite
from qdq_translator.simulate.implicit import ImplicitNetwork, Simulated, SimulationOptions, copy_model, simulate
from qdq_translator.simulate.inputs import ImageOptions, Samples, input_specs, load_samples, random_samples
from qdq_translator.simulate.per_layer import compare_layers
from qdq_translator.simulate.places import place
from qdq_translator.simulate.run import ExplicitNetwork
from qdq_translator.simulate.sensitivity import measure_sensitivity
from qdq_translator.simulate.user_metric import load_metric
from qdq_translator.simulate.verdict import (
    BROKEN,
    EQUAL,
    ROUNDING,
    SUSPICIOUS,
    judge_all,
)

PARTS = "parts"
"""The stage of the parts that a tail was cut into, one behind the other."""
SCHEMA_VERSION = 1
SHOWN_JUMPS = 8
NETWORK = "explicit network"
"""Stage: what `explicit` wrote."""
MOST_FAULTS = 5
"""Of the set, that the message of another error names in front of its own."""
KIND = "qdq-translator verification"


Real = float
"""`float` is the name of an option."""


class Request(Protocol):
    """What `verify` is asked for: the options of the command (`commands/verify.py` says what each means)."""

    model: str
    translation: str
    float: Optional[str]
    inputs: Optional[str]
    labels: Optional[str]
    samples: Optional[int]
    ignore_nonfinite: bool
    seed: int
    image_mean: list[Real]
    image_std: list[Real]
    layout: str
    per_layer: bool
    sensitivity: bool
    audit: bool
    strict: bool
    save_layers: Optional[str]
    time_limit: Real
    fp16: bool
    rounding: str
    sigmoid: str
    fuse: str
    hypotheses: str
    layer_arg: Optional[str]
    min_cosine: Optional[Real]
    min_top1_agreement: Optional[Real]
    metric: Optional[str]
    max_metric_drop: Optional[Real]
    device_results: Optional[str]
    explicit_network: Optional[str]

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Of dynamic inputs: `--shapes`."""


def verify(options: Request, progress: Progress = silent, where: Evaluation = HERE) -> dict[str, Any]:
    """Everything that was asked for, as JSON types. `failed`: sentences about missed thresholds. where: who computes.

    Raises UserError for files that do not belong together or cannot be run.
    """
    files = TranslationFiles.locate(options.translation, options.model, only_one=True)
    network = ImplicitNetwork.read(files)
    faults = disagreements(files, Graph.from_model(copy_model(network.model)), network.config, network.report)
    try:
        return _verified(options, files, network, faults, progress, where)
    except UserError as error:
        if not faults:
            raise
        more = f" ({len(faults) - MOST_FAULTS} more like that.)" if len(faults) > MOST_FAULTS else ""
        first = f"{' '.join(faults[:MOST_FAULTS])}{more}"
        raise UserError(f"{first} A possible consequence: {error.what}", error.hint) from error


def _verified(
    options: Request,
    files: TranslationFiles,
    network: ImplicitNetwork,
    faults: list[str],
    progress: Progress,
    where: Evaluation,
) -> dict[str, Any]:
    """`faults`: what `disagreements` found."""
    if options.layer_arg is not None:
        network = dataclasses.replace(network, precisions=read_layer_argument(options.layer_arg))
    metric = load_metric(options.metric) if options.metric else None
    model, source = load_model(options.model)
    made = Remembered.of_options(network.option)
    explicit = ExplicitNetwork.of(runnable(model, network.option.get("scales")))
    float_model = load_model(options.float)[0] if options.float else None
    rounding = "away" if made.target == "xavier-dla" else "even"
    settings = SimulationOptions(
        rounding=rounding if options.rounding == "auto" else options.rounding,
        fp16=options.fp16,
        fuse=options.fuse != "off",
        sigmoid_fp16=options.sigmoid == "fp16" or (options.sigmoid == "auto" and made.on_dla),
    )
    samples = _samples(options, network, made)
    if options.inputs is not None:
        samples = only_finite(samples, options.ignore_nonfinite, progress, where)
    simulated = simulate(network, settings)
    notes = list(samples.notes)
    device = None
    if options.device_results:
        used = {"model": files.model, "cache": files.cache, "inputs": Path(options.inputs or "")}
        device = DeviceResults.read(Path(options.device_results), used, [v.name for v in simulated.model.graph.output])
        ran = device.about.get("target") or made.target
        if made.on_dla and ran != made.target:
            raise UserError(
                f"{options.device_results} was made on the target {ran}, but the model was translated for {made.target}.",
                "Run the kit without --target, which then uses the translation's.",
            )
        notes += device.notes
    placement = simulated.placement
    others = _other_ends(options, network, settings, simulated)
    stages = {HYPOTHESES[name].stage: other for name, other in others.items()}
    if options.explicit_network:
        stages[NETWORK] = _explicit_network(options.explicit_network, simulated)
    parts = _parts(files, network, settings)
    if parts:
        stages[PARTS] = chained(parts, simulated)
    outputs = compare_outputs(explicit, simulated, samples, float_model, device, progress, stages, metric, where)
    progress("expected rounding", 0, 1)
    verdict = judge_all(
        network,
        settings,
        simulated,
        explicit,
        samples,
        outputs.pairs[EXPLICIT, SIMULATED],
        options.inputs is None,
        where,
    )
    results: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "generator": f"qdq-translator {__version__}",
        "model": {"file": source.file, "sha256": source.sha256},
        "translation": files.name,
        # "": translated from a ModelProto
        "stale": network.config.get("source", {}).get("sha256", "") not in ("", source.sha256),
        "simulation": {
            "rounding": settings.rounding,
            "higher_layers": "fp16" if settings.fp16 else "fp32",
            "layers_in_fp16_on_dla": len(placement.higher & network.on_dla),
            "sigmoid": "fp16" if settings.sigmoid_fp16 else "int8",
            "fuse": options.fuse,
            "layer_arg": options.layer_arg is not None,
            "tensors_held_in_int8": len(placement.held),
            "tensors_inside_fusions": len(placement.fused),
            "tensors_that_stay_float": len(placement.stay_float),
            "layers_in_int8": len(placement.int8),
            "layers_above_int8": len(placement.higher),
            "weights_rounded": len(placement.weights),
            "parts": {role: len(part.placement.int8) for role, part in parts.items()},
            "hypotheses": [dataclasses.asdict(HYPOTHESES[name]) for name in others],
        },
        "integrity": faults,
        "inputs": {
            "source": samples.source,
            "samples": len(samples),
            "batch": samples.batch,
            "random": options.inputs is None,
        },
        "outputs": outputs.as_dict(),
        "verdict": verdict.as_dict(),
        "notes": notes,
    }
    if metric is not None:
        results["metric"] = {"name": metric.name, "drop": _metric_drop(outputs)}
    if device is not None:
        results["device"] = {k: device.about.get(k) for k in ("device", "tensorrt", "target", "dla_core", "engines")}
    if options.per_layer:
        layers = compare_layers(network, explicit, simulated, samples, progress=progress, where=where)
        results["per_layer"] = layers.as_dict()
        notes += [f"'{row.tensor}': {'; '.join(row.notes)}" for row in layers.rows if row.tensor in network.unary]
    if options.audit:
        results["audit"] = audit_network(network, samples, progress, placement.weights, where, explicit).as_dict()
    if options.per_layer or options.sensitivity or options.audit:
        judge = Judge(network, settings, samples, float_model, metric=metric, where=where)
        _account(options, files, results, judge, _enough(options, outputs), progress)
    if "integrity" not in network.report:
        notes.append("the files were written without digests, so changes in the model go unnoticed")
    samples.check_unchanged()
    stale = [f"{source.file} is not the file that was translated (its SHA-256 differs): translate it again."]
    results["failed"] = (stale if results["stale"] else []) + faults + _failed(options, outputs)
    if verdict.overall == BROKEN or (options.strict and verdict.overall == SUSPICIOUS):
        results["failed"].append(f"The verdict is '{verdict.overall}'.")
    return results


def _account(
    options: Request,
    files: TranslationFiles,
    results: dict[str, Any],
    judge: Judge,
    enough: Optional[Real],
    progress: Progress,
) -> None:
    """Into `results`: the noise account, in whose terms jumps, sensitivity and audit are given."""
    if options.sensitivity:
        found = measure_sensitivity(judge, options.time_limit, progress, enough)
        command = _translate_again(options, files, judge.network, found.layers)
        results["sensitivity"] = {**found.as_dict(), "command": command}
        account_of = found.found
    else:
        progress("measuring the noise account", 0, 1)
        account_of = account(judge)
    if account_of is not None:
        results["account"] = account_of.as_dict()
        account_of.annotate(results)


def _parts(files: TranslationFiles, network: ImplicitNetwork, settings: SimulationOptions) -> dict[str, Simulated]:
    """Role -> simulation of each part that the translation was cut into; {} if it was not."""
    made = network.report.get("parts")
    if not made:
        return {}
    folder = files.folder / made["folder"]
    read = {row["role"]: ImplicitNetwork.read(TranslationFiles.locate(folder / row["file"])) for row in made["parts"]}
    return {role: simulate(part, settings) for role, part in read.items()}


def _other_ends(
    options: Request, network: ImplicitNetwork, settings: SimulationOptions, simulated: Simulated
) -> dict[str, Simulated]:
    """Hypothesis -> the simulation at its other end, of those that round other tensors or layers than the plan."""
    held, rests_on = simulated.placement.held, {name for row in network.plan for name in row.hypotheses}
    changes: dict[str, dict[str, Any]] = {}
    if options.fuse == "both" and simulated.placement.open:
        changes[FUSION] = {"fuse": False}
    if options.hypotheses == "both":
        gates = (row for row in network.plan if SIGMOID in row.hypotheses)
        if options.sigmoid == "auto" and any(name in held for row in gates for name in (*row.inputs, *row.outputs)):
            changes[SIGMOID] = {"sigmoid_fp16": not settings.sigmoid_fp16}
        changes.update({name: {"other": frozenset((name,))} for name in (BETWEEN, GPU_INT8) if name in rests_on})
    found = {name: simulate(network, dataclasses.replace(settings, **change)) for name, change in changes.items()}
    return {
        name: other for name, other in found.items() if "other" not in changes[name] or other.placement.held != held
    }


def runnable(model: onnx.ModelProto, sidecar: Optional[str] = None) -> onnx.ModelProto:
    """The model with all its quantizers as Q/DQ pairs: those of other forms, and those of a file beside it (rules Q13, Q14)."""
    if sidecar is None and OPERATORS.isdisjoint(node.op_type for node in model.graph.node):
        return model
    graph = Graph.from_model(model)
    convert(graph)
    remove_dead_nodes(graph)
    if sidecar is not None:
        apply_scales(graph, sidecar)
    return with_qdq_opset(graph).to_model()


def _explicit_network(path: str, simulated: Simulated) -> Simulated:
    """Raises UserError for a network of other inputs or outputs, or of other types at them than those of the translation."""
    model = load_model(path)[0]
    for end in ("input", "output"):
        given = {v.name: v.type.tensor_type.elem_type for v in getattr(model.graph, end)}
        wanted = {v.name: v.type.tensor_type.elem_type for v in getattr(simulated.model.graph, end)}
        if given != wanted:
            raise UserError(
                f"The {end}s of {path} ({', '.join(given)}) differ from those of the translation in name or type.",
                "Write it from the same model, without --io_types.",
            )
    return dataclasses.replace(simulated, model=model)


def _samples(options: Request, network: ImplicitNetwork, made: Remembered) -> Samples:
    specs = input_specs(network.model, made.sizes_for(options.sizes, "--shapes"))
    if options.inputs is None:
        return random_samples(specs, network.scales, options.samples, options.seed)
    images = ImageOptions(tuple(options.image_mean), tuple(options.image_std), options.layout)
    samples = load_samples(place(options.inputs), specs, options.samples, images)
    return samples.labelled(place(options.labels)) if options.labels else samples


def _metric_drop(outputs: OutputComparison) -> float:
    """From the explicit model to the simulated engine."""
    return outputs.metric[EXPLICIT] - outputs.metric[SIMULATED]


def _enough(options: Request, outputs: OutputComparison) -> Optional[float]:
    """The metric that sensitivity has to reach: that of the explicit model, less what may be lost."""
    return outputs.metric[EXPLICIT] - (options.max_metric_drop or 0.0) if outputs.metric else None


def _translate_again(options: Request, files: TranslationFiles, network: ImplicitNetwork, layers: Sequence[str]) -> str:
    """The command that translates with the same options and `layers` above INT8; '' for none."""
    if not layers:
        return ""
    kept = [*network.option.get("keep_fp16", []), *([f"@{options.save_layers}"] if options.save_layers else layers)]
    words = ["qdq-translator", "translate", options.model]
    if files.folder != Path("translated"):
        words += ["-o", str(files.folder)]
    return shlex.join([*words, *words_of({**network.option, "keep_fp16": kept})])


def _failed(options: Request, outputs: OutputComparison) -> list[str]:
    rows = outputs.pairs[EXPLICIT, SIMULATED]
    failed: list[str] = []
    for name, row in rows.items():
        if options.min_cosine is not None and (row.cosine < options.min_cosine or row.non_finite):
            failed.append(
                f"Output '{name}' has the cosine {row.cosine:.6f}"
                + (f" and {row.non_finite} values that are not finite" if row.non_finite else "")
                + f"; --min_cosine requires {options.min_cosine:g}. --per_layer shows the first wrong layer."
            )
        elif options.min_cosine is not None and row.worst_slice and row.worst_slice.cosine < options.min_cosine:
            failed.append(
                f"Output '{name}' has the cosine {row.worst_slice.cosine:.6f} in {row.worst_slice}, {row.cosine:.6f} as a whole; --min_cosine "
                f"requires {options.min_cosine:g} of both. --per_layer shows the first wrong layer."
            )
        agreement = row.top1_agreement
        if options.min_top1_agreement is not None and agreement is not None and agreement < options.min_top1_agreement:
            failed.append(
                f"Output '{name}' agrees on {agreement:.2f}% of Top-1; --min_top1_agreement requires "
                f"{options.min_top1_agreement:g}. --per_layer shows the first wrong layer."
            )
    if options.max_metric_drop is not None and _metric_drop(outputs) > options.max_metric_drop:
        failed.append(
            f"The metric '{options.metric}' falls from {outputs.metric[EXPLICIT]:.6g} to {outputs.metric[SIMULATED]:.6g}; "
            f"--max_metric_drop allows {options.max_metric_drop:g}. --sensitivity names the layers that cost most."
        )
    if options.min_top1_agreement is not None and all(r.top1_agreement is None for r in rows.values()):
        failed.append(
            "No output looks like class scores (samples x classes), so --min_top1_agreement cannot be checked; use --min_cosine."
        )
    return failed


# -------------------------------------------------------------------- terminal


def _db(value: Optional[float], identical: bool) -> str:
    return "equal" if identical else "none" if value is None else f"{value:.1f}"


def _percent(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.2f}%"


def print_results(results: dict[str, Any], verbose: bool) -> None:
    """For a terminal of 80 columns."""
    from rich.console import Console
    from rich.markup import escape

    from qdq_translator.core.words import counted

    console = Console(highlight=False)
    simulation, inputs = results["simulation"], results["inputs"]
    console.print(
        f"[bold]{escape(results['model']['file'])}[/bold] and the simulated INT8 engine of its translation, "
        f"{counted(inputs['samples'], 'sample')} ({escape(inputs['source'])})"
    )
    _print_simulation(console, simulation)
    table = table_of(
        *("reference", "other", "output", "cosine", "SQNR dB", "max diff", "Top-1 same"), right=(3, 4, 5, 6)
    )
    for pair in results["outputs"]["pairs"]:
        for name, row in pair["outputs"].items():
            table.add_row(
                pair["reference"],
                pair["other"],
                escape(name),
                f"{row['cosine']:.6f}",
                _db(row["sqnr_db"], row["identical"]),
                f"{row['max_abs']:.3g}",
                _percent(row["top1_agreement"]),
            )
    console.print(table)
    _print_verdict(console, results)
    for pair in results["outputs"]["pairs"][:1]:
        for name, row in pair["outputs"].items():
            for lowest in sorted(row["slices"], key=lambda found: found["cosine"])[:1]:
                if lowest["cosine"] < row["cosine"]:
                    console.print(
                        f"  {escape(name)}, worst slice ({lowest['index']} of {lowest['size']} along axis {lowest['axis']}): "
                        f"cosine {lowest['cosine']:.6f}, SQNR {_db(lowest['sqnr_db'], False)} dB"
                    )
    for stage, rows in results["outputs"]["accuracy"].items():
        for name, value in rows.items():
            console.print(f"  {stage}: {value:.2f}% of the labels right ({escape(name)})")
    for stage, value in results["outputs"]["metric"].items():
        console.print(f"  {stage}: {escape(results['metric']['name'])} = {value:.6g}")
    if "per_layer" in results:
        _print_layers(console, results["per_layer"], verbose)
    if "account" in results:
        print_account(console, results["account"])
    if "sensitivity" in results:
        _print_sensitivity(console, results["sensitivity"])
    if "audit" in results:
        print_audit(console, results["audit"], verbose)
    for note in results["notes"]:
        console.print(f"  note: {escape(note)}")


def _print_simulation(console: Any, simulation: dict[str, Any]) -> None:
    """What runs in which precision, and what is not known about it."""
    from qdq_translator.core.words import counted

    half = simulation["layers_in_fp16_on_dla"]
    on_dla, above = f", {half} in FP16 on the DLA" if half else "", simulation["layers_above_int8"] - half
    console.print(
        f"  {counted(simulation['layers_in_int8'], 'layer')} in INT8{on_dla} and {above} above it "
        f"({simulation['higher_layers']}), as planned{' with --layer_arg' if simulation['layer_arg'] else ''}; "
        f"{counted(simulation['tensors_held_in_int8'], 'tensor')} and "
        f"{counted(simulation['weights_rounded'], 'weight')} rounded, ties to "
        f"{'even' if simulation['rounding'] == 'even' else 'away from zero'}, sigmoid in {simulation['sigmoid']}"
    )
    if simulation["tensors_inside_fusions"]:
        print_fusion = {
            "both": "inside fusions, unrounded; 'unfused' rounds them",
            "on": "inside fusions, unrounded",
            "off": "before biases",
        }[simulation["fuse"]]
        console.print(f"  {counted(simulation['tensors_inside_fusions'], 'more tensor')} with a scale {print_fusion}")
    if simulation["parts"]:
        each = ", ".join(f"{role} {count}" for role, count in simulation["parts"].items())
        console.print(f"  'parts': what was cut, one part behind the other; layers in INT8: {each}")
    for row in simulation["hypotheses"]:
        if row["id"] != FUSION:
            console.print(f"  Not known ({row['fact']}): {row['planned']}; '{row['stage']}': {row['other']}.")


_VERDICT_COLOURS = {EQUAL: "green", ROUNDING: "green", SUSPICIOUS: "yellow", BROKEN: "red"}


def _print_verdict(console: Any, results: dict[str, Any]) -> None:
    """One sentence, of the output that decides it; what random inputs are worth."""
    from rich.markup import escape

    overall, rows = results["verdict"]["overall"], results["verdict"]["outputs"]
    deciding = [(name, row) for name, row in rows.items() if row["verdict"] == overall]
    text = f"[bold {_VERDICT_COLOURS[overall]}]{overall}[/]"
    if overall != EQUAL and deciding:
        name, row = min(deciding, key=lambda pair: (pair[1]["sqnr_db"] or 0) - (pair[1]["least_db"] or 0))
        where = f" in {row['where']}" if row["where"] else ""
        text += (
            f", by '{escape(name)}'{where}: {_db(row['sqnr_db'], False)} dB; rounding with the model's scales would "
            f"give {_db(row['expected_db'], False)} dB, and below {_db(row['least_db'], False)} dB it is suspicious"
        )
    console.print(f"Verdict: {text}.")
    reasons = results["verdict"]["reasons"]
    for sentence in reasons[:SHOWN_JUMPS]:
        console.print(f"  {escape(sentence)}")
    if len(reasons) > SHOWN_JUMPS:
        console.print(f"  and {len(reasons) - SHOWN_JUMPS} more sentences like these")
    if results["inputs"]["random"]:
        console.print(
            "[yellow]Random inputs prove little[/]: they show a wrong weight, connection or scale of the model, but no range that "
            "does not fit the data, and they reach no real decision. Give real inputs with --inputs."
        )


def _print_layers(console: Any, layers: dict[str, Any], verbose: bool) -> None:
    from rich.markup import escape

    from qdq_translator.core.words import counted

    jumps = layers["jumps"]
    tensors = counted(len(layers["layers"]), "tensor")
    if not jumps:
        console.print(f"No layer stands out among {tensors}.")
    else:
        shown = jumps if verbose else jumps[:SHOWN_JUMPS]
        console.print(
            f"The error jumps at {counted(len(jumps), 'place')} of {tensors}; what adds the most noise first:"
        )
        for jump in shown:
            what = "computes something else" if jump["where"] == "made" else "is rounded differently"
            who = f"{jump['op']} '{escape(jump['node'])}'" if jump["node"] else "graph input"
            added = "everything" if jump["added"] is None else f"{100 * jump['added']:.3g}%"
            console.print(
                f"  [yellow]{who} {what}[/], tensor '{escape(jump['tensor'])}': adds {added} noise energy, SQNR "
                f"{_db(jump['sqnr_db'], False)} dB; {100 * jump.get('noise_share', 0.0):.1f}% of the noise at the outputs"
            )
            for note in jump["notes"] or [
                "no rule of the translation explains it: its weights, bias or attributes, or noise that grows in it"
            ]:
                console.print(f"    {escape(note)}")
        if len(shown) < len(jumps):
            console.print(f"  and {len(jumps) - len(shown)} more (--verbose)")
    if not verbose:
        return
    table = table_of("layer", "tensor", "made dB", "read dB", right=(2, 3))
    for row in layers["layers"]:
        made = row["made"]
        table.add_row(
            escape(row["node"] or "(input)"),
            escape(row["tensor"]),
            "" if made is None else _db(made["sqnr_db"], made["identical"]),
            _db(row["read"]["sqnr_db"], row["read"]["identical"]),
        )
    console.print(table)


def _print_sensitivity(console: Any, found: dict[str, Any]) -> None:
    from rich.markup import escape

    from qdq_translator.core.words import counted

    base, ranking, left = found["baseline_db"], found["ranking"], found["candidates_left_out"]
    has_metric = found["baseline_metric"] is not None
    metric = f", metric {found['baseline_metric']:.6g}" if has_metric else ""
    console.print(f"Output SQNR against float: {_db(base, base is None)} dB{metric}. With one tensor left float:")
    for row in ranking[:10]:
        gain = "" if row["gain_db"] is None else f"{row['gain_db']:+.2f} dB"
        if has_metric:
            gain += f" {row['metric'] - found['baseline_metric']:+.4g}"
        others = f" and {counted(len(row['tensors']) - 1, 'more')}" if len(row["tensors"]) > 1 else ""
        console.print(
            f"  {gain:>10}  {100 * row['noise_share']:5.1f}% of the noise: {escape(row['tensor'])}{others}, by "
            f"{escape(', '.join(row['layers']))}"
        )
        for cause in row["causes"]:
            console.print(f"    {escape(cause)}")
    if left:
        console.print(f"  {counted(left, 'tensor')} left out by --time_limit")
    if found["chosen"]:
        best = found["chosen"][-1]
        console.print(
            f"Kept above INT8 together: {_db(best['sqnr_db'], best['sqnr_db'] is None)} dB, cosine {best['cosine']:.6f}"
            + (f", metric {best['metric']:.6g}" if has_metric else "")
            + ". Translate again with"
        )
        console.print(f"  {escape(found['command'])}", soft_wrap=True)
        console.print("or try it here, or give it to trtexec as --layerPrecisions:")
        console.print(f"  --layer_arg {escape(shlex.quote(found['layer_argument']))}", soft_wrap=True)
    elif found["enough"]:
        console.print("The metric is what was asked for without any layer above INT8.")
    elif ranking:
        console.print("None of them gains enough to name layers: the loss is spread over the network.")
