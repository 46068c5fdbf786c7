"""The command line: `qdq_translator.py` (translate, NVIDIA's flags) and `qdq-translator COMMAND`.

A command is a module in `qdq_translator/commands/` with `run(options) -> exit status`. It is imported when its options,
which are declared in `core/options.py` and `core/command_options.py`, are understood, so that `--help` responds at
once.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import os
import sys
from typing import Any, Iterator, Optional, Sequence

from qdq_translator._version import __version__
from qdq_translator.commands import COMMANDS, HIDDEN, options_of_command
from qdq_translator.core.errors import UsageError, UserError, unexpected
from qdq_translator.core.printable import printable


def run_command(module_name: str, prog: str, argv: Sequence[str], as_is: bool = False) -> int:
    """Parses `argv` for one command and runs it; errors become one or two sentences and an exit status. as_is: adds
    no options by default, as NVIDIA's script."""
    gc.set_threshold(20_000)  # the default looks for cycles 30 times as often: a sixth of a translation
    atexit.register(gc.freeze)  # nothing is left to collect then, and looking costs as much as importing ONNX does
    try:
        with printable():
            status = _run(module_name, prog, [*argv, "--as_is"] if as_is else argv)
    except BrokenPipeError:
        _abandon_output()
        return 1
    except SystemExit as left:  # --help and --version, or wrong usage
        status = int(left.code or 0)
        raise SystemExit(_flush(prog, status)) from None
    return _flush(prog, status)


def _flush(prog: str, status: int) -> int:
    """Flush stdout and return the exit status; output that cannot be written is a failure."""
    try:
        if sys.stdout is None:  # closed before we began
            raise OSError(errno.EBADF, "it is closed")
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_output()  # the reader has closed the pipe (`... | head`): not worth a message
        return 1
    except OSError as error:
        _abandon_output()
        if not status:
            print(f"{prog}: The standard output cannot be written: {error.strerror}.", file=sys.stderr)
        return status or 1
    return status


def _abandon_output() -> None:
    """Keeps the interpreter from trying again at its end."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(module_name: str, prog: str, argv: Sequence[str]) -> int:
    if sys.stderr is None:  # closed; print would take the standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # file names need not be UTF-8
    try:
        from qdq_translator.core.parsing import make_parser, normalise_flags

        everything = "--all" in argv or "--as_is" in argv
        parser = make_parser(options_of_command(module_name), prog, everything)
        options: Any = parser.parse_args(normalise_flags(argv))
        module = importlib.import_module(f"qdq_translator.commands.{module_name}")
        with _log_on_stderr():
            return int(module.run(options))
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return _told(error, prog, "--verbose" in argv)


def _told(error: Exception, prog: str, verbose: bool) -> int:
    """Prints the error, with `verbose` where; the exit status."""
    if verbose:
        import traceback

        traceback.print_exc()
    elif isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("qdq_translator"):
        print(
            f"{prog}: the Python package '{error.name}' is not installed. Install the program with all that it needs: "
            "python3 -m pip install . in its checkout.",
            file=sys.stderr,
        )
    else:
        print(f"{prog}: {error if isinstance(error, UserError) else unexpected(error)}", file=sys.stderr)
    if isinstance(error, UsageError):
        print(f"See '{prog} --help'.", file=sys.stderr)
    return error.exit_status if isinstance(error, UserError) else 1


@contextlib.contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Print log messages to stderr, warnings as notes."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note = "note: " if record.levelno >= logging.WARNING else ""
            print(f"{note}{record.getMessage()}", file=sys.stderr, flush=True)

    log, handler = logging.getLogger("qdq_translator"), Handler()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def main(argv: Optional[Sequence[str]] = None, prog: str = "qdq-translator") -> int:
    """`qdq-translator COMMAND ...`, the script that pip makes."""
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help", *argv[2:]]
    known = {**COMMANDS, **HIDDEN}
    if argv and argv[0] in known:
        return run_command(known[argv[0]][0], f"{prog} {argv[0]}", argv[1:])
    if argv and argv[0] in ("--version", "-V"):
        print(f"qdq-translator {__version__}")
        return 0
    asked = bool(argv) and argv[0] in ("-h", "--help")
    stream = sys.stdout if asked else sys.stderr
    if argv and not asked:
        from qdq_translator.core.parsing import did_you_mean

        print(f"{prog}: there is no command '{argv[0]}'. {did_you_mean(argv[0], COMMANDS)}".rstrip(), file=stream)
    try:
        print(f"usage: {prog} COMMAND [options]\n\ncommands:", file=stream)
        for name, (_, summary) in COMMANDS.items():
            print(f"  {name:<10} {summary}", file=stream)
        print(f"\n'{prog} help COMMAND' lists the options of a command.", file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 1
    return 0 if asked else 2


def main_translate(argv: Optional[Sequence[str]] = None) -> int:
    """`qdq_translator.py ...`: translate, with NVIDIA's flags."""
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    return run_command("translate", "qdq_translator.py", list(sys.argv[1:] if argv is None else argv), as_is=True)


def _complete() -> None:
    """The shell asks for completions of the line so far."""
    from qdq_translator.commands.completion import complete

    complete(os.environ.get("COMP_LINE", ""))


def main_module(argv: Optional[Sequence[str]] = None) -> int:
    """`python3 -m qdq_translator ...`: a command of `qdq-translator`, or NVIDIA's flags."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and (argv[0] in (*COMMANDS, *HIDDEN, "help")):
        return main(argv, "python3 -m qdq_translator")
    return main_translate(argv)
