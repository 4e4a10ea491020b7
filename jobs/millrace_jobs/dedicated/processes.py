"""Who runs the processes of replicas: the operator, in pods, or a run itself, as its child processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.process.signals import start_child
from millrace_support.backoff import Backoff

_FAILURES = 5
"""Times that a replica may end by itself, one after another, before the run gives up."""

_SETTLED_SECONDS = 60.0
"""Seconds after which a replica that runs counts as one that has not failed."""

_END_SECONDS = 10.0
"""Seconds for a replica to end; it is killed then, and Kafka aborts what it had not committed."""

_COMMAND = (sys.executable, "-c", "from millrace_jobs.cli import main; main()", "partitioner")


class ReplicaProcesses(ABC):
    """The processes of a query's replicas, as its driver sees them.

    Attributes:
        driver: id of the driver that these replicas work for, new for each run.
    """

    def __init__(self) -> None:
        self.driver = uuid.uuid4().hex[:12]

    @abstractmethod
    def scale(self, replicas: int) -> None:
        """Have this many run, with the numbers from 0 on."""

    @abstractmethod
    def require_running(self) -> None:
        """Replace what has ended. Raises MillraceError if a replica ends again and again."""

    @abstractmethod
    def close(self) -> None:
        """End the processes that end with the driver."""


class PodReplicas(ReplicaProcesses):
    """An operator's replicas, in pods of their own; they work for any driver, and outlive it."""

    def scale(self, replicas: int) -> None:
        """Do nothing: the operator follows the same plan."""

    def require_running(self) -> None:
        """Do nothing: Kubernetes replaces what has ended."""

    def close(self) -> None:
        """Do nothing: the pods are the operator's."""


@dataclass
class _Child:
    """One replica: its process, and how often it has ended by itself."""

    process: subprocess.Popen[bytes]
    log: Path
    started: float = field(default_factory=time.monotonic)
    failures: int = 0
    restart_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(0.5, 8.0))


class LocalReplicas(ReplicaProcesses):
    """The replicas' processes of one run; they end with it, also if it is killed.

    Args:
        query: the query.
        workspace: folder of the run, for the query's file and the replicas' logs.
    """

    def __init__(self, query: StreamQuery, workspace: Path) -> None:
        super().__init__()
        self._file = workspace / "partitioned-query.yaml"
        self._document = query.model_copy(update={"status": None}).to_document()
        self._workspace = workspace
        self._children: dict[int, _Child] = {}

    def scale(self, replicas: int) -> None:
        """Start or end processes, so that this many run."""
        for index in range(replicas):
            if index not in self._children:
                self._children[index] = self._start(index)
        self._end([index for index in self._children if index >= replicas])

    def require_running(self) -> None:
        """Start what has ended by itself again, after a pause. Raises MillraceError if it has ended too often."""
        for index, child in list(self._children.items()):
            now = time.monotonic()
            if child.process.poll() is None:
                if child.failures and now > child.started + _SETTLED_SECONDS:
                    child.failures = 0
                    child.backoff = Backoff(0.5, 8.0)
                continue
            if not child.restart_at:
                child.failures += 1
                if child.failures >= _FAILURES:
                    raise self._failure(index, child)
                child.restart_at = now + child.backoff.next()
            elif now >= child.restart_at:
                again = self._start(index)
                again.failures, again.backoff = child.failures, child.backoff
                self._children[index] = again

    def close(self) -> None:
        """End all processes."""
        self._end(list(self._children))

    def _start(self, index: int) -> _Child:
        if not self._file.exists():
            self._file.write_text(yaml.safe_dump(self._document, sort_keys=False), encoding="utf-8")
        log = self._workspace / f"replica-{index}.log"
        command = [*_COMMAND, str(self._file), "--index", str(index), "--metrics-port", "0", "--driver", self.driver]
        environment = {"OMP_NUM_THREADS": "1"} | os.environ
        with log.open("ab") as output:
            process = start_child(command, environment, quiet=False, output=output.fileno())
        return _Child(process, log)

    def _end(self, indexes: list[int]) -> None:
        ending = [self._children.pop(index) for index in indexes]
        for child in ending:
            if child.process.stdin is not None:
                with suppress(OSError):
                    child.process.stdin.close()
        until = time.monotonic() + _END_SECONDS
        for child in ending:
            try:
                child.process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def _failure(self, index: int, child: _Child) -> MillraceError:
        """Return the error that the replica has ended with, in its own words."""
        lines = child.log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        why = said[-1] if said else f"exit status {child.process.returncode}"
        return MillraceError(Problem(f"replica {index} of the partitioner ended {child.failures} times: {why}"))
