"""The contenders as a user starts them: by a command, each with its own folder for everything it stores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.parts.commands import run
from tests.lab.parts.maven_jars import MavenJars
from tests.lab.parts.printed_report import PrintedReport

STREAMS, FLINK, SPARK = "kafka-streams", "flink", "spark"
PEERS = (STREAMS, FLINK, SPARK)
OURS = ("native", "auto", "pkg")
"""Algorithms that Millrace runs under."""

_HERE = Path(__file__).parent
_JAVA = _HERE / "java"
_CONNECTOR = _HERE.parent / "kafka" / "connector" / "pom.xml"
_MILLRACE = Path(sys.executable).with_name("millrace")
_PATIENCE = 30.0

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


Command = Callable[[PeerTask], Sequence[str | os.PathLike[str]]]


class Engines:
    """The commands of the contenders.

    Args:
        folder: folder for the compiled programs.
        names: contenders to run. The dependencies of the others are not fetched.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._jars = {name: _jars(name) for name in names if name in _POMS}
        for name, (_, program) in _PROGRAMS.items():
            if name in names:
                source = _JAVA / f"{program}.java"
                run(["javac", "-nowarn", "-cp", f"{self._jars[name]}/*", "-d", folder, source], seconds=120)

    @contextmanager
    def running(self, name: str, task: PeerTask) -> Iterator[subprocess.Popen[bytes]]:
        """Run the contender for the length of the block, and stop it afterwards."""
        task.folder.mkdir(parents=True)
        command = self._command(name, task)
        environment = dict(os.environ) | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_HERE.parents[1]), *sys.path]))
        }
        with task.log.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        try:
            yield process
        finally:
            _end(process)

    def _command(self, name: str, task: PeerTask) -> Sequence[str | os.PathLike[str]]:
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
        return [_MILLRACE, "run", file]


_PROGRAMS: Mapping[str, tuple[Sequence[str], str]] = {
    STREAMS: (("-Xmx2g",), "KafkaStreamsPeer"),
    FLINK: (
        ("-Xmx2g", "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
        "FlinkPeer",
    ),
}
_POMS = {STREAMS: _JAVA / "streams.pom.xml", FLINK: _JAVA / "flink.pom.xml", SPARK: _CONNECTOR}


def _jars(name: str) -> Path:
    jars = MavenJars(f"jars of {name}", f"peer-{name}", _POMS[name])
    jars.make(PrintedReport(jars.name))
    return jars.find()


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


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, on which Millrace drains, and kill the whole process group if that takes too long."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
