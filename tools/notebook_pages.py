"""A hook of MkDocs: each notebook of docs/ is a page of the site, with the outputs that it has.

Nothing is executed here. tests/notebooks.py compares the outputs with those of a kernel.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

_LINK = re.compile(r"(\]\((?![a-z]+:)[^)#\s]+)\.ipynb(?=[)#])")
_STYLE_OF_PANDAS = re.compile(r"<style scoped>.*?</style>\n?| border=\"1\" class=\"dataframe\"", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, beside the notebook itself, and its pictures."""
    exporter = MarkdownExporter()
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        uri = PurePosixPath(notebook.src_uri)
        text, resources = exporter.from_filename(str(notebook.abs_src_path), {"unique_key": uri.stem})
        title, _, rest = _STYLE_OF_PANDAS.sub("", text).partition("\n\n")
        download = f'<a href="{uri.name}" download>Download this notebook</a>'
        page = f"{title}\n\n{download}\n\n{rest}"
        files.append(File.generated(config, str(uri.with_suffix(".md")), content=page))
        for name, picture in resources["outputs"].items():
            files.append(File.generated(config, str(uri.with_name(name)), content=picture))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with links to the pages of notebooks in the place of links to notebooks."""
    return _LINK.sub(r"\1.md", markdown)
