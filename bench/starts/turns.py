"""One start of a query: its command, what it reads, and what it has used when its first result is visible."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.control_groups import process_account
from bench.kafka.topics import create, fill
from bench.peers.judge import visible
from bench.processes import Command, running
from bench.starts.usage import UNSEEN, usage
from lab.kafka import Broker

SQL = "SELECT window.start AS since, key, count(*) AS n FROM s GROUP BY window(at, '10 seconds'), key"
SCHEMA = "at TIMESTAMP, key STRING, value STRING"
RECORDS = 1_000
SOURCES = ("files", "kafka")
ALGORITHMS = ("native", "auto")

_CHECKOUT = Path(__file__).parents[2]
_MILLRACE = "import sys; from millrace_jobs.cli import main; sys.argv[0] = 'millrace'; sys.exit(main())"
_STEP = re.compile(r"^starting=\S+ step=(.+)$|^(started)=", re.MULTILINE)
_LOOK_SECONDS = 0.05
_PATIENCE = 180.0


@dataclass(frozen=True)
class Variant:
    """A way to start: the checkout whose code runs, and variables of its environment, such as Java's options."""

    name: str
    checkout: Path = _CHECKOUT
    variables: Mapping[str, str] = field(default_factory=dict)

    def command(self, query: Path) -> Command:
        """Return the command that runs a query as ``millrace run`` does."""
        folders = ("crds", "jobs", "operator", "research", "support")
        path = os.pathsep.join(str(self.checkout / name) for name in folders)
        variables = {"PYTHONPATH": path, **self.variables}
        settings = [f"{name}={value}" for name, value in variables.items()]
        return ["env", *settings, sys.executable, "-c", _MILLRACE, "run", query]


@dataclass(frozen=True)
class Start:
    """What a query had used when its first result was visible.

    ``wall`` and ``processor`` are seconds from the start of its command, ``parts`` the processor seconds by what used
    them, and ``steps`` the processor seconds before each line that it printed of its start.
    """

    wall: float
    processor: float
    parts: Mapping[str, float]
    steps: Mapping[str, float]


class StartFailedError(Exception):
    """A query that ended, or had no result in time; the message is the end of what it printed."""


def files_query(folder: Path, algorithm: str) -> Path:
    """Write a query from files to files, and the records that it reads; return its file."""
    (folder / "in").mkdir(parents=True)
    rows = [f"2024-05-01T00:00:{n // 50:02}.{n % 50:03}Z,key-{n * n % 97},v{n}" for n in range(RECORDS)]
    (folder / "in" / "records.csv").write_text("\n".join(["at,key,value", *rows, ""]), encoding="utf-8")
    source = {"files": {"path": str(folder / "in"), "format": "csv"}}
    return _write(folder, algorithm, source, {"files": {"path": str(folder / "out"), "format": "json"}})


def kafka_query(folder: Path, algorithm: str, broker: Broker, topics: tuple[str, str]) -> Path:
    """Write a query from one topic to another, which are made; return its file."""
    folder.mkdir(parents=True)
    fill(broker.bootstrap, topics[0], "uniform", RECORDS)
    create(broker.bootstrap, topics[1])
    servers = {"bootstrapServers": broker.bootstrap}
    source = {"kafka": {**servers, "topic": topics[0]}, "format": "json"}
    return _write(folder, algorithm, source, {"kafka": {**servers, "topic": topics[1]}})


def start(variant: Variant, query: Path, has_result: Callable[[], bool]) -> Start:
    """Start a query, and stop it when it has its first result.

    Raises:
        StartFailedError: there is none.
    """
    log = query.with_name("log")
    with process_account() as account, running(account.command(variant.command(query)), log) as process:
        account.started(process.pid)
        began, steps = time.monotonic(), dict[str, float]()
        while not has_result():
            if process.poll() is not None or time.monotonic() > began + _PATIENCE:
                raise StartFailedError(log.read_text(encoding="utf-8", errors="replace")[-3000:])
            for step in steps_in(log.read_text(encoding="utf-8", errors="replace")):
                if step not in steps:
                    steps[step] = account.processor_seconds()
            time.sleep(_LOOK_SECONDS)
        wall, total, parts = time.monotonic() - began, account.processor_seconds(), usage(process.pid)
        return Start(wall, total, parts | {UNSEEN: max(total - sum(parts.values()), 0.0)}, steps)


def steps_in(text: str) -> Sequence[str]:
    """Return the steps of a start that a run has printed so far."""
    return [step or started for step, started in _STEP.findall(text)]


def files_watch(folder: Path) -> Callable[[], bool]:
    """Return a function that returns whether a file of results is in a folder."""
    return lambda: any(file.stat().st_size for file in folder.glob("batch-*"))


@contextmanager
def topic_watch(broker: Broker, topic: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a committed message is in a topic; it waits for one for a moment."""
    seen = visible(broker.bootstrap, topic, time.time() + 2 * _PATIENCE, lambda: True)
    yield lambda: bool(next(seen)[1])
    seen.close()


def _write(folder: Path, algorithm: str, source: Mapping[str, object], sink: Mapping[str, object]) -> Path:
    spec = {
        "sources": {"s": {**source, "schema": SCHEMA, "watermark": {"column": "at", "delay": "5s"}}},
        "query": {"sql": SQL},
        "sink": sink,
        "emit": "OnUpdate",
        "batchInterval": "1s",
        "partitioner": {"algorithm": algorithm},
        "parallelism": {"initial": 4, "max": 4},
        "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
    }
    file = folder / "query.json"
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": algorithm}}
    file.write_text(json.dumps(document | {"spec": spec}), encoding="utf-8")
    return file
