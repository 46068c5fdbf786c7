"""Execution settings of evaluations: `--workers`, `--scheduler` and `--provider`, as one value."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Optional

from qdq_translator.core.errors import UsageError
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.workers.work import Engine, InProcess, Work, shards


@dataclass(frozen=True)
class Evaluation:
    """Where networks are run. provider: of ONNX Runtime, as accepted by `run.provider_name`."""

    engine: Engine
    provider: str = "cpu"

    def over(
        self,
        work: Work,
        runs: int,
        progress: Progress = silent,
        what: str = "",
        part: tuple[int, int] = (0, 1),
        watch: Callable[[Any], None] = lambda part: None,
    ) -> Any:
        """Do `work` on `runs` runs. progress: reports `what`. part: (index, number) of this work among equal ones.
        watch: see `Engine.run`.
        """
        number, parts = part

        def tell(done: int) -> None:
            progress(what, number * runs + done, parts * runs)

        return self.engine.run(work, shards(runs), tell, watch)


HERE = Evaluation(InProcess())


@contextlib.contextmanager
def evaluation(workers: int = 1, scheduler: Optional[str] = None, provider: str = "cpu") -> Iterator[Evaluation]:
    """Raises UserError if the scheduler or the provider is not available."""
    from qdq_translator.lab.simulate.run import provider_name

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
