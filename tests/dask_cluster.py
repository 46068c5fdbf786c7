"""A Dask scheduler and workers on this machine, for tests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator

from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate.evaluation import evaluation


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def dask_cluster(number: int, environment: dict[str, str]) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and so many workers of one thread: its address and the processes of the workers."""
    address = f"tcp://127.0.0.1:{free_port()}"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        def start(*argv: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-m", *argv], cwd=folder, env={**os.environ, **environment}, **quiet
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        start("distributed.cli.dask_scheduler", "--host", address, "--no-dashboard", "--no-show")
        flags = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"]
        running = [start("distributed.cli.dask_worker", address, *flags) for _ in range(number)]
        yield address, running


def connected(address: str) -> Any:
    """The evaluation, once the scheduler has started."""
    patient_until = time.monotonic() + 60
    while True:
        stack = contextlib.ExitStack()
        try:
            return stack, stack.enter_context(evaluation(scheduler=address))
        except UserError as error:
            if time.monotonic() > patient_until or "versions" in str(error):
                raise
