"""Hadoop's clients for object stores, with which Spark reads and writes checkpoints and event logs there.

PySpark brings Hadoop without them. The container image has them among Spark's jars; on a laptop, ``millrace prepare``
fetches each by Maven, in the versions of its pom.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.disk import cache_folder
from millrace_jobs.jvm import spark_home

_MAVEN_SECONDS = 600.0


@dataclass(frozen=True)
class SparkClient:
    """A client: the name of its store, and the name that its pom, its folder and the option to fetch it have.

    ``variable`` is an environment variable with the folder of its jars, in place of the one in the user's cache, and
    ``jar`` the name of one of them.
    """

    store: str
    name: str
    variable: str
    jar: str

    @property
    def pom(self) -> Path:
        """The pom that names the jars."""
        return Path(__file__).with_name(f"{self.name}.pom.xml")

    def jars(self, needed_by: str, field: str) -> tuple[str, ...]:
        """Return the URIs of the jars; none if they are among Spark's.

        Args:
            needed_by: what needs the client, for the message.
            field: its field.

        Raises:
            MillraceError: they are missing.
        """
        if any((spark_home() / "jars").glob(f"**/{self.jar}")):
            return ()
        folder = self._folder()
        found = [] if folder is None else sorted(folder.glob("*.jar"))
        if not found:
            message = f"Spark has no client for {self.store}, which {needed_by} needs"
            raise MillraceError(Problem(message, f"run millrace prepare --{self.name}", field=field))
        return tuple(jar.as_uri() for jar in found)

    def fetch(self, report: Callable[[str], None]) -> None:
        """Fetch the jars by Maven into the user's cache, unless they are there.

        Raises:
            MillraceError: Maven is not installed, or cannot fetch them.
        """
        folder = self._folder()
        if folder is None:
            message = f"this user has no home folder for Spark's client for {self.store}"
            raise MillraceError(Problem(message, f"set {self.variable} to a folder of its jars"))
        if not folder.exists():
            report(f"fetching Spark's client for {self.store}")
            self._fetch(folder)
        report(f"Spark's client for {self.store} is in {folder}")

    def _folder(self) -> Path | None:
        if named := os.environ.get(self.variable):
            return Path(named)
        cache = cache_folder()
        return cache and cache / f"{self.name}-client-{hashlib.sha256(self.pom.read_bytes()).hexdigest()[:12]}"

    def _fetch(self, folder: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            message = f"Maven is not installed, by which Spark's client for {self.store} is fetched"
            hint = f"install it, or set {self.variable} to a folder of the jars that {self.pom} names"
            raise MillraceError(Problem(message, hint))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{self.name}-client-") as name:
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={name}/jars"]
            command = [maven, "--batch-mode", "--strict-checksums", "--quiet", "--file", str(self.pom), *copy]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_SECONDS, check=False)
            if done.returncode:
                last = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it says nothing")
                message = f"Maven cannot fetch Spark's client for {self.store}: {last}"
                raise MillraceError(Problem(message, "check its settings"))
            Path(name, "jars").rename(folder)
