"""Deploy a model to one folder for a board. Each step is a function that other commands use too, and is repeated only
if its inputs have changed. The folder is written completely or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import math
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np

from qdq_translator.board import consumers
from qdq_translator.board.answer import Answer, Measured, answer, total_of
from qdq_translator.board.bundle import Steps, check_folder
from qdq_translator.board.consumers import Bundle
from qdq_translator.board.results import board_feed, board_inputs
from qdq_translator.board.wheel import NAME as WHEEL
from qdq_translator.board.wheel import wheel
from qdq_translator.core.boards import BOARDS, find_board
from qdq_translator.core.command_options import DeployOptions, VerifyOptions
from qdq_translator.core.disk import file_digest, write_file, write_json
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats import report_rows
from qdq_translator.core.formats.files import TranslationFiles, model_name, plain_name
from qdq_translator.core.formats.rows import read, read_some
from qdq_translator.core.formats.tune_rows import Tuning
from qdq_translator.core.formats.verify_rows import Verification
from qdq_translator.core.options import IMAGES, TranslateOptions, image_words
from qdq_translator.core.switch import alone, appear_together
from qdq_translator.core.words import by_x, milliseconds
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.parts import cut_tail
from qdq_translator.lab.simulate.images import exported_size, image_options
from qdq_translator.lab.tune.meter import AGREEMENT
from qdq_translator.lab.tune.run import JOURNAL_SUFFIX, RESULTS_SUFFIX, recover
from qdq_translator.lab.verification import verify
from qdq_translator.translation.files.buffers import End
from qdq_translator.translation.files.trtexec.request import Network
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.report.html import write_page
from qdq_translator.translation.report.terminal_summary import time_lines
from qdq_translator.translation.targets.platforms import Platform, find_platform

STEPS = ("recover", "cut", "verify")
"""Steps that --skip may name."""
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "QLinear", "Quant", "ConvInteger", "MatMulInteger", "Fake")


@dataclasses.dataclass
class Deployed:
    """A bundle that was written. board: as asked. answer: what the user wants to know. verification: None without one.
    commands: consumer -> commands on the board. refused: consumer -> reason. redone: steps that were not reused.
    accuracy: sentences on what INT8 lost and what cures it, () without data."""

    folder: Path
    name: str
    files: TranslationFiles
    report: report_rows.Report
    board: str
    answer: Answer
    verification: Optional[Measured]
    commands: dict[str, list[str]]
    refused: dict[str, str]
    redone: list[str]
    accuracy: Sequence[str] = ()
    other: Optional[Deployed] = None

    @property
    def notes(self) -> Sequence[str]:
        """Sentences on the data that the verification was made with, () without one."""
        return self.verification.notes if self.verification is not None else ()

    def in_words(self) -> str:
        """Device, time and verdict of one of two variants."""
        time = milliseconds(total_of(self.report.cost))
        return f"{self.folder.name}: {time} (estimate), {self.answer.words}"


def deploy(asked: DeployOptions, say: Callable[[str], None] = lambda text: None) -> Deployed:
    """Make the bundle and return what it ends in. With `on` both, make two in one folder and return the better one,
    which names the other. Raises UserError if a step fails, or if no consumer supports the network."""
    if asked.on != "both":
        return _deploy(asked, say)
    place = _output_place(asked)
    made = [_deploy(asked.changed(on=on, output_dir=str(place / on)), say) for on in ("dla", "gpu")]
    made.sort(key=lambda one: (one.answer.good is False, total_of(one.report.cost) or math.inf))
    rows = [f"- {one.in_words()}: {one.answer.accuracy()}" for one in made]
    text = "\n".join([f"# {made[0].name} for {asked.board}, on the DLA and on the GPU", "", *rows, "", _BOTH, ""])
    write_file(place / "README.md", text.encode())
    return dataclasses.replace(made[0], other=made[1])


_BOTH = "Each folder is complete; copy one of them, or both. Times are estimates; nothing here ran on a board yet."


def _deploy(asked: DeployOptions, say: Callable[[str], None]) -> Deployed:
    """One bundle."""
    unknown = [step for step in asked.skip if step not in STEPS]
    if unknown:
        raise UsageError(f"--skip {unknown[0]} is not a step.", f"Steps are {', '.join(STEPS)}.")
    if asked.board is None:
        raise UsageError("No board was given.", f"Give --board with one of {', '.join(BOARDS)}.")
    board = find_board(asked.board)
    platform = find_platform(asked.platform or board.platform or "tensorrt-10.3.0")
    chosen = {name: consumers.find(name) for name in dict.fromkeys(asked.consumers)}
    target = _target(asked.target or board.target(asked.on), platform)
    options, output = _options(asked, target, platform), _output(asked)
    journal = output.parent / f".{output.name}{JOURNAL_SUFFIX}"
    about = [file_digest(Path(asked.model)), _signature(asked.data), list(asked.skip), asked.recover, journal.exists()]
    about += _measuring(asked)
    steps = Steps(output, about, say)
    with alone(output), appear_together(output, steps.gone, unless_equal=True) as work:
        name = plain_name(model_name(asked.model))  # files of other programs contain it unquoted
        files, own = TranslationFiles(work, name), TranslationFiles(work / "own", name)
        steps.run(work, "translation", options, lambda: _translate(asked, options, files, journal, say))
        target = str(files.report_rows().target)
        needs_own = any(hasattr(c, "OWN_MODEL") for c in chosen.values()) or asked.keep_model
        has_own = needs_own and not _is_quantized(asked.model)
        if has_own:
            kept = options.changed(keep_model=True, target=target)
            steps.run(work, "own", kept, lambda: translate(asked.model, kept, name).save(own.folder))
        verification, content = None, None
        if "verify" not in asked.skip:
            place = work / f"{name}_verification.json"
            steps.run(work, "verify", options, lambda: write_json(place, _verified(asked, files, options.shapes)))
            content = json.loads(place.read_text(encoding="utf-8"))
            verification = Measured(*read_some(Verification, content, Measured._fields))
        searched = _searched(files)
        told = _continued(answer(verification, asked.data, _repeated(asked), output, _agreement(searched)), searched)
        bundle = _bundle(asked, platform, target, options, files)
        commands, refused = _consumed(chosen, bundle, own if has_own else None, asked.keep_model)
        new = TranslationFiles(output, name)
        found = (files.report_rows(), asked.board, told, verification, commands, refused, steps.redone)
        made = Deployed(output, name, new, *found, _accuracy(searched))
        write_page(made.report, work / f"{name}.html", verify=content)
        write_file(work / WHEEL, wheel())
        write_file(work / "README.md", _page(made, chosen, bundle, work).encode())
        steps.finish(work)
    return made


# ---------------- steps


def _translate(
    asked: DeployOptions, options: TranslateOptions, files: TranslationFiles, journal: Path, say: Callable[[str], None]
) -> None:
    """Translate into `files`, with a search for accuracy if there are data. journal: file of that search, which stays
    if it is interrupted."""
    if asked.data is None or "recover" in asked.skip:
        translation = translate(asked.model, options, files.name)
    else:
        points = asked.recover if asked.max_drop is None else asked.max_drop
        judge: dict[str, Any] = {"metric": asked.metric, "labels": asked.labels}
        outcome = recover(asked.model, options, points, journal, name=files.name, say=say, **judge)
        translation = outcome.translation
        results = dataclasses.replace(outcome.results, command="")  # it names files of this machine
        write_json(files.folder / f"{files.name}{RESULTS_SUFFIX}", results)
        if not results.interrupted:
            journal.unlink()
    translation.save(files.folder)
    feed = board_feed(files)  # one random sample (seed 0), raw, for trtexec's --loadInputs and for `ingest`
    for name, place in board_inputs(files.name, list(feed)).items():
        write_file(files.folder / place, np.ascontiguousarray(feed[name]).tobytes())
    if translation.dla is not None and translation.dla.fallbacks and "cut" not in asked.skip:
        with contextlib.suppress(UserError):  # then there are no parts, and consumers that need one are refused
            cut_tail(translation, files)


def _searched(files: TranslationFiles) -> Optional[Tuning]:
    """The results of the search for accuracy, if there was one."""
    place = files.folder / f"{files.name}{RESULTS_SUFFIX}"
    return read(Tuning, json.loads(place.read_text(encoding="utf-8"))) if place.is_file() else None


def _accuracy(searched: Optional[Tuning]) -> Sequence[str]:
    """What the search did and what is lost; not the values of a metric, which `verify` measures."""
    found = searched.remedies if searched is not None else ()
    return found[1:] if searched is not None and searched.metric.name != AGREEMENT else found


def _continued(told: Answer, searched: Optional[Tuning]) -> Answer:
    """No, from a search that its time ended, is not the last word."""
    if told.good is not False or searched is None or not searched.interrupted:
        return told
    return dataclasses.replace(told, next="the same command again: its search for accuracy continues where it ended")


def _agreement(searched: Optional[Tuning]) -> Optional[str]:
    """The agreement with the model that was reached, in percent, if it is as good as was asked for; None with a metric,
    by which `verify` judges."""
    if searched is None or searched.metric.name != AGREEMENT or not searched.goal.holds:
        return None
    return f"{searched.best.measured.score:.4g}%"


def _verified(asked: DeployOptions, files: TranslationFiles, shapes: list[str]) -> Mapping[str, Any]:
    """`verify` on the data, or on random inputs."""
    images = {name: getattr(asked, name) for name in IMAGES}
    model, data, samples = asked.model, asked.data, asked.samples
    same = {name: getattr(asked, name) for name in ("labels", "metric", "max_drop", "allow_suspicious")}
    options = VerifyOptions(model, data, translation=str(files.model), samples=samples, shapes=shapes, **images, **same)
    found = json.dumps(verify(options.changed(fuse="on")))
    made: Mapping[str, Any] = json.loads(found.replace(str(files.folder), str(_output(asked))))  # in commands
    return made


def _measuring(asked: DeployOptions) -> list[Any]:
    """The options that ask for more than a comparison of outputs: labels, metric and accepted loss; [] for none."""
    return [value for value in (asked.labels, asked.metric, asked.max_drop) if value is not None]


def _repeated(asked: DeployOptions) -> list[str]:
    """The words of the command with data, for the next one."""
    if asked.data is not None:
        return [asked.model, asked.data, "-t", str(_output_place(asked)), *image_words(vars(asked))]
    words = [asked.model, "DATA", "--board", str(asked.board), *(["--on", asked.on] if asked.on else [])]
    return [*words, *(["--shapes", *asked.shapes] if asked.shapes else [])]


def _consumed(
    chosen: Mapping[str, Any], bundle: Bundle, own: Optional[TranslationFiles], keep: bool
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Consumer -> commands on the board, and consumer -> why it cannot use the network. Raises UserError if none
    can."""
    commands, refused = {}, {}
    for key, consumer in chosen.items():
        given = bundle
        # cudla loads a DLA's loadable and python an engine: neither builds from an ONNX file
        if hasattr(consumer, "OWN_MODEL") or (keep and key not in ("cudla", "python")):
            if own is None:
                refused[key] = "it builds from a float ONNX file of its own, and this model is quantized"
                continue
            given = dataclasses.replace(bundle, files=own)
        why: str = consumer.refuse(given) if hasattr(consumer, "refuse") else ""
        if why:
            refused[key] = why
        else:
            commands[key] = list(consumer.write(given))
    if not commands:
        each = "; ".join(f"{key} cannot have this network: {why}" for key, why in refused.items())
        raise UserError(f"{each}.", "Choose another with --for.")
    return commands, refused


