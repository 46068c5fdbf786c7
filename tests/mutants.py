"""A random sample of the mutants of the package: how many do the tests of their folder notice?

    python -m tests.mutants --state mutants.json --sample 200 --seed 2026 [--processes 2]
    python -m tests.mutants --state mutants.json --anew         the survivors once more, imported
    python -m tests.mutants --state mutants.json --show         share and interval, and every survivor as a diff

Needs `pip install mutmut` (mutmut 3 makes the mutants, this runs them). Each mutant of the sample meets the tests of its folder
(the table in CONTRIBUTING.md, with its last row), those first whose words are those of its function, in a process of its own,
until one fails, `_MOST_SECONDS` of processor time are over, or there are none left. Not drawn: mutants that only change the text
of a sentence (tests compare numbers and names, not wording; tests/data/sentences.txt holds the wording), and those outside
functions. A run goes on where `--state` ends.
"""

from __future__ import annotations

import argparse
import ast
import collections
import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import math
import os
import random
import re
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import pytest

ROOT = Path(__file__).resolve().parents[1]
_NOT_HERE = ("onnxoptimizer_backend.py",)
"""Runs on Python 3.9 alone, and is tested there (.ci/run)."""
_MOST_SECONDS = 60
"""As long as the tests of a folder may take (CONTRIBUTING.md)."""
_MOST_RECORDS, _MOST_TRANSCRIPTS = 100, 8
_RECORDS, _TRANSCRIPTS = "test_records.py", "test_transcripts.py"
"""Tests of these come first, because they take little time and compare all that is made; transcripts all that is shown."""
_SHOWN = ("/translation/report/", "/translation/files/")
"""Folders that no record sees."""


def files() -> list[Path]:
    return sorted((ROOT / "qdq_translator").rglob("*.py"))


def folders() -> list[tuple[list[Path], list[str]]]:
    """(files, tests) of each row of CONTRIBUTING's table: a file belongs to the longest path that it begins with, and to
    the last row."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.split("## Tests of a folder")[1].split("## Recipes")[0]
    rows = [row.split("|")[1:3] for row in re.findall(r"^\|.*", table, re.M)[2:]]
    paths = [[f"qdq_translator/{path}" for path in re.findall(r"`(\S+)`", named)] for named, _ in rows]
    of: list[list[Path]] = [[] for _ in rows]
    for file in files():
        name = file.relative_to(ROOT).as_posix()
        around = {path: row for row, some in enumerate(paths) for path in some if name.startswith(path)}
        if around:
            of[around[max(around, key=len)]].append(file)
    of[-1] = files()
    tests = [
        [word if "/" in word else f"tests/test_{word}.py" for word in re.findall(r"`(\S+)`", row)] for _, row in rows
    ]
    return [pair for pair in zip(of, tests) if pair[0]]


def own_tests(name: str) -> list[str]:
    """The tests of the folder of a file, then those of all folders."""
    return [test for files, tests in folders() if ROOT / name in files for test in tests]


# ---------------------------------------------------------------- mutants


@functools.lru_cache(maxsize=None)
def mutants(path: Path) -> list[Any]:
    """(module, mutation) of every mutant of a file that is drawn from."""
    import libcst as cst
    from libcst import matchers
    from mutmut.mutation.file_mutation import create_mutations

    module, found, _, _ = create_mutations(str(path), path.read_text(encoding="utf-8"))
    sentences = {
        id(part)
        for whole in matchers.findall(module, matchers.FormattedString() | matchers.ConcatenatedString())
        for part in matchers.findall(whole, matchers.SimpleString())
    }
    return [
        (module, m)
        for m in found
        if isinstance(m.contained_by_top_level_function, cst.FunctionDef)
        and id(m.original_node) not in sentences
        and not (isinstance(m.original_node, cst.SimpleString) and " " in m.original_node.value)
    ]


def mutated(module: Any, mutation: Any) -> tuple[str, int]:
    """The file with the mutation, and the first line that differs."""
    before, after = module.code, module.deep_replace(mutation.original_node, mutation.mutated_node).code
    pairs = enumerate(zip(before.splitlines(), after.splitlines()), 1)
    return after, next((line for line, (a, b) in pairs if a != b), 0)


def draw(size: int, seed: int, only: Sequence[str] = ("",)) -> list[tuple[str, int]]:
    """(file, which of its mutants) of the sample, in random order: a larger sample begins with the smaller one.

    only: of files whose path holds one of these.
    """
    chosen = [p for p in files() if any(part in p.relative_to(ROOT).as_posix() for part in only)]
    population = [(p.relative_to(ROOT).as_posix(), k) for p in chosen for k in range(len(mutants(p)))]
    print(f"{len(population)} mutants in {len(chosen)} files", flush=True)
    order = sorted(population)
    random.Random(seed).shuffle(order)
    return [task for task in order if not task[0].endswith(_NOT_HERE)][:size]


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives one module of the package another source."""

    def __init__(self, module: str, path: Path, source: str) -> None:
        self.module, self.path, self.source = module, path, source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if name != self.module:
            return None
        spec = importlib.machinery.ModuleSpec(
            name, self, origin=str(self.path), is_package=self.path.stem == "__init__"
        )
        spec.has_location = True
        if self.path.stem == "__init__":
            spec.submodule_search_locations = [str(self.path.parent)]
        return spec

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: Any) -> bytes:
        return self.source.encode()

    def path_stats(self, path: Any) -> Any:
        raise OSError  # no bytecode


