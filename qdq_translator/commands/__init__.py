"""One module per command, with `run(options) -> exit status`; `core.options` and `core.command_options` hold the
options.

Imports workflows and the folders below. Provides `COMMANDS`, the table of commands.
"""

from __future__ import annotations

from typing import Any

COMMANDS = {
    "translate": ("translate", "Q/DQ ONNX -> float ONNX, cache, config and layer argument"),
    "report": ("report", "coverage and diagnostics of a translation: terminal, JSON, HTML"),
    "plan": ("plan", "any ONNX: device, precision and estimated time of layers"),
    "verify": ("verify", "compare the explicit model with the simulated implicit engine"),
    "tune": ("tune", "the least estimated time within an accuracy budget"),
    "trtexec": ("trtexec", "print the equivalent trtexec command, or write it as a script"),
    "build": ("build", "build the TensorRT engine or DLA loadable"),
    "check-engine": ("check_engine", "compare TensorRT's layer information JSON with the plan"),
    "explicit": ("explicit", "any model -> Q/DQ network for strong typing (TensorRT 11)"),
    "restore": ("restore", "float ONNX + calibration cache -> explicit Q/DQ ONNX"),
    "split": ("split", "cut a network into the DLA part and those before and after it"),
    "explain": ("explain", "a build log, a message, a rule, a limit or a platform"),
    "deploy": ("deploy", "write a folder with all files for a board and its consumers"),
    "ingest": ("ingest", "compare the results of a board with the plan"),
    "doctor": ("doctor", "check this machine for TensorRT and the DLA"),
    "platforms": ("platforms", "the platforms that --platform knows"),
    "completion": ("completion", "shell completion for bash, zsh or fish"),
}
"""Command -> its module in `commands/` and one line about it, in the order in which a user meets them."""


def options_of_command(module: str) -> Any:
    """The dataclass of the command in a module of this folder: `check_engine` -> `CheckEngineOptions`."""
    if module == "translate":
        from qdq_translator.core.options import TranslateCommand

        return TranslateCommand
    from qdq_translator.core import command_options

    name = "".join(word.capitalize() for word in module.split("_"))
    return getattr(command_options, f"{name}Command", None) or getattr(command_options, f"{name}Options")
