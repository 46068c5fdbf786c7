"""YOLO from float to loadable: export, quantize, translate, cut; with everything in INT8, with the tail left out, and with
calibration alone.

    python -m e2e_workflow.yolo.run FOLDER [--model yolo11n] [--weights FILE.pt] [--images FOLDER] [--size 640]
    python -m e2e_workflow.yolo.run FOLDER --onnx my_export.onnx --coco val2017/ instances_val2017.json

Without --weights the architecture gets random ones, without --images noise calibrates: layers, subgraphs and estimated
times are the same, accuracy is not looked at. Nothing here runs on TensorRT or on a DLA.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx

from benchmarks.symmetric import quantize_symmetric
from e2e_workflow.yolo import coco
from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main as command
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
from qdq_translator.lab.parts import cut_tail, split_model, split_translation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import Session

IMAGES = 32
"""To calibrate with."""
HEAD = (
    "| | GPU layers, whole | of the DLA's part | DLA INT8 | DLA FP16 | subgraphs | estimated ms | inputs that a Concat's range leaves "
    "nothing of | mAP in ONNX Runtime | simulated |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)


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


def calibration(folder: Path | None, shape: list[int]) -> np.ndarray:
    """Images of a folder in the network's size; noise where there is no folder."""
    if folder is None:
        return np.random.default_rng(0).random([2, *shape[1:]], dtype=np.float32)
    return np.concatenate(list(coco.images(folder, shape[2], shape[3], IMAGES)))


def quantize(source: Path, target: Path, data: dict[str, np.ndarray], exclude: list[str], asked: Asked) -> None:
    """Q/DQ by ONNX Runtime or ModelOpt. exclude: nodes that stay float."""
    if asked.quantizer == "modelopt":
        from modelopt.onnx.quantization import quantize as modelopt_quantize

        modelopt_quantize(
            str(source),
            quantize_mode="int8",
            calibration_data=data,
            calibration_method="entropy",
            calibration_eps=["cpu"],
            high_precision_dtype="fp32",
            nodes_to_exclude=[
                f"{re.escape(name)}$" for name in exclude
            ],  # it takes patterns for the beginning of a name
            op_types_to_exclude=asked.op_types_to_exclude,
            output_path=str(target),
            log_level="ERROR",
        )
        return
    nodes = onnx.load(str(source), load_external_data=False).graph.node
    more = [node.name for node in nodes if node.op_type in asked.op_types_to_exclude]
    name, images = next(iter(data.items()))
    quantize_symmetric(source, target, ({name: image[None]} for image in images), [*exclude, *more])


class Asked(argparse.Namespace):
    """The command line."""

    folder: Path
    model: str
    weights: str | None
    onnx: Path | None
    quantizer: str
    op_types_to_exclude: list[str]
    images: Path | None
    coco: list[Path]
    most: int | None
    size: int
    platform: str


def detector(model: onnx.ModelProto) -> coco.Detector:
    session, name, output = Session(model, "detector"), model.graph.input[0].name, model.graph.output[0].name
    return lambda image: session.run({name: image})[output]


def engine(folder: Path, manifest: dict[str, Any]) -> coco.Detector:
    """The parts as they would be run: the DLA's as simulated engine, the others in float."""
    chain = []
    for part in manifest["parts"]:
        network = ImplicitNetwork.read(TranslationFiles.locate(folder / part["file"]))
        on_dla = part["role"] == "dla"
        model = simulate(network, SimulationOptions(fp16=True, sigmoid_fp16=True)).model if on_dla else network.model
        chain.append((part, Session(model, part["role"])))
    first, last = manifest["parts"][0]["inputs"][0]["name"], manifest["parts"][-1]["outputs"][-1]["name"]

    def run(image: np.ndarray) -> np.ndarray:
        known = {first: image}
        for part, session in chain:
            known.update(session.run({end["name"]: known[end["name"]] for end in part["inputs"]}))
        return known[last]

    return run


def row(name: str, source: Path, options: TranslateOptions, folder: Path, mean: Mean) -> dict[str, Any]:
    """One variant, translated with the preset into `folder` and cut; `mean`: the mAP of a detector, None where none is asked for."""
    done = translate(source, options, source.stem)
    assert done.dla is not None
    files = done.save(folder)
    cut = cut_tail(done, files)
    if cut is None:
        raise SystemExit(f"{source} has no decode tail to cut off; is it a YOLO export?")
    manifest = plain(cut)
    own = next(p for p in manifest["parts"] if p["role"] == "dla")
    part = TranslationFiles.locate(files.parts / own["file"])
    counts = part.read_report("dla")["dla"]["counts"]
    return {
        "what": name,
        "whole": len(done.dla.fallbacks),
        "subgraphs": own["subgraphs"],
        "milliseconds": own["milliseconds"],
        **{verdict: counts[verdict] for verdict in ("gpu", "dla-int8", "dla-fp16")},
        "swallowed": [d.message for d in done.diagnostics.of_rule("C3")],
        "qdq": mean(detector(onnx.load(str(source)))),
        "simulated": mean(engine(files.parts, manifest)),
        "part": str(part.model),
        "files": str(files.model),
    }


