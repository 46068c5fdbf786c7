"""The cost model fitted to a board, from a profile of a translation's engine (`report --fit`).

A profile is trtexec's `--exportProfile` (JSON, with the layers' names), or the CSV of cuDLA's layerwise statistics
(`layer_name,start_ms,end_ms`). A row may name one layer, several fused by TensorRT, or a whole DLA region.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from pathlib import Path
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np

from qdq_translator.board.engine.layer_info import EngineLayer, fused_names
from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.report_rows import Dla, Report
from qdq_translator.core.formats.schemas import LONGEST_MS, PROFILE, parse_json
from qdq_translator.translation.files.trtexec.request import Remembered
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.cost.fusing import FusedLayer, fused_layers
from qdq_translator.translation.targets.cost.model import (
    COST_SCHEMA_VERSION,
    CostModel,
    Parameters,
    Work,
    choose_clock,
    published,
)
from qdq_translator.translation.targets.dla.limits import DLA_FP16

_FITTED = (
    *("int8_rate", "fp16_rate", "bytes_per_second", "seconds_per_layer"),
    *("int8_depthwise_block", "fp16_depthwise_block"),
)
_STAY = 1e-3
"""Weight that keeps a parameter at its published value; the weights of the measurements add up to 1."""
_INSERTED = ("reformat", "copy", "input transfer", "output transfer")
"""Names of rows that TensorRT inserts between layers: they belong to no layer of the model."""
_REMEDY = (
    "Profile the engine of this translation: trtexec --exportProfile with --profilingVerbosity=detailed, "
    "or cuDLA's layerwise CSV."
)


@dataclasses.dataclass(frozen=True)
class Board:
    """A fitted model. before, after: root mean square of log(model / measured) over the `rows`, weighted by time."""

    model: CostModel
    profile: str
    translation: str
    rows: int
    before: float
    after: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema_version": COST_SCHEMA_VERSION,
            "name": self.model.name,
            "clock_ghz": self.model.clock_ghz,
            "parameters": dataclasses.asdict(self.model.parameters),
            "fitted": {
                "profile": self.profile,
                "translation": self.translation,
                "rows": self.rows,
                "rms_before": self.before,
                "rms_after": self.after,
            },
        }

    def summary(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return (
            f"Fitted to {rows} of {self.profile}: {100 * self.before:.0f}% rms in the logarithm with the published "
            f"parameters, {100 * self.after:.0f}% with the fitted ones."
        )


def read_profile(path: str) -> dict[str, float]:
    """Layer -> milliseconds, the mean of its rows. Raises UserError if the file is not a profile."""
    text = read_text(Path(path), _REMEDY)
    rows = _json_rows(text, path) if text.lstrip().startswith(("[", "{")) else _csv_rows(text, path)
    times: dict[str, list[float]] = {}
    for name, value in rows:
        if 0 < value <= LONGEST_MS:
            times.setdefault(name, []).append(value)
    if not times:
        raise UserError(f"{path} contains no layer times.", _REMEDY)
    return {name: sum(values) / len(values) for name, values in times.items()}


def _json_rows(text: str, path: str) -> list[tuple[str, float]]:
    rows = parse_json(text, PROFILE, path, _REMEDY)
    try:
        return [(row["name"], float(row["averageMs"])) for row in rows if "count" not in row]
    except KeyError as error:
        raise UserError(f"{path} is not a profile of trtexec: a row lacks {error}.", _REMEDY) from error


def _csv_rows(text: str, path: str) -> list[tuple[str, float]]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        if not {"layer_name", "start_ms", "end_ms"} <= set(reader.fieldnames or ()):
            raise UserError(f"{path} has no columns layer_name, start_ms and end_ms.", _REMEDY)
        return [(row["layer_name"], float(row["end_ms"]) - float(row["start_ms"])) for row in reader]
    except (ValueError, TypeError, csv.Error) as error:
        raise UserError(f"{path} contains a time that is not a number: {error}.", _REMEDY) from error


def fit_board(files: TranslationFiles, profile: str) -> Board:
    """Fit the published parameters to the profile of this translation.

    Raises UserError if the profile names layers that the translation lacks, or if none of it runs on a DLA.
    """
    times, report = read_profile(profile), files.report_rows()
    if report.dla is None:
        raise UserError(
            f"{files.name} was translated for a GPU: there is no cost model to fit.",
            "Translate it with --on dla.",
        )
    options = report.options
    clock = choose_clock(options.get("power_mode"), options.get("dla_clock"), options.get("platform") or "")
    chosen = _chosen(files, report, report.dla, profile, times)
    if not chosen:
        raise UserError(
            f"No layer of {profile} runs on the DLA with known shapes.", "Translate with --shapes for dynamic inputs."
        )
    start = Parameters(**published()["parameters"])
    works, measured = zip(*chosen)
    weights = [time / sum(measured) for time in measured]

    def predict(parameters: Parameters) -> list[float]:
        model = CostModel("", parameters, clock)
        return [sum(model.estimate(work, fp16).milliseconds for work, fp16 in row) for row in works]

    found = fit(predict, measured, weights, start, _FITTED, _STAY)
    errors = (_rms(predict(parameters), measured, weights) for parameters in (start, found))
    name = f"fitted to {Path(profile).name}"
    return Board(CostModel(name, found, clock), Path(profile).name, files.name, len(chosen), *errors)


def _rms(predicted: Sequence[float], measured: Sequence[float], weights: Sequence[float]) -> float:
    return math.sqrt(sum(w * math.log(p / m) ** 2 for p, m, w in zip(predicted, measured, weights)))


def _chosen(
    files: TranslationFiles, report: Report, dla: Dla, profile: str, times: dict[str, float]
) -> list[_Measured]:
    """The rows of the profile that run on the DLA. times: milliseconds of each row."""
    graph = Graph.from_model(load_model(files.model)[0])
    places = {node.name: index for index, node in enumerate(graph.nodes)}
    if list(places) != [row.name for row in report.plan]:
        raise UserError(
            f"{files.model.name} and {files.report.name} are not of one translation.", "Translate the model again."
        )
    types = TensorTypes(graph, Remembered.of_options(report.options).shapes)
    layers = fused_layers(graph, types, [row.verdict for row in dla.layers])
    runs = _Runs(profile, files.name, places, [row.subgraph for row in dla.layers], {x.nodes[0]: x for x in layers})
    return [found for found in map(runs.measured, times.items()) if found[0]]


_Measured = Tuple[List[Tuple[Work, bool]], float]
"""The work of each layer of a row with whether it is FP16, and the row's milliseconds."""


