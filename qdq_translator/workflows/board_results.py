"""Check a board's results (`collect.sh` of a bundle), and compare them with both simulations of each hypothesis."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tarfile
from pathlib import Path
from typing import Mapping, Optional, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from qdq_translator.core.disk import file_digest
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.engine_rows import Answer, BuiltLayer
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.hypotheses import DEVICE_QUESTIONS, HYPOTHESES, Hypothesis
from qdq_translator.engine.messages import BuildLog, read_log
from qdq_translator.output.emit.trtexec.request import Remembered
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.simulate.inputs import input_specs, random_samples
from qdq_translator.simulate.metrics import Comparison
from qdq_translator.simulate.run import Session

SCHEMA_VERSION = "1"
_LARGEST = 1 << 29
"""Bytes of a file that is unpacked; the archive was made elsewhere."""
_FILES = re.compile(r"board_info\.txt|build\.log|board_outputs\.json|[^/\\]+_layer_info\.json|[^/\\]+_profile\.json")
_AGAIN = "Run collect.sh of this bundle on the board again."
_CLEAR = 4.0
"""A hypothesis is settled if one of its two simulations is this many times closer to the board's outputs."""
_MOST_NOISE = 1e30
"""Noise of outputs that are not finite, or not zero although they should be."""


@dataclasses.dataclass
class BoardResults:
    """info: lines of board_info.txt, keys as in `engine_rows.Board`. log: of the build. layer_info, profile: files,
    None if the board wrote none."""

    info: dict[str, str]
    log: BuildLog
    layer_info: Optional[Path]
    profile: Optional[Path]
    outputs: Optional[dict[str, np.ndarray]]


def read_results(path: Path, files: TranslationFiles, folder: Path) -> BoardResults:
    """Unpack into `folder`. Raises UserError if the archive is invalid, damaged, or for another model or cache."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive.getmembers():
                source = archive.extractfile(member) if member.isfile() and member.size <= _LARGEST else None
                if source is not None and _FILES.fullmatch(member.name):
                    (folder / member.name).write_bytes(source.read())
    except (OSError, tarfile.TarError, EOFError) as error:
        raise UserError(f"{path} is not an archive of collect.sh: {error}.", _AGAIN) from error
    info = _info(folder / "board_info.txt", path)
    for key, file in (("model", files.model), ("cache", files.cache)):
        if info[key] != file_digest(file):
            raise UserError(f"{path} is of another {key} than {file}.", "Give the bundle of the board with -t.")
    return BoardResults(
        info,
        read_log(folder / "build.log"),
        next(folder.glob("*_layer_info.json"), None),
        next(folder.glob("*_profile.json"), None),
        _outputs(folder / "board_outputs.json"),
    )


def _info(path: Path, archive: Path) -> dict[str, str]:
    if not path.is_file():
        raise UserError(f"{archive} contains no board_info.txt.", _AGAIN)
    text = path.read_text(encoding="utf-8", errors="replace")
    info = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    missing = [key for key in ("schema_version", "status", "model", "cache") if key not in info]
    if missing:
        raise UserError(f"board_info.txt of {archive} lacks '{missing[0]}'.", _AGAIN)
    if info["schema_version"] != SCHEMA_VERSION:
        what = f"{archive} has schema_version {info['schema_version']}, and {SCHEMA_VERSION} is read here."
        raise UserError(what, "Use the qdq-translator that made the bundle.")
    return info


def _outputs(path: Path) -> Optional[dict[str, np.ndarray]]:
    """trtexec's --exportOutput: a list of name, dimensions ('1x10') and values. Raises UserError for anything else."""
    if not path.is_file():
        return None
    try:
        rows = [
            (row["name"], row["values"], row["dimensions"].split("x")) for row in json.loads(path.read_text("utf-8"))
        ]
        return {str(n): np.asarray(values, np.float32).reshape([int(d) for d in dims]) for n, values, dims in rows}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"The outputs of the board cannot be read: {error}.", _AGAIN) from error