Mean = Callable[[coco.Detector], "float | None"]


def run(source: Path, asked: Asked) -> dict[str, Any]:
    """Everything behind the float ONNX; the rows of the table, and where the files are."""
    folder = asked.folder
    value = onnx.load(str(source), load_external_data=False).graph.input[0]
    shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
    data = {value.name: calibration(asked.images, shape)}
    np.savez(folder / "calibration.npz", **data)

    def mean(network: coco.Detector) -> float | None:
        if not asked.coco:
            return None
        return coco.mean_average_precision(*asked.coco, network, *shape[2:], asked.most)[0]

    dla = TranslateOptions(preset="dla", platform=asked.platform, unify_scales="max")
    cut = split_model(source, dla, folder / "float")
    everything, without = (folder / f"{source.stem}_{kind}.onnx" for kind in ("everything", "without_tail"))
    quantize(source, everything, data, [], asked)
    quantize(source, without, data, list(cut.tail), asked)
    calibrated = TranslateOptions(
        preset="dla", platform=asked.platform, unify_scales="max", calibrate=str(folder / "calibration.npz")
    )
    rows = [
        row("everything in INT8", everything, dla, folder / "everything", mean),
        row("without the tail", without, dla, folder / "without_tail", mean),
        row("float, --calibrate", source, calibrated, folder / "calibrated", mean),
    ]
    part = TranslationFiles.locate(rows[1]["part"])
    if rows[1]["gpu"]:  # the largest subgraph is the loadable then
        whole = TranslationFiles.locate(rows[1]["files"])
        manifest = plain(split_translation(whole, folder / "largest"))
        own = max((p for p in manifest["parts"] if p["role"] == "dla"), key=lambda p: p["milliseconds"] or 0.0)
        part = TranslationFiles.locate(folder / "largest" / own["file"])
        counts = part.read_report("dla")["dla"]["counts"]
        rows.append(
            {
                **rows[1],
                "what": "without the tail, its largest subgraph",
                **{verdict: counts[verdict] for verdict in ("gpu", "dla-int8", "dla-fp16")},
                **{key: own[key] for key in ("subgraphs", "milliseconds")},
                "simulated": mean(engine(folder / "largest", manifest)),
            }
        )
    else:
        manifest = json.loads((part.folder / f"{without.stem}_split.json").read_text())
        own = manifest["parts"][0]
    formats = (",".join(end["format"] for end in own[ends]) for ends in ("inputs", "outputs"))
    words = zip(("--input_io_formats", "--output_io_formats"), formats)
    script = folder / "build_loadable.sh"
    wanted = ["-t", str(part.model), "--dla_standalone", *(w for pair in words for w in pair), "--script", str(script)]
    assert command(["build", "--print", *wanted]) == 0
    return {"rows": rows, "float": mean(detector(onnx.load(str(source)))), "manifest": manifest, "script": str(script)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [HEAD]
    for found in rows:
        time = "unknown" if found["milliseconds"] is None else f"{found['milliseconds']:.2f}"
        counts = [str(found[k]) for k in ("whole", "gpu", "dla-int8", "dla-fp16", "subgraphs")]
        means = ["" if found[k] is None else f"{found[k]:.1f}" for k in ("qdq", "simulated")]
        cells = [found["what"], *counts, time, str(len(found["swallowed"])), *means]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="YOLO from float to loadable.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--model", default="yolo11n", help="an architecture of ultralytics: yolov5s, yolov8n, yolo11n, ..."
    )
    parser.add_argument("--weights", help="a .pt of ultralytics (default: random weights)")
    parser.add_argument("--onnx", type=Path, help="your own float export, instead of an architecture")
    parser.add_argument("--quantizer", default="onnxruntime", choices=("onnxruntime", "modelopt"))
    parser.add_argument(
        "--op_types_to_exclude", nargs="+", default=[], metavar="OP", help="operators that no variant quantizes"
    )
    parser.add_argument("--images", type=Path, help="a folder of images to calibrate with (default: noise)")
    parser.add_argument(
        "--coco", type=Path, nargs=2, default=[], metavar=("IMAGES", "ANNOTATIONS"), help="what mAP is measured on"
    )
    parser.add_argument("--most", type=int, metavar="N", help="its first N images (default: all)")
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--platform", default="jetpack-6.2")
    return parser


def main() -> int:
    asked = arguments().parse_args(namespace=Asked())
    asked.folder.mkdir(parents=True, exist_ok=True)
    source = asked.onnx
    if source is None:
        source = asked.folder / f"{Path(asked.weights or asked.model).stem}.onnx"
        export(asked.model, asked.weights, asked.size, source)
    found = run(source, asked)
    print(table(found["rows"]), end="")
    if found["float"] is not None:
        print(f"mAP of the float model: {found['float']:.1f}")
    for sentence in dict.fromkeys(s for r in found["rows"] for s in r["swallowed"]):
        print(sentence)
    (asked.folder / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    print(f"Build on the board: {found['script']}; what runs around the loadable lies beside its model.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