@dataclasses.dataclass(frozen=True)
class _Runs:
    """The planned network as its layers run. places: node -> index. subgraphs: one per node, -1 for none. heads: first
    node -> nodes that run as one layer."""

    profile: str
    translation: str
    places: dict[str, int]
    subgraphs: list[int]
    heads: dict[int, FusedLayer]

    def measured(self, row: tuple[str, float]) -> _Measured:
        """(work on the DLA, milliseconds) of a row of the profile: no work if it runs on the GPU. Raises UserError for
        a row of another network."""
        found = (self.heads[node] for node in dict.fromkeys(self._nodes(row[0])) if node in self.heads)
        return [(work, layer.verdict == DLA_FP16) for layer in found for work in layer.works or ()], row[1]

    def _nodes(self, name: str) -> list[int]:
        region = EngineLayer(name, "", (), ()).region
        ends = region.split("...") if region else fused_names(name, self.places)
        known = [end for end in ends if end in self.places]
        if not known and any(word in name.lower() for word in _INSERTED):
            return []
        if not known or (region and len(known) < len(ends)):
            differs = next(end for end in ends if end not in known) if region else name
            raise UserError(
                f"{self.profile} names the layer '{differs}', which {self.translation} does not have.", _REMEDY
            )
        nodes = [self.places[end] for end in known]
        return self._beside(nodes) if region else nodes

    def _beside(self, nodes: list[int]) -> list[int]:
        """The nodes of the DLA subgraph that holds the first of `nodes`; `nodes` if none does."""
        number = self.subgraphs[nodes[0]]
        return nodes if number < 0 else [place for place, other in enumerate(self.subgraphs) if other == number]


# ---------------- least squares in the logarithm of time


_STEPS = 40
_DIFFERENCE = 1e-4


def fit(
    predict: Callable[[Parameters], Sequence[float]],
    measured: Sequence[float],
    weights: Sequence[float],
    start: Parameters,
    names: Sequence[str],
    stay: float = 1e-6,
) -> Parameters:
    """`start` with parameters `names` fitted so that `predict` is closest to `measured` (same unit, all above 0).

    Minimises sum(weight * log(predicted / measured)^2) + stay * sum(log(parameter / start)^2): parameters not covered
    by the measurements keep their values. Levenberg-Marquardt on the logarithms of the parameters; deterministic.
    """
    target = np.log(np.asarray(measured, float))
    root = np.sqrt(np.asarray(weights, float))

    def at(x: np.ndarray) -> Parameters:
        values = {name: getattr(start, name) * float(np.exp(v)) for name, v in zip(names, x)}
        return dataclasses.replace(start, **values)

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([root * (np.log(np.asarray(predict(at(x)), float)) - target), np.sqrt(stay) * x])

    x = np.zeros(len(names))
    damping, best = 1e-2, residuals(x)
    for _ in range(_STEPS):
        jacobian = np.stack([(residuals(x + _DIFFERENCE * e) - best) / _DIFFERENCE for e in np.eye(len(names))], 1)
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -jacobian.T @ best)
        trial = residuals(x + np.clip(step, -1, 1))
        if trial @ trial < best @ best:
            x, best, damping = x + np.clip(step, -1, 1), trial, damping / 3
        else:
            damping *= 4
        if damping > 1e8 or np.abs(step).max() < 1e-7:
            break
    return at(x)
