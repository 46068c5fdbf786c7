"""`python -m tests.fuzz.guided [FORMAT ...] [--seconds 3600]`: inputs that reach new code, for each format that is read.

Needs atheris (the extra `fuzz`). A reader may raise what it documents, within 10 seconds and 1.5 GB; everything else ends the
run, and its input, made smaller by hand, becomes a file in `tests/fuzz/corpus/FORMAT/`, which the tests read every time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gzip
import io
import json
import logging
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import numpy as np

CORPUS = Path(__file__).with_name("corpus")
SECONDS, MEGABYTES = 10, 1536


@dataclasses.dataclass(frozen=True)
class Format:
    """read: reads the file at a path; it may raise `allowed`. ending: of the file's name. seeds: contents to begin with."""

    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]
    allowed: tuple[type[Exception], ...] = ()
    ending: str = ""


def _files() -> Path:
    from tests.fuzz.readers import original

    return original()


def _of_example(ending: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in _files().glob(f"*{ending}")]


def _set(path: Path) -> Any:
    from qdq_translator.core.formats.files import TranslationFiles

    return TranslationFiles(path.parent, "m")


def _model(path: Path) -> None:
    from qdq_translator import TranslateOptions, translate

    translate(path, TranslateOptions(preset="dla", platform="jetpack-6.2"))


def _models() -> list[bytes]:
    from tests.small_models import model

    texts = (
        "g (float[1,3,8,8] x) => (float[1,4,6,6] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) c = Conv(d, w) y = Relu(c) }",
        "g (float[1,4] x) => (float[1,2] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) c = Gemm(d, w) y = Softmax(c) }",
    )
    arrays = {"s": np.float32(0.1), "z": np.int8(0)}
    shapes = ((4, 3, 3, 3), (4, 2))
    return [model(t, w=np.ones(shape, np.float32), **arrays).SerializeToString() for t, shape in zip(texts, shapes)]


def _cache(path: Path) -> None:
    from qdq_translator.core.formats.files import read_lone_cache

    read_lone_cache(path, None)


def _layer_arg(path: Path) -> None:
    from qdq_translator.core.formats.files import read_layer_argument

    read_layer_argument(str(path))


def _sidecar(path: Path) -> None:
    from qdq_translator.translation.quantizers.sidecars import read_scales

    read_scales(str(path))


def _sidecars() -> list[bytes]:
    row = {"bitwidth": 8, "dtype": "int", "is_symmetric": "True", "scale": 0.1, "offset": -128}
    ppq = {"bit_width": 8, "state": "ACTIVATED", "quant_min": -128, "quant_max": 127, "hash": 1, "dominator": 1}
    contents: list[Any] = [
        {"activation_encodings": {"x": [row]}, "param_encodings": {"w": [row, row]}},
        {
            "activation_encodings": [{"name": "x", "bw": 8, "dtype": "INT", "scale": [0.1], "offset": [-128]}],
            "param_encodings": [],
        },
        {"encodings": [{"name": "x", "output_dtype": "int8", "y_scale": [0.1], "y_zero_point": [0], "axis": 0}]},
        {"CLS": "TensorsData", "data": {"x": {"lowest": {"data": [-1.0]}, "highest": 2.0}}},
        {"configs": {"op": {"x": ppq}}, "values": {"1": {"scale": [0.1], "zero_point": 0}}},
        {"x": 1.5, "y": {"min": -1, "max": 2}, "z": {"scale": 0.1}},
        {"int8_tensor_scales": {"x": 0.1}},
    ]
    texts = ["x 1.5\ny 2e-3\n", "x: 1.5\n", "name,min,max\nx,-1,2.5\n", "TRT-8XXX-EntropyCalibration2\nx: 3c010204\n"]
    return [*(json.dumps(content).encode() for content in contents), *(text.encode() for text in texts)]


def _layer_information(path: Path) -> None:
    from qdq_translator.board.engine.inspector import check_engine
    from qdq_translator.board.engine.layer_info import read_layer_info

    check_engine(_planned(), read_layer_info(path), None, {})


@functools.cache
def _planned() -> Any:
    from qdq_translator.board.engine.inspector import planned
    from qdq_translator.core.formats.files import TranslationFiles

    return planned(TranslationFiles.locate(_files()))


def _layers() -> list[bytes]:
    from tests.fuzz.readers import LAYERS

    return [json.dumps(LAYERS).encode()]


def _log(path: Path) -> None:
    from qdq_translator.board.engine.messages import read_log

    read_log(path).ranked()


def _logs() -> list[bytes]:
    from tests.fuzz.readers import LOG

    return [LOG.encode(), LOG.encode("utf-16")]


def _profile(path: Path) -> None:
    from qdq_translator.board.engine.board import read_profile

    read_profile(str(path))


def _answers(path: Path) -> None:
    from qdq_translator.board.results import read_results
    from qdq_translator.core.formats.files import TranslationFiles

    with tempfile.TemporaryDirectory() as folder:
        read_results(path, TranslationFiles(path.parent, "none"), Path(folder))