# ---------------- what the bundle is about


def _target(wanted: str, platform: Platform) -> str:
    if wanted != "gpu" and not platform.dla:
        raise UserError(f"{platform.name} has no {wanted}.", "Leave --target and --on out, or give --on gpu.")
    return wanted


def _output_place(asked: DeployOptions) -> Path:
    return Path(asked.output_dir or f"{model_name(asked.model)}_deploy")


def _output(asked: DeployOptions) -> Path:
    output = _output_place(asked).absolute()
    check_folder(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    return output


def _options(asked: DeployOptions, target: str, platform: Platform) -> TranslateOptions:
    if not _is_quantized(asked.model) and asked.data is None:
        what = "The model is a float one, so its scales have to come from data."
        raise UserError(what, "Give samples as DATA: deploy MODEL DATA.")
    same = {name: getattr(asked, name) for name in ("shapes", *IMAGES)}
    base = TranslateOptions(calibrate=asked.data, calibrate_samples=asked.samples, **same)
    fixed = [item for item in asked.shapes if "=" in item]
    shapes = [*_shapes(asked.model, base.sizes), *fixed] or asked.shapes
    chosen: dict[str, Any] = {"target": target} if asked.target else {"on": asked.on} if asked.on else {}
    return base.changed(shapes=shapes, board=asked.board, platform=platform.name, **chosen)


def _shapes(model: str, given: Mapping[str, Sequence[int]]) -> list[str]:
    """--shapes of inputs with dynamic sizes: as given, else a batch of 1 and the size of images that an ultralytics
    export states. Raises UserError for other dynamic sizes."""
    shapes, trained = [], exported_size(_metadata(model))
    assumed = dict(enumerate((1, 3, *trained) if trained else (1,)))
    for name, dims in Network.read(Path(model)).inputs.items():
        sizes = given.get(name) or [assumed.get(axis, size) if size < 0 else size for axis, size in enumerate(dims)]
        if min(sizes, default=0) < 0:
            example = by_x([size if size > 0 else 640 for size in sizes])
            what = f"The sizes of input '{name}' are not known."
            raise UserError(what, f"Give them with --shapes, for example --shapes {name}:{example}.")
        if min(dims, default=0) < 0:
            shapes.append(f"{name}:{by_x(sizes)}")
    return shapes


def _metadata(model: str) -> dict[str, str]:
    return {row.key: row.value for row in load_model(Path(model), weights=False)[0].metadata_props}


def _is_quantized(model: str) -> bool:
    graph = load_model(Path(model), weights=False)[0].graph
    return any(node.op_type.startswith(_QUANTIZED) for node in graph.node)


def _bundle(
    asked: DeployOptions, platform: Platform, target: str, options: TranslateOptions, files: TranslationFiles
) -> Bundle:
    report = files.report_rows()
    images = image_options(options, _metadata(asked.model))
    fallbacks = [row.name for row in report.dla.layers if row.verdict == "gpu"] if report.dla else []
    bundle = Bundle(
        name=files.name,
        folder=files.folder,
        platform=platform,
        target=target,
        dla_core=asked.dla_core,
        files=files,
        loadable=None,
        gpu_layers=frozenset(fallbacks),
        inputs=_ends(report.inputs, options),
        outputs=_ends(report.outputs, options),
        image_mean=images.mean,
        image_std=images.std,
        resize=images.resize,
        colors=images.colors,
        board_inputs=board_inputs(files.name, [row.name for row in report.inputs]),
    )
    part = None if target == "gpu" else files if not fallbacks else _dla_part(files)
    if part is None:
        return bundle
    inputs, outputs = (_ends(rows, options) for rows in part.report_parts("inputs", "outputs"))
    loadable = dataclasses.replace(bundle, files=part, inputs=inputs, outputs=outputs)
    return dataclasses.replace(bundle, loadable=loadable)


def _dla_part(files: TranslationFiles) -> Optional[TranslationFiles]:
    """The part that the DLA runs without the GPU, if one was cut off."""
    cut = files.manifest()
    for row in cut.parts if cut else ():
        if row.role == "dla" and not row.gpu_layers:
            return TranslationFiles.locate(files.parts / row.file)
    return None


def _ends(rows: Sequence[report_rows.End], options: TranslateOptions) -> tuple[End, ...]:
    """Sizes as requested; otherwise only the batch is dynamic, and set to 1."""
    return tuple(
        End(
            row.name,
            tuple(options.sizes.get(row.name) or (d if isinstance(d, int) else 1 for d in row.shape or ())),
            row.scale,
        )
        for row in rows
    )


# ---------------- files


def _signature(data: Optional[str]) -> list[Any]:
    """Names, sizes and times of the files of calibration data."""
    if data is None:
        return []
    root = Path(data).parent if data.endswith((".yaml", ".yml")) else Path(data)
    paths = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
    return [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in paths if p.exists()]


def _page(made: Deployed, chosen: Mapping[str, Any], bundle: Bundle, work: Path) -> str:
    """README.md of the files in `work`: one page."""
    device = f"DLA {bundle.dla_core} with GPU fallback" if bundle.on_dla else "GPU"
    ends = (*bundle.inputs, *bundle.outputs)
    rows = "\n".join(f"| `{e.name}` | {'x'.join(map(str, e.shape))} | {e.scale or '-'} |" for e in ends)
    told, version = made.answer, ".".join(map(str, bundle.platform.tensorrt))
    figures = [f"- time: {line}" for line in time_lines(made.report.cost, made.report.dla is not None)] + [
        f"- accuracy: {told.accuracy()}"
    ]
    figures += [f"- data: {note}" for note in made.notes]
    parts = [_HEAD.format(made.name, made.board, bundle.platform.name, version, device, told.words, told.reason, rows)]
    parts.insert(1, "\n".join(figures) + "\n")
    parts.append(_files_table(made, work))
    for key, commands in made.commands.items():
        text = "\n".join(commands)
        parts.append(f"## {chosen[key].TITLE}\n\n```sh\n{text}\n```\n\nSources: {'; '.join(chosen[key].SOURCES)}.\n")
    parts += [f"Not for {key}: {why}.\n" for key, why in made.refused.items()]
    return "\n".join([*parts, _FOOT.format(bundle.files.read_cache().header)])


def _files_table(made: Deployed, work: Path) -> str:
    """What each file and folder in `work` is for; those that no row explains are a program's, under its name."""
    lines, rows = [], {name.format(made.name): text for name, text in _FILES.items()}
    for name in sorted([*(f"{path.name}{'/' * path.is_dir()}" for path in work.iterdir()), "deploy.json"]):
        text = next((text for row, text in rows.items() if fnmatch.fnmatch(name, row)), f"for {name.rstrip('/')}")
        lines.append(f"| `{name}` | {text} |")
    return "\n".join(["## Files", "", "| file | for |", "| --- | --- |", *lines, ""])


_FILES = {
    "{}_noqdq.onnx": "the network in float, which TensorRT builds",
    "{}_precision_config_calib.cache": "one INT8 scale per tensor (the calibration cache)",
    "{}_precision_config_layer_arg.txt": "the layers that stay above INT8 (--layerPrecisions)",
    "{}_precision_config.json": "both as JSON, with the origin of each scale",
    "{}_report.json": "the plan and the estimate, for `qdq-translator report`",
    "{}_verification.json": "the comparison with your model; absent with --skip verify",
    "{}_tune.json": "what the search for lost accuracy measured",
    "{}_board_input_*.bin": "one input, which collect.sh runs",
    "build.sh": "builds the engine with trtexec",
    "collect.sh": "builds, times, and packs the board's answer",
    "{}_parts/": "the part for the DLA alone and the rest, where the network was cut",
    "{}.html": "the page: time, devices and causes, layer by layer; open it in a browser",
    WHEEL: "this program, for `pip install` on the board; trtexec needs none of it",
    "own/": "the given float network and a cache for it, for programs that build from it",
    "deploy.json": "what was made from what; a second run repeats only what changed",
}

_HEAD = """# {} for {} ({})

TensorRT {}, {}. **Good? {}**: {}. Copy this folder to the board. Nothing
here ran on TensorRT or on a DLA yet; figures are estimates.

| tensor | shape | INT8 scale |
| --- | --- | --- |
{}
"""
_FOOT = """## If something fails

`qdq-translator explain build.log -t .` explains a log; `pip install ./*.whl` brings the program to the board, where \
`qdq-translator doctor` checks the installation. \
The cache holds `{}` in its first line; another TensorRT version needs another number there; the scripts write it.
"""
