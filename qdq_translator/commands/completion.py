"""`qdq-translator completion`: shell completion, by argcomplete."""

import os
import sys

from qdq_translator.commands import COMMANDS, options_of_command
from qdq_translator.core.command_options import CompletionOptions as Options
from qdq_translator.core.parsing import make_parser

PROGRAMS = ("qdq-translator", "qdq_translator.py")


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
        os.environ["_ARGCOMPLETE"] = str(skip)
        # a plain parser with the same options: argcomplete needs a namespace as the result, not a dataclass
        parser = argparse.ArgumentParser(
            parents=[make_parser(options_of_command(COMMANDS[words[1]][0]), words[1])], add_help=False
        )
        argcomplete.autocomplete(parser, exit_method=sys.exit)
    parser = argparse.ArgumentParser(prog="qdq-translator")
    parser.add_argument("command", choices=[*COMMANDS, "help"])
    argcomplete.autocomplete(parser, exit_method=sys.exit)
