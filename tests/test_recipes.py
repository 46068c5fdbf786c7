"""The recipes of CONTRIBUTING.md: whatever was added stands in every file that its recipe names."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from qdq_translator.cli import main
from qdq_translator.commands import COMMANDS
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.rules import RULES
from qdq_translator.translation.passes import dla
from qdq_translator.translation.passes.pipeline import PIPELINE
from qdq_translator.translation.targets.dla.limits import LIMITS

ROOT = Path(__file__).resolve().parents[1]


def text(*paths: str) -> str:
    return "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths)


def all_tests() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))


def mentioned(word: str, where: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", where, re.IGNORECASE) is not None


def test_the_files_of_the_recipes_exist() -> None:
    page = text("CONTRIBUTING.md")
    recipes = page.split("## Recipes")[1]
    named = {path for path in re.findall(r"`([\w./]+(?:\.py|\.md|\.txt|/))`", recipes) if "NAME" not in path}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    assert len(re.findall(r"^### ", recipes, re.M)) == 7


def test_every_test_file_belongs_to_a_folder() -> None:
    table = text("CONTRIBUTING.md").split("## Tests of a folder")[1].split("## Recipes")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert {path.stem[len("test_") :] for path in (ROOT / "tests").glob("test_*.py")} - named == set()


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule[0] in "SBKU" and rule not in ("S1", "S2", "S4")])
def test_scale_rule(rule: str) -> None:
    folder = [
        *sorted((ROOT / "qdq_translator" / "translation" / "scales" / "inference").glob("*.py")),
        ROOT / "qdq_translator" / "translation" / "targets" / "auto_names.py",
    ]
    folder += sorted((ROOT / "qdq_translator" / "lab" / "simulate" / "calibration").glob("*.py"))
    assert any(mentioned(rule, path.read_text(encoding="utf-8")) for path in folder), f"no module for {rule}"
    assert mentioned(rule, text("docs/rules.md")), f"docs/rules.md lacks {rule}"
    assert mentioned(rule, all_tests()), f"no test names {rule}"


@pytest.mark.parametrize("limit", [limit.id for limit in LIMITS])
def test_limit_of_the_dla(limit: str) -> None:
    assert mentioned(limit, text("tests/test_dla.py")), f"tests/test_dla.py has no case for {limit}"


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule[0] == "Q"])
def test_dialect_of_quantizers(rule: str) -> None:
    assert mentioned(rule, text("docs/rules.md")), f"docs/rules.md lacks {rule}"
    assert any(rule in step.rules for step in PIPELINE), f"no pass carries out {rule}"


def rewrites() -> list[ModuleType]:
    folder = Path(dla.__file__).parent
    found = [importlib.import_module(f"{dla.__name__}.{path.stem}") for path in sorted(folder.glob("*.py"))]
    return [module for module in found if hasattr(module, "apply")]


@pytest.mark.parametrize("module", rewrites(), ids=lambda module: module.__name__.rpartition(".")[2])
def test_rewrite_for_the_dla(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    assert module in dla.RULES, f"translation/passes/dla/__init__.py does not apply {name}"
    assert module.RULE in RULES, f"rules.py lacks {module.RULE}"
    assert f"### {module.RULE}" in text("docs/dla_rules.md"), f"docs/dla_rules.md lacks {module.RULE}"
    assert (ROOT / "tests" / "dla" / f"test_{name}.py").exists(), f"tests/dla/test_{name}.py is missing"
    assert any(module.RULE in step.rules for step in PIPELINE), f"PIPELINE does not name {module.RULE}"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_stands_on_the_page_of_commands(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The site's page of commands (`docs/site.py`) is what the commands say of themselves."""
    assert "commands.md" in text("mkdocs.yml")
    with pytest.raises(SystemExit):
        main([command, "--help", "--all"])
    said = capsys.readouterr().out
    module = importlib.import_module(f"qdq_translator.commands.{COMMANDS[command][0]}")
    for field in dataclasses.fields(module.Options):
        places = field.metadata.get("metavar", field.name) if field.metadata["positional"] else field.name
        flag = places if field.metadata["positional"] else field.metadata["short"] or places
        flag = f"{field.metadata['part'][1]}: " if "part" in field.metadata else flag
        assert flag in " ".join(said.split()), f"{command} --help lacks {flag}"
        assert field.metadata["help"], f"{field.name} has no help"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_is_on_a_page_that_says_when_to_use_it(command: str) -> None:
    """By its flag or its short one, on a written page of the docs, in the README or in the changelog."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "e2e_workflow").glob("*/README.md"))]
    written = text("README.md", "CHANGELOG.md", *(path.relative_to(ROOT).as_posix() for path in pages))
    module = importlib.import_module(f"qdq_translator.commands.{COMMANDS[command][0]}")
    flags = {f"{field.name}|{field.metadata.get('part', [field.name])[0]}": field.metadata["short"]
             for field in dataclasses.fields(module.Options) if not field.metadata["positional"]}  # fmt: skip
    missing = [name for name, short in flags.items()
               if not re.search(rf"--({name})\b", written) and not (short and re.search(rf" {short}\b", written))]  # fmt: skip
    assert missing == [] and (flags or command == "completion")


@pytest.mark.parametrize("file", ["model", "config", "cache", "layer_arg", "report"])
def test_output_file(file: str) -> None:
    name = getattr(TranslationFiles(Path("out"), "NAME"), file).name
    assert name.replace("NAME", "") in text("docs/files.md"), f"docs/files.md lacks {name}"
    assert f"temporary.{file}" in text("qdq_translator/translation/files/write.py"), (
        f"emit/write.py does not write {name}"
    )
