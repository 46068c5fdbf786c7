"""YOLO from float to loadable: export, cut, quantize, translate, plan; with everything in INT8 and with the tail left out.

    python -m e2e_workflow.yolo.run FOLDER [--model yolo11n] [--weights FILE.pt] [--images FOLDER] [--size 640]
    python -m e2e_workflow.yolo.run FOLDER --onnx my_export.onnx

Without --weights the architecture gets random ones, without --images the calibration noise: layers, subgraphs and estimated
times are the same, accuracy is not looked at. Nothing here runs on TensorRT or on a DLA.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from e2e_workflow.common.symmetric import quantize_symmetric
from qdq_translator import TranslateOptions, Translation, translate
from qdq_translator.cli import main as command
from qdq_translator.formats.files import TranslationFiles
from qdq_translator.parts import Request, split_model, split_translation


def export(model: str, weights: str | None, size: int, path: Path) -> None:
    """The float ONNX of an ultralytics architecture, its decode tail included."""
    import torch
    from ultralytics import YOLO

    torch.manual_seed(0)
    network = YOLO(weights or f"{model}.yaml").model.float()
    with torch.no_grad():
        for _ in range(0 if weights else 10):  # random weights: normalizations that know what they normalize
            network.train()(torch.rand(2, 3, 160, 160))
    network = network.fuse().eval()
    for module in network.modules():
        if hasattr(module, "export"):
            module.export, module.format, module.dynamic = True, "onnx", False
    with torch.no_grad():
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, size, size),),
            str(path),
            opset_version=17,
            dynamo=False,
            input_names=["images"],
            output_names=["output0"],
        )


def images(folder: Path | None, shape: list[int]) -> Iterator[np.ndarray]:
    """Up to 32 images of a folder in the network's size, in [0, 1]; noise where there is no folder."""
    if folder is None:
        generator = np.random.default_rng(0)
        for _ in range(2):
            yield generator.random(shape, dtype=np.float32)
        return
    from PIL import Image

    names = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    for name in names[:32]:
        image = Image.open(name).convert("RGB").resize((shape[3], shape[2]))
        yield np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 255


def quantize(source: Path, target: Path, folder: Path | None, exclude: list[str]) -> None:
    """ONNX Runtime's static quantization with zero points of 0; `exclude`: nodes that stay float."""
    value = onnx.load(str(source), load_external_data=False).graph.input[0]
    shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
    quantize_symmetric(source, target, ({value.name: image} for image in images(folder, shape)), exclude)


def row(name: str, done: Translation) -> dict[str, Any]:
    assert done.dla is not None and done.costs is not None
    counts = {verdict: done.dla.count(verdict) for verdict in ("dla-int8", "dla-fp16", "gpu")}
    swallowed = [d.message for d in done.diagnostics.of_rule("C3")]
    return {
        "what": name,
        **counts,
        "subgraphs": done.dla.subgraphs,
        "milliseconds": done.costs.milliseconds,
        "swallowed": swallowed,
    }


def run(folder: Path, source: Path, data: Path | None, platform: str) -> dict[str, Any]:
    """Everything behind the float ONNX; the rows of the table, and where the files are."""
    dla = TranslateOptions(preset="dla", platform=platform)
    plain = TranslateOptions(target="orin-dla", platform=platform)
    cut = split_model(source, dla, Request([], [], folder / "float", 1))
    everything, without = (folder / f"{source.stem}_{kind}.onnx" for kind in ("everything", "without_tail"))
    quantize(source, everything, data, [])
    quantize(source, without, data, cut["tail"])
    rows = [row(f"{path.stem}, {how}", translate(path, options)) for path in (everything, without) for how, options in
            (("as it is", plain), ("--preset dla", dla))]  # fmt: skip
    files = translate(without, dla).save(folder / "translated")
    manifest = split_translation(files, Request([], [], folder / "parts", 1))
    own = next(p for p in manifest["parts"] if p["role"] == "dla")
    part = TranslationFiles.locate(folder / "parts" / own["file"])
    report = part.read_report("dla", "cost")
    rows.append(
        {
            "what": f"{part.name}, cut out of it",
            **{v: report["dla"]["counts"][v] for v in ("dla-int8", "dla-fp16", "gpu")},
            "subgraphs": report["dla"]["subgraphs"],
            "milliseconds": report["cost"]["milliseconds"],
            "swallowed": [],
        }
    )
    first = "int8:dla_linear" if own["inputs"][0]["scale"] is not None else "fp16:dla_linear"
    last = ",".join(end["format"] for end in own["outputs"])
    script = folder / "parts" / "build_loadable.sh"
    formats = ["--input_io_formats", first, "--output_io_formats", last]
    status = command(["trtexec", "-t", str(part.model), "--dla_standalone", *formats, "--script", str(script)])
    assert status == 0
    return {"rows": rows, "manifest": manifest, "script": str(script)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| | DLA INT8 | DLA FP16 | GPU | subgraphs | estimated ms | inputs that a Concat's range leaves nothing of |"
    ]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for found in rows:
        time = "unknown" if found["milliseconds"] is None else f"{found['milliseconds']:.2f}"
        cells = [found["what"], *(str(found[k]) for k in ("dla-int8", "dla-fp16", "gpu", "subgraphs")), time]
        lines.append("| " + " | ".join([*cells, str(len(found["swallowed"]))]) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="YOLO from float to loadable.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--model", default="yolo11n", help="an architecture of ultralytics: yolov5s, yolov8n, yolo11n, ..."
    )
    parser.add_argument("--weights", help="a .pt of ultralytics (default: random weights)")
    parser.add_argument("--onnx", type=Path, help="your own float export, instead of an architecture")
    parser.add_argument("--images", type=Path, help="a folder of images to calibrate with (default: noise)")
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--platform", default="jetpack-6.2")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    source = arguments.onnx
    if source is None:
        source = arguments.folder / f"{Path(arguments.weights or arguments.model).stem}.onnx"
        export(arguments.model, arguments.weights, arguments.size, source)
    found = run(arguments.folder, source, arguments.images, arguments.platform)
    print(table(found["rows"]), end="")
    for sentence in dict.fromkeys(s for r in found["rows"] for s in r["swallowed"]):
        print(sentence)
    (arguments.folder / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    print(f"Build on the board: {found['script']}; the rest runs from {arguments.folder / 'parts'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
