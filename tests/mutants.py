"""A random sample of the mutants of inference/, quantizers/, qparams, passes/ and targets/: how many do the tests notice?

    python -m tests.mutants --state mutants.json --map          which test runs which line (the tests of `_TESTS`, once)
    python -m tests.mutants --state mutants.json --sample 250 --seed 2026 [--processes 2]
    python -m tests.mutants --state mutants.json --show         share and interval, and every survivor as a diff

Needs `pip install mutmut coverage` (mutmut 3 makes the mutants, this runs them). Each mutant of the sample meets the tests
that run its line, the quickest first, in a process of its own, until one fails, `_MOST_SECONDS` of processor time are over, or
there are none left. Not drawn: mutants that only change the text of a sentence (tests compare numbers and names, not wording;
tests/data/messages.txt holds the wording), and those outside functions. A run goes on where `--state` ends.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib.abc
import importlib.machinery
import json
import math
import multiprocessing
import os
import random
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Iterator, Optional

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("inference", "quantizers", "qparams.py", "passes", "targets")
_TESTS = """
dla test_budget.py test_cli.py test_damage.py test_dla.py test_graph.py test_inference_flags.py test_keep_fp16.py
test_mutants.py test_names.py test_operators.py test_parser_names.py test_parsed_network.py test_pipeline.py test_placement.py
test_plan.py test_plan_command.py test_properties.py test_qparams.py test_reference_agreement.py test_report.py test_restore.py
test_root_causes.py test_rules.py test_rules_folding.py test_rules_inference.py test_rules_matmul.py test_rules_no_ops.py
test_rules_normal_forms.py test_rules_quantizers.py test_silent_faults.py test_unify.py test_users_names.py test_what_if.py
""".split()
_MOST_SECONDS = 120
_MOST_TESTS = 400
"""Tests that one mutant meets at most, the quickest ones."""


def files() -> list[Path]:
    package = ROOT / "qdq_translator"
    return sorted(p for room in ROOMS for p in ((package / room).rglob("*.py") if "." not in room else [package / room]))


# ---------------------------------------------------------------- which test runs which line


def make_map() -> dict[str, Any]:
    """tests, seconds: of every test that passes. lines: file -> line -> the tests (their numbers) that run it."""
    import coverage
    import pytest

    cover = coverage.Coverage(data_file=None, include=[str(path) for path in files()])

    class Plugin:
        passed: list[str] = []
        seconds: list[float] = []

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            cover.switch_context(item.nodeid)
            return (yield)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" and report.passed:
                self.passed.append(report.nodeid)
                self.seconds.append(round(report.duration, 3))

    plugin = Plugin()
    cover.start()
    found = [str(ROOT / "tests" / name) for name in _TESTS if (ROOT / "tests" / name).exists()]
    pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *found], plugins=[plugin])
    cover.stop()
    number = {name: index for index, name in enumerate(plugin.passed)}
    lines: dict[str, dict[str, list[int]]] = {}
    data = cover.get_data()
    for path in files():
        by_line = data.contexts_by_lineno(str(path))
        name = path.relative_to(ROOT).as_posix()
        lines[name] = {str(line): [number[c] for c in sorted(by) if c in number] for line, by in by_line.items()}
    return {"tests": plugin.passed, "seconds": plugin.seconds, "lines": lines}


# ---------------------------------------------------------------- mutants


@functools.lru_cache(maxsize=None)
def mutants(path: Path) -> list[Any]:
    """(module, mutation) of every mutant of a file that is drawn from."""
    import libcst as cst
    from mutmut.mutation.file_mutation import create_mutations

    module, found, _, _ = create_mutations(str(path), path.read_text(encoding="utf-8"))
    inside = [m for m in found if m.contained_by_top_level_function is not None]
    return [
        (module, m)
        for m in inside
        if not (isinstance(m.original_node, cst.SimpleString) and " " in m.original_node.value)
    ]


def mutated(path: Path, module: Any, mutation: Any) -> tuple[str, int]:
    """The file with the mutation, and the first line that differs."""
    before, after = module.code, module.deep_replace(mutation.original_node, mutation.mutated_node).code
    pairs = enumerate(zip(before.splitlines(), after.splitlines()), 1)
    return after, next((line for line, (a, b) in pairs if a != b), 0)


def draw(size: int, seed: int) -> list[tuple[str, int]]:
    """(file, which of its mutants) of the sample, in random order: a larger sample begins with the smaller one."""
    population = [(p.relative_to(ROOT).as_posix(), k) for p in files() for k in range(len(mutants(p)))]
    print(f"{len(population)} mutants in {len(files())} files", flush=True)
    order = sorted(population)
    random.Random(seed).shuffle(order)
    return order[:size]


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives one module of the package another source."""

    def __init__(self, module: str, path: Path, source: str) -> None:
        self.module, self.path, self.source = module, path, source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if name != self.module:
            return None
        package = self.path.name == "__init__.py"
        spec = importlib.machinery.ModuleSpec(name, self, origin=str(self.path), is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [str(self.path.parent)]
        return spec

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: Any) -> bytes:
        return self.source.encode()

    def path_stats(self, path: Any) -> Any:
        raise OSError  # no bytecode


