"""A real Prometheus for tests, on loopback, with its data in a folder of the test.

Targets may change while it runs. It can be stopped or killed, and restarted with its data on the same port.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .parts.go_programs import go_program
from .ports import free_port
from .processes import Process

_PATIENCE = 180.0
"""Seconds to wait for a start on a busy machine."""

_READY = "Server is ready to receive web requests."

Targets = Mapping[str, Mapping[str, str]]
"""Labels of each target by its address. Those of discovery, such as ``__meta_kubernetes_namespace``, are relabeled."""

_POD = {"__meta_kubernetes_namespace": "namespace", "__meta_kubernetes_pod_name": "pod"}
"""Relabelling of the labels of discovery, as in every configuration that scrapes pods."""

seconds_to_start: list[float] = []
"""Seconds from each start of a Prometheus until it was ready."""


class PrometheusServer:
    """A Prometheus that runs from ``start`` to ``stop`` or ``kill``, or to the end of the process that started it.

    Args:
        folder: folder for its data, settings and log (``prometheus.log``).
        targets: targets to scrape from the start.
        scrape_interval: time between two scrapes of a target.
        web: web configuration, for TLS and logins; None: plain HTTP without logins.
        prefix: path prefix of its pages, such as ``/metrics-of/lab``.
        options: further command-line options.
        host: address to listen on.
        jobs: further scrape configurations, such as with ``kubernetes_sd_configs``.
        rules: documents with groups of rules.
    """

    def __init__(
        self,
        folder: Path,
        targets: Targets = MappingProxyType({}),
        scrape_interval: str = "1s",
        web: Mapping[str, Any] | None = None,
        prefix: str = "",
        options: tuple[str, ...] = (),
        host: str = "127.0.0.1",
        jobs: Sequence[Mapping[str, Any]] = (),
        rules: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.folder = folder
        self._port = free_port()
        self._host, self._jobs = host, jobs
        self._web, self._prefix, self._options = web, prefix, options
        self._process: Process | None = None
        self.scrape(targets)
        for number, document in enumerate(rules):
            _write(folder / f"rules-{number}.yml", document)
        _write(folder / "prometheus.yml", self._settings(scrape_interval))
        if web is not None:
            _write(folder / "web.yml", web)

    @property
    def url(self) -> str:
        """The URL of the API, with the prefix."""
        secure = self._web is not None and "tls_server_config" in self._web
        return f"{'https' if secure else 'http'}://{self._host}:{self._port}{self._prefix}"

    @property
    def log(self) -> str:
        """The output over all starts."""
        return (self.folder / "prometheus.log").read_text(encoding="utf-8", errors="replace")

    def scrape(self, targets: Targets) -> None:
        """Scrape these targets only. The change takes effect after some seconds."""
        groups = [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]
        _write(self.folder / "targets.json", groups)

    def start(self) -> None:
        """Start with the data of earlier runs, and wait for an answer.

        Raises:
            MissingError: the program was not made.
        """
        program = go_program("prometheus")
        began = time.monotonic()
        log = self.folder / "prometheus.log"
        before = self.log.count(_READY) if log.exists() else 0
        self._process = Process([program, *self._command()], log)
        while self.log.count(_READY) == before:
            assert self._process.status is None, f"Prometheus ended: {self.log[-3000:]}"
            assert time.monotonic() < began + _PATIENCE, f"no Prometheus in {_PATIENCE} s: {self.log[-3000:]}"
            time.sleep(0.05)
        seconds_to_start.append(time.monotonic() - began)

    def stop(self) -> None:
        """Shut down cleanly."""
        assert self._process is not None, "it was never started"
        self._process.end()

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Kill the process if it runs, and start it with its data on the same port."""
        self.kill()
        self.start()

    def _command(self) -> list[str]:
        web = [] if self._web is None else [f"--web.config.file={self.folder / 'web.yml'}"]
        return [
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self._host}:{self._port}",
            f"--web.external-url={self.url}/",
            "--scrape.discovery-reload-interval=100ms",
            *web,
            *self._options,
        ]

    def _settings(self, scrape_interval: str) -> Mapping[str, Any]:
        relabeled = [{"source_labels": [meta], "regex": "(.+)", "target_label": name} for meta, name in _POD.items()]
        job = {
            "job_name": "pods",
            "file_sd_configs": [{"files": ["targets.json"]}],
            "relabel_configs": relabeled,
        }
        return {
            "global": {"scrape_interval": scrape_interval, "scrape_timeout": scrape_interval},
            "rule_files": ["rules-*.yml"],
            "scrape_configs": [job, *self._jobs],
        }


@contextmanager
def running_prometheus(
    folder: Path,
    targets: Targets = MappingProxyType({}),
    scrape_interval: str = "1s",
    web: Mapping[str, Any] | None = None,
    prefix: str = "",
    options: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    jobs: Sequence[Mapping[str, Any]] = (),
    rules: Sequence[Mapping[str, Any]] = (),
) -> Iterator[PrometheusServer]:
    """Run a Prometheus, and kill it at the end. The arguments are those of ``PrometheusServer``."""
    server = PrometheusServer(folder, targets, scrape_interval, web, prefix, options, host, jobs, rules)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _write(path: Path, document: object) -> None:
    """Write the file in one step, since it may be read at any time. JSON is YAML."""
    partial = path.with_name(f".{path.name}.new")
    partial.write_text(json.dumps(document), encoding="utf-8")
    partial.replace(path)
