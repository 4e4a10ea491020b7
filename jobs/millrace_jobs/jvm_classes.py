"""The archive of Spark's classes (class data sharing), which spares a JVM reading, verifying and linking them."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from millrace_jobs.cache import cache_folder

_NAME = "MILLRACE_SPARK_CLASSES"


def is_named() -> bool:
    """Return whether the environment names the archive's path, as it does in the container image."""
    return bool(os.environ.get(_NAME))


def archive(spark_home: Path) -> Path | None:
    """Return the path of the archive for this Java and these jars, or None for a user without a cache.

    Java ignores an archive whose class path, or the time or size of a jar, differs from the current ones. The file name
    therefore has a digest of the jars' folder and a digest of Java and the jars.
    """
    if is_named():
        return Path(os.environ[_NAME])
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin/java") if home else Path(shutil.which("java") or "java")
    states = [_state(java.resolve()), *sorted(_state(Path(jar.path)) for jar in os.scandir(spark_home / "jars"))]
    cache = cache_folder()
    return cache and cache / f"spark-classes-{_digest(str(spark_home))}-{_digest(*states)}.jsa"


def outdated(current: Path) -> list[Path]:
    """Return the archives of another Java, or of other jars in the same folder.

    Return none if the environment names the archive.
    """
    if is_named():
        return []
    place = current.stem.rpartition("-")[0]
    return [file for file in current.parent.glob(f"{place}-*.jsa") if file != current]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _state(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return str(path)
    return f"{path} {found.st_size} {found.st_mtime_ns}"
