"""trtexec: a script that checks the files, writes the version of the board into the header of a copy of the cache, and builds."""

from __future__ import annotations

import dataclasses

from qdq_translator.output.consumers import Bundle
from qdq_translator.output.emit import trtexec
from qdq_translator.output.emit.trtexec import BuildRequest, Network

TITLE = "trtexec"
SOURCES = ("docs.nvidia.com/deeplearning/tensorrt (trtexec)", "docs/facts.md, section 3")
OWN_MODEL = False


def refuse(bundle: Bundle) -> str:
    return ""


def write(bundle: Bundle) -> list[str]:
    script(bundle, BuildRequest(), "build.sh")
    return [
        "sh build.sh",
        f"qdq-translator check-engine -t . --layer_info {layer_info(bundle)}",
    ]


def layer_info(bundle: Bundle) -> str:
    return f"{engine(bundle).rpartition('.')[0]}_layer_info.json"


def engine(bundle: Bundle) -> str:
    return f"{bundle.name}_int8{'_' + bundle.target if bundle.on_dla else ''}.engine"


def script(bundle: Bundle, request: BuildRequest, path: str) -> None:
    """A script for the stripped network. request: what else it asks for; target, core, pools and shapes are the bundle's."""
    given = Network.read(bundle.files.model).inputs
    request = dataclasses.replace(
        request,
        target=bundle.target,
        dla_core=bundle.dla_core,
        allow_gpu_fallback=bundle.on_dla and not request.dla_standalone,
        pools={"dlaSRAM": 1.0} if bundle.on_dla else {},
        opt_shapes={end.name: end.shape for end in bundle.inputs if -1 in given.get(end.name, ())},
        save_engine=request.save_engine or str(bundle.folder / engine(bundle)),
        layer_info="" if request.dla_standalone else request.layer_info or str(bundle.folder / layer_info(bundle)),
        profile="" if request.dla_standalone else str(bundle.folder / f"{bundle.name}_profile.json"),
    )
    settings = trtexec.prepare(bundle.files, request, bundle.platform.tensorrt)
    place = bundle.folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    bundle.write(path, trtexec.shell_script(settings, trtexec.trtexec_arguments(settings), place.parent), 0o777)
