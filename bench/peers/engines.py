"""The contenders as a user starts them: by a command, each with its own folder for everything it stores."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import MILLRACE, Command, compile_java, fetched_jars, running

STREAMS, FLINK, SPARK = "kafka-streams", "flink", "spark"
PEERS = (STREAMS, FLINK, SPARK)
OURS = ("native", "auto", "pkg")
"""Algorithms that Millrace runs under."""

_HERE = Path(__file__).parent
_JAVA = _HERE / "java"
_CONNECTOR = _HERE.parent / "kafka" / "connector" / "pom.xml"

SQL = (
    "SELECT window.start AS since, key, count(*) AS n, max(at) AS latest FROM s GROUP BY window(at, '10 seconds'), key"
)


@dataclass(frozen=True)
class PeerTask:
    """The task of a contender: read one topic and write another. ``interval`` is in milliseconds."""

    servers: str
    source: str
    sink: str
    interval: int
    folder: Path

    @property
    def log(self) -> Path:
        """The file for what the contender prints."""
        return self.folder / "log"


class Engines:
    """The commands of the contenders.

    Args:
        folder: folder for the compiled programs.
        names: contenders to run. The dependencies of the others are not fetched.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._jars = {
            name: fetched_jars(f"jars of {name}", f"peer-{name}", _POMS[name]) for name in names if name in _POMS
        }
        for name, (_, program) in _PROGRAMS.items():
            if name in names:
                compile_java(_JAVA / f"{program}.java", self._jars[name], folder)

    @contextmanager
    def running(self, name: str, task: PeerTask) -> Iterator[subprocess.Popen[bytes]]:
        """Run the contender for the length of the block, and stop it afterwards."""
        task.folder.mkdir(parents=True)
        with running(self._command(name, task), task.log) as process:
            yield process

    def _command(self, name: str, task: PeerTask) -> Command:
        tag = f"peer-{uuid.uuid4().hex[:8]}"
        topics, interval = (task.servers, task.source, task.sink), str(task.interval)
        if name == SPARK:
            jars = ",".join(str(jar) for jar in sorted(self._jars[SPARK].glob("*.jar")))
            return [sys.executable, "-m", "bench.peers.plain_spark", *topics, str(task.folder), interval, jars]
        if name in _PROGRAMS:
            options, program = _PROGRAMS[name]
            path = f"{self._jars[name]}/*:{self._folder}"
            return ["java", *options, "-cp", path, program, *topics, tag, str(task.folder / "state"), interval]
        file = task.folder / "query.json"
        file.write_text(json.dumps(_query(name, tag, task)), encoding="utf-8")
        return [MILLRACE, "run", file]


_PROGRAMS: Mapping[str, tuple[Sequence[str], str]] = {
    STREAMS: (("-Xmx2g",), "KafkaStreamsPeer"),
    FLINK: (
        ("-Xmx2g", "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
        "FlinkPeer",
    ),
}
_POMS = {STREAMS: _JAVA / "streams.pom.xml", FLINK: _JAVA / "flink.pom.xml", SPARK: _CONNECTOR}


def _query(algorithm: str, name: str, task: PeerTask) -> Mapping[str, object]:
    source = {
        "kafka": {"bootstrapServers": task.servers, "topic": task.source},
        "format": "json",
        "schema": "at TIMESTAMP, key STRING, value STRING",
        "watermark": {"column": "at", "delay": "5 seconds"},
    }
    spec = {
        "sources": {"s": source},
        "query": {"sql": SQL},
        "sink": {"kafka": {"bootstrapServers": task.servers, "topic": task.sink}},
        "emit": "OnUpdate",
        "batchInterval": f"{task.interval}ms",
        "partitioner": {"algorithm": algorithm, "replicas": {"initial": 2, "max": 4}},
        "parallelism": {"initial": 4, "max": 4},
        "checkpoint": {"uri": (task.folder / "checkpoint").as_uri()},
    }
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": name}, "spec": spec}
