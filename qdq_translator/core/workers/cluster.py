"""`--scheduler ADDRESS`: the workers of a Dask cluster. They read the data themselves, so paths must be valid on each
worker.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import logging
import sys
import time
from concurrent.futures import CancelledError
from importlib import metadata
from typing import Any, Iterator, Sequence

from qdq_translator._version import __version__
from qdq_translator.core.errors import UserError, needed
from qdq_translator.core.workers.work import Engine, Packed, Work, pack, shard_of, unpack

PATIENCE = 4.0
"""Seconds to wait for the scheduler, and again for a first worker."""
KEPT_PARTS = 2
"""The number of pieces of work whose parts stay with the workers."""
MOST_LOSSES = 3
PAUSE = 1.0
"""Seconds that the scheduler has to find out which workers are left."""


def refuse_plain_text(address: str) -> None:
    """Raises UserError for a scheduler on a public address without TLS: anyone who can reach it may run any code on its
    workers, and on this machine. Dask's own setting for an encrypted connection, if it is off, allows it."""
    import ipaddress
    import socket
    from urllib.parse import urlsplit

    scheme, _, rest = address.rpartition("://")
    if scheme in ("tls", "wss", "inproc") or dask_setting("distributed.comm.require-encryption") is False:
        return
    with contextlib.suppress(OSError, ValueError):  # no address: connecting to it reports that
        host = urlsplit(f"//{rest}").hostname
        for *_, place in socket.getaddrinfo(host, None):
            if ipaddress.ip_address(str(place[0]).partition("%")[0]).is_global:
                raise UserError(
                    f"The scheduler at {address} is on a public address, and its connection is not encrypted.",
                    "Start it with TLS (docs/workers.md) and name it tls://..., or set "
                    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=False if nobody else can reach it.",
                )


def dask_setting(key: str) -> Any:
    """A setting of Dask, None by default."""
    import dask.config

    return dask.config.get(key, None)


class Cluster(Engine):
    """A Dask cluster. Raises UserError without a scheduler (after ten seconds) and for workers of another version."""

    def __init__(self, address: str) -> None:
        distributed = needed(
            "distributed",
            "--scheduler needs Dask, which is not installed.",
            "pip install '.[cluster]' in a checkout of qdq-translator",
        )
        refuse_plain_text(address)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._address = address
        self._sent: collections.deque[dict[str, Any]] = collections.deque(maxlen=KEPT_PARTS)
        # a client that never connected closes itself when it is collected, and must not do so while this one starts
        gc.collect()
        try:
            client: Any = distributed.Client
            self._client = client(address, timeout=PATIENCE, set_as_default=False)
        except Exception as error:  # OSError, TimeoutError, ValueError for an invalid address
            raise UserError(
                f"The scheduler at {address} cannot be reached: {error}.".replace("..", "."),
                "Start it with 'dask scheduler --host 127.0.0.1', or name another with --scheduler.",
            ) from error
        try:
            self._check()
        except UserError:
            self.close()
            raise

    def _check(self) -> None:
        """Raises UserError without workers, and for workers whose versions differ."""
        patient_until = time.monotonic() + PATIENCE
        while not self._client.nthreads():
            if time.monotonic() > patient_until:
                raise UserError(f"The scheduler at {self._address} has no workers.", "Start some with 'dask worker'.")
            time.sleep(0.1)
        try:
            versions = self._client.run(version)
        except Exception as error:
            raise UserError(
                f"A worker of {self._address} cannot load qdq-translator: {error}.",
                f"Install {_words(version())} on every worker.",
            ) from error
        for worker, found in versions.items():
            if tuple(found) != version():
                raise UserError(
                    f"Worker {worker} has {_words(found)}; here is {_words(version())}.",
                    "Install the same versions everywhere.",
                )

    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        packed = pack(work)
        digest = packed.digest
        done = losses = 0
        while done < len(ranges):
            futures: list[Any] = []
            try:
                body, parts = self._send(packed)
                futures += [
                    self._client.submit(_shard, body, parts, digest, shard.start, shard.stop, version(), pure=False)
                    for shard in ranges[done:]
                ]
                for index, future in enumerate(futures):
                    part = future.result()
                    futures[index] = None  # a merged part is not kept on a worker
                    yield part
                    done, losses = done + 1, 0
            except UserError:
                raise
            except Exception as error:
                # the work was lost with the last worker that had it or on its way to one, or a shard has ended several
                # workers
                lost = isinstance(error, (CancelledError, OSError)) or type(error).__name__ in _LOST
                losses += 1
                self._sent.clear()
                if not lost or losses >= MOST_LOSSES:
                    raise UserError(
                        (
                            f"The cluster failed at runs {ranges[done].start} to {ranges[done].stop - 1} of "
                            f"the data: {error}."
                        ),
                        "See the logs of its workers; they may lack memory.",
                    ) from error
                time.sleep(PAUSE)
            finally:
                self._client.cancel([future for future in futures if future is not None])

    def _send(self, packed: Packed) -> tuple[Any, list[Any]]:
        """(body, parts) as futures. The workers keep the parts of the last pieces of work, which are not sent again."""
        held: dict[str, Any] = {}
        for sent in self._sent:
            held.update(sent)
        new = [name for name in packed.parts if name not in held]
        # hash=False: a key made from the content may not be released yet when the same content is sent again; no
        # broadcast, which waits without end for a worker that has just died: the others fetch their data from the
        # one that got it
        data = [packed.body, *(bytes(packed.parts[name]) for name in new)]
        body, *futures = self._client.scatter(data, hash=False)
        held.update(zip(new, futures))
        self._sent.append({name: held[name] for name in packed.parts})
        return body, [held[name] for name in packed.order]

    def close(self) -> None:
        self._client.close()


_LOST = ("FutureCancelledError", "FuturesCancelledError", "KilledWorker")


def version() -> tuple[str, ...]:
    """The versions that must be equal on all workers for equal results."""
    return (__version__, _runtime(), metadata.version("numpy"), ".".join(map(str, sys.version_info[:2])))


def _runtime() -> str:
    """ONNX Runtime's version, independent of which of its packages is installed."""
    for name in ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "none"


def _words(found: Sequence[str]) -> str:
    names = ("qdq-translator", "onnxruntime", "numpy", "Python")
    return ", ".join(f"{name} {number}" for name, number in zip(names, found))


def _shard(body: bytes, parts: list[bytes], digest: str, first: int, last: int, asked: tuple[str, ...]) -> Any:
    """Compute runs `first` to `last` on a worker. Raises UserError if it has other versions: it may have joined after
    they were compared."""
    if tuple(asked) != version():
        raise UserError(
            f"A worker has {_words(version())}; {_words(asked)} is needed.", "Install the same versions everywhere."
        )
    return shard_of(digest, lambda: unpack(body, parts), range(first, last), 1)
