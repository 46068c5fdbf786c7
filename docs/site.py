"""Hooks of the documentation site (`mkdocs build --strict`): pages that are made from the code, and from the project's other
Markdown files, with links that lead to their places on the site."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    },
    **{
        path.relative_to(ROOT).as_posix(): f"workflows/{path.parent.name}.md"
        for path in sorted((ROOT / "e2e_workflow").glob("*/README.md"))
    },
}
"""File of the project -> page of the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def commands_page() -> str:
    """Every command with its help at 80 columns."""
    from qdq_translator.cli import main
    from qdq_translator.commands import COMMANDS

    os.environ["COLUMNS"] = "80"
    parts = ["# Commands\n"]
    for name, (_, summary) in COMMANDS.items():
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([name, "--help", "--all"])
        parts.append(f"## {name}\n\n{summary}\n\n```text\n{out.getvalue().rstrip()}\n```\n")
    return "\n".join(parts)


def api_page() -> str:
    """Every public function and type: signature, docstring, members, and the options with type, default and meaning."""
    import inspect

    import qdq_translator
    from qdq_translator.api import functions

    sys.path.append(
        str(ROOT)
    )  # `mkdocs` as a program does not have it, and takes back what a hook adds while it is loaded
    from tests import public_api

    parts = ["# API\n\n[How to use it](python.md)."]
    for name in dir(qdq_translator):
        thing = getattr(qdq_translator, name)
        if not callable(thing):
            continue
        signature = "" if inspect.isclass(thing) else _unquoted(str(inspect.signature(thing)))
        parts.append(f"## {name}\n\n```text\n{name}{signature}\n```\n\n{inspect.getdoc(thing)}")
        rows = []
        for key, text in public_api.public_members(thing) if inspect.isclass(thing) else ():
            said = (inspect.getdoc(getattr(thing, key, None)) or "a field").splitlines()[0]
            rows.append(f"- `{_unquoted(text)}`: {said}")
        parts.append("\n".join(rows))
    parts.append("## Types of parameters")
    source = inspect.getsource(functions)
    for alias, value, said in re.findall(r'^(\w+) = (Union\[.*)\n"""([^"]*)"""', source, re.M):
        parts.append(f"- `{alias}` = `{value}`: {' '.join(said.split())}")
    for function, fields in public_api.options():
        parts.append(f"## Options of {function}\n\n| keyword | type | default | meaning |\n| --- | --- | --- | --- |")
        parts[-1] += "".join(f"\n{_option_row(field)}" for field in fields)
    return "\n\n".join(filter(None, parts)) + "\n"


def _unquoted(signature: str) -> str:
    """Annotations are text in quotes; an empty default stays."""
    return re.sub(r"(: |-> )'([^']+)'", r"\1\2", signature)


def _option_row(field: Any) -> str:

    sys.path.append(
        str(ROOT)
    )  # `mkdocs` as a program does not have it, and takes back what a hook adds while it is loaded
    from tests import public_api

    cells = (f"`{field.name}`", f"`{public_api.type_of(field)}`", f"`{public_api.default_of(field)}`")
    return (
        "| "
        + " | ".join(cell.replace("|", r"\|") for cell in (*cells, field.metadata["help"].replace("%%", "%")))
        + " |"
    )


def limits_page() -> str:
    """The table of limits of the DLA."""
    sys.path.append(str(ROOT))
    from benchmarks import reference

    return "# Limits of the DLA\n\n" + reference.limits()


def rule_pages() -> dict[str, str]:
    """A page for each rule, limit and platform that `explain` knows, with its words."""
    from qdq_translator.api.explaining import explained
    from qdq_translator.core.rules import RULES

    pages = {}
    for name, (title, paragraphs) in explained().items():
        more = [f"Described in [{RULES[name].page}](../{RULES[name].page})."] if name in RULES else []
        pages[f"rules/{name.replace(' ', '_')}.md"] = "\n\n".join([f"# {title}", *paragraphs, *more]) + "\n"
    return pages


def index_of_rules(pages: dict[str, str]) -> str:
    """What leads to them."""
    titles = {page: text.split("\n")[0][2:] for page, text in pages.items()}
    return (
        "# Rules, limits and platforms, one by one\n\n" + "\n".join(f"- [{t}]({p})" for p, t in titles.items()) + "\n"
    )


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    rules = rule_pages()
    made = {
        "commands.md": commands_page(),
        "limits.md": limits_page(),
        "api.md": api_page(),
        "one_by_one.md": index_of_rules(rules),
        **rules,
    }
    made.update(
        {page: (ROOT / path).read_text("utf-8") for path, page in PAGES.items() if not path.startswith("docs/")}
    )
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "assets").iterdir()) + sorted((ROOT / "e2e_workflow").glob("*/*.png")):
        if path.suffix in (".png", ".svg"):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the project become links to pages; what has no page keeps its words only."""
    source = next((path for path, name in PAGES.items() if name == page.file.src_uri), "")
    here = posixpath.dirname(page.file.src_uri)

    def follow(link: re.Match[str]) -> str:
        picture, words, target, anchor = link[1], link[2], link[3], link[4] or ""
        if not target or "://" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (ROOT / path).is_dir():
            path = f"{path}/README.md"
        place = PAGES.get(path) or (path if path.endswith((".png", ".svg")) else "")
        return f"{picture}[{words}]({posixpath.relpath(place, here or '.')}{anchor})" if place else words

    return _LINK.sub(follow, markdown) if source else markdown
