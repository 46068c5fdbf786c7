"""What `tune` finds for the denoiser that ships, on Orin's DLA: estimated milliseconds for each drop of PSNR that is allowed.

    python -m benchmarks.tune_denoiser [DB ...]

100 pictures that are scored, 64 others to calibrate on, 18 evaluations.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from e2e_workflow.denoiser import images
from qdq_translator.cli import main

MODEL = Path(images.__file__).with_name("denoiser_float.onnx")
TARGET = ["--target", "orin-dla", "--platform", "jetpack-6.2", "--shapes", "input:1x3x32x32", "--evaluations", "18"]


def tuned(folder: Path, drop: str) -> str:
    data, out = [str(folder / f"{name}.npz") for name in ("seen", "train")], folder / drop
    asked = ["tune", "-i", str(MODEL), "--data", data[0], "--metric", f"{images.__name__}:psnr", "--calibrate", data[1]]
    with contextlib.redirect_stdout(io.StringIO()):
        main([*asked, *TARGET, "--max_drop", drop, "-o", str(out)])
    best = json.loads((out / "denoiser_float_tune.json").read_text())["best"]
    cost, changes = best["cost"], ", ".join(f"{name} {value}" for name, value in best["changes"].items())
    fp16 = len(best["kept_fp16"])
    return f"| {drop} | {cost['milliseconds']:.4f} | {best['measured']['drop']:.3f} | {fp16} | {changes} |"


if __name__ == "__main__":
    print("| allowed dB | ms | lost dB | layers in FP16 | options |\n| ---: | ---: | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as name:
        noisy, clean = images.pairs(100, images.VALIDATION)
        np.savez(Path(name) / "seen.npz", input=noisy, labels=clean)
        np.savez(Path(name) / "train.npz", input=images.pairs(64, images.TRAINING)[0])
        for wanted in sys.argv[1:] or ("0.3", "0.5"):
            print(tuned(Path(name), wanted), flush=True)