def board_inputs(name: str, inputs: Sequence[str]) -> dict[str, str]:
    """Network input -> file of the bundle that holds one sample of it."""
    return {given: f"{name}_board_input_{index}.bin" for index, given in enumerate(inputs)}


def board_feed(files: TranslationFiles) -> dict[str, np.ndarray]:
    """One random sample (seed 0) in the sizes of the translation."""
    network = ImplicitNetwork.read(files)
    specs = input_specs(network.model, Remembered.of(files).shapes)
    return random_samples(specs, network.scales, 1, 0).feed(0)


def stored_feed(files: TranslationFiles) -> Optional[dict[str, np.ndarray]]:
    """Inputs that the board used; None if the bundle has no such files."""
    feed = board_feed(files)
    places = {name: files.folder / place for name, place in board_inputs(files.name, list(feed)).items()}
    if not all(place.is_file() and place.stat().st_size == feed[name].nbytes for name, place in places.items()):
        return None
    return {name: np.fromfile(place, feed[name].dtype).reshape(feed[name].shape) for name, place in places.items()}


def settle(
    files: TranslationFiles, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> list[Answer]:
    """Compares the simulations of each hypothesis that changes the simulated outputs with the board's outputs."""
    network = ImplicitNetwork.read(files)
    planned = SimulationOptions.on(Remembered.of_options(network.option).target)
    base = _simulated(network, planned, inputs)
    found = []
    for name in HYPOTHESES:
        other = _simulated(network, planned.at_other_end(name), inputs)
        if any(not np.array_equal(base[key], other[key]) for key in base):
            found.append(_settled(HYPOTHESES[name], _distance(outputs, base), _distance(outputs, other)))
    return found


def _settled(about: Hypothesis, planned: float, other: float) -> Answer:
    near, far = sorted((planned, other))
    held = "" if far <= _CLEAR * near or far == 0 else "planned" if planned < other else "other"
    sentence = {"planned": about.planned, "other": about.other, "": "the outputs do not decide"}[held]
    return Answer(about.id, planned, other, held, sentence)


def _simulated(
    network: ImplicitNetwork, options: SimulationOptions, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return Session(simulate(network, options).model, "simulated").run(inputs)


def _distance(board: Mapping[str, np.ndarray], simulated: Mapping[str, np.ndarray]) -> float:
    """Root mean square of the difference over that of the values, of the worst output. Raises UserError for other
    outputs."""
    worst = 0.0
    for name, values in simulated.items():
        if name not in board or board[name].size != values.size:
            raise UserError(f"The board has no output '{name}' of {values.size} values.", _AGAIN)
        compared = Comparison()
        compared.add(values.reshape(-1), board[name].reshape(-1))
        worst = max(worst, math.sqrt(min(compared.noise, _MOST_NOISE)))
    return worst


def device_answers(model: onnx.ModelProto, layers: Sequence[BuiltLayer]) -> list[Answer]:
    """Questions in `DEVICE_QUESTIONS` that the engine answers: all layers of the operator are on one device, in an
    engine for a DLA. layers: rows of `inspector.engine_truth`."""
    if not any(row.device == "DLA" for row in layers):
        return []
    types = {tensor.name: TensorProto.DataType.Name(tensor.data_type) for tensor in model.graph.initializer}
    indices = {node.name: types.get(node.input[1], "") for node in model.graph.node if len(node.input) > 1}
    found = []
    for question in DEVICE_QUESTIONS:
        asked = {row.name: row.device for row in layers if row.op == question.op}
        names = [name for name in asked if question.indices in ("", indices.get(name, ""))]
        devices = {asked[name] for name in names}
        if devices in ({"DLA"}, {"GPU"}):
            (device,) = devices
            sentence = question.on_dla if device == "DLA" else question.on_gpu
            held = "planned" if device == question.planned else "other"
            found.append(Answer(question.id, None, None, held, sentence, ", ".join(names)))
    return found
