"""Characters in fonts that Debian packages: 1,000 classes, test images from font families that training never saw.

    apt-get install --no-install-recommends $(python -m e2e_workflow.common.glyphs [--smoke])

Chinese characters that Japanese, Chinese and Korean fonts have in common are rendered with FreeType (through Pillow) at
28 pixels into 32x32, centred, then moved by up to 2 pixels, washed out and made noisy. Designs that derive from one
another (M PLUS and VL Gothic, Arphic's Kai and UKai ...) are on the same side of the split.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

SIZE = 32
FONT_SIZE = 28
MOST_SHIFT = 2
CLASSES, SMOKE_CLASSES = 1000, 60
TEST_SHARE = 4  # of each test family every fourth character is a test image (every one in smoke mode)
FONT_FOLDER = Path("/usr/share/fonts")


@dataclass(frozen=True)
class Font:
    """One family: a file (face `index` of it) of the Debian package `fonts-<package>`. smoke: used by --smoke too."""

    package: str
    file: str
    index: int = 0
    smoke: bool = False


TRAIN_FONTS = (
    Font("arphic-bkai00mp", "bkai00mp.ttf"),
    Font("arphic-bsmi00lp", "bsmi00lp.ttf"),
    Font("arphic-gbsn00lp", "gbsn00lp.ttf", smoke=True),
    Font("arphic-gkai00mp", "gkai00mp.ttf", smoke=True),
    Font("arphic-ukai", "ukai.ttc"),
    Font("arphic-uming", "uming.ttc"),
    Font("babelstone-han", "BabelStoneHan.ttf"),
    Font("baekmuk", "batang.ttf"),
    Font("baekmuk", "gulim.ttf"),
    Font("cwtex-heib", "cwheib.ttf", smoke=True),
    Font("cwtex-kai", "cwkai.ttf"),
    Font("cwtex-ming", "cwming.ttf"),
    Font("dejima-mincho", "dejima-mincho-r227.ttf", smoke=True),
    Font("dotgothic16", "DotGothic16-Regular.ttf"),
    Font("droid-fallback", "DroidSansFallbackFull.ttf", smoke=True),
    Font("hanazono", "HanaMinA.ttf"),
    Font("horai-umefont", "ume-tgo4.ttf"),
    Font("horai-umefont", "ume-tmo3.ttf"),
    Font("ipafont-gothic", "ipag.ttf", smoke=True),
    Font("ipafont-mincho", "ipam.ttf"),
    Font("kiloji", "kiloji.ttf"),
    Font("konatu", "Konatu.ttf", smoke=True),
    Font("morisawa-bizud-gothic", "BIZUDGothic-Regular.ttf"),
    Font("motoya-l-cedar", "MTLc3m.ttf", smoke=True),
    Font("mplus", "Mplus1-Regular.otf"),
    Font("nanum", "NanumBarunGothic.ttf"),
    Font("noto-cjk", "NotoSansCJK-Regular.ttc"),
    Font("noto-cjk", "NotoSansCJK-Bold.ttc", 2),
    Font("noto-cjk", "NotoSerifCJK-Regular.ttc"),
    Font("oradano-mincho-gsrr", "OradanoGSRR.ttf"),
    Font("reggae", "ReggaeOne-Regular.ttf"),
    Font("sawarabi-gothic", "sawarabi-gothic-medium.ttf", smoke=True),
    Font("stick", "Stick-Regular.ttf"),
    Font("unfonts-core", "UnBatang.ttf"),
    Font("unfonts-core", "UnDotum.ttf"),
    Font("unifont", "unifont_jp.otf"),
    Font("yozvox-yozfont-standard-kana", "YOzRS_.ttf"),
)
TEST_FONTS = (
    Font("aoyagi-kouzan-t", "AoyagiKouzanT.ttf"),
    Font("baekmuk", "dotum.ttf"),
    Font("cwtex-fs", "cwfs.ttf"),
    Font("cwtex-yen", "cwyen.ttf"),
    Font("kouzan-mouhitsu", "kouzan-mouhitsu-gyosho.ttf"),
    Font("misaki", "misaki_gothic.ttf"),
    Font("morisawa-bizud-mincho", "BIZUDMincho-Regular.ttf"),
    Font("motoya-l-maruberi", "MTLmr3m.ttf", smoke=True),
    Font("rocknroll", "RocknRollOne-Regular.ttf"),
    Font("sawarabi-mincho", "sawarabi-mincho-medium.ttf"),
    Font("seto", "setofont.ttf"),
    Font("smiley-sans", "SmileySans-Oblique.ttf"),
    Font("unfonts-core", "UnGungseo.ttf"),
    Font("wqy-zenhei", "wqy-zenhei.ttc", smoke=True),
    Font("yusei-magic", "YuseiMagic-Regular.ttf"),
)


@dataclass(frozen=True)
class Glyphs:
    """Clean images, `train` and `test`, are uint8 (families, classes, 32, 32), ink 255; noisy ones are float32
    (N, 1, 32, 32), about zero mean and unit variance; labels are int64 (N,), the character's place in `characters`."""

    characters: str
    train: np.ndarray
    test: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def packages(smoke: bool) -> list[str]:
    """The Debian packages that are needed."""
    return sorted({f"fonts-{font.package}" for font in (*TRAIN_FONTS, *TEST_FONTS) if font.smoke or not smoke})