def module_of(name: str) -> str:
    parts = Path(name).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _function(space: dict[str, Any], source: str, line: int) -> Any:
    """The function or method of a module's namespace that `line` of its source is in, without its decorators."""
    found: Any = space
    body: list[Any] = ast.parse(source).body
    while True:
        around = (
            n
            for n in body
            if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.lineno <= line <= (n.end_lineno or 0)
        )
        node = next(around)
        found = found[node.name] if isinstance(found, dict) else inspect.getattr_static(found, node.name)
        if isinstance(node, ast.FunctionDef):
            break
        body = node.body
    while not inspect.isfunction(found):
        inner = ("__wrapped__", "fget", "func", "__func__")
        found = next(getattr(found, key) for key in inner if getattr(found, key, None) is not None)
    return found


def put_in(name: str, source: str, line: int) -> None:
    """Gives the loaded function the mutant's code: what was imported stays, whoever imported it."""
    module = importlib.import_module(module_of(name))
    old = _function(vars(module), (ROOT / name).read_text(encoding="utf-8"), line)
    space = {**vars(module)}
    exec(compile(source, str(ROOT / name), "exec"), space)
    new = _function(space, source, line)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def in_a_child(work: Callable[[Callable[[str], None]], None], seconds: int) -> tuple[int, int]:
    """(process, pipe) of a process that does `work` and says what it finds into the pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))  # it may run for ever
        work(lambda text: os.write(writer, f"{text}\n".encode()) and None)
    finally:
        os._exit(0)


def outcome_of(child: int, pipe: int) -> str:
    with os.fdopen(pipe, "rb") as stream:
        said = stream.read().decode().split("\n")[0]
    _, status = os.waitpid(child, 0)
    if said:
        return said
    if os.WIFSIGNALED(status):
        return "the time" if os.WTERMSIG(status) == signal.SIGXCPU else f"signal {os.WTERMSIG(status)}"
    return "survived"


class Fast:
    """Within one session of pytest, which has collected all tests: a fork of it for each mutant."""

    def __init__(self, todo: list[tuple[str, int]], processes: int, done: Callable[[dict[str, Any]], None]) -> None:
        self.todo, self.processes, self.done = todo, processes, done

    def pytest_runtestloop(self, session: Any) -> bool:
        items = {item.nodeid: item for item in session.items}
        running: dict[int, tuple[int, dict[str, Any], float]] = {}
        for name, index in [*self.todo, *[("", 0)] * self.processes]:
            while len(running) >= self.processes or (not name and running):
                ready = select.select([pipe for pipe, _, _ in running.values()], [], [])[0]
                child = next(child for child, (pipe, _, _) in running.items() if pipe in ready)
                pipe, row, began = running.pop(child)
                row["outcome"], row["seconds"] = outcome_of(child, pipe), round(time.monotonic() - began, 1)
                self.done(row)
            if not name:
                continue
            source, row = prepare(name, index, items)
            if not row["tests"]:
                self.done(row)
                continue
            wanted = [items[test] for test in row["tests"] if test in items]
            began = time.monotonic()
            child, pipe = in_a_child(functools.partial(self.meet, name, source, row["line"], wanted), 3 * _MOST_SECONDS)
            running[child] = pipe, row, began
        return True

    def meet(self, name: str, source: str, line: int, items: list[Any], say: Callable[[str], None]) -> None:
        try:
            put_in(name, source, line)
        except Exception as error:  # a mutant with which the package cannot be imported: every test fails
            say(f"the import ({type(error).__name__})")
            return
        watch = _Watch()
        items[0].config.pluginmanager.register(watch)
        began = time.monotonic()
        for item, following in zip(items, [*items[1:], None]):
            if time.process_time() > _MOST_SECONDS or time.monotonic() - began > 5 * _MOST_SECONDS:
                return
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if watch.failed:
                say(watch.failed)
                return


class _Watch:
    """The first test that fails, without those that take longer than a quarter of the mutant's time."""

    failed = ""
    late = False

    def stop(self, *_: object) -> None:
        self.late = True
        raise RuntimeError("too slow for a mutant")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self.late = False
        signal.signal(signal.SIGPROF, self.stop)
        signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS / 4)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.late:
            self.failed = report.nodeid