def _archives() -> list[bytes]:
    info = "schema_version=1\nstatus=0\nmodel=\ncache=\n"  # digests of files that are not there
    outputs = json.dumps([{"name": "y", "dimensions": "1x2", "values": [1, 2.5]}])
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in (("board_info.txt", info), ("build.log", "[I] [TRT] x\n"), ("board_outputs.json", outputs)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return [stream.getvalue()]


def _unpacked(path: Path) -> None:
    """Mutations of the tar inside: those of packed bytes end at gzip's checksum."""
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    _answers(path)


def _manifest(path: Path) -> None:
    from qdq_translator.board.bundle import read_manifest

    read_manifest(path.parent)


def _manifests() -> list[bytes]:
    about = {
        "schema_version": 1,
        "kind": "qdq-translator deploy",
        "steps": {"verify": {"key": "a", "files": {"a/b": "c"}}},
    }
    return [json.dumps({**about, "files": {"x": "y"}}).encode()]


def _arrays(path: Path) -> None:
    from qdq_translator.core.formats.npz import read_npy, read_npz

    for read in (read_npz, read_npy):
        with contextlib.suppress(ValueError, OSError):
            read(path)


def _arrays_seeds() -> list[bytes]:
    one, two = io.BytesIO(), io.BytesIO()
    np.save(one, np.ones((2, 3), np.float32))
    np.savez(two, a=np.arange(3), b=np.zeros((1, 0)))
    return [one.getvalue(), two.getvalue()]


def _polygraphy(path: Path) -> None:
    from qdq_translator.core.errors import UserError
    from qdq_translator.core.formats import polygraphy

    for read in (polygraphy.read_inputs, polygraphy.read_results):
        with contextlib.suppress(UserError):
            read(path)


def _polygraphy_seeds() -> list[bytes]:
    folder = Path(__file__).resolve().parents[1] / "data" / "polygraphy"
    return [path.read_bytes() for path in folder.glob("*.json") if path.stat().st_size < 20_000]


def _json(schema: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        from qdq_translator.core.formats import schemas

        schemas.read_json(path, getattr(schemas, schema)(), "Again.")

    return read


FORMATS = {
    "model": Format(_model, _models, ending=".onnx"),
    "cache": Format(_cache, _of_example(".cache")),
    "layer_arg": Format(_layer_arg, _of_example("_layer_arg.txt")),
    "config": Format(
        lambda path: _set(path).read_config(), _of_example("_config.json"), ending="m_precision_config.json"
    ),
    "report": Format(lambda path: _set(path).report_rows(), _of_example("_report.json"), ending="m_report.json"),
    "results": Format(_json("results_schema"), _of_example("results.json")),
    "board": Format(_json("board_schema"), lambda: [b'{"kind": "qdq-translator board"}']),
    "layer_information": Format(_layer_information, _layers),
    "profile": Format(
        _profile, lambda: [b'[{"count": 3}, {"name": "a", "averageMs": 0.5}]', b"layer_name,start_ms,end_ms\na,0,1\n"]
    ),
    "log": Format(_log, _logs),
    "sidecar": Format(_sidecar, _sidecars),
    "archive": Format(_answers, lambda: [gzip.compress(data) for data in _archives()]),
    "unpacked": Format(_unpacked, _archives),
    "deploy": Format(_manifest, _manifests, ending="deploy.json"),
    "arrays": Format(_arrays, _arrays_seeds),
    "polygraphy": Format(_polygraphy, _polygraphy_seeds),
}


def read_case(name: str, content: bytes) -> None:
    """Raises what the reader must not."""
    from qdq_translator.core.errors import UserError

    form = FORMATS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (form.ending if form.ending and form.ending[0] != "." else f"x{form.ending}")
        path.write_bytes(content)
        try:
            form.read(path)
        except UserError as error:
            text = str(error)
            if not text.rstrip().endswith((".", ")", "?", "'")) or "unexpected" in text or len(text) > 5000:
                raise AssertionError(f"no sentence: {text[:200]}") from error


def _run(name: str, seconds: int, found: Path) -> None:
    """In a process of its own, which libFuzzer ends."""
    import atheris

    logging.disable()
    with atheris.instrument_imports(include=["qdq_translator"]):
        import qdq_translator.board.results
        import qdq_translator.core.formats.polygraphy
        import qdq_translator.translation.translator  # noqa: F401
    with tempfile.TemporaryDirectory() as begun:
        for number, content in enumerate(FORMATS[name].seeds()):
            (Path(begun) / f"seed{number}").write_bytes(content)
        limits = [f"-max_total_time={seconds}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", "-max_len=20000"]
        folders = [begun, *([str(CORPUS / name)] if (CORPUS / name).is_dir() else [])]
        atheris.Setup(
            [sys.argv[0], *limits, f"-artifact_prefix={found}/{name}-", *folders], lambda data: read_case(name, data)
        )
        atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("formats", nargs="*", default=[*FORMATS])
    parser.add_argument("--seconds", type=int, default=60, help="for each format")
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="folder for inputs that went wrong")
    parser.add_argument("--one", action="store_true", help="the only format, in this process")
    options = parser.parse_args()
    options.found.mkdir(exist_ok=True)
    if options.one:
        _run(options.formats[0], options.seconds, options.found)
        return 0
    with ThreadPoolExecutor(os.cpu_count()) as several:
        return max(several.map(lambda name: _apart(name, options.seconds, options.found), options.formats))


def _apart(name: str, seconds: int, found: Path) -> int:
    """One format in a process of its own; says what came of it. The result is 1 if an input went wrong."""
    words = ["--one", name, "--seconds", str(seconds), "--found", str(found)]
    command = [sys.executable, "-m", "tests.fuzz.guided", *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    counted = re.findall(r"Done (\d+) runs|#(\d+)\s", done.stderr)
    inputs = max((int(a or b) for a, b in counted), default=0)
    print(f"{name}: {inputs} inputs, " + (f"FAILED\n{done.stderr[-3000:]}" if done.returncode else "well"), flush=True)
    return int(bool(done.returncode))


if __name__ == "__main__":
    sys.exit(main())
