"""The trtexec (or Polygraphy) command that builds a translation, and a script that runs it (fact 3).

Pure functions over the files of a translation: `prepare` checks a request against the network, the cache and the
grammar of that TensorRT version; `trtexec_arguments` and `polygraphy_arguments` spell it; `trtexec_command`,
`polygraphy_command` and `shell_script` write it for a shell.
"""

from __future__ import annotations

from qdq_translator.output.emit.trtexec.checks import Settings, complete_shapes, prepare
from qdq_translator.output.emit.trtexec.command import (
    Argument,
    explicit_arguments,
    layer_argument,
    shorten,
    trtexec_arguments,
    trtexec_command,
)
from qdq_translator.output.emit.trtexec.polygraphy import (
    comparison_commands,
    comparison_files,
    polygraphy_arguments,
    polygraphy_command,
)
from qdq_translator.output.emit.trtexec.request import (
    BuildRequest,
    Network,
    direct_format,
    engine_paths,
    parse_formats,
    parse_pools,
    parse_version,
)
from qdq_translator.output.emit.trtexec.script import shell_script

__all__ = [
    "Argument",
    "BuildRequest",
    "Network",
    "Settings",
    "comparison_commands",
    "comparison_files",
    "complete_shapes",
    "direct_format",
    "engine_paths",
    "explicit_arguments",
    "layer_argument",
    "parse_formats",
    "parse_pools",
    "parse_version",
    "polygraphy_arguments",
    "polygraphy_command",
    "prepare",
    "shell_script",
    "shorten",
    "trtexec_arguments",
    "trtexec_command",
]
