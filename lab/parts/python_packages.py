"""Environments of Python with packages of their own, for programs whose packages differ from Millrace's."""

from __future__ import annotations

import sys
from pathlib import Path

from .commands import run
from .part import FolderPart, Report, digest_of, retried


class PythonPackages(FolderPart):
    """A virtual environment, made of this Python, with some packages and what they need.

    Its programs are run by ``python -m``: scripts in ``bin`` name the folder in which the environment was made.

    Args:
        name, slug: see ``FolderPart``.
        requirements: file of pip with a pin of each package, also of those that others need.
    """

    def __init__(self, name: str, slug: str, requirements: Path) -> None:
        self.name, self.slug = name, slug
        self._requirements = requirements

    def identity(self) -> str:
        return digest_of(sys.version.encode(), self._requirements.read_bytes())

    def fill(self, folder: Path, report: Report) -> None:
        run([sys.executable, "-m", "venv", folder], seconds=120)
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip"]
        install = [*pip, "install", "--quiet", "--no-compile", "--no-deps", "--requirement", self._requirements]
        retried(lambda: run(install, seconds=600), report)
        run([*pip, "check"], seconds=120)
