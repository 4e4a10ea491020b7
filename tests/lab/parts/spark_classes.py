"""Spark's classes as the JVM keeps them in memory (class data sharing), so that each of many short runs starts faster.

A run with it and without the second compiler takes less than half of the processor time. It is for tests only: what
runs for long compiles its code well.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cached_property
from pathlib import Path

from ..cache import FailedError, MissingError
from .commands import run
from .part import FolderPart, Report, digest_of

_RUN = Path(__file__).with_name("spark_classes_run.py")
_SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that ends before the second compiler would pay off."""


class SparkClasses(FolderPart):
    """A folder with the archive ``spark.jsa``, which fits one Java and one place of Spark's jars."""

    name = "Spark's classes"
    slug = "spark-classes"

    def identity(self) -> str:
        return self._identity

    @property
    def java_options(self) -> str:
        """Options for Spark's JVM in tests. An archive that is not there, or does not fit, is passed over by Java."""
        return f"{_SHORT} -XX:SharedArchiveFile={self.folder() / 'spark.jsa'}"

    def fill(self, folder: Path, report: Report) -> None:
        archive = folder / "spark.jsa"
        options = f"{_SHORT} -XX:ArchiveClassesAtExit={archive}"
        report.say("running a small query to see which classes Spark uses")
        run([sys.executable, _RUN], environment={"SPARK_SUBMIT_OPTS": options}, seconds=1200)
        if not archive.exists():
            raise FailedError("Java has not written an archive of Spark's classes")

    @cached_property
    def _identity(self) -> str:
        spark = importlib.util.find_spec("pyspark")
        if spark is None or spark.origin is None:
            raise MissingError("not installed: pyspark")
        jars = Path(spark.origin).parent / "jars"
        # Java compares the time and the size of each jar with what they were.
        states = sorted(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars.iterdir())
        return digest_of(_java_version().encode(), str(jars).encode(), "\n".join(states).encode(), _RUN.read_bytes())


def _java_version() -> str:
    """What Spark's Java says of itself, which it prints as an error."""
    home = os.environ.get("JAVA_HOME")
    said: list[str] = []
    run([Path(home, "bin/java") if home else "java", "-version"], seconds=60, each_line=said.append)
    return "\n".join(said)


SPARK_CLASSES = SparkClasses()
