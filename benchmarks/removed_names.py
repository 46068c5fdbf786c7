"""Writes `qdq_translator/board/engine/removed.json`: names that TensorRT 8 to 11 removed, deprecated or gave another meaning.

    python -m benchmarks.removed_names FACTS.json [--bindings FOLDER]

FACTS.json: rows of public release notes, headers and guides (name, language, versions, replacement). Python names are
compared with the real binding modules of 8.6, 10.3, 10.16 and 11.4 (`tests/trt_bindings`), which pip downloads into
FOLDER; what they lack and FACTS.json does not name is added, with its C++ spelling where that follows from the name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.trt_bindings.wheels import WHEELS, prepare

TABLE = Path(__file__).resolve().parents[1] / "qdq_translator" / "board" / "engine" / "removed.json"
QDQ = "Q/DQ nodes in the ONNX model (explicit quantization)"
TYPED = "type the ONNX model itself (Cast, Q/DQ; ModelOpt AutoCast); networks are always strongly typed"
MEMBERS = (  # C++ spelling of names that the bindings spell otherwise or lack, from the public headers
    *(("ITensor", name, QDQ, "yes") for name in ("setDynamicRange", "getDynamicRangeMax")),
    *(("ILayer", name, TYPED, "yes (typed)") for name in ("precisionIsSet", "outputTypeIsSet")),
    *(("IRefitter", name, QDQ, "yes") for name in ("getDynamicRangeMax",)),
    *(("BuilderFlag", name, TYPED, "yes (typed)") for name in ("kFP16", "kPREFER_PRECISION_CONSTRAINTS")),
    ("BuilderFlag", "kINT8", QDQ, "yes"),
    ("", "CalibrationAlgoType", QDQ, "yes"),
)
FLAGS = (
    *(("trtexec", "--int8", QDQ, "yes", "11.0"),),
    *(("deepstream", "int8-calib-file", "Q/DQ ONNX plus strongly-typed=1", "yes on 11", ""),),
    *(("deepstream", f"network-mode={n}", "typed ONNX plus strongly-typed=1", "yes (typed) on 11", "") for n in (2, 3)),
    *(("onnxruntime", "trt_fp16_enable", "FP16-typed ONNX", "yes (typed) on 11", ""),),
)
_DUMP = """
import inspect, json, sys
import tensorrt as trt
found = []
for name in (n for n in dir(trt) if not n.startswith("_")):
    one = getattr(trt, name)
    found.append("trt." + name)
    if inspect.isclass(one):
        found += [f"{name}.{member}" for member in dir(one) if not member.startswith("_")]
json.dump(found, sys.stdout)
"""


def names(version: str, cache: Path) -> set[str]:
    """`trt.Class` and `Class.member` of a binding module."""
    place = prepare(version, cache)
    env = {**os.environ, "LD_LIBRARY_PATH": str(place / "lib"), "PYTHONPATH": str(place)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _DUMP], env=env, capture_output=True, text=True)
    done.check_returncode()
    return set(json.loads(done.stdout))


def gone(cache: Path) -> dict[str, str]:
    """Python name -> first version without it. Members of a class that is gone as a whole, and those that every layer
    class has from `ILayer`, are left out."""
    known = {version: names(version, cache) for version in WHEELS}
    newest = known["11.4.0"]
    found = {}
    for name in sorted(set().union(*known.values()) - newest):
        owner = name.split(".")[0]
        if owner != "trt" and (f"trt.{owner}" not in newest or (owner != "ILayer" and name_of_layer(name) in found)):
            continue
        found[name] = "11.0" if name in known["10.16.1"] else "10.0"
    layers = {name_of_layer(name) for name in found} & found.keys()
    return {name: version for name, version in found.items() if name_of_layer(name) not in layers - {name}}


def name_of_layer(name: str) -> str:
    """`ILayer.precision` of `IConvolutionLayer.precision`; other names as they are."""
    return re.sub(r"^I\w*Layer\.", "ILayer.", name)


def in_cpp(name: str) -> str:
    """`nvinfer1::BuilderFlag::kINT8` of `BuilderFlag.INT8`; '' for what is no value of an enumeration."""
    owner, _, member = name.partition(".")
    return f"nvinfer1::{owner}::k{member}" if owner != "trt" and re.fullmatch(r"[A-Z][A-Z0-9_]*", member) else ""


def main(words: Any = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("facts", type=Path)
    parser.add_argument("--bindings", type=Path, default=Path(tempfile.gettempdir()) / "trt_bindings")
    asked = parser.parse_args(words)
    keys = ("name", "language", "removed_in", "deprecated_in", "replacement", "needs_new_onnx", "status")
    rows = [[row[key] or "" for key in keys] for row in json.loads(asked.facts.read_text(encoding="utf-8"))]
    known = {(row[1], row[0]) for row in rows}

    def add(language: str, name: str, version: str, replacement: str, onnx: str) -> None:
        if name and (language, name) not in known:
            known.add((language, name))
            rows.append(
                [name, language, version, "", replacement, onnx, "removed" if version else "kept (weak typing)"]
            )

    for owner, member, *more in MEMBERS:
        add("cpp", "::".join(filter(None, ("nvinfer1", owner, member))), "11.0", *more)
    for name, version in gone(asked.bindings).items():
        quantizes = bool(re.search(r"INT8|FP8|Int8|alibrat|dynamic_range|uantiz", name))
        more = (QDQ, "yes") if quantizes else (TYPED, "yes (typed)") if "precision" in name else ("", "no")
        if version == "10.0":
            more = ("", "no")
        add("python", name, version, *more)
        add("cpp", in_cpp(name), version, *more)
    for language, name, replacement, onnx, version in FLAGS:
        add(language, name, version, replacement, onnx)
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in sorted(rows, key=lambda row: (row[1], row[0])))
    source = "release notes and guides to 11.4.1, headers of 18 tags, Python bindings 8.6.1 to 11.4.0"
    TABLE.write_text(
        f'{{"source": "{source}", "date": "2026-11",\n "columns": {json.dumps(keys)},\n "rows": [\n  {lines}\n]}}\n',
        encoding="utf-8",
    )
    print(f"{TABLE.name}: {len(rows)} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