def meet_anew(name: str, source: str, tests: list[str]) -> str:
    """The same with the mutant imported: for functions that run while their module is imported."""

    def work(say: Callable[[str], None]) -> None:
        sys.meta_path.insert(0, _Mutated(module_of(name), ROOT / name, source))

        class Watch:
            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    say(report.nodeid)

        status = pytest.main(["-x", "-q", "--rootdir", str(ROOT), *tests], plugins=[Watch()])
        if status not in (0, 1):
            say(f"the import (pytest {int(status)})")

    return outcome_of(*in_a_child(work, 10 * _MOST_SECONDS))


@functools.lru_cache(maxsize=None)
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z][a-z0-9]+|[A-Z0-9]+", text))


@functools.lru_cache(maxsize=None)
def _source(test: Any) -> str:
    return inspect.getsource(test)


def _said(item: Any) -> str:
    """The source of a test; a record; the commands of a transcript."""
    from tests.records import Case, kept_records  # loads the package, which `meet_anew` must load itself

    given = item.callspec.params if hasattr(item, "callspec") else {}
    if "session" in given:
        return "\n".join(given["session"].commands)
    if isinstance(given.get("case"), Case):
        return "\n".join((given["case"].name, *kept_records(given["case"].group).get(given["case"].name, ())))
    return _source(getattr(item, "function", item.module))


