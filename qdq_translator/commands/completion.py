"""`qdq-translator completion`: shell completion, by argcomplete."""

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Literal

from qdq_translator._version import __version__
from qdq_translator.commands import COMMANDS
from qdq_translator.core.options import REQUIRED, setting
from qdq_translator.core.parsing import make_parser

PROGRAMS = ("qdq-translator", "qdq_translator.py")


@dataclass
class Options:
    """Print shell code that enables completion of commands, options and their values. For bash and zsh: eval
    "$(qdq-translator completion bash)"; for fish: qdq-translator completion fish | source."""

    shell: Literal["bash", "zsh", "fish"] = setting("the shell to write for", REQUIRED, positional=True)


def run(options: Options) -> int:
    """Prints the shell's code."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(PROGRAMS, shell=options.shell))
    return 0


def complete(line: str) -> None:
    """Answers the shell that set _ARGCOMPLETE, and leaves the process. line: the command line so far."""
    import argparse

    import argcomplete

    words = line.split()
    if words and os.path.basename(words[0]) == "qdq_translator.py":
        words[1:1], skip = ["translate"], 1
    else:
        skip = 2
    if len(words) > 1 and words[1] in COMMANDS and (len(words) > 2 or line.endswith(" ") or skip == 1):
        module = importlib.import_module(f"qdq_translator.commands.{COMMANDS[words[1]][0]}")
        os.environ["_ARGCOMPLETE"] = str(skip)
        # a plain parser with the same options: argcomplete needs a namespace of what was parsed, not a dataclass
        parser = argparse.ArgumentParser(parents=[make_parser(module.Options, words[1], __version__)], add_help=False)
        argcomplete.autocomplete(parser, exit_method=sys.exit)
    parser = argparse.ArgumentParser(prog="qdq-translator")
    parser.add_argument("command", choices=[*COMMANDS, "help"])
    argcomplete.autocomplete(parser, exit_method=sys.exit)
