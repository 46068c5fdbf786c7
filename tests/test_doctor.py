"""doctor: what it finds on boards that are built here from their files, and its remedies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qdq_translator.board.engine.machine import NOTE, OK, PROBLEM, Finding, examine, platform_of
from qdq_translator.cli import main

PACKAGES = {"numpy": "1.26.4", "tensorrt": "10.3.0", "onnx": "1.16.0"}


def orin(
    root: Path, model: str = "NVIDIA Jetson AGX Orin Developer Kit", release: str = "R36 (release), REVISION: 4.3"
) -> Path:
    """JetPack 6.2 with trtexec, library, DLA compiler and two cores."""
    for name, text in {
        "etc/nv_tegra_release": f"# {release}, GCID: 38968081, BOARD: generic\n",
        "proc/device-tree/model": f"{model}\0",
        "usr/src/tensorrt/bin/trtexec": "",
        "usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0": "",
        "usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so": "x",
        "dev/nvhost-ctrl-nvdla0": "",
        "dev/nvhost-ctrl-nvdla1": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def found(root: Path, packages: dict[str, str] = PACKAGES) -> dict[str, Finding]:
    return {row.what: row for row in examine(root, versions=packages)}


def test_a_board_as_it_should_be(tmp_path: Path) -> None:
    rows = found(orin(tmp_path))
    assert [row.what for row in rows.values() if row.state == PROBLEM] == []
    assert rows["board"].remedy == "--platform jetpack-6.2"
    assert rows["DLA"].found.startswith("2 cores") and rows["trtexec"].found.endswith("usr/src/tensorrt/bin/trtexec")


@pytest.mark.parametrize(
    "release, name",
    [
        ("R36 (release), REVISION: 4.4", "jetpack-6.2.1"),
        ("R36 (release), REVISION: 4.0", "jetpack-6.1"),
        ("R36 (release), REVISION: 3.0", "jetpack-6.0"),
        ("R35 (release), REVISION: 4.1", "jetpack-5.1.2"),
        ("R35 (release), REVISION: 1.0", ""),
        ("R39 (release), REVISION: 2.0", "jetpack-7.2"),
        ("R38 (release), REVISION: 2.0", ""),
    ],
)
def test_the_release_names_the_platform(tmp_path: Path, release: str, name: str) -> None:
    assert platform_of(orin(tmp_path, release=release)) == name


def test_problems_have_remedies(tmp_path: Path) -> None:
    root = orin(tmp_path)
    for node in (root / "dev").iterdir():
        node.unlink()
    (root / "usr/src/tensorrt/bin/trtexec").unlink()
    (root / ".dockerenv").write_text("")
    rows = found(root, {**PACKAGES, "tensorrt": "8.5.2", "numpy": "1.24.0"})
    problems = {row.what for row in rows.values() if row.state == PROBLEM}
    assert problems == {"DLA", "trtexec", "TensorRT for Python", "NumPy"}
    assert all(rows[name].remedy for name in problems)
    assert rows["container"].state == NOTE
    (root / "dev/nvhost-nvdla0").write_text("")
    (root / "usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so").write_text("")
    assert found(root)["DLA software"].state == PROBLEM


def test_no_dla_is_no_problem(tmp_path: Path) -> None:
    root = orin(tmp_path, model="NVIDIA Jetson Orin Nano Developer Kit")
    for node in (root / "dev").iterdir():
        node.unlink()
    assert found(root)["DLA"].state == NOTE
    empty = tmp_path / "pc"
    empty.mkdir()
    assert {row.state for row in found(empty).values()} <= {NOTE, OK}


def test_the_command_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert status == int(any(row["state"] == PROBLEM for row in rows))
    assert {"board", "trtexec", "numpy"} <= {row["what"] for row in rows}
    main(["doctor"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 160
