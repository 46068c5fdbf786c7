"""Networks quantized by other tools, as their users call them."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Iterator

import numpy as np
import onnx

from . import environment
from .infer import samples, session
from .task import Feeds

LEAST_OPSET = 13
"""DequantizeLinear per channel."""


def onnxruntime_symmetric(model: Path, calibration: Feeds, out: Path) -> None:
    """`quantize_static` with what TensorRT needs: symmetric int8, float weights behind Q/DQ per channel, float bias."""
    options = {"ActivationSymmetric": True, "WeightSymmetric": True, "AddQDQPairToWeight": True, "QuantizeBias": False}
    _onnxruntime(model, calibration, out, True, True, options)


def onnxruntime_default(model: Path, calibration: Feeds, out: Path) -> None:
    """`quantize_static` with nothing but the data: uint8 asymmetric activations, int8 weights per tensor."""
    _onnxruntime(model, calibration, out, False, False, {})


def modelopt(model: Path, calibration: Feeds, out: Path) -> None:
    """ModelOpt's default for INT8: entropy, placement for a GPU. Raises Unavailable if it cannot be had."""
    torch = (["torch==2.13.0"], ["-r", str(environment.ROOT / "e2e_workflow" / "modelopt_ptq" / "requirements.txt")])
    python = environment.python("modelopt", *torch, ["--no-deps", "nvidia-modelopt==0.47.0"])
    with tempfile.TemporaryDirectory() as scratch:
        data, upgraded = Path(scratch) / "data.npz", _upgraded(model, Path(scratch))
        np.savez(data, **calibration)
        environment.run([python, "-m", "e2e_workflow.common.modelopt", str(upgraded), str(data), str(out)])


def _onnxruntime(
    model: Path, calibration: Feeds, out: Path, symmetric: bool, per_channel: bool, options: dict[str, bool]
) -> None:
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    onnxruntime.set_default_logger_severity(4)

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds: Iterator[dict[str, np.ndarray]] = samples(calibration)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    types = {"activation_type": QuantType.QInt8} if symmetric else {}
    with tempfile.TemporaryDirectory() as scratch:
        prepared, upgraded = Path(scratch) / "prepared.onnx", _upgraded(model, Path(scratch))
        for as_it_is in (False, True):
            quant_pre_process(str(upgraded), str(prepared), as_it_is, skip_symbolic_shape=True)
            quantize_static(
                str(prepared),
                str(out),
                Reader(),
                quant_format=QuantFormat.QDQ,
                per_channel=per_channel,
                extra_options=options,
                **types,
            )
            with contextlib.suppress(
                Exception
            ):  # ONNX Runtime cannot load what its own optimizer makes of some networks
                session(out)
                return


def _upgraded(model: Path, folder: Path) -> Path:
    """The model, of opset 17 if it is older than 13."""
    loaded = onnx.load(str(model))
    if next(o.version for o in loaded.opset_import if o.domain in ("", "ai.onnx")) >= LEAST_OPSET:
        return model
    onnx.save(onnx.version_converter.convert_version(loaded, 17), str(folder / "upgraded.onnx"))
    return folder / "upgraded.onnx"
