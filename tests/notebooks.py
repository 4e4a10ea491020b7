"""The notebooks of the docs: executed in a kernel, and compared with the outputs that they show.

``MILLRACE_GOLDENS=write`` writes the new outputs into the notebooks; review the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

GALLERY = Path(__file__).parents[1] / "docs/notebooks"
VARIES = "varies"
"""Tag of a cell whose output differs from run to run: progress, and speeds of this machine."""


def read(name: str) -> nbformat.NotebookNode:
    """Return a notebook of the gallery, as it is committed."""
    return nbformat.read(GALLERY / name, as_version=4)


def executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> nbformat.NotebookNode:
    """Return a notebook after all its cells ran in ``folder``. Raise CellExecutionError if one of them fails."""
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(folder / ".jupyter"))
    notebook = read(name)
    resources = {"metadata": {"path": str(folder)}}
    # a free port may be taken before the kernel listens on it; the path of a socket has at most 107 bytes
    with TemporaryDirectory(prefix="kernel-", dir="/tmp") as place:
        config = Config(ConnectionFileMixin={"transport": "ipc", "ip": f"{place}/socket"})
        # how the text of a stream is cut into messages depends on the kernel's speed
        NotebookClient(
            notebook, timeout=800, kernel_name="python3", resources=resources, config=config, coalesce_streams=True
        ).execute()
    if os.environ.get("MILLRACE_GOLDENS") == "write":
        _write(notebook, GALLERY / name)
    return notebook


def outputs(notebook: nbformat.NotebookNode, *, varying: bool = True) -> dict[str, list[str]]:
    """Return the outputs of each cell as text, by the cell's id; of a picture, that it is one."""
    return {
        cell.id: [_text(output) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code" and (varying or VARIES not in cell.metadata.get("tags", []))
    }


def assert_shows_what_comes_out(ran: nbformat.NotebookNode, name: str) -> None:
    """Assert that the committed notebook has the outputs of one that ran."""
    assert outputs(ran, varying=False) == outputs(read(name), varying=False)


def _text(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return f"{output.name}: {output.text}"
    return str(output.data["text/plain"])


def _write(notebook: nbformat.NotebookNode, file: Path) -> None:
    """Write a notebook without metadata that differ from run to run."""
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            output.pop("transient", None)
    nbformat.write(notebook, file)