def meet(name: str, source: str, tests: list[str]) -> str:
    """'survived', or what noticed the mutant: a test, the time, or the import."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        import pytest

        os.close(reader)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
        module = name[: -len(".py")].replace("/", ".")
        module = module[: -len(".__init__")] if module.endswith(".__init__") else module
        sys.meta_path.insert(0, _Mutated(module, ROOT / name, source))

        class Plugin:
            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    os.write(writer, report.nodeid.encode())

        status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *tests], plugins=[Plugin()])
        if status not in (0, 1):
            os.write(writer, f"pytest {int(status)}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "survived" if os.WTERMSIG(status) != 24 and not said else (said or "time")
    return said or "survived"


_KNOWN: dict[str, Any] = {}
"""The map, before the workers are made."""


def run(task: tuple[str, int]) -> dict[str, Any]:
    (name, index), known = task, _KNOWN
    module, mutation = mutants(ROOT / name)[index]
    source, line = mutated(ROOT / name, module, mutation)
    before = (ROOT / name).read_text(encoding="utf-8")
    diff = [d for d in difflib.unified_diff(before.splitlines(), source.splitlines(), "", "", "", "", 0, "") if d[:2] not in ("--", "++")]
    began = time.monotonic()
    covering = known["lines"].get(name, {}).get(str(line), [])
    quick = sorted(covering, key=lambda number: known["seconds"][number])[:_MOST_TESTS]
    tests = [known["tests"][number] for number in quick]
    outcome = meet(name, source, tests) if tests else "not run"
    return {
        "file": name,
        "mutant": index,
        "line": line,
        "outcome": outcome,
        "tests": len(tests),
        "covering": len(covering),
        "seconds": round(time.monotonic() - began, 1),
        "diff": diff,
    }


def interval(killed: int, total: int) -> tuple[float, float]:
    """Of a share, at 95% (Wilson)."""
    z, share = 1.959964, killed / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return middle - half, middle + half


def show(rows: list[dict[str, Any]]) -> None:
    left = [row for row in rows if row["outcome"] in ("survived", "not run")]
    low, high = interval(len(rows) - len(left), len(rows))
    for row in left:
        print(f"--- {row['file']}:{row['line']} mutant {row['mutant']}: {row['outcome']} ({row['tests']} of {row['covering']} tests)")
        print("\n".join(row["diff"]))
    killed = len(rows) - len(left)
    print(f"{killed} of {len(rows)} killed: {100 * killed / len(rows):.1f}% (95%: {100 * low:.1f} to {100 * high:.1f}%)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--map", action="store_true", help="run the tests once and note which lines each runs")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="those that survived meet the tests of the map once more")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    map_file = options.state.with_suffix(".map.json")
    if options.map:
        map_file.write_text(json.dumps(make_map()), encoding="utf-8")
        return 0
    rows: list[dict[str, Any]] = json.loads(options.state.read_text(encoding="utf-8")) if options.state.exists() else []
    if options.show:
        show(rows)
        return 0
    _KNOWN.update(json.loads(map_file.read_text(encoding="utf-8")))
    if options.again:
        rows = [row for row in rows if row["outcome"] not in ("survived", "not run")]
    done = {(row["file"], row["mutant"]) for row in rows}
    wanted = draw(options.sample, options.seed)
    for module in ("numpy", "onnx", "onnxruntime", "pytest", "hypothesis", "rich", "jsonschema"):
        __import__(module)  # before the workers are made, so that each has them
    tasks = [task for task in wanted if task not in done]
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("fork")) as pool:
        for row in pool.map(run, tasks):
            rows.append(row)
            options.state.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            print(f"{len(rows)} {row['file']}:{row['line']} {row['outcome']} {row['seconds']} s", flush=True)
    show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
