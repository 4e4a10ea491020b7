"""A hook of MkDocs: links that leave docs/ work on the site as they do in a checkout and on a code host.

The site gets a copy of each file of the repository that a page leads to, in its folder ``repository``: Markdown as a
page, anything else as it is. MkDocs then checks these links, and their anchors, as it checks all others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

COPIES = PurePosixPath("repository")
"""The folder of the site that has the copies."""

_LINK = re.compile(
    r"(?P<code>^(?P<fence>```+).*?^(?P=fence)|``.+?``|`[^`\n]*`)"
    r"|(?P<before>\]\(|\b(?:src|srcset|href)=\")(?P<path>(?![a-z]+:|#|/)[^)#\s\"]+)(?=[)#\s\"])",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages lead to, and those that these lead to in turn."""
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for target in _targets(page, config):
            uri = _uri(target, config)
            if files.get_file_from_path(uri) is None and target.is_file():
                copy = File.generated(config, uri, abs_src_path=str(target), inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(copy)
                if copy.is_documentation_page():
                    waiting.append(copy)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Return the page with links to where the site has their targets."""

    def rewritten(link: re.Match[str]) -> str:
        if link["code"]:
            return link[0]
        to = _uri(_target(page.file, link["path"], config), config)
        return link["before"] + os.path.relpath(to, PurePosixPath(page.file.src_uri).parent)

    return _LINK.sub(rewritten, markdown)


def _targets(page: File, config: MkDocsConfig) -> Iterator[Path]:
    for link in _LINK.finditer(page.content_string):
        if link["path"]:
            target = _target(page, link["path"], config)
            if not target.is_relative_to(config.docs_dir):
                yield target


def _target(page: File, link: str, config: MkDocsConfig) -> Path:
    """Return where a link leads to; a page of another hook has no file, and is where docs/ would have it."""
    file = Path(page.abs_src_path or Path(config.docs_dir, page.src_uri))
    return Path(os.path.normpath(file.parent / link))


def _uri(target: Path, config: MkDocsConfig) -> str:
    """Return the path of a file in the site's sources."""
    if target.is_relative_to(config.docs_dir):
        return target.relative_to(config.docs_dir).as_posix()
    root = Path(config.config_file_path).parent
    return (COPIES / os.path.relpath(target, root)).as_posix()
