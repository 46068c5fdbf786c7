"""Triton Inference Server: a model repository for the TensorRT backend, and the script that builds its plan on the
board.
"""

from __future__ import annotations

import json
import shlex

from qdq_translator.board.consumers import Bundle, trtexec
from qdq_translator.translation.files.buffers import End
from qdq_translator.translation.files.trtexec.request import BuildRequest

TITLE = "Triton Inference Server (TensorRT backend)"
SOURCES = (
    "docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_configuration.html",
    "github.com/triton-inference-server/common: protobuf/model_config.proto",
)


def write(bundle: Bundle) -> list[str]:
    repository = f"triton/{bundle.name}"
    bundle.write(f"{repository}/config.pbtxt", config(bundle))
    plan = bundle.folder / repository / "1" / "model.plan"
    plan.parent.mkdir(parents=True, exist_ok=True)
    info = plan.parent.parent / "model_layer_info.json"
    trtexec.script(bundle, BuildRequest(save_engine=str(plan), layer_info=str(info)), "triton/build_plan.sh")
    return [
        f"mkdir -p {shlex.quote(f'{repository}/1')}",
        "sh triton/build_plan.sh",
        "tritonserver --model-repository=triton",
    ]


def config(bundle: Bundle) -> str:
    """The text of config.pbtxt. Its max_batch_size is 0, so that the dimensions are whole shapes."""

    def end(row: End) -> str:
        return f"  {{ name: {json.dumps(row.name)} data_type: TYPE_FP32 dims: {list(row.shape)} }}"

    device = f" secondary_devices [ {{ kind: KIND_NVDLA device_id: {bundle.dla_core} }} ]" if bundle.on_dla else ""
    parts = (
        f"name: {json.dumps(bundle.name)}",
        'platform: "tensorrt_plan"',
        "max_batch_size: 0",
        "input [\n" + ",\n".join(map(end, bundle.inputs)) + "\n]",
        "output [\n" + ",\n".join(map(end, bundle.outputs)) + "\n]",
        f"instance_group [ {{ count: 1 kind: KIND_GPU{device} }} ]",
    )
    return "\n".join(parts) + "\n"
