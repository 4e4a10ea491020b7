"""A real Prometheus of its own for tests, on loopback, with its data in a folder of the test.

Targets come and go while it runs. It can be stopped or killed, and started again with its data on the same port.
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
"""Seconds that it may take to start on a busy machine."""

_READY = "Server is ready to receive web requests."

Targets = Mapping[str, Mapping[str, str]]
"""Labels of each target by its address. Those of discovery, such as ``__meta_kubernetes_namespace``, are relabelled."""

_POD = {"__meta_kubernetes_namespace": "namespace", "__meta_kubernetes_pod_name": "pod"}
"""What becomes of the labels of discovery, as in every configuration that scrapes pods."""

seconds_to_start: list[float] = []
"""How long it took from each start to its being ready."""


class PrometheusServer:
    """A Prometheus that runs from ``start`` to ``stop`` or ``kill``, or to the end of the process that started it.

    Args:
        folder: for its data, settings and log (``prometheus.log``).
        targets: that it scrapes from the start on.
        scrape_interval: between two scrapes of a target.
        web: its web configuration, for TLS and log-ins; None: plain HTTP for everyone.
        prefix: path below which it answers, such as ``/metrics-of/lab``.
        options: further ones of its command line.
        host: address that it listens on.
        jobs: further scrape configurations, such as with ``kubernetes_sd_configs``.
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
    ) -> None:
        self.folder = folder
        self._port = free_port()
        self._host, self._jobs = host, jobs
        self._web, self._prefix, self._options = web, prefix, options
        self._process: Process | None = None
        self.scrape(targets)
        _write(folder / "prometheus.yml", self._settings(scrape_interval))
        if web is not None:
            _write(folder / "web.yml", web)

    @property
    def url(self) -> str:
        """Of its API, with the prefix."""
        secure = self._web is not None and "tls_server_config" in self._web
        return f"{'https' if secure else 'http'}://{self._host}:{self._port}{self._prefix}"

    @property
    def log(self) -> str:
        """What it has said so far, over all its starts."""
        return (self.folder / "prometheus.log").read_text(encoding="utf-8", errors="replace")

    def scrape(self, targets: Targets) -> None:
        """These targets and no others, which it learns after some seconds."""
        groups = [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]
        _write(self.folder / "targets.json", groups)

    def start(self) -> None:
        """Start it with the data it has, and wait until it answers.

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
        """End it in good order."""
        assert self._process is not None, "it was never started"
        self._process.end()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Start it again with its data, on the same port; SIGKILL first where it runs."""
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
        relabelled = [{"source_labels": [meta], "regex": "(.+)", "target_label": name} for meta, name in _POD.items()]
        job = {
            "job_name": "pods",
            "file_sd_configs": [{"files": ["targets.json"]}],
            "relabel_configs": relabelled,
        }
        return {
            "global": {"scrape_interval": scrape_interval, "scrape_timeout": scrape_interval},
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
) -> Iterator[PrometheusServer]:
    """A started Prometheus, which is killed at the end; the arguments are those of ``PrometheusServer``."""
    server = PrometheusServer(folder, targets, scrape_interval, web, prefix, options, host, jobs)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _write(path: Path, document: object) -> None:
    """In one step, since it may be read at any time; JSON is YAML."""
    partial = path.with_name(f".{path.name}.new")
    partial.write_text(json.dumps(document), encoding="utf-8")
    partial.replace(path)
