"""`qdq-translator platforms`: values of `--platform`."""

from rich.console import Console

from qdq_translator.commands.located import print_json
from qdq_translator.core.command_options import PlatformsOptions as Options
from qdq_translator.output.report.tables import table_of
from qdq_translator.targets.platforms import PLATFORMS


def run(options: Options) -> int:
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
    if options.json:
        print_json(rows)
        return 0
    table = table_of("platform", "TensorRT", "cache", "DLA", "note, source")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for p, row in zip(PLATFORMS, rows):
        cells = [row["platform"], row["tensorrt"], row["cache_header"] or "-", row["dla"] or "-"]
        table.add_row(*map(str, cells), f"{p.note}; {p.source}" if p.note else p.source, style=None)
    console = Console(highlight=False)
    console.print(table)
    console.print("tensorrt-MAJOR.MINOR.PATCH names any other machine by its TensorRT, for example tensorrt-10.4.0.")
    return 0