def tests_of(name: str, line: int, items: Mapping[str, Any]) -> list[str]:
    """The tests of a file's folder: records (and some by chance), transcripts, others, those of all folders later, last
    those that start a process, which has the file unchanged. Of each those first that have the file's name in theirs, then
    those that share most rare words with the function around the line."""
    text = (ROOT / name).read_text(encoding="utf-8")
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    outmost = min((n for n in around if isinstance(n, ast.FunctionDef)), key=lambda node: node.lineno)
    asked = _words(" ".join([name, ast.get_source_segment(text, outmost) or "", *(node.name for node in around)]))
    own = tuple(own_tests(name))
    mine = [test for test in items if test.startswith(own)]
    said = {test: _said(items[test]) for test in mine}
    words = {test: asked & _words(f"{test} {source}") for test, source in said.items()}
    count = collections.Counter(word for found in words.values() for word in found)
    close = {
        test: sum(1 / count[word] for word in sorted(found)) / math.sqrt(len(said[test]))
        for test, found in words.items()
    }
    of_all, path = tuple(folders()[-1][1]), Path(name)
    stem = path.parent.name if path.stem == "__init__" else path.stem

    def rank(test: str) -> tuple[bool, bool, bool, float]:
        return "subprocess" in said[test], stem not in test, test.startswith(of_all), -close[test]

    order = sorted(said, key=rank)
    records, others = ([test for test in order if (_RECORDS in test) == which] for which in (True, False))
    recorded = ("/translation/" in name or "/core/" in name) and not any(folder in name for folder in _SHOWN)
    first = records[:_MOST_RECORDS] + random.Random(line).sample(records, len(records) // 50) if recorded else []
    nearest = [test for test in others if _TRANSCRIPTS in test]
    nearest.sort(
        key=lambda test: (("lab_" in test) != ("/lab/" in name), ("[desk/" in test) == ("/translation/" in name))
    )
    return list(dict.fromkeys((*first, *nearest[:_MOST_TRANSCRIPTS], *others, *records)))


def prepare(name: str, index: int, items: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """(source, row) of a mutant. items: the tests by their names."""
    module, mutation = mutants(ROOT / name)[index]
    source, line = mutated(module, mutation)
    pairs = difflib.unified_diff(module.code.splitlines(), source.splitlines(), n=0, lineterm="")
    return source, {
        "file": name,
        "mutant": index,
        "line": line,
        "outcome": "not run",
        "tests": tests_of(name, line, items) if items else [],
        "diff": [text for text in pairs if text[:3] not in ("---", "+++") and text[:2] != "@@"],
    }


def interval(killed: int, total: int) -> tuple[float, float]:
    """Of a share, at 95% (Wilson)."""
    z, share = 1.959964, killed / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return middle - half, middle + half


def show(rows: list[dict[str, Any]]) -> None:
    left = [row for row in rows if row["outcome"].startswith(_ALIVE)]
    for row in left:
        print(f"--- {row['file']}:{row['line']} mutant {row['mutant']}: {row['outcome']}")
        print("\n".join(row["diff"]))
    killed = len(rows) - len(left)
    low, high = interval(killed, len(rows))
    print(
        f"{killed} of {len(rows)} killed: {100 * killed / len(rows):.1f}% (95%: {100 * low:.1f} to {100 * high:.1f}%)"
    )


_ALIVE = ("survived", "not run")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="files whose path holds one of these")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--anew", action="store_true", help="those that survived once more, with the mutant imported")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(options.state.read_text(encoding="utf-8")) if options.state.exists() else []

    def done(row: dict[str, Any]) -> None:
        row["tests"] = len(row["tests"])
        rows.append(row)
        options.state.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        print(f"{len(rows)} {row['file']}:{row['line']} {row['outcome']} {row.get('seconds', 0)} s", flush=True)

    if options.sample:
        before = {(row["file"], row["mutant"]) for row in rows}
        todo = [task for task in draw(options.sample, options.seed, options.only) if task not in before]
        found = sorted({str(ROOT / test) for _, tests in folders() for test in tests})
        pytest.main(
            ["-q", "--rootdir", str(ROOT), *found],
            plugins=[Fast(todo, options.processes, done)],
        )
    if options.anew:
        for module in ("numpy", "onnx", "onnxruntime", "pytest", "hypothesis", "rich", "jsonschema"):
            __import__(module)  # before the forks, so that each has them
        for row in rows:
            if row["outcome"] == "survived":
                source, _ = prepare(row["file"], row["mutant"], {})
                row["outcome"] = meet_anew(row["file"], source, own_tests(row["file"]))
                options.state.write_text(json.dumps(rows, indent=1), encoding="utf-8")
                print(f"{row['file']}:{row['line']} {row['outcome']}", flush=True)
    if rows:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
