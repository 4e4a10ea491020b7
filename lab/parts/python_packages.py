"""Environments of Python with packages of their own, for programs whose packages differ from Millrace's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from .commands import run
from .part import FolderPart, Report, digest_of, retried


class PythonPackages(FolderPart):
    """A virtual environment, made of this Python, with some packages and what they need.

    Its programs are run by ``python -m``: scripts in ``bin`` name the folder in which the environment was made.

    Args:
        name, slug: see ``FolderPart``.
        packages: pinned requirements, such as ``bytewax==0.21.1``.
    """

    def __init__(self, name: str, slug: str, packages: Sequence[str]) -> None:
        self.name, self.slug = name, slug
        self._packages = packages

    def identity(self) -> str:
        return digest_of(sys.version.encode(), *(package.encode() for package in self._packages))

    def fill(self, folder: Path, report: Report) -> None:
        run([sys.executable, "-m", "venv", folder], seconds=120)
        install: list[str | Path] = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            *self._packages,
        ]
        retried(lambda: run(install, seconds=600), report)
