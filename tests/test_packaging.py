"""What leaves the repository: the text and the pages of a wheel, the constraints, the notebook, the workflow in the docs."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from qdq_translator.core.rules import RULES, docs_page

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_of_the_package", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_text_for_an_index_leads_nowhere_that_is_not_there(build: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = build.index_text(readme, "")
    assert "![" in readme and "![" not in text
    assert all("://" in link or link.startswith("#") for link in re.findall(r"\]\(([^)]*)\)", text))
    assert "From a symptom to a command" in text  # the words of a link stay


def test_with_an_address_links_and_pictures_are_absolute(build: ModuleType) -> None:
    text = build.index_text("![a](assets/a.png) [b](docs/b.md#c) [d](https://d) [e](#e)", "https://x/y")
    assert text == (
        "![a](https://x/y/raw/main/assets/a.png) [b](https://x/y/blob/main/docs/b.md#c) [d](https://d) [e](#e)"
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    source = folder / "source"
    for name in ("qdq_translator", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "qdq_translator.py"):
        shutil.copy(ROOT / name, source / name)
    subprocess.run(command, cwd=source, check=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_carries_the_pages_that_explain_names(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    names = set(wheel.namelist())
    assert {f"qdq_translator/docs/{rule.page}" for rule in RULES.values()} <= names
    wheel.extractall(tmp_path)
    script = "from qdq_translator.cli import main; raise SystemExit(main(['explain', 'W-C1']))"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"Described in {tmp_path / 'qdq_translator' / 'docs' / 'rules.md'}\n" in done.stdout
    assert "C1" in (tmp_path / "qdq_translator" / "docs" / "rules.md").read_text(encoding="utf-8")


def test_the_library_in_the_page_comes_with_its_licence(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    library = next(n for n in names if n.endswith("templates/dagre.min.js"))
    assert b"Permission is hereby granted, free of charge" in wheel.read(library)
    notice = next(n for n in names if n.endswith("/NOTICE"))
    assert library in wheel.read(notice).decode()


def test_the_metadata_says_what_is_true(wheel: zipfile.ZipFile, build: ModuleType) -> None:
    text = wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode()
    head = text.split("\n\n")[0]
    assert "Description-Content-Type: text/markdown" in head
    assert ("Project-URL:" in head) == bool(build.ADDRESS)
    assert re.findall(r"Requires-Python: (.*)", head) == [">=3.8"]
    assert "![" not in text or build.ADDRESS


def test_every_rule_has_a_page() -> None:
    assert [rule.id for rule in RULES.values() if not docs_page(rule.page).is_file()] == []


def test_the_notebook_is_committed_without_outputs() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert code and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_the_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("nbmake", reason="SKIPPED FOR LACK OF NBMAKE: the notebook was not run")
    pytest.importorskip("ipykernel", reason="SKIPPED FOR LACK OF IPYKERNEL: the notebook was not run")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "--overwrite"]
    copy = tmp_path / "notebook.ipynb"
    copy.write_bytes((ROOT / "notebooks" / "from_model_to_pictures.ipynb").read_bytes())
    done = subprocess.run([*command, str(copy)], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    outputs = [o for cell in json.loads(copy.read_text(encoding="utf-8"))["cells"] for o in cell.get("outputs", ())]
    shown = ["".join(o["data"].get("text/html", "")) for o in outputs if "data" in o]
    assert sum("<iframe srcdoc=" in html and "&lt;svg" in html for html in shown) == 5
    assert sum("&lt;section id=&quot;network&quot;" in html for html in shown) == 1


def test_the_workflow_in_the_docs_asks_for_no_more_than_reading() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8"), re.S)
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert "permissions" not in job
    used = next(step["with"] for step in job["steps"] if "qdq-translator" in step["uses"])
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert set(used) <= set(action["inputs"])
    assert "GITHUB_TOKEN" not in str(action) and "github.token" not in str(action)
