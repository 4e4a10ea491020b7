"""Shared by all tests: Hypothesis settings, the real data."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from millrace_jobs.process import jvm

pytest_plugins = ["lab.plugin", "lab.turns", "lab.slow_turns", "pytester"]

# For the JVM of each Spark that a test starts, in its own process or in a command: it ends before the second compiler
# would pay off. With the first alone, Java reserves 48 MB for code, which the sessions that many tests share fill; it then
# spends a tenth of its time on sweeping them. An archive that is not there, or does not fit, is passed over by Java.
_CLASSES = jvm.class_archive(jvm.spark_home())
_OPTIONS = ("TieredStopAtLevel=1", "ReservedCodeCacheSize=256m", "+UseSerialGC", f"SharedArchiveFile={_CLASSES}")
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(f"-XX:{option}" for option in _OPTIONS))

# No deadline, since kernels compile at their first call. In CI the rest comes from Hypothesis' own profile "ci":
# derandomized, and the failing example printed.
settings.register_profile("millrace", deadline=None)
settings.load_profile("millrace")

DATA = Path(os.environ.get("MILLRACE_DATA") or Path(__file__).parents[2] / "shared" / "data")
"""Folder of the real streams that tests read. They are not part of the repository."""


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """Return a function that finds a file in ``MILLRACE_DATA``, and skips the test if the file is absent."""

    def path_of(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"no {name} in MILLRACE_DATA ({DATA})")
        return path

    return path_of


def pytest_configure() -> None:
    """Accept Ctrl-C even if a shell started the tests in the background with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """Report where the real data is, or that the tests that need it are skipped."""
    return f"MILLRACE_DATA: {DATA}" + ("" if DATA.is_dir() else " (absent: tests marked data are skipped)")
