"""cuDLA: a standalone loadable, and its buffers as the application needs them (`NAME_io.json`, `NAME_io.h`)."""

from __future__ import annotations

from qdq_translator.board.consumers import Bundle, trtexec
from qdq_translator.core.words import others
from qdq_translator.translation.files import buffers
from qdq_translator.translation.files.trtexec.request import BuildRequest, direct_format

TITLE = "cuDLA (standalone loadable)"
SOURCES = (
    "docs.nvidia.com/cuda/cudla-api",
    "github.com/NVIDIA-AI-IOT/cuDLA-samples",
    "docs.nvidia.com/deeplearning/tensorrt (DLA standalone mode, I/O formats on DLA)",
)


def refuse(bundle: Bundle) -> str:
    if not bundle.on_dla:
        return f"{bundle.platform.name} has no DLA, or the target is its GPU"
    if bundle.loadable is None:
        gpu = sorted(bundle.gpu_layers)
        return (
            f"layer '{gpu[0]}'{others(gpu)} {'runs' if len(gpu) == 1 else 'run'} on the GPU, and no part without GPU "
            "layers was cut off"
        )
    ends = (*bundle.loadable.inputs, *bundle.loadable.outputs)
    wrong = [end for end in ends if not 2 <= len(end.shape) <= 4]
    return f"'{wrong[0].name}' has {len(wrong[0].shape)} dimensions" if wrong else ""


def write(bundle: Bundle) -> list[str]:
    assert bundle.loadable is not None
    part = bundle.loadable
    inputs = ",".join(direct_format(end.scale is not None, "input") for end in part.inputs)
    outputs = ",".join(direct_format(end.scale is not None, "output") for end in part.outputs)
    request = BuildRequest(
        dla_standalone=True,
        input_io_formats=inputs,
        output_io_formats=outputs,
        save_engine=str(bundle.folder / "cudla" / f"{bundle.name}.loadable"),
        skip_inference=True,
    )
    trtexec.script(part, request, "cudla/build_loadable.sh")
    ends = buffers.describe(part.inputs, inputs, "input") + buffers.describe(part.outputs, outputs, "output")
    bundle.write(f"cudla/{bundle.name}_io.json", buffers.as_json(bundle.name, ends))
    bundle.write(
        f"cudla/{bundle.name}_io.h", buffers.cpp_header(bundle.name, ends, bundle.image_mean, bundle.image_std)
    )
    use = f'#include "{bundle.name}_io.h", cudlaModuleLoadFromMemory of cudla/{bundle.name}.loadable'
    return ["sh cudla/build_loadable.sh", f"# in the application: {use}"]
