"""Deploy a model to one folder for a board. Each step is a function that other commands use too, and is repeated only
if its inputs have changed. The folder is written completely or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np

from qdq_translator._version import __version__
from qdq_translator.core.command_options import DeployOptions, VerifyOptions
from qdq_translator.core.disk import alone, file_digest, write_file, write_json
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats import report_rows
from qdq_translator.core.formats.files import TranslationFiles, model_name, plain_name
from qdq_translator.core.formats.rows import read_some
from qdq_translator.core.formats.verify_rows import Judged, Verification
from qdq_translator.core.options import TranslateOptions, effective
from qdq_translator.ir.io import load_model
from qdq_translator.output import consumers
from qdq_translator.output.buffers import End
from qdq_translator.output.consumers import Bundle
from qdq_translator.output.emit.trtexec.request import Network
from qdq_translator.targets.platforms import Platform, find_platform
from qdq_translator.workflows.board_results import board_feed, board_inputs
from qdq_translator.workflows.parts import cut_tail
from qdq_translator.workflows.translator import translate
from qdq_translator.workflows.verification import verify

MANIFEST = "deploy.json"
_IMAGES = ("image_mean", "image_std", "layout")
STEPS = ("cut", "verify")
"""Steps that --skip may name."""
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "QLinear", "Quant", "ConvInteger", "MatMulInteger", "Fake")


@dataclasses.dataclass
class Deployed:
    """verdict, failed: of the comparison; None and () without one. commands: consumer -> commands on the board.
    refused: consumer -> reason. redone: steps that were not reused."""

    folder: Path
    name: str
    files: TranslationFiles
    report: report_rows.Report
    verdict: Optional[Judged]
    failed: Sequence[str]
    commands: dict[str, list[str]]
    refused: dict[str, str]
    redone: list[str]


def deploy(asked: DeployOptions, say: Callable[[str], None] = lambda text: None) -> Deployed:
    """Raises UserError if a step fails, or if no consumer supports the network."""
    unknown = [step for step in asked.skip if step not in STEPS]
    if unknown:
        raise UsageError(f"--skip {unknown[0]} is not a step.", f"Steps are {', '.join(STEPS)}.")
    platform = find_platform(asked.board)
    chosen = {name: consumers.find(name) for name in dict.fromkeys(asked.consumers)}
    target = _target(asked.target or "", platform)
    options, output = _options(asked, target), _output(asked)
    with alone(output):
        work = output.parent / f".qdq_unfinished-{output.name}" / "new"  # `alone` makes and removes its parent
        work.mkdir()
        steps = _Steps(work, output, asked, say)
        name = plain_name(model_name(asked.model))  # files of other programs contain it unquoted
        files, own = TranslationFiles(work, name), TranslationFiles(work / "own", name)
        steps.run("translation", options, lambda: _translate(asked, options, files))
        needs_own = any(hasattr(c, "OWN_MODEL") for c in chosen.values()) or asked.keep_model
        has_own = needs_own and not _is_quantized(asked.model)
        if has_own:
            kept = dataclasses.replace(options, keep_model=True)
            steps.run("own", kept, lambda: translate(asked.model, kept, name).save(own.folder))
        verdict, failed = None, ()
        if "verify" not in asked.skip:
            place = work / f"{name}_verification.json"
            steps.run("verify", options, lambda: write_json(place, _verified(asked, files, options.shapes)))
            verification = json.loads(place.read_text(encoding="utf-8"))
            verdict, failed = read_some(Verification, verification, ("verdict", "failed"))
        bundle = _bundle(asked, platform, target, options, files)
        commands, refused = _consumed(chosen, bundle, own if has_own else None, asked.keep_model)
        new = TranslationFiles(output, name)
        made = Deployed(output, name, new, files.report_rows(), verdict, failed, commands, refused, steps.redone)
        write_file(work / "README.md", _page(made, chosen, bundle).encode())
        steps.write_manifest()
        _replace(work, output)
    return made


# ---------------- steps


class _Steps:
    """Steps that write files into a new folder, or reuse those of the earlier bundle."""

    def __init__(self, work: Path, before: Path, asked: DeployOptions, say: Callable[[str], None]) -> None:
        self.work, self.before, self.say = work, before, say
        self.inputs = [__version__, file_digest(Path(asked.model)), _signature(asked.data), list(asked.skip)]
        manifest = before / MANIFEST
        self.old: dict[str, Any] = json.loads(manifest.read_text())["steps"] if manifest.is_file() else {}
        self.made: dict[str, Any] = {}
        self.redone: list[str] = []

    def run(self, name: str, options: TranslateOptions, make: Callable[[], object]) -> None:
        key = hashlib.sha256(json.dumps([*self.inputs, name, effective(options)], sort_keys=True).encode()).hexdigest()
        old = self.old.get(name, {})
        kept = (file_digest(self.before / file) == digest for file, digest in old.get("files", {}).items())
        if old.get("key") == key and all(kept):
            for file in old["files"]:
                (self.work / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.before / file, self.work / file)
            self.made[name] = old
            self.say(f"{name}: as before")
            return
        self.say(f"{name} ...")
        there = set(_files_in(self.work))
        make()
        files = {file: file_digest(self.work / file) for file in _files_in(self.work) if file not in there}
        self.made[name] = {"key": key, "files": files}
        self.redone.append(name)

    def write_manifest(self) -> None:
        about = {"schema_version": 1, "kind": "qdq-translator deploy", "generator": f"qdq-translator {__version__}"}
        write_json(self.work / MANIFEST, {**about, "steps": self.made})


def _translate(asked: DeployOptions, options: TranslateOptions, files: TranslationFiles) -> None:
    translation = translate(asked.model, options, files.name)
    translation.save(files.folder)
    feed = board_feed(files)  # one random sample (seed 0), raw, for trtexec's --loadInputs and for `ingest`
    for name, place in board_inputs(files.name, list(feed)).items():
        write_file(files.folder / place, np.ascontiguousarray(feed[name]).tobytes())
    if translation.dla is not None and translation.dla.fallbacks and "cut" not in asked.skip:
        with contextlib.suppress(UserError):  # then there are no parts, and consumers that need one are refused
            cut_tail(translation, files)


def _verified(asked: DeployOptions, files: TranslationFiles, shapes: list[str]) -> Mapping[str, Any]:
    """`verify` on the data, or on random inputs."""
    images = {name: getattr(asked, name) for name in _IMAGES}
    model, data, samples = asked.model, asked.data, asked.samples
    options = VerifyOptions(model, translation=str(files.model), inputs=data, samples=samples, shapes=shapes, **images)
    return verify(dataclasses.replace(options, fuse="on"))


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
    generation = f"{platform.dla}-dla" if platform.dla else "gpu"
    if wanted not in ("", "gpu", generation):
        raise UserError(f"{platform.name} has no {wanted}.", f"Leave --target out, or name {generation} or gpu.")
    return wanted or generation


def _output(asked: DeployOptions) -> Path:
    """Raises UserError if the folder contains anything but a bundle."""
    output = Path(asked.output_dir or f"{model_name(asked.model)}_deploy").absolute()
    if output.exists() and not (output / MANIFEST).is_file() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output} exists and is not a bundle of deploy.", "Choose another folder with -o.")
    output.parent.mkdir(parents=True, exist_ok=True)
    return output


def _options(asked: DeployOptions, target: str) -> TranslateOptions:
    if not _is_quantized(asked.model) and asked.data is None:
        what = "The model is a float one, so its scales have to come from data."
        raise UserError(what, "Give calibration inputs with --data.")
    same = {name: getattr(asked, name) for name in ("shapes", *_IMAGES)}
    base = TranslateOptions(calibrate=asked.data, calibrate_samples=asked.samples, **same)
    shapes = _shapes(asked.model, base.sizes) or asked.shapes
    preset = "gpu" if target == "gpu" else "dla"
    chosen: dict[str, Any] = {"platform": asked.board, "preset": preset, "target": target}
    return dataclasses.replace(base, shapes=shapes, **chosen)


def _shapes(model: str, given: Mapping[str, Sequence[int]]) -> list[str]:
    """--shapes of inputs with dynamic sizes: as given, else a batch of 1. Raises UserError for other dynamic sizes."""
    shapes = []
    for name, dims in Network.read(Path(model)).inputs.items():
        sizes = given.get(name) or [1 if index == 0 and size < 0 else size for index, size in enumerate(dims)]
        if min(sizes, default=0) < 0:
            what = f"The sizes of input '{name}' are not known."
            raise UserError(what, f"Give them with --shapes {name}:1x3x640x640.")
        if min(dims, default=0) < 0:
            shapes.append(f"{name}:{'x'.join(map(str, sizes))}")
    return shapes


def _is_quantized(model: str) -> bool:
    graph = load_model(Path(model), weights=False)[0].graph
    return any(node.op_type.startswith(_QUANTIZED) for node in graph.node)


def _bundle(
    asked: DeployOptions, platform: Platform, target: str, options: TranslateOptions, files: TranslationFiles
) -> Bundle:
    report = files.report_rows()
    fallbacks = [row.name for row in report.dla.layers if row.verdict == "gpu"] if report.dla else []
    bundle = Bundle(
        files.name,
        files.folder,
        platform,
        target,
        asked.dla_core,
        files,
        None,
        frozenset(fallbacks),
        _ends(report.inputs, options),
        _ends(report.outputs, options),
        tuple(options.image_mean),
        tuple(options.image_std),
        board_inputs(files.name, [row.name for row in report.inputs]),
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


def _replace(work: Path, output: Path) -> None:
    """Replace the old folder with the new one."""
    try:
        if output.exists():
            os.rename(output, work.parent / "old")
        os.rename(work, output)
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}.", "Choose another folder with -o.") from error


def _files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _signature(data: Optional[str]) -> list[Any]:
    """Names, sizes and times of the files of calibration data."""
    if data is None:
        return []
    root = Path(data)
    paths = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
    return [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in paths if p.exists()]


def _page(made: Deployed, chosen: Mapping[str, Any], bundle: Bundle) -> str:
    """README.md: one page."""
    device = f"DLA {bundle.dla_core} with GPU fallback" if bundle.on_dla else "GPU"
    ends = (*bundle.inputs, *bundle.outputs)
    rows = "\n".join(f"| `{e.name}` | {'x'.join(map(str, e.shape))} | {e.scale or '-'} |" for e in ends)
    parts = [_HEAD.format(made.name, bundle.platform.name, ".".join(map(str, bundle.platform.tensorrt)), device, rows)]
    for key, commands in made.commands.items():
        text = "\n".join(commands)
        parts.append(f"## {chosen[key].TITLE}\n\n```sh\n{text}\n```\n\nSources: {'; '.join(chosen[key].SOURCES)}.\n")
    parts += [f"Not for {key}: {why}.\n" for key, why in made.refused.items()]
    return "\n".join([*parts, _FOOT.format(bundle.files.read_cache().header)])


_HEAD = """# {} for {}

TensorRT {}, {}. Copy this folder to the board. Nothing here ran on TensorRT or on a DLA yet; figures are estimates.

| tensor | shape | INT8 scale |
| --- | --- | --- |
{}
"""
_FOOT = """## If something fails

`qdq-translator doctor` on the board checks the installation; `qdq-translator explain build.log -t .` explains a log. \
The cache holds `{}` in its first line; another TensorRT version needs another number there; the scripts write it.
"""
