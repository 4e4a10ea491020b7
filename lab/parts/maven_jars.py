"""Folders of jars from Maven's registry, as listed in a pom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..cache import require
from .commands import run
from .part import FolderPart, Report, digest_of, retried

_SILENCE = 120.0


class MavenJars(FolderPart):
    """A folder with all run-time dependencies of a pom.

    Args:
        name, slug: see ``FolderPart``.
        pom: path of the pom.
        check: main class and arguments of a program in the jars that shows that they run; empty to run nothing.
    """

    def __init__(self, name: str, slug: str, pom: Path, check: Sequence[str] = ()) -> None:
        self.name, self.slug = name, slug
        self._pom, self._check = pom, check

    def identity(self) -> str:
        return digest_of(self._pom.read_bytes())

    def fill(self, folder: Path, report: Report) -> None:
        require("java", "mvn")
        retried(lambda: self._fetch(folder, report), report)
        if self._check:
            run(["java", "-cp", f"{folder}/*", *self._check], seconds=120)

    def _fetch(self, folder: Path, report: Report) -> None:
        for rest in folder.iterdir():  # of an attempt that failed
            rest.unlink()
        fetched = 0

        def count(line: str) -> None:
            nonlocal fetched
            fetched += line.startswith("[INFO] Downloaded ")
            report.progress(f"{fetched} files fetched")

        options: list[str | Path] = ["--batch-mode", "--strict-checksums", "--file", self._pom]
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        run(["mvn", *options, *copy], folder=folder, silence=_SILENCE, each_line=count)


_KAFKA = Path(__file__).with_name("kafka.pom.xml")
KAFKA_JARS = MavenJars("Kafka's jars", "kafka", _KAFKA, ("kafka.tools.StorageTool", "random-uuid"))

_ICEBERG = Path(__file__).with_name("iceberg.pom.xml")
ICEBERG_JARS = MavenJars("the jars of Iceberg's REST catalog", "iceberg", _ICEBERG)

_S3 = Path(__file__).parents[2] / "jobs" / "millrace_jobs" / "stores" / "s3.pom.xml"
S3_JARS = MavenJars("Spark's client for S3", "s3-client", _S3)
