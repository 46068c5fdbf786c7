"""Check a board's results (`collect.sh` of a bundle), and compare them with both simulations of each hypothesis."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Mapping, Optional, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from qdq_translator.board.engine.messages import BuildLog, read_log
from qdq_translator.core.disk import file_digest, read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.archive import read_archive
from qdq_translator.core.formats.engine_rows import Answer, BuiltLayer, Engine
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.report_rows import Cost
from qdq_translator.core.formats.rows import read
from qdq_translator.core.formats.schemas import BOARD_OUTPUTS, board_schema, read_json
from qdq_translator.core.hypotheses import DEVICE_QUESTIONS, HYPOTHESES, TRANSITIONS, Hypothesis
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import input_specs, random_samples
from qdq_translator.lab.simulate.metrics import Comparison
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.files.trtexec.request import Remembered

SCHEMA_VERSION = "1"
_NAME = r"[^/\\\x00-\x1f]{1,200}"
_FILES = re.compile(rf"board_info\.txt|build\.log|board_outputs\.json|{_NAME}_(?:layer_info|profile)\.json")
_REQUIRED, _OPTIONAL = ("schema_version", "status", "model", "cache"), ("machine", "board", "l4t")
"""Keys of board_info.txt."""
_MEDIAN = re.compile(r"GPU Compute Time: min = [^\n]{1,200}? median = (\d{1,9}\.?\d{0,9}) ms")
"""Matches the median time of an inference in trtexec's summary."""
_LONGEST = 200
_AGAIN = "Run collect.sh of this bundle on the board again."
_CLEAR = 4.0
"""A hypothesis is settled if one of its two simulations is this many times closer to the board's outputs."""
_MOST_NOISE = 1e30
"""Noise of outputs that are not finite, or not zero although they should be."""


@dataclasses.dataclass
class BoardResults:
    """info: lines of board_info.txt, keys as in `engine_rows.Board`. log: of the build. milliseconds: median of an
    inference by trtexec, None without one. layer_info, profile: files, None if the board wrote none."""

    info: dict[str, str]
    log: BuildLog
    milliseconds: Optional[float]
    layer_info: Optional[Path]
    profile: Optional[Path]
    outputs: Optional[dict[str, np.ndarray]]


def read_results(path: Path, files: TranslationFiles, folder: Path) -> BoardResults:
    """Unpack into `folder`. Raises UserError if the archive is invalid, damaged, or for another model or cache."""
    try:
        for name, content in read_archive(path, _FILES).items():
            (folder / name).write_bytes(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} is not an archive of collect.sh: {reason}.", _AGAIN) from error
    info = _info(folder / "board_info.txt", path)
    for key, file in (("model", files.model), ("cache", files.cache)):
        if info[key] != file_digest(file):
            raise UserError(f"{path} is of another {key} than {file}.", "Give the bundle of the board with -t.")
    log = folder / "build.log"
    medians = _MEDIAN.findall(read_text(log, _AGAIN)) if log.is_file() else []
    return BoardResults(
        info,
        read_log(log),
        float(medians[-1]) if medians else None,
        min(folder.glob("*_layer_info.json"), default=None),
        min(folder.glob("*_profile.json"), default=None),
        _outputs(folder / "board_outputs.json"),
    )


def read_answers(path: Path, files: TranslationFiles) -> Engine:
    """The engine in NAME_board.json. Raises UserError if it has none, or is of another translation."""
    stored = read_json(path, board_schema(), "Give the file that 'ingest' wrote.")
    for key, file in (("model", files.model), ("cache", files.cache)):
        if stored.get(key, "") not in ("", file_digest(file)):
            raise UserError(f"{path} is of another {key} than {file}.", "Collect the results of this bundle again.")
    if stored.get("engine") is None:
        what = f"{path} holds no layers of an engine."
        raise UserError(what, "Collect again where trtexec writes layer information.")
    return read(Engine, stored["engine"])


def _info(path: Path, archive: Path) -> dict[str, str]:
    """The lines `key=value` of board_info.txt whose keys are known."""
    if not path.is_file():
        raise UserError(f"{archive} contains no board_info.txt.", _AGAIN)
    rows = [line.partition("=")[::2] for line in read_text(path, _AGAIN).splitlines()]
    info = {key: value for key, value in rows if key in (*_REQUIRED, *_OPTIONAL)}
    missing = [key for key in _REQUIRED if key not in info]
    if missing:
        raise UserError(f"board_info.txt of {archive} lacks '{missing[0]}'.", _AGAIN)
    long = [key for key, value in info.items() if len(value) > _LONGEST]
    if long:
        raise UserError(f"board_info.txt of {archive} has more than {_LONGEST} characters in '{long[0]}'.", _AGAIN)
    if info["schema_version"] != SCHEMA_VERSION:
        what = f"{archive} has schema_version {info['schema_version']}, and {SCHEMA_VERSION} is read here."
        raise UserError(what, "Use the qdq-translator that made the bundle.")
    return info


def _outputs(path: Path) -> Optional[dict[str, np.ndarray]]:
    """trtexec's --exportOutput: a list of name, dimensions ('1x10') and values. Raises UserError for anything else."""
    if not path.is_file():
        return None
    rows = read_json(path, BOARD_OUTPUTS, _AGAIN)
    try:
        sizes = [[int(size) for size in row["dimensions"].split("x")] for row in rows]
        return {
            row["name"]: np.asarray(row["values"], np.float32).reshape(dims)
            for row, dims in zip(rows, sizes)
            if min(dims) >= 0
        }
    except (ValueError, TypeError, ArithmeticError) as error:
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
    sentence = {"planned": about.planned, "other": about.other, "": "the results do not decide"}[held]
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


def time_answers(milliseconds: Optional[float], cost: Optional[Cost]) -> list[Answer]:
    """Hypothesis `transitions`: the time of an inference against both ends of the estimate, if they differ."""
    low, high = (cost.total_milliseconds, cost.total_high_milliseconds) if cost else (None, None)
    if not milliseconds or not low or not high or low == high:
        return []
    return [_settled(TRANSITIONS, *(abs(end / milliseconds - 1) for end in (low, high)))]


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
