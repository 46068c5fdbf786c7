"""Inputs that are not finite: counted over all the data, refused, or left out if the user requests it."""

from __future__ import annotations

import dataclasses
from typing import Callable, Tuple

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.words import counted
from qdq_translator.core.workers.work import Work
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.inputs import Samples

REMEDY = "Correct the data, or leave such samples out with --ignore_nonfinite."

_Spoilt = Tuple[int, str, int]
"""Run, input, and how many of its values are NaN or infinite."""


def left_out(samples: int, total: int) -> str:
    """Note that `samples` of `total` were left out."""
    return (
        f"{samples} of {counted(total, 'sample')} {'holds' if samples == 1 else 'hold'} values that are not finite and "
        f"{'was' if samples == 1 else 'were'} left out"
    )


def only_finite(samples: Samples, ignore: bool, progress: Progress = silent, where: Evaluation = HERE) -> Samples:
    """The samples, with `ignore` those with finite inputs, and a note of how many are not.

    Raises UserError, with the first place, if some are not and `ignore` is not set, or if all are not.
    """
    found: list[_Spoilt] = where.over(_Counting(samples), samples.runs, progress, "reading inputs")
    if not found:
        return samples
    runs = {run for run, _, _ in found}
    if ignore and len(runs) < samples.runs:
        kept = samples.chosen([run for run in range(samples.runs) if run not in runs])
        return dataclasses.replace(kept, notes=[*kept.notes, left_out(len(samples) - len(kept), len(samples))])
    total = sum(count for _, _, count in found)
    first, name, _ = found[0]
    what = "samples" if samples.batch == 1 else f"batches of {samples.batch} samples"
    raise UserError(
        f"{samples.source}: {counted(total, 'value')} in {len(runs)} of {samples.runs} {what} "
        f"{'is' if total == 1 else 'are'} not finite (NaN or infinite), the first of input '{name}' in "
        f"{samples.words(first)}.",
        "Correct the data." if len(runs) == samples.runs else REMEDY,
    )


@dataclasses.dataclass
class _Counting(Work):
    samples: Samples

    def open(self) -> Callable[[int], list[_Spoilt]]:
        def of_run(run: int) -> list[_Spoilt]:
            floats = ((name, values) for name, values in self.samples.feed(run).items() if values.dtype.kind == "f")
            counts = ((name, values.size - np.count_nonzero(np.isfinite(values))) for name, values in floats)
            return [(run, name, int(count)) for name, count in counts if count]

        return of_run
