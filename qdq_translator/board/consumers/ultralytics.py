"""ultralytics: an engine of its own ONNX file with its metadata in front, as its predictor reads it; and the cache for
exporters that read one (8.3 reads `NAME.cache` next to the weights; 8.4.190 calibrates each time). The calibrator
of 8.3.0 to 8.3.100 is Entropy2's, that of 8.3.150 MinMax's, that of 8.3.240 Entropy2's for a DLA and MinMax's for a
GPU."""

from __future__ import annotations

import json
import shlex

from qdq_translator.board.consumers import Bundle, trtexec
from qdq_translator.core.formats.calibration_cache import ALGORITHMS, ENTROPY_CALIBRATION_2
from qdq_translator.translation.files.trtexec.request import BuildRequest
from qdq_translator.translation.ir.io import load_model

TITLE = "ultralytics"
SOURCES = (
    "docs.ultralytics.com/integrations/tensorrt",
    "ultralytics 8.3.0 to 8.3.240 and 8.4.190: EngineCalibrator, and AutoBackend's reader of .engine files",
)
OWN_MODEL = True
PROGRAM = '''"""Writes {name}.engine for ultralytics: metadata length (4 bytes), metadata (JSON), engine of trtexec."""

from pathlib import Path

here = Path(__file__).resolve().parent
metadata = (here / "metadata.json").read_bytes()
engine = (here / "{name}_trtexec.engine").read_bytes()
(here / "{name}.engine").write_bytes(len(metadata).to_bytes(4, "little") + metadata + engine)
'''


def refuse(bundle: Bundle) -> str:
    return "" if _metadata(bundle) else "the ONNX file has no metadata of an ultralytics export (stride, task, names)"


def write(bundle: Bundle) -> list[str]:
    name, text = bundle.name, bundle.files.cache.read_text(encoding="utf-8", errors="surrogateescape")
    bundle.write(f"ultralytics/{name}.cache", text)
    bundle.write(f"ultralytics/{name}_minmax.cache", text.replace(ENTROPY_CALIBRATION_2, ALGORITHMS["minmax"], 1))
    bundle.write("ultralytics/metadata.json", json.dumps(_metadata(bundle)))
    bundle.write("ultralytics/make_engine.py", PROGRAM.format(name=name))
    base = str(bundle.folder / "ultralytics" / name)
    request = BuildRequest(save_engine=f"{base}_trtexec.engine", layer_info=f"{base}_layer_info.json")
    trtexec.script(bundle, request, "ultralytics/build.sh")
    export = "yolo export format=engine int8=True"
    minmax = f"8.3.150{'' if bundle.on_dla else ' and later'}: {name}_minmax.cache under that name"
    return [
        "sh ultralytics/build.sh && python3 ultralytics/make_engine.py",
        f"yolo predict {shlex.quote(f'model=ultralytics/{name}.engine')}",
        f"# or, with an exporter that reads a cache: {name}.cache beside {name}.pt, then {export}",
        f"# {minmax}",
    ]


def _metadata(bundle: Bundle) -> dict[str, str]:
    """Metadata that ultralytics' export wrote into the model."""
    props = {row.key: row.value for row in load_model(bundle.files.model, weights=False)[0].metadata_props}
    own = {key: value for key, value in props.items() if not key.startswith("qdq_translator")}
    return own if "stride" in props else {}
