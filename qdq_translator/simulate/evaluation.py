"""Execution settings of evaluations: `--workers`, `--scheduler` and `--provider`, as one value."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Iterator, Optional

from qdq_translator.core.errors import UsageError
from qdq_translator.core.workers.work import Engine, InProcess


@dataclass(frozen=True)
class Evaluation:
    """provider: of ONNX Runtime, as accepted by `run.provider_name`."""

    engine: Engine
    provider: str = "cpu"


HERE = Evaluation(InProcess())


@contextlib.contextmanager
def evaluation(workers: int = 1, scheduler: Optional[str] = None, provider: str = "cpu") -> Iterator[Evaluation]:
    """Raises UserError if the scheduler or the provider is not available."""
    from qdq_translator.simulate.run import provider_name

    if workers < 1:
        raise UsageError(f"--workers {workers} is not a number of processes.", "Give 1 or more.")
    if scheduler is not None and workers > 1:
        raise UsageError("--workers and --scheduler exclude each other.", "The workers are those of the scheduler.")
    engine: Engine
    if scheduler is not None:
        from qdq_translator.core.workers.cluster import Cluster

        engine = Cluster(scheduler)
    else:
        provider_name(provider)
        from qdq_translator.core.workers.local import Processes

        engine = Processes(workers) if workers > 1 else InProcess()
    with contextlib.closing(engine):
        yield Evaluation(engine, provider)
