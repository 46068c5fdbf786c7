"""The parser of a command, made from its dataclass: help in groups, suggestions for typing errors, hyphens as
underscores.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from types import MappingProxyType
from typing import Any, Iterable, Literal, NoReturn, Sequence, get_args, get_origin

from qdq_translator._version import __version__
from qdq_translator.core.errors import UsageError

GROUPS = ("Essential", "Target", "Quantizers", "Inference", "Calibration", "Output", "Automation")
"""Headings of a command's help, in this order; options without a group come last."""


PARTS: dict[str, dict[str, str]] = {
    "infer": {"metavar": "NAME", "group": "Inference", "help": "scale rules, exactly these, or none"},
    "quantizers": {"metavar": "NAME=VALUE", "group": "Quantizers", "help": "how quantizers are read"},
    "calibration": {"metavar": "NAME[=VALUE]", "group": "Calibration", "help": "how scales are computed from data"},
    "preprocess": {"metavar": "NAME[=VALUE]", "group": "Calibration", "help": "how images become inputs"},
    "cost": {"metavar": "NAME=VALUE", "group": "Target", "help": "what the estimated time is based on"},
    "types": {"metavar": "NAME=VALUE", "group": "Target", "help": "types of the network"},
    "run": {"metavar": "NAME=VALUE", "group": "Automation", "help": "where samples are run"},
    "fail": {"metavar": "NAME[=VALUE]", "group": "Automation", "help": "when the exit status is 1"},
    "simulate": {"metavar": "NAME[=VALUE]", "group": "", "help": "how the engine is simulated"},
    "builder": {"metavar": "NAME=VALUE", "group": "", "help": "further properties of the engine, as trtexec has them"},
}
"""Options whose values name fields. `--infer` sets those that it does not name to their defaults."""


def normalise_flags(argv: Sequence[str]) -> list[str]:
    """`--some-flag=x` -> `--some_flag=x`; values stay unchanged, but `--tensorrt 10.7` becomes a part of the platform's
    or board's name."""
    out: list[str] = []
    for arg in argv:
        if arg.startswith("--") and len(arg) > 2:
            flag, eq, value = arg.partition("=")
            arg = "--" + flag[2:].replace("-", "_") + eq + value
        out += arg.split("=", 1) if arg.startswith("--tensorrt=") else [arg]
    if "--tensorrt" in out[:-1]:
        at = out.index("--tensorrt")
        version, out = out[at + 1], out[:at] + out[at + 2 :]
        for place, word in enumerate(out):
            flag, eq, value = word.partition("=")
            if flag in ("--platform", "--board") and (value or out[place + 1 :]):
                end = place if eq else place + 1
                joint = "+" if flag == "--platform" or "@" in out[end] else "@"
                out[end] += f"{joint}tensorrt-{version}"
                return out
            if re.fullmatch(r"(jetpack|drive-os)-[\d.]+", word):
                out[place] += f"+tensorrt-{version}"
                return out
        out += ["--platform", f"tensorrt-{version}"]
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


def make_parser(options: Any, prog: str, everything: bool = True) -> argparse.ArgumentParser:
    """The parser of one command. Its `parse_args` returns an instance of the dataclass `options`. everything: the help
    lists every option, not only the essential ones.

    Raises UsageError instead of argparse's exit.
    """
    parser = _parser_of(options, prog)
    fields = {field.name: field for field in dataclasses.fields(options)}
    for action in parser._actions:
        about = fields[action.dest].metadata if action.dest in fields else {}
        if not action.option_strings:
            action.default = argparse.SUPPRESS  # else an absent argument would overwrite its flag
        if "part" in about and "qdq_translator.py" not in prog:  # NVIDIA's spelling
            action.help = argparse.SUPPRESS
    parser._actions.sort(key=lambda a: not a.option_strings and a.dest != "model")  # DATA may be an inherited field
    for field in fields.values():
        if field.metadata["positional"] and field.metadata["short"]:
            same: Any = {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
            parser.add_argument(*field.metadata["short"].split(), dest=field.name, **same)
    _add_parts(parser, options)
    parser.add_argument("--version", "-V", action="version", version=f"qdq-translator {__version__}")
    group_of = {field.name: field.metadata.get("group", "") for field in fields.values()}
    _group(parser, {**group_of, **{f"part {name}": about["group"] for name, about in PARTS.items()}})
    parser.usage = _usage(parser)
    if not everything:
        _only_essential(parser, group_of, prog)
    return parser


def _parser_of(options: Any, prog: str) -> argparse.ArgumentParser:
    """A parser with an argument for each field of the dataclass, as argparse-dataclass declares it."""
    from argparse_dataclass import ArgumentParser

    class Parser(ArgumentParser):  # type: ignore[misc, valid-type]
        def error(self, message: str) -> NoReturn:
            wrong = _WRONG_CHOICE.match(message)
            action = self._option_string_actions.get(wrong[1].split("/")[-1]) if wrong else None
            if wrong and action and action.choices:
                raise not_a_choice(wrong[1].split("/")[0], wrong[2], map(str, action.choices))
            raise UsageError(sentence(message), _suggestion(self, message))

        def parse_known_args(self, argv: Any = None, namespace: Any = None) -> Any:
            return argparse.ArgumentParser.parse_known_args(self, argv, namespace)

        def parse_args(self, argv: Any = None, namespace: Any = None) -> Any:
            """The options of these words: only what was typed reaches the dataclass (argparse-dataclass itself passes
            every field)."""
            found, left = self.parse_known_intermixed_args(argv)
            if left:
                self.error(f"unrecognized arguments: {' '.join(left)}")
            return options(**_typed(found, options))

    for field in dataclasses.fields(options):
        _declare(field)
    about_it = " ".join((options.__doc__ or "").split())
    parser: argparse.ArgumentParser = Parser(options, prog=prog, description=about_it, allow_abbrev=False)
    return parser


def _declare(field: dataclasses.Field[Any]) -> None:
    """Completes the metadata for argparse-dataclass; no field knows its name when it is made."""
    about, several = field.metadata, get_origin(field.type) is list
    more: dict[str, Any] = {"nargs": "*" if about["positional"] else "+"} if several else {}
    if about["positional"] and not several and about["short"]:
        more = {"nargs": "?", "type": str}
    flags = [field.name] if about["positional"] else [f"--{field.name}", *about["short"].split()]
    field.metadata = MappingProxyType({**more, **about, "args": flags})


def _add_parts(parser: argparse.ArgumentParser, options: Any) -> None:
    """The options of `PARTS` whose names are fields of `options`."""
    for part, about in PARTS.items():
        fields = _fields_of(options, part)
        if fields:
            each = (f"{field.metadata['part'][1]}: {field.metadata['help']}" for field in fields)
            text = "; ".join([about["help"], *each])
            same: Any = {"nargs": "+", "metavar": about["metavar"], "default": argparse.SUPPRESS}
            parser.add_argument(f"--{part}", dest=f"part {part}", help=text, **same)


def _fields_of(options: Any, part: str) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(options) if field.metadata.get("part", [""])[0] == part]


