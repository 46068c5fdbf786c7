"""TensorRT and DLA components of this machine, read from files and package metadata; nothing is imported or run.

Sources: `/etc/nv_tegra_release` and the JetPack release pages (L4T numbers), the fallback conditions of the TensorRT
documentation (dla-runtime-configuration), and public threads named in the rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional

from qdq_translator.translation.targets.platforms import PLATFORMS, installed_tensorrt

_NO_DLA = re.compile(r"Orin Nano|Thor|Jetson Nano|TX1|TX2")
_LIBRARIES = ("usr/lib/aarch64-linux-gnu/nvidia", "usr/lib/aarch64-linux-gnu/tegra", "usr/lib/aarch64-linux-gnu")
_TRTEXEC = ("usr/src/tensorrt/bin/trtexec", "opt/tensorrt/bin/trtexec", "usr/local/tensorrt/bin/trtexec")
_PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "pillow", "onnxoptimizer")
OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True)
class Finding:
    """`state`: ok, note or problem; `remedy`: '' if none is needed."""

    what: str
    state: str
    found: str
    remedy: str = ""


def examine(root: Path = Path("/"), path: str = "", versions: Optional[dict[str, str]] = None) -> list[Finding]:
    """What `doctor` finds on this machine. root: of its file system. path: search path of programs. versions: Python
    package -> version (default: the installed ones)."""
    packages = _installed() if versions is None else versions
    board = _text(root / "proc/device-tree/model").strip("\0\n ")
    findings = [*_platform(root, board), *_tensorrt(root, packages), *_trtexec(root, path)]
    return [*findings, *_dla(root, board), *_python(packages)]


def platform_of(root: Path = Path("/")) -> str:
    """The value for --platform, from the L4T release; '' on any other machine."""
    release = _l4t(root)
    if release is None or release[0] == 38:
        return ""
    if release[0] >= 39:
        return "jetpack-7.2" if release[:2] == (39, 2) else ""
    known = sorted(((p.l4t, p.name) for p in PLATFORMS if p.l4t), reverse=True)
    return next((name for first, name in known if release[0] == first[0] and release >= first), "")


def _l4t(root: Path) -> Optional[tuple[int, int, int]]:
    match = re.search(r"R(\d+) \(release\), REVISION: (\d+)\.(\d+)", _text(root / "etc/nv_tegra_release"))
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _platform(root: Path, board: str) -> Iterator[Finding]:
    release, name = _l4t(root), platform_of(root)
    if release is None and not board:
        remedy = "Make the files here with 'qdq-translator deploy', build on the board."
        yield Finding("board", NOTE, "this is no Jetson", remedy)
        return
    text = f"{board or 'unknown board'}, L4T R{'.'.join(map(str, release))}" if release else board
    if name:
        yield Finding("board", OK, f"{text}: {name}", f"--platform {name}")
    elif release is None:
        remedy = "In a container, mount that file, or name --platform."
        yield Finding("board", NOTE, f"{text}, no /etc/nv_tegra_release", remedy)
    else:
        remedy = "Name TensorRT's version: --platform tensorrt-10.3.0."
        yield Finding("board", NOTE, f"{text}: not in the table", remedy)
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        remedy = "Start it with --runtime nvidia; the host's JetPack counts."
        yield Finding("container", NOTE, "this is a container", remedy)


def _tensorrt(root: Path, packages: dict[str, str]) -> Iterator[Finding]:
    libraries = sorted({p.name for folder in _folders(root) for p in folder.glob("libnvinfer.so.*.*")})
    module = packages.get("tensorrt", "")
    name = platform_of(root)
    expected = next((".".join(map(str, p.tensorrt)) for p in PLATFORMS if p.name == name), "")
    if libraries:
        yield Finding("TensorRT library", OK, ", ".join(libraries))
    elif name:
        yield Finding("TensorRT library", PROBLEM, "libnvinfer.so was not found", "sudo apt install nvidia-jetpack")
    if not module:
        state, remedy = (PROBLEM, "sudo apt install python3-libnvinfer") if name else (NOTE, "Only 'build' needs it.")
        yield Finding("TensorRT for Python", state, "not installed", remedy)
        return
    remedy = ""
    if expected and module.split(".")[:2] != expected.split(".")[:2]:
        only = "an engine runs only on the version that built it"
        remedy = f"{name} has {expected}: remove the package that pip installed; {only}."
    elif int(module.split(".")[0]) >= 11:
        remedy = "11 has no implicit INT8: use the Q/DQ form ('qdq-translator explicit')."
    yield Finding("TensorRT for Python", PROBLEM if remedy else OK, module, remedy)
    if _numbers(module) < (8, 6) and _numbers(packages.get("numpy", "")) >= (1, 24):
        remedy = "Its bindings use np.bool: pip install 'numpy<1.24'."
        yield Finding("NumPy", PROBLEM, f"{packages['numpy']} with TensorRT {module}", remedy)


def _trtexec(root: Path, path: str) -> Iterator[Finding]:
    on_path = (Path(folder) / "trtexec" for folder in path.split(":") if folder)
    found = next((str(p) for p in (*on_path, *(root / place for place in _TRTEXEC)) if p.is_file()), "")
    if found:
        yield Finding("trtexec", OK, found)
    elif _l4t(root):
        remedy = "sudo apt install libnvinfer-bin (it goes to /usr/src/tensorrt/bin)"
        yield Finding("trtexec", PROBLEM, "not found", remedy)
    else:
        yield Finding("trtexec", NOTE, "not found", "Only the board needs it.")


def _dla(root: Path, board: str) -> Iterator[Finding]:
    nodes = sorted(p.name for p in (root / "dev").glob("*nvdla*"))
    cores = {match[1] for match in map(re.compile(r"nvdla(\d)").search, nodes) if match}
    if cores:
        yield Finding("DLA", OK, f"{len(cores)} cores ({', '.join(nodes)})")
        yield _dla_software(root)
    elif board and _NO_DLA.search(board):
        yield Finding("DLA", NOTE, f"{board} has none", "Use --on gpu.")
    elif board or _l4t(root):
        remedy = "In a container, start it with --runtime nvidia and --privileged or --device."
        yield Finding("DLA", PROBLEM, "no device nodes /dev/*nvdla*", remedy)


def _dla_software(root: Path) -> Finding:
    compiler = next((p for folder in _folders(root) for p in folder.glob("libnvdla_compiler.so*")), None)
    if compiler is None:
        remedy = "sudo apt install nvidia-l4t-dla-compiler, or mount it from the host."
        return Finding("DLA software", PROBLEM, "libnvdla_compiler.so was not found", remedy)
    if compiler.stat().st_size == 0:
        remedy = "The container was not started with --runtime nvidia."
        return Finding("DLA software", PROBLEM, f"{compiler} is empty", remedy)
    return Finding("DLA software", OK, str(compiler))


def _python(packages: dict[str, str]) -> Iterator[Finding]:
    for name in _PACKAGES:
        if name in packages:
            yield Finding(name, OK, packages[name])
    if "onnxruntime" not in packages and "onnxruntime-gpu" not in packages:
        remedy = "verify and --calibrate need it: pip install '.[verify]' in a checkout of qdq-translator"
        yield Finding("onnxruntime", NOTE, "not installed", remedy)


def _installed() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    tensorrt = installed_tensorrt()
    return {**found, **({"tensorrt": ".".join(map(str, tensorrt))} if tensorrt else {})}


def _folders(root: Path) -> list[Path]:
    return [folder for folder in (root / name for name in (*_LIBRARIES, "usr/lib/x86_64-linux-gnu")) if folder.is_dir()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])
