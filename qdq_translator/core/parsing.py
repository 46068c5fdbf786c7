"""The parser of a command, made from its dataclass: help in groups, suggestions for typing errors, hyphens as
underscores.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from types import MappingProxyType
from typing import Any, Iterable, NoReturn, Sequence, get_origin

from qdq_translator._version import __version__
from qdq_translator.core.errors import UsageError

GROUPS = ("Essential", "Target", "Quantizers", "Inference", "Calibration", "Output", "Automation")
"""Headings of a command's help, in this order; options without a group come last."""


def normalise_flags(argv: Sequence[str]) -> list[str]:
    """`--some-flag=x` -> `--some_flag=x`; values stay unchanged."""
    out = []
    for arg in argv:
        if arg.startswith("--") and len(arg) > 2:
            flag, eq, value = arg.partition("=")
            arg = "--" + flag[2:].replace("-", "_") + eq + value
        out.append(arg)
    return out


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'Did you mean ...?' for the nearest of `known` (case-insensitive), '' if none is near."""
    import difflib

    by_fold = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), by_fold, n=2, cutoff=0.6)
    return f"Did you mean {' or '.join(by_fold[name] for name in near)}?" if near else ""


_WRONG_CHOICE = re.compile(r"argument (\S+): invalid choice: '([^']*)'")


def not_a_choice(flag: str, value: str, choices: Iterable[str]) -> UsageError:
    """The error for a value that an option does not have, on the command line and in Python."""
    known = list(choices)
    return UsageError(f"{flag}: '{value}' is none of {', '.join(known)}.", did_you_mean(value, known))


def make_parser(options: Any, prog: str) -> argparse.ArgumentParser:
    """The parser of one command. Its `parse_args` returns an instance of the dataclass `options`.

    Raises UsageError instead of argparse's exit.
    """
    from argparse_dataclass import ArgumentParser

    class Parser(ArgumentParser):  # type: ignore[misc, valid-type]
        def error(self, message: str) -> NoReturn:
            wrong = _WRONG_CHOICE.match(message)
            action = self._option_string_actions.get(wrong[1].split("/")[-1]) if wrong else None
            if wrong and action and action.choices:
                raise not_a_choice(wrong[1].split("/")[0], wrong[2], map(str, action.choices))
            raise UsageError(sentence(message), _suggestion(self, message))

    for field in dataclasses.fields(options):  # whose names no field knows when it is made
        about = field.metadata
        flags = [field.name] if about["positional"] else [f"--{field.name}", *filter(None, [about["short"]])]
        lists = {"nargs": "*" if about["positional"] else "+"} if get_origin(field.type) is list else {}
        field.metadata = MappingProxyType({**lists, **about, "args": flags})
    parser: argparse.ArgumentParser = Parser(
        options, prog=prog, description=" ".join((options.__doc__ or "").split()), allow_abbrev=False
    )
    parser.add_argument("--version", "-V", action="version", version=f"qdq-translator {__version__}")
    _group(parser, {field.name: field.metadata.get("group", "") for field in dataclasses.fields(options)})
    parser.usage = _usage(parser)
    return parser


def _group(parser: argparse.ArgumentParser, group_of: dict[str, str]) -> None:
    """Moves the actions of `parser` below the headings of GROUPS; argparse-dataclass itself has no groups."""
    if not any(group_of.values()):
        return
    loose = [parser._positionals, parser._optionals]
    for title in GROUPS:
        members = [a for a in parser._actions if group_of.get(a.dest) == title]
        members.sort(key=lambda a: bool(a.option_strings))
        if members:
            parser.add_argument_group(title)._group_actions.extend(members)
        for heap in loose:
            heap._group_actions = [a for a in heap._group_actions if a not in members]
    parser._optionals.title = "Other"
    # argparse prints groups in the order of this list: its own two come last
    parser._action_groups.sort(key=lambda heap: heap in loose)


def _usage(parser: argparse.ArgumentParser) -> str:
    """One line: required and optional positional arguments, required options, and a sign that there are more."""
    required = [f"{a.option_strings[-1]} {a.metavar}" for a in parser._actions if a.required and a.option_strings]
    places = [
        f"[{a.metavar} ...]"
        if a.nargs == "*"
        else "{" + ",".join(map(str, a.choices)) + "}"
        if a.choices
        else str(a.metavar)
        for a in parser._actions
        if not a.option_strings
    ]
    return " ".join(["%(prog)s", *required, "[options]", *places])


def sentence(message: str) -> str:
    """With a capital and a period."""
    return f"{message[0].upper()}{message[1:].rstrip('.')}."


def _suggestion(parser: argparse.ArgumentParser, message: str) -> str:
    """The likely intended option or value, from argparse's message about an unknown one."""
    unknown = re.match(r"unrecognized arguments: (\S+)", message)
    if unknown and not unknown[1].startswith("-"):
        paths = [f"{a.option_strings[-1]} {a.metavar}" for a in parser._actions if {"-i", "-t"} & {*a.option_strings}]
        return f"Use {' or '.join(paths)}." if paths else ""
    return did_you_mean(unknown[1].split("=")[0], parser._option_string_actions) if unknown else ""
