"""A REST catalog of Iceberg tables for tests: Iceberg's own servlet over its in-memory catalog, in a small JVM."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..cache import require
from ..parts.maven_jars import ICEBERG_JARS
from ..ports import free_port
from ..processes import Process
from ..waiting import wait_until

_PROGRAM = Path(__file__).with_name("RestCatalog.java")
_JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]


@contextmanager
def running_catalog(folder: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Run a catalog at an address, whose tables are in a folder unless they name another place; yield its URL.

    Raises:
        MissingError: Java is not installed, or the jars were not made.
    """
    require("java")
    port = free_port()
    url = f"http://{host}:{port}"
    program: list[str | Path] = [
        "-cp",
        f"{ICEBERG_JARS.find()}/*",
        _PROGRAM,
        host,
        str(port),
        f"file://{folder}/tables",
    ]
    java: list[str | Path] = ["java", *_JVM, *program]
    process = Process(java, folder / "catalog.log")

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{url}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    try:
        wait_until(answers, lambda: f"the catalog answers: {process.said[-2000:]}", seconds=120)
        yield url
    finally:
        process.kill()
