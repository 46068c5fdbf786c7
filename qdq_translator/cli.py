"""The command line: `qdq_translator.py` (translate, NVIDIA's flags) and `qdq-translator COMMAND`.

A command is a module in `qdq_translator/commands/` with a dataclass `Options` and `run(options) -> exit status`.
It imports what is heavy inside `run`, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from typing import Optional, Sequence

from qdq_translator.errors import UsageError, UserError

COMMANDS = {
    "translate": ("translate", "Q/DQ ONNX -> float ONNX, cache, config and layer argument"),
    "verify": ("verify", "compare the explicit model with the simulated implicit engine"),
    "report": ("report", "coverage and diagnostics of a translation: terminal, JSON, HTML"),
    "build": ("build", "build the TensorRT engine or DLA loadable"),
    "trtexec": ("trtexec", "print the equivalent trtexec command, or write it as a script"),
    "check-engine": ("check_engine", "hold TensorRT's layer information JSON against the plan"),
    "restore": ("restore", "float ONNX + calibration cache -> explicit Q/DQ ONNX"),
}


def normalise_flags(argv: Sequence[str]) -> list[str]:
    """`--some-flag=x` -> `--some_flag=x`; values are left alone."""
    out = []
    for arg in argv:
        if arg.startswith("--") and len(arg) > 2:
            flag, eq, value = arg.partition("=")
            arg = "--" + flag[2:].replace("-", "_") + eq + value
        out.append(arg)
    return out


def run_command(module_name: str, prog: str, argv: Sequence[str]) -> int:
    """Parses `argv` for one command and runs it; errors become one or two sentences and an exit status."""
    verbose = "--verbose" in argv
    try:
        module = importlib.import_module(f"qdq_translator.commands.{module_name}")
        from argparse_dataclass import ArgumentParser

        parser = ArgumentParser(
            module.Options, prog=prog, description=" ".join((module.Options.__doc__ or "").split()), allow_abbrev=False
        )
        parser.usage = _usage(parser)
        options = parser.parse_args(normalise_flags(argv))
        status = int(module.run(options))
        sys.stdout.flush()
        return status
    except UserError as error:
        if verbose:
            traceback.print_exc()
        else:
            print(f"{prog}: {error}", file=sys.stderr)
        if isinstance(error, UsageError):
            print(f"See '{prog} --help'.", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # the reader of our output went away (`... | head`): not worth a message
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if verbose:
            traceback.print_exc()
        else:
            print(f"{prog}: {unexpected(error)}", file=sys.stderr)
        return 1


def _usage(parser: argparse.ArgumentParser) -> str:
    """One line with what must be given; the options have a list of their own."""
    required = [f"{a.option_strings[-1]} {a.metavar}" for a in parser._actions if a.required]
    return " ".join(["%(prog)s", *required, "[options]"])


def unexpected(error: Exception) -> str:
    """What is said of an error that nobody foresaw."""
    if isinstance(error, (OSError, MemoryError)):
        return str(error) or type(error).__name__
    return f"unexpected {type(error).__name__}: {error}. This is a fault of the program; --verbose shows where."


def main(argv: Optional[Sequence[str]] = None) -> int:
    """`qdq-translator COMMAND ...`"""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and argv[0] in COMMANDS:
        return run_command(COMMANDS[argv[0]][0], f"qdq-translator {argv[0]}", argv[1:])
    if argv and argv[0] in ("--version", "-V"):
        from qdq_translator import __version__

        print(f"qdq-translator {__version__}")
        return 0
    wanted_help = not argv or argv[0] in ("-h", "--help")
    stream = sys.stdout if wanted_help and argv else sys.stderr
    if not wanted_help:
        print(f"qdq-translator: no command '{argv[0]}'", file=stream)
    print("usage: qdq-translator COMMAND [options]\n\ncommands:", file=stream)
    for name, (_, summary) in COMMANDS.items():
        print(f"  {name:<13} {summary}", file=stream)
    print("\n'qdq-translator COMMAND --help' lists the options of a command.", file=stream)
    return 0 if wanted_help and argv else 2


def main_translate(argv: Optional[Sequence[str]] = None) -> int:
    """`qdq_translator.py ...`: translate, with NVIDIA's flags."""
    return run_command("translate", "qdq_translator.py", list(sys.argv[1:] if argv is None else argv))
