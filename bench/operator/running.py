"""The operator as a process, with its metrics, its processor time and its memory."""

from __future__ import annotations

import os
import re
import sys
import time
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.lab.control_plane import ControlPlane
from tests.lab.processes import Process

from bench.operator.counts import USER

_PATIENCE = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process: Process) -> float:
    """Return the processor time of all threads of a process so far, in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class RunningOperator:
    """``millrace operator`` on all namespaces, running until ``end``. It is the only one and elects no leader."""

    def __init__(self, plane: ControlPlane, log: Path) -> None:
        kubeconfig = plane.kubeconfig_of(USER, log.with_suffix(".kubeconfig"))
        program = Path(sys.executable).with_name("millrace")
        command: list[str | Path] = [program, "operator", "--no-leader-elect", "--bind", "127.0.0.1", "--port", "0"]
        self._process = Process(command, log, environment={"KUBECONFIG": str(kubeconfig)})

    def end(self) -> None:
        """End the process as Kubernetes does."""
        self._process.end()

    @property
    def processor_seconds(self) -> float:
        """Processor time of all its threads so far, in seconds."""
        return processor_seconds(self._process)

    @property
    def peak_memory(self) -> int:
        """Peak resident memory so far, in bytes."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def metrics(self) -> dict[str, float]:
        """Return the operator's current metrics, summed over their labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port()}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def _port(self) -> int:
        deadline = time.monotonic() + _PATIENCE
        while (found := re.search(r"metrics and probes are on port (\d+)", self._process.said)) is None:
            if self._process.status is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the operator does not answer: {self._process.said[-3000:]}")
            time.sleep(0.05)
        return int(found[1])
