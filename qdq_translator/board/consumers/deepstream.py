"""DeepStream's Gst-nvinfer: `config_infer_NAME.txt`, a GLib key file with the group [property]."""

from __future__ import annotations

from qdq_translator.board.consumers import Bundle

TITLE = "DeepStream (Gst-nvinfer)"
SOURCES = (
    "docs.nvidia.com/metropolis/deepstream/dev-guide/text/DS_plugin_gst-nvinfer.html",
    "gstnvinfer_property_parser.h of the DeepStream SDK (names of the keys)",
)
KEYS = (
    *("gpu-id", "onnx-file", "model-engine-file", "int8-calib-file", "batch-size", "network-mode", "network-type"),
    *("infer-dims", "model-color-format", "net-scale-factor", "offsets", "process-mode", "gie-unique-id"),
    *("output-tensor-meta", "output-blob-names", "layer-device-precision", "enable-dla", "use-dla-core"),
)
"""Keys of [property] that `write` may use, as the page documents them."""


def refuse(bundle: Bundle) -> str:
    if len(bundle.inputs) != 1:
        return f"nvinfer feeds one input, and the network has {len(bundle.inputs)}"
    shape = bundle.inputs[0].shape
    if len(shape) != 4 or shape[1] not in (1, 3):
        return f"nvinfer feeds images with 1 or 3 channels (N, C, H, W), and the input is {'x'.join(map(str, shape))}"
    if len(set(bundle.image_std)) != 1:
        return "nvinfer has one net-scale-factor, and --image_std differs from channel to channel"
    return ""


def write(bundle: Bundle) -> list[str]:
    batch, channels, height, width = bundle.inputs[0].shape
    model = bundle.relative(bundle.files.model, "deepstream")
    device = f"dla{bundle.dla_core}" if bundle.on_dla else "gpu0"
    rows = {
        "gpu-id": "0",
        "onnx-file": model,
        "model-engine-file": f"{model}_b{batch}_{device}_int8.engine",
        "int8-calib-file": bundle.relative(bundle.files.cache, "deepstream"),
        "batch-size": str(batch),
        "network-mode": "1",
        "network-type": "100",
        "infer-dims": f"{channels};{height};{width}",
        "model-color-format": "2" if channels == 1 else str(int(bundle.colors == "bgr")),
        "net-scale-factor": repr(1 / (255 * bundle.image_std[0])),
        "process-mode": "1",
        "gie-unique-id": "1",
        "output-tensor-meta": "1",
        "output-blob-names": ";".join(end.name for end in bundle.outputs),
    }
    if any(bundle.image_mean):
        mean = bundle.image_mean * channels if len(bundle.image_mean) == 1 else bundle.image_mean
        rows["offsets"] = ";".join(f"{255 * value:g}" for value in mean)
    if bundle.resize == "letterbox":
        rows.update({"maintain-aspect-ratio": "1", "symmetric-padding": "1"})
    precisions = [
        f"{name}:{precision}:{'gpu' if not bundle.on_dla or name in bundle.gpu_layers else 'dla'}"
        for name, precision in bundle.files.read_layer_precisions().items()
        if not {":", ";"} & set(name)
    ]
    if precisions:
        rows["layer-device-precision"] = ";".join(precisions)
    if bundle.on_dla:
        rows.update({"enable-dla": "1", "use-dla-core": str(bundle.dla_core)})
    lines = ["# network-mode 1: INT8; network-type 100: raw output tensors, for a parser of your own", "[property]"]
    path = f"deepstream/config_infer_{bundle.name}.txt"
    bundle.write(path, "\n".join([*lines, *(f"{key}={value}" for key, value in rows.items())]) + "\n")
    return [
        f"# in the pipeline: nvinfer config-file-path={path}",
        "# the engine is built at the first start; add labelfile-path, network-type and a parser for your network",
    ]
