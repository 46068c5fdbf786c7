"""Cases, each told by kind, seed and number alone, and what is held against their outcome."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import random
import resource
import shutil
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import onnx
from google.protobuf.message import DecodeError

from qdq_translator import TranslateOptions
from qdq_translator.cli import main
from qdq_translator.core.errors import UserError
from qdq_translator.lab.laboratory import translate
from qdq_translator.translation.translator import Translation
from tests.fuzz import construct, faults, oracle, readers
from tests.fuzz.mutate import model_case

SECONDS = 20
"""No case may take longer, whatever else the machine does."""
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {
        "infer_concat_scales": True,
        "infer_mul_scales": True,
        "infer_average_pool_scales": True,
        "asymmetric": "widen",
        "per_channel_activations": "max",
        "platform": "jetpack-6.2",
    },
    {
        "target": "orin-dla",
        "platform": "jetpack-6.2",
        "dla_rewrites": True,
        "add_unary_ew_scales_for_dla": True,
        "annotate": True,
        "asymmetric": "widen",
        "unify_scales": "max",
    },
    {
        "target": "xavier-dla",
        "platform": "jetpack-5.1.1",
        "dla_rewrites": True,
        "rename_node_outputs": True,
        "weights": "float",
        "on_conflict": "min",
    },
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """result: 'translated', 'refused', 'unreadable', 'done', ...; find: '' or what must not happen, with where."""

    result: str
    find: str = ""


def rng_of(kind: str, seed: int, case: int) -> random.Random:
    return random.Random(f"{kind}-{seed}-{case}")


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _where(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "qdq_translator/" in f.filename]
    last = frames[-1] if frames else None
    place = f"{last.filename.rpartition('qdq_translator/')[2]}:{last.lineno}" if last else "?"
    return f"{type(error).__name__} at {place}: {str(error)[:120]}"


def _quietly(function: Callable[[], Outcome]) -> Outcome:
    try:
        with warnings.catch_warnings(), _limited():
            warnings.simplefilter("ignore")
            return function()
    except Exception as error:
        return Outcome("failed", _where(error))


# ---------------------------------------------------------------- models


def model_outcome(seed: int, case: int) -> Outcome:
    """One mutated model through `translate`; every tenth that is translated also through ONNX Runtime."""
    rng = rng_of("models", seed, case)
    data = model_case(rng)
    options = rng.choice(OPTIONS)

    def run() -> Outcome:
        try:
            model = onnx.ModelProto.FromString(data)
        except DecodeError:
            return Outcome("unreadable")
        try:
            translation = translate(model, TranslateOptions(**options))
        except UserError as error:
            return Outcome("refused", "" if _is_sentence(str(error)) else f"no sentence: {error!s:.80}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                translation.save(folder)
            except UserError as error:
                return Outcome("refused", "" if _is_sentence(str(error)) else f"no sentence: {error!s:.80}")
        return Outcome(
            "translated",
            _inconsistent(translation) or (oracle.differs(data, translation, options) if case % 10 == 0 else ""),
        )

    return _quietly(run)


def _is_sentence(text: str) -> bool:
    return text.rstrip().endswith((".", ")", "?", "'")) and "Traceback" not in text and "unexpected" not in text


def _inconsistent(translation: Translation) -> str:
    """What must hold of every translation: names that exist, usable scales, no quantizer left."""
    model = translation.model
    tensors = {v.name for v in model.graph.input} | {o for n in model.graph.node for o in n.output}
    names = [n.name for n in model.graph.node]
    if not set(translation.tensor_scales) <= tensors:
        return "a scale names no tensor"
    if len(set(names)) < len(names) or not set(translation.fp16_nodes) <= set(names):
        return "a layer name is not unique or names no node"
    if any(
        n.op_type in ("QuantizeLinear", "DequantizeLinear") and n.domain in ("", "com.microsoft")
        for n in model.graph.node
    ):
        return "a quantizer is left"
    lines = translation.cache.to_text().splitlines()
    if len(lines) != 1 + len(translation.cache.scales):
        return "the cache has a line too many"
    json.dumps(translation.report, allow_nan=False)
    return ""


# ---------------------------------------------------------------- readers


def reader_outcome(seed: int, case: int) -> Outcome:
    """One damaged file, and a command that reads it."""
    rng = rng_of("readers", seed, case)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "t"
        shutil.copytree(readers.original(), folder)
        arguments = readers.damage(rng, folder)

        def run() -> Outcome:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status: Optional[int] = main(arguments)
                except SystemExit as error:
                    status = int(error.code or 0)
            said = err.getvalue()
            if status not in (0, 1, 2):
                return Outcome("failed", f"status {status}")
            if "unexpected" in said or "Traceback" in said:
                return Outcome("failed", f"{arguments[0]}: {said.strip().splitlines()[-1][:160]}")
            if status and not said.strip():
                return Outcome("failed", f"{arguments[0]}: status {status} without a word")
            if not status and "--json" in arguments:
                json.loads(out.getvalue())
            return Outcome("read" if not status else "refused")

        return _quietly(run)


# ---------------------------------------------------------------- interrupted writers


def kill_outcome(seed: int, case: int) -> Outcome:
    """A run that fails, or is killed, at its n-th call of the operating system."""
    return _quietly(lambda: Outcome("kept", faults.interrupted(rng_of("kills", seed, case))))


def constructed_outcome(seed: int, case: int) -> Outcome:
    """A network whose function and scales are known, under each set of options in turn."""
    rng = rng_of("constructed", seed, case // len(construct.OPTIONS))
    try:
        with _limited():
            return Outcome("translated", construct.find(rng, construct.OPTIONS[case % len(construct.OPTIONS)]))
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {str(error)[:200]}")


KINDS: dict[str, Callable[[int, int], Outcome]] = {
    "models": model_outcome,
    "readers": reader_outcome,
    "kills": kill_outcome,
    "constructed": constructed_outcome,
}


def run_cases(kind: str, seed: int, cases: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    """How often each result came, and the finds with their case numbers."""
    results: Counter[str] = Counter()
    finds = []
    for case in cases:
        outcome = KINDS[kind](seed, case)
        results[outcome.result] += 1
        if outcome.find:
            finds.append((case, outcome.find))
    return results, finds


def run_part(part: tuple[str, int, int, int]) -> tuple[Counter[str], list[tuple[int, str]]]:
    """`run_cases` of kind, seed, first case and the one behind the last, in a process of its own."""
    kind, seed, start, stop = part
    return run_cases(kind, seed, range(start, stop))


def limit_memory() -> None:
    """For a process of a campaign."""
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
