"""`qdq-translator explain`: a rule, a limit of the DLA or a platform, in words."""

import sys
from typing import List

from qdq_translator.core.options import option
from qdq_translator.core.records import record


@record
class Options:
    """Explain what a message or a report names by a number: a rule (S8, W-C1), a limit of the DLA (P3) or a platform
    (jetpack-6.2). Without a name, list them all."""

    names: List[str] = option("names", default=[], nargs="*", metavar="NAME", help="rules, limits, platforms")


def run(options: Options) -> int:
    """Prints one paragraph a name; status 1 where one is not known."""
    from textwrap import fill

    from qdq_translator.core.parsing import did_you_mean
    from qdq_translator.core.rules import RULES, docs_page

    texts = explained()
    if not options.names:
        for key, (title, _) in texts.items():
            print(f"{key:<12} {title}")
        return 0
    status = 0
    for name in options.names:
        key = _key(name)
        found = [texts[k] for k in (key, f"DLA {key}") if k in texts]
        if not found:
            hint = did_you_mean(key, texts) or "'qdq-translator explain' lists all."
            print(f"qdq-translator explain: '{name}' is not a rule, a limit or a platform. {hint}", file=sys.stderr)
            status = 1
        for title, paragraphs in found:
            lines = [fill(p, 78, initial_indent="  ", subsequent_indent="  ") for p in paragraphs]
            if title.startswith("Rule "):
                lines.append(f"  Described in {docs_page(RULES[key].page)}")
            print("\n".join([title, *lines, ""]))
    return status


def _key(name: str) -> str:
    """'W-C1' and 'c1' -> 'C1'; 'DLA P3' and platforms as they are."""
    last = name.upper().split("-")[-1] if name[1:2] == "-" else name.upper()
    return name.lower() if "-" in name and name[1:2] != "-" else last


def explained() -> "dict[str, tuple[str, list[str]]]":
    """Name -> (title, paragraphs): rules, limits as 'DLA P3', platforms."""
    from qdq_translator.core.rules import RULES
    from qdq_translator.targets.dla.limits import LIMITS
    from qdq_translator.targets.platforms import PLATFORMS

    def paragraphs(*parts: str) -> "list[str]":
        return [part for part in parts if part]

    texts = {}
    for row in RULES.values():
        flags = " or ".join(f"--{name}" for name in row.options)
        texts[row.id] = (
            f"Rule {row.id}: {row.words}",
            paragraphs(row.what, row.then, f"Switched on by {flags}." if flags else ""),
        )
    for limit in LIMITS:
        where = {"gpu": "The layer goes to the GPU.", "dla-fp16": "The layer runs in FP16 on the DLA."}[limit.effect]
        ops = "every operator" if limit.ops == ("*",) else ", ".join(limit.ops)
        only = f" Only {limit.only.capitalize()}." if limit.only else ""
        texts[f"DLA {limit.id}"] = (
            f"DLA limit {limit.id}: {limit.text}",
            paragraphs(f"{where}{only}", f"Holds for {ops}.", f"Source: {limit.source} [{limit.status}]."),
        )
    for p in PLATFORMS:
        version = ".".join(map(str, p.tensorrt))
        header = f"cache header TRT-{p.cache_version}" if p.has_implicit_int8 else "no implicit quantization"
        dla = f"{p.dla.capitalize()}'s DLA" if p.dla else "no DLA"
        texts[p.name] = (
            f"Platform {p.name}: TensorRT {version}, {header}, {dla}",
            paragraphs(f"{p.note[:1].upper()}{p.note[1:]}." if p.note else "", f"Source: {p.source}."),
        )
    return texts
