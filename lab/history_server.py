"""A real history server of Spark, that of PySpark's package, on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from millrace_jobs.process.jvm import spark_home

from .ports import free_port
from .processes import Process
from .waiting import wait_until

Settings = Mapping[str, str]


class HistoryServer:
    """A history server that shows the event logs in a folder or in S3.

    Args:
        folder: folder for its output.
        logs: URI of the logs.
        options: further settings of Spark.
        variables: further environment variables.
    """

    def __init__(self, folder: Path, logs: str, options: Settings, variables: Settings) -> None:
        port = free_port()
        self._api = f"http://127.0.0.1:{port}/api/v1"
        settings = {
            "spark.history.fs.logDirectory": logs,
            "spark.history.ui.port": str(port),
            "spark.history.fs.update.interval": "1s",
            **options,
        }
        environment = {
            "SPARK_HISTORY_OPTS": " ".join(f"-D{name}={value}" for name, value in settings.items()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOG_DIR": str(folder),
            "SPARK_NO_DAEMONIZE": "1",  # as in a container: the script stays the server
            "SPARK_DAEMON_MEMORY": "512m",
            **variables,
        }
        self.process = Process(
            [spark_home() / "sbin" / "start-history-server.sh"], folder / "history.log", environment=environment
        )

    def get(self, path: str) -> Any:
        """Return what the API answers, once it does: the server listens before it has its pages."""

        def answered() -> list[Any]:
            assert self.process.status is None, self.process.said
            try:
                with urlopen(f"{self._api}/{path}", timeout=60) as answer:
                    return [json.load(answer)]
            except (URLError, ConnectionError, json.JSONDecodeError):
                return []

        found: list[Any] = wait_until(answered, lambda: self.process.said[-3000:])
        return found[0]

    def applications(self) -> dict[str, Any]:
        """Return the applications by their ids."""
        return {each["id"]: each for each in self.get("applications")}

    def wait_for(self, *applications: str) -> dict[str, Any]:
        """Wait until the server shows these applications, and return all by their ids."""

        def shown() -> dict[str, Any] | None:
            found = self.applications()
            return found if found.keys() >= set(applications) else None

        found: dict[str, Any] = wait_until(shown, lambda: self.process.said[-3000:])
        return found


@contextmanager
def running_history_server(
    folder: Path, logs: str, options: Settings = MappingProxyType({}), variables: Settings = MappingProxyType({})
) -> Iterator[HistoryServer]:
    """Run a history server over these logs; see there."""
    server = HistoryServer(folder, logs, options, variables)
    try:
        yield server
    finally:
        server.process.kill()
