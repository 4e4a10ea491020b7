"""Servers that take the place of Azure's and Google's object stores, and Spark's clients for these."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..cache import require
from .commands import run
from .maven_jars import MavenJars
from .part import FolderPart, Report, digest_of, retried

_MILLRACE = Path(__file__).parents[2] / "jobs" / "millrace_jobs"
_SILENCE = 120.0


class NpmPackages(FolderPart):
    """A folder with the packages that a ``package.json`` and its lock name, and the program that they are for.

    Args:
        name, slug: see ``FolderPart``.
        source: the folder of both files.
        check: a program of the packages, and arguments that show that it runs.
    """

    def __init__(self, name: str, slug: str, source: Path, check: tuple[str, ...]) -> None:
        self.name, self.slug = name, slug
        self._files = [source / "package.json", source / "package-lock.json"]
        self._check = check

    def identity(self) -> str:
        return digest_of(*(file.read_bytes() for file in self._files))

    def fill(self, folder: Path, report: Report) -> None:
        require("node", "npm")
        for file in self._files:
            shutil.copyfile(file, folder / file.name)
        report.say("fetching packages")
        options = ["--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=http"]
        retried(lambda: run(["npm", "ci", *options], folder=folder, silence=_SILENCE), report)
        program, *arguments = self._check
        run(["node", folder / program, *arguments], seconds=120)


AZURITE = NpmPackages(
    "Azurite",
    "azurite",
    Path(__file__).parents[1] / "azurite",
    ("node_modules/azurite/dist/src/blob/main.js", "--version"),
)
AZURE_JARS = MavenJars("Spark's client for Azure", "azure-client", _MILLRACE / "stores" / "azure.pom.xml")
