"""One module per command, with `run(options) -> exit status`; `core.options` and `core.command_options` hold the
options.

Imports workflows and the folders below. Provides `COMMANDS`, the table of commands.
"""

from __future__ import annotations

from typing import Any

COMMANDS = {
    "deploy": ("deploy", "is it good on the board, how fast, and what to copy there"),
    "plan": ("plan", "what will run where, and how fast, before anything is written"),
    "translate": ("translate", "a model, Q/DQ or float and data, as the files for TensorRT"),
    "verify": ("verify", "is it still my model; which layer loses what"),
    "tune": ("tune", "the least estimated time within an accuracy budget"),
    "explicit": ("explicit", "any model -> a Q/DQ network for TensorRT 11, also from a cache"),
    "report": ("report", "a translation, or the answer of an engine or a board against it"),
    "build": ("build", "the engine or DLA loadable; --print: the trtexec command or script"),
    "explain": ("explain", "a log, a message, a tensor's scale, a rule, a limit, a platform"),
    "doctor": ("doctor", "check this machine for TensorRT and the DLA"),
}
"""Command -> its module in `commands/` and one line about it, in the order in which a user meets them."""
HIDDEN = {"completion": ("completion", "shell completion for bash, zsh or fish")}
"""Not in the list."""


def options_of_command(module: str) -> Any:
    """The dataclass of the command in a module of this folder: `build` -> `BuildOptions`."""
    if module == "translate":
        from qdq_translator.core.options import TranslateCommand

        return TranslateCommand
    from qdq_translator.core import command_options

    name = "".join(word.capitalize() for word in module.split("_"))
    return getattr(command_options, f"{name}Command", None) or getattr(command_options, f"{name}Options")
