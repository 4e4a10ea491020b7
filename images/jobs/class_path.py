"""Moves the jars of a folder into one below it, and leaves a jar in their place whose manifest names them, by name."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

_LINE = 71
"""Characters in a line of a manifest at most; a longer one goes on in the next, after a space."""


def main(folder: Path) -> None:
    """Do so with the jars of this folder."""
    below = folder / "spark"
    below.mkdir()
    jars = sorted(folder.glob("*.jar"))
    for jar in jars:
        jar.rename(below / jar.name)
    text = "Class-Path: " + " ".join(f"spark/{jar.name}" for jar in jars)
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    with zipfile.ZipFile(folder / "class-path.jar", "w") as made:
        manifest = "\r\n ".join(["Manifest-Version: 1.0\r\n" + lines[0], *lines[1:]]) + "\r\n\r\n"
        made.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), manifest)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
