"""trtexec: a script that checks the files, writes the version of the board into the header of a copy of the cache, and
builds.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

from qdq_translator.board.consumers import Bundle
from qdq_translator.translation.files import trtexec
from qdq_translator.translation.files.trtexec.checks import prepare
from qdq_translator.translation.files.trtexec.request import BuildRequest, Network

TITLE = "trtexec"
SOURCES = ("docs.nvidia.com/deeplearning/tensorrt (trtexec)", "docs/facts.md, section 3")
OUTPUTS = "board_outputs.json"
COLLECT = r"""#!/bin/sh
# Builds the engine, runs it once on stored inputs and packs the log, layer information, times and outputs.
set -eu
cd -- "$(dirname -- "$0")"
status=0
rm -f build.log board_outputs.json @LAYER_INFO@ @PROFILE@
sh ./build.sh @WORDS@ "$@" >build.log 2>&1 || status=$?
digest() { sha256sum -- "$1" | cut -d ' ' -f 1; }
{
    printf 'schema_version=1\nstatus=%s\nmodel=%s\ncache=%s\n' "$status" "$(digest @MODEL@)" "$(digest @CACHE@)"
    printf 'machine=%s\n' "$(uname -m)"
    [ ! -r /proc/device-tree/model ] || printf 'board=%s\n' "$(tr -d '\000' </proc/device-tree/model)"
    [ ! -r /etc/nv_tegra_release ] || printf 'l4t=%s\n' "$(head -n 1 /etc/nv_tegra_release)"
} >board_info.txt
set -- board_info.txt build.log
for file in @LAYER_INFO@ @PROFILE@ board_outputs.json; do
    [ ! -f "$file" ] || set -- "$@" "$file"
done
tar -czf @NAME@_board.tar.gz -- "$@"
echo "Wrote @NAME@_board.tar.gz (trtexec left with status $status)."
exit "$status"
"""


def write(bundle: Bundle) -> list[str]:
    script(bundle, BuildRequest(), "build.sh")
    loads = ",".join(f"{name}:{file}" for name, file in bundle.board_inputs.items())
    words = [shlex.quote(f"--loadInputs={loads}"), f"--exportOutput={OUTPUTS}"] if loads and "'" not in loads else []
    places = {"@MODEL@": bundle.relative(bundle.files.model), "@CACHE@": bundle.relative(bundle.files.cache)}
    profile = f"{bundle.name}_profile.json"
    places.update({"@NAME@": bundle.name, "@LAYER_INFO@": layer_info(bundle), "@PROFILE@": profile})
    names = {**{key: shlex.quote(value) for key, value in places.items()}, "@WORDS@": " ".join(words)}
    bundle.write("collect.sh", re.sub("|".join(names), lambda match: names[match[0]], COLLECT), 0o777)
    return [
        "sh collect.sh    # builds with build.sh, times, and packs what was found",
        f"qdq-translator report {shlex.quote(f'{bundle.name}_board.tar.gz')} -t .    # here or on the desk",
    ]


def layer_info(bundle: Bundle) -> str:
    return f"{engine(bundle).rpartition('.')[0]}_layer_info.json"


def engine(bundle: Bundle) -> str:
    return f"{bundle.name}_int8{'_' + bundle.target if bundle.on_dla else ''}.engine"


def script(bundle: Bundle, request: BuildRequest, path: str) -> None:
    """A script for the stripped network. request: the other settings; target, core, pools and shapes come from the
    bundle."""
    given = Network.read(bundle.files.model).inputs
    info = request.layer_info or str(bundle.folder / layer_info(bundle))
    request = dataclasses.replace(
        request,
        target=bundle.target,
        dla_core=bundle.dla_core,
        allow_gpu_fallback=bundle.on_dla and not request.dla_standalone,
        pools={"dlaSRAM": 1.0} if bundle.on_dla else {},
        opt_shapes={end.name: end.shape for end in bundle.inputs if -1 in given.get(end.name, ())},
        save_engine=request.save_engine or str(bundle.folder / engine(bundle)),
        layer_info="" if request.dla_standalone else info,
        profile="" if request.dla_standalone else str(Path(info).with_name(f"{bundle.name}_profile.json")),
    )
    settings = prepare(bundle.files, request, bundle.platform.tensorrt)
    place = bundle.folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    bundle.write(path, trtexec.shell_script(settings, trtexec.trtexec_arguments(settings), place.parent), 0o777)