def missing(smoke: bool) -> list[str]:
    """File names of the fonts that are not installed."""
    return [
        font.file for font in (*TRAIN_FONTS, *TEST_FONTS) if (font.smoke or not smoke) and font.file not in _paths()
    ]


def load(smoke: bool) -> Glyphs:
    """Rendered anew; the same for the same fonts. Raises SystemExit naming what to install where a font is missing."""
    if absent := missing(smoke):
        raise SystemExit(
            f"{len(absent)} fonts are not in {FONT_FOLDER} ({absent[0]} for one). Install them with\n"
            f"apt-get install --no-install-recommends {' '.join(packages(smoke))}"
        )
    train_fonts, test_fonts = ([f for f in fonts if f.smoke or not smoke] for fonts in (TRAIN_FONTS, TEST_FONTS))
    paths = _paths()
    renderers = [_Renderer(paths[font.file], font.index) for font in (*train_fonts, *test_fonts)]
    wanted = SMOKE_CLASSES if smoke else CLASSES
    candidates = [c for c in _common_characters() if all(renderer.has(c) for renderer in renderers)]
    assert len(candidates) >= wanted, f"{len(candidates)} characters are in all fonts"
    characters = "".join(candidates[i * len(candidates) // wanted] for i in range(wanted))
    images = np.stack([np.stack([renderer.image(c) for c in characters]) for renderer in renderers])
    train, test = images[: len(train_fonts)], images[len(train_fonts) :]
    families, labels = np.divmod(np.arange(len(test) * wanted), wanted)
    chosen = (families + labels) % (1 if smoke else TEST_SHARE) == 0
    images = spoil(test[families[chosen], labels[chosen]], np.random.default_rng(5))
    return Glyphs(characters, train, test, images, labels[chosen].astype(np.int64))


def spoil(clean: np.ndarray, random: np.random.Generator, hard: bool = False) -> np.ndarray:
    """Images (N, 32, 32) as (N, 1, 32, 32) float32: moved by up to 2 pixels, with less contrast, on a noisy ground.

    hard: with still less contrast and more noise, for training.
    """
    least_contrast, most_noise = (0.35, 0.4) if hard else (0.4, 0.3)
    count = len(clean)
    padded = np.pad(clean, ((0, 0), (MOST_SHIFT, MOST_SHIFT), (MOST_SHIFT, MOST_SHIFT)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (SIZE, SIZE), axis=(1, 2))
    rows, columns = random.integers(0, 2 * MOST_SHIFT + 1, (2, count))
    images = windows[np.arange(count), rows, columns].astype(np.float32) / 255
    contrast, ground = (random.uniform(low, high, (count, 1, 1)) for low, high in ((least_contrast, 1.0), (0.0, 0.3)))
    images = images * contrast.astype(np.float32) + ground.astype(np.float32)
    images += random.uniform(0.05, most_noise, (count, 1, 1)).astype(np.float32) * random.standard_normal(
        images.shape, np.float32
    )
    return ((images - np.float32(0.35)) / np.float32(0.35))[:, None]


def _common_characters() -> list[str]:
    """The 1,551 characters of the first levels of JIS X 0208, Big5 and GB 2312 that KS X 1001 has too, in code order."""

    def frequent(character: str) -> bool:
        try:
            character.encode("euc_kr")
            codes = [character.encode(encoding) for encoding in ("shift_jis", "big5", "gb2312")]
        except UnicodeEncodeError:
            return False
        return all(code < limit for code, limit in zip(codes, (b"\x98\x9f", b"\xc9\x40", b"\xd8\xa1")))

    return [character for character in map(chr, range(0x4E00, 0xA000)) if frequent(character)]


@lru_cache(maxsize=None)
def _paths() -> dict[str, Path]:
    return {path.name: path for path in sorted(FONT_FOLDER.rglob("*")) if path.suffix in (".ttf", ".otf", ".ttc")}


class _Renderer:
    """One face at FONT_SIZE."""

    def __init__(self, path: Path, index: int) -> None:
        from PIL import ImageFont

        self._font = ImageFont.truetype(str(path), FONT_SIZE, index=index)
        self._missing = {self._pixels(c).tobytes() for c in "\uffff\U0010fffe"}

    def has(self, character: str) -> bool:
        """False where the font draws nothing, or what it draws for characters that do not exist."""
        pixels = self._pixels(character)
        return bool(pixels.any()) and pixels.tobytes() not in self._missing

    def image(self, character: str) -> np.ndarray:
        """(32, 32) uint8; the ink's bounding box in the middle."""
        ink = self._pixels(character)
        rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
        ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        ink = ink[max(0, (len(ink) - SIZE) // 2) :][:SIZE, max(0, (ink.shape[1] - SIZE) // 2) :][:, :SIZE]
        image = np.zeros((SIZE, SIZE), np.uint8)
        top, left = (SIZE - ink.shape[0]) // 2, (SIZE - ink.shape[1]) // 2
        image[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
        return image

    def _pixels(self, character: str) -> np.ndarray:
        mask = self._font.getmask(character, mode="L")
        width, height = mask.size
        return np.array(mask, np.uint8).reshape(height, width)


if __name__ == "__main__":
    print(" ".join(packages("--smoke" in sys.argv[1:])))
