"""The archive of Spark's classes (class data sharing): with it a JVM need not read, check and link them again."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from millrace_jobs.cache import cache_folder

_NAME = "MILLRACE_SPARK_CLASSES"


def is_named() -> bool:
    """Whether the environment says where the archive is, as in the image."""
    return bool(os.environ.get(_NAME))


def archive(spark_home: Path) -> Path | None:
    """Where the archive for this Java and these jars is to be; None for a user without a cache.

    Java compares the class path, and the time and size of each jar, with what they were, and passes over an archive
    that does not fit. So its name has a digest of them, after one of the place of the jars.
    """
    if is_named():
        return Path(os.environ[_NAME])
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin/java") if home else Path(shutil.which("java") or "java")
    states = [_state(java.resolve()), *sorted(_state(Path(jar.path)) for jar in os.scandir(spark_home / "jars"))]
    cache = cache_folder()
    return cache and cache / f"spark-classes-{_digest(str(spark_home))}-{_digest(*states)}.jsa"


def outdated(current: Path) -> list[Path]:
    """Archives of another Java, or of other jars in the same place; none beside one that the environment names."""
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