def spread(options: Any, part: str, items: Sequence[str]) -> dict[str, Any]:
    """The fields that an option of `PARTS` sets: `infer`, ['concat', 'mul'] -> {'infer_concat_scales': True, ...}.
    Raises UsageError for an unknown name and for a value that the field cannot have."""
    fields = {field.metadata["part"][1]: field for field in _fields_of(options, part)}
    found = {field.name: field.default for field in fields.values()} if part == "infer" else {}
    for item in items:
        name, _, value = item.partition("=")
        if (part, item) == ("infer", "none"):
            continue
        chosen = [f for f in fields.values() if item in f.metadata.get("choices", get_args(f.type))]
        if name not in fields and len(chosen) == 1:  # `--preprocess letterbox bgr`
            found[chosen[0].name] = item
            continue
        if name not in fields:
            raise not_a_choice(f"--{part}", name, fields)
        found[fields[name].name] = _value(fields[name], name, value)
    return found


def _value(field: dataclasses.Field[Any], name: str, text: str) -> Any:
    """`text` as the field has it; a name alone is True, or the choice of that name."""
    inside = [kind for kind in (*get_args(field.type), field.type) if kind in (int, float)]
    if not text:
        if field.type is not bool and name not in get_args(field.type):
            raise UsageError(f"{name} needs a value.", f"Write {name}=VALUE.")
        return True if field.type is bool else name
    choices = get_args(field.type) if get_origin(field.type) is Literal else field.metadata.get("choices", ())
    if choices and text not in choices:
        raise not_a_choice(name, text, choices)
    kind = inside[0] if inside else str
    try:
        return [kind(item) for item in text.split(",")] if get_origin(field.type) is list else kind(text)
    except ValueError:
        raise UsageError(f"{name}={text} is not a number.", f"Write {name}=NUMBER.") from None


def _only_essential(parser: argparse.ArgumentParser, group_of: dict[str, str], prog: str) -> None:
    """Leaves the essential options in the help, and prints how many more there are."""
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    more = [a for a in shown if group_of.get(a.dest) != "Essential" and a.option_strings and a.dest != "help"]
    if len(shown) - len(more) > 3:
        for action in more:
            action.help = argparse.SUPPRESS
        parser.epilog = f"'{prog} --help --all' lists {len(more)} more options."


def _typed(found: argparse.Namespace, options: Any) -> dict[str, Any]:
    """The fields that the command line names, with their values."""
    typed = {name: value for name, value in vars(found).items() if value is not dataclasses.MISSING}
    named = {key: typed.pop(key) for key in list(typed) if key.startswith("part ")}
    parts = {name: value for key, items in named.items() for name, value in spread(options, key[5:], items).items()}
    return {**parts, **typed}


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
        else f"[{a.metavar}]"
        if a.nargs == "?" and a.metavar != "MODEL"
        else str(a.metavar)
        for a in parser._actions
        if not a.option_strings
    ]
    return " ".join(["%(prog)s", *required, "[options]", *places])


def sentence(message: str) -> str:
    """The message as a sentence: with a capital letter and a period."""
    return f"{message[0].upper()}{message[1:].rstrip('.')}."


def _suggestion(parser: argparse.ArgumentParser, message: str) -> str:
    """The likely intended option or value, from argparse's message about an unknown one."""
    unknown = re.match(r"unrecognized arguments: (\S+)", message)
    if unknown and not unknown[1].startswith("-"):
        paths = [f"{a.option_strings[-1]} {a.metavar}" for a in parser._actions if {"-i", "-t"} & {*a.option_strings}]
        return f"Use {' or '.join(paths)}." if paths else ""
    return did_you_mean(unknown[1].split("=")[0], parser._option_string_actions) if unknown else ""
