"""`qdq-translator explain platforms`: values of `--platform`."""

from rich.console import Console

from qdq_translator.commands.located import print_json
from qdq_translator.translation.report.tables import print_table
from qdq_translator.translation.targets.platforms import PLATFORMS, Platform


def run(as_json: bool) -> int:
    """Prints the table."""
    rows = [
        {
            "platform": p.name,
            "tensorrt": ".".join(map(str, p.tensorrt)),
            "cache_header": p.cache_version if p.has_implicit_int8 else None,
            "dla": p.dla or None,
            "note": p.note,
            "source": p.source,
        }
        for p in PLATFORMS
    ]
    if as_json:
        print_json(rows)
        return 0
    console = Console(highlight=False)
    cells = [
        (p.name, str(row["tensorrt"]), p.cache_version if p.has_implicit_int8 else "-", p.dla or "-", _about(p))
        for p, row in zip(PLATFORMS, rows)
    ]
    print_table(console, ("platform", "TensorRT", "cache", "DLA", "note, source"), cells)
    console.print("tensorrt-MAJOR.MINOR.PATCH names any other machine by its TensorRT, for example tensorrt-10.4.0.")
    return 0


def _about(platform: Platform) -> str:
    return f"{platform.note}; {platform.source}" if platform.note else platform.source
