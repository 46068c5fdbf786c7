"""Inputs that are not finite: counted over all the data, refused, or left out if the user requests it."""

from __future__ import annotations

import dataclasses
from typing import Callable, Iterator, List, NoReturn, Tuple

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.words import counted
from qdq_translator.core.workers.work import Work, shards
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.inputs import Samples

REMEDY = "Correct the data, or leave such samples out with --ignore_nonfinite."

_Spoilt = List[Tuple[int, str, int]]
"""Run, input, and how many of its values are NaN or infinite; in the order of the runs."""


def is_finite(values: np.ndarray) -> bool:
    """False if a float value is NaN or infinite."""
    return not _not_finite(values)


def left_out(samples: int, total: int) -> str:
    """Note that `samples` of `total` were left out."""
    return (
        f"{samples} of {counted(total, 'sample')} {'holds' if samples == 1 else 'hold'} values that are not finite and "
        f"{'was' if samples == 1 else 'were'} left out"
    )


def only_finite(samples: Samples, ignore: bool, progress: Progress = silent, where: Evaluation = HERE) -> Samples:
    """The samples, with `ignore` those with finite inputs, and a note of how many are not.

    Raises UserError, as `refuse` does, if some are not and `ignore` is not set, or if all are not.
    """
    found = _spoilt(samples, progress, where)
    if not found:
        return samples
    bad = {run for run, _, _ in found}
    if not ignore or len(bad) == samples.runs:
        _refuse(samples, found)
    kept = samples.chosen([run for run in range(samples.runs) if run not in bad])
    return dataclasses.replace(kept, notes=[*kept.notes, left_out(len(samples) - len(kept), len(samples))])


def refuse(samples: Samples, where: Evaluation = HERE) -> NoReturn:
    """Raises UserError for samples of which some are not finite: counted over all the data, with the first place."""
    _refuse(samples, _spoilt(samples, silent, where))


def _refuse(samples: Samples, found: _Spoilt) -> NoReturn:
    total, runs = sum(count for _, _, count in found), len({run for run, _, _ in found})
    first, name, _ = found[0]
    what = "samples" if samples.batch == 1 else f"batches of {samples.batch} samples"
    raise UserError(
        f"{samples.source}: {counted(total, 'value')} in {runs} of {samples.runs} {what} "
        f"{'is' if total == 1 else 'are'} not finite (NaN or infinite), the first of input '{name}' in {samples.words(first)}.",
        "Correct the data." if runs == samples.runs else REMEDY,
    )


def _not_finite(values: np.ndarray) -> int:
    return int(values.size - np.count_nonzero(np.isfinite(values))) if values.dtype.kind == "f" else 0


def _spoilt(samples: Samples, progress: Progress, where: Evaluation) -> _Spoilt:
    def report(done: int) -> None:
        progress("reading inputs", done, samples.runs)

    found: _Spoilt = where.engine.run(_Counting(samples), shards(samples.runs), report)
    return found


@dataclasses.dataclass
class _Counting(Work):
    samples: Samples

    def open(self) -> Callable[[int], _Spoilt]:
        def of_run(run: int) -> Iterator[tuple[int, str, int]]:
            for name, values in self.samples.feed(run).items():
                if count := _not_finite(values):
                    yield run, name, count

        return lambda run: list(of_run(run))

    def merge(self, total: _Spoilt, part: _Spoilt) -> _Spoilt:
        return total + part
