"""What setup.cfg cannot say: the text for a package index, and the documentation that a wheel carries.

An index shows neither pictures nor pages from this folder. Until the repository has a public address (`ADDRESS`), the text
therefore goes without pictures, and links to files keep their words only; the pages themselves are in the wheel, where
`qdq-translator explain` finds them.
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
ADDRESS = ""
"""Where the repository is, https://... without a slash at the end; raw files of its main branch are below ADDRESS/raw/main."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]*)\)")


def index_text(readme: str, address: str = ADDRESS) -> str:
    """README for an index: absolute links and pictures with an address, else neither."""

    def follow(link: "re.Match[str]") -> str:
        picture, words, target = link[1], link[2], link[3]
        if "://" in target or target.startswith("#"):
            return link[0]
        if not address:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/main/{target})"

    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(follow, readme))


class BuildWithDocs(build_py):
    """docs/*.md become qdq_translator/docs/ of the wheel."""

    def run(self) -> None:
        super().run()
        if getattr(self, "editable_mode", False):
            return
        target = Path(self.build_lib) / "qdq_translator" / "docs"
        target.mkdir(parents=True, exist_ok=True)
        for page in sorted((ROOT / "docs").glob("*.md")):
            shutil.copyfile(page, target / page.name)


if __name__ == "__main__":
    setup(
        long_description=index_text((ROOT / "README.md").read_text(encoding="utf-8")),
        project_urls={"Source": ADDRESS, "Documentation": f"{ADDRESS}/tree/main/docs"} if ADDRESS else {},
        cmdclass={"build_py": BuildWithDocs},
    )
