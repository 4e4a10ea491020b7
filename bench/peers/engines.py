"""The contenders as a user starts them: by a command, each with its own folder for everything it stores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.peers import python_engines
from bench.peers.python_engines import PYTHON_ENGINES
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
    """The task of a contender: read one topic and write another.

    Attributes:
        servers, source, sink: address of the broker, and the topics.
        interval: batch or commit interval in milliseconds.
        folder: folder for everything that the contender stores. Its name is that of the application.
        slots: number of tasks at once.
        partitions: number of state partitions; None for as many as each contender has by itself.
        batch: the most records of a batch, for contenders that have batches; None for no limit.
        updates: milliseconds after which Flink emits a changed window.
    """

    servers: str
    source: str
    sink: str
    interval: int
    folder: Path
    slots: int = 2
    partitions: int | None = None
    batch: int | None = None
    updates: int = 200

    @property
    def log(self) -> Path:
        """The file for what the contender prints."""
        return self.folder / "log"

    @property
    def name(self) -> str:
        """The name of the application, under which Kafka Streams makes topics of its own."""
        return f"peer-{self.folder.name}"


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
        self._environments = {name: python_engines.made_environment(name) for name in names if name in PYTHON_ENGINES}
        for name, (_, program) in _PROGRAMS.items():
            if name in names:
                compile_java(_JAVA / f"{program}.java", self._jars[name], folder)

    @contextmanager
    def running(
        self, name: str, task: PeerTask, within: Callable[[Command], Command] = lambda command: command
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run the contender for the length of the block, and stop it afterwards.

        It continues where it stopped if the folder of its task has state.

        Args:
            name: the contender.
            task: its task.
            within: returns the command to run in the place of the contender's own, as a control group needs it.
        """
        task.folder.mkdir(parents=True, exist_ok=True)
        with running(within(self._command(name, task)), task.log) as process:
            try:
                yield process
            finally:
                if self._environments.get(name):  # a shell, which leaves behind what it has started
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def _command(self, name: str, task: PeerTask) -> Command:
        topics, interval = (task.servers, task.source, task.sink), str(task.interval)
        if name == SPARK:
            jars = ",".join(str(jar) for jar in sorted(self._jars[SPARK].glob("*.jar")))
            shape = map(str, (task.slots, task.partitions or task.slots, task.batch or 0))
            return [sys.executable, "-m", "bench.peers.plain_spark", *topics, str(task.folder), interval, jars, *shape]
        if name in _PROGRAMS:
            options, program = _PROGRAMS[name]
            path = f"{self._jars[name]}/*:{self._folder}"
            state = task.folder / "state"
            shape = map(str, (task.slots, task.partitions or 0))
            more = (str(task.updates), _checkpoint(state)) if name == FLINK else ()
            return ["java", *options, "-cp", path, program, *topics, task.name, str(state), interval, *shape, *more]
        if name in PYTHON_ENGINES:
            return python_engines.command(name, task, self._environments[name])
        file = task.folder / "query.json"
        file.write_text(json.dumps(_query(name, task)), encoding="utf-8")
        return [MILLRACE, "run", file]


_PROGRAMS: Mapping[str, tuple[Sequence[str], str]] = {
    STREAMS: (("-Xmx2g",), "KafkaStreamsPeer"),
    FLINK: (
        ("-Xmx2g", "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
        "FlinkPeer",
    ),
}
_POMS = {STREAMS: _JAVA / "streams.pom.xml", FLINK: _JAVA / "flink.pom.xml", SPARK: _CONNECTOR}


def _checkpoint(folder: Path) -> str:
    """Return the folder of Flink's last complete checkpoint, or an empty text if there is none."""
    complete = [path.parent for path in folder.glob("*/chk-*/_metadata")]
    return max(complete, key=lambda path: int(path.name.removeprefix("chk-"))).as_uri() if complete else ""


def _query(algorithm: str, task: PeerTask) -> Mapping[str, object]:
    limit = {} if task.batch is None else {"maxRecordsPerBatch": task.batch}
    shape = {"spark.master": f"local[{task.slots}, 4]", "spark.sql.shuffle.partitions": str(task.partitions)}
    source = {
        "kafka": {"bootstrapServers": task.servers, "topic": task.source} | limit,
        "format": "json",
        "schema": "at TIMESTAMP, key STRING, value STRING",
        "watermark": {"column": "at", "delay": "5s"},
    }
    spec = {
        "sources": {"s": source},
        "query": {"sql": SQL},
        "sink": {"kafka": {"bootstrapServers": task.servers, "topic": task.sink}},
        "emit": "OnUpdate",
        "batchInterval": f"{task.interval}ms",
        "partitioner": {"algorithm": algorithm, "replicas": {"initial": task.slots, "max": 2 * task.slots}},
        "parallelism": {"initial": 2 * task.slots, "max": 2 * task.slots},
        "checkpoint": {"uri": (task.folder / "checkpoint").as_uri()},
        "sparkConf": {} if task.partitions is None else shape,
    }
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": task.name}, "spec": spec}
