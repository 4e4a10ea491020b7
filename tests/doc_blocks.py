"""Code blocks of the docs: their language, the file that they are, and whether a test runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
        *(page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts),
    )
)
RUN_FROM_TOP_TO_BOTTOM = ("docs/laptop.md", "docs/cookbook.md")
"""Pages whose blocks ``tests/spark/test_docs_laptop.py`` runs in one folder, in this order."""

RUN_BY = {
    "docs/examples.md": "tests/spark/test_examples.py",
    "docs/install.md": "tests/unit/chart/test_registry.py",
    "docs/install-python.md": "tests/unit/starter/test_init.py",
    "docs/own-code.md": "tests/spark/test_own_code.py",
    "docs/tutorial-shop.md": "tests/cluster/test_tutorial.py",
}
"""Pages whose commands, or those of them that a machine for tests can run, another test runs."""

NOT_RUN = {"docs/live-page.md": "needs a cluster"}
"""Pages whose commands no test runs, and why, beside those that say so themselves."""

_FENCE = re.compile(r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?$')
_COMMENT = re.compile(r"^<!-- (.+) -->$")
_HEREDOC = re.compile(r"<<'?YAML'?\n(.*?)\n *YAML$", re.MULTILINE | re.DOTALL)
_OF_THE_PAGE = re.compile(r"^<!-- the commands of this page are (not run: .+) -->$", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    """The line of its first fence."""

    language: str
    title: str
    """The file that it is, if it has one."""

    text: str
    comment: str
    """The comment in the line above, such as ``not run: needs a cluster``."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def yaml(self) -> list[str]:
        """The documents in YAML that it has, also within a command."""
        found = [self.text] if self.language == "yaml" else _HEREDOC.findall(self.text)
        return [document for text in found for document in re.split(r"^---\n", text, flags=re.MULTILINE)]


def name(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page, in order."""
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    above = ""
    for number, line in lines:
        opened = _FENCE.match(line)
        if opened:
            held = []
            for _, inner in lines:
                if inner.strip() == "```":
                    break
                held.append(inner.removeprefix(opened["indent"]))
            comment = _COMMENT.match(above.strip())
            text = "".join(f"{each}\n" for each in held)
            yield Block(
                name(page), number, opened["language"], opened["title"] or "", text, comment[1] if comment else ""
            )
        above = line


def why_not_run(page: Path) -> str | None:
    """Return why no test runs the commands of a page, as it or the README of its folder says; None if neither does."""
    if name(page) in NOT_RUN:
        return NOT_RUN[name(page)]
    for each in (page, page.with_name("README.md")):
        found = _OF_THE_PAGE.search(each.read_text(encoding="utf-8")) if each.exists() else None
        if found:
            return found[1]
    return None
