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

from bench.joins.cases import CASES, CLICKS, DELAY, GRACE, SCHEMA, VIEWS
from bench.joins.plain_spark import STATES
from bench.processes import MILLRACE, Command, compile_java, fetched_jars, running

STREAMS = "kafka-streams"
SPARKS = {f"spark-{state}": state for state in STATES}
"""Plain Spark by where it keeps its state."""

BEST_SPARKS = ("spark-heap", "spark-rocksdb-4")
"""Spark's default, and what was fastest in RocksDB."""

_BENCH = Path(__file__).parents[1]
_STREAMS_POM = _BENCH / "peers" / "java" / "streams.pom.xml"
_CONNECTOR_POM = _BENCH / "kafka" / "connector" / "pom.xml"
_PROGRAM = "KafkaStreamsJoin"


@dataclass(frozen=True)
class JoinTask:
    """The task of a contender: join two topics and write a third. ``interval`` is in milliseconds."""

    servers: str
    case: str
    views: str
    clicks: str
    sink: str
    interval: int
    folder: Path

    @property
    def log(self) -> Path:
        """The file for what the contender prints."""
        return self.folder / "log"


class JoinEngines:
    """The commands of the contenders: an algorithm of Millrace, one of ``SPARKS``, or Kafka Streams.

    Args:
        folder: folder for the compiled program.
        names: contenders to run. The dependencies of the others are not fetched.
        spark_batch: the most records of each topic in a batch of Spark; 0 for no limit.
    """

    def __init__(self, folder: Path, names: Sequence[str], spark_batch: int = 0) -> None:
        self._folder, self._spark_batch = folder, spark_batch
        if STREAMS in names:
            self._streams = fetched_jars("jars of Kafka Streams", f"peer-{STREAMS}", _STREAMS_POM)
            compile_java(Path(__file__).parent / "java" / f"{_PROGRAM}.java", self._streams, folder)
        if SPARKS.keys() & set(names):
            self._connector = fetched_jars("Spark's Kafka connector", "spark-kafka-connector", _CONNECTOR_POM)

    @contextmanager
    def running(self, name: str, task: JoinTask) -> Iterator[subprocess.Popen[bytes]]:
        """Run the contender for the length of the block, and stop it afterwards."""
        task.folder.mkdir(parents=True)
        with running(self._command(name, task), task.log) as process:
            yield process

    def _command(self, name: str, task: JoinTask) -> Command:
        tag = f"join-{uuid.uuid4().hex[:8]}"
        topics, interval = (task.servers, task.views, task.clicks, task.sink), str(task.interval)
        if name in SPARKS:
            jars = ",".join(str(jar) for jar in sorted(self._connector.glob("*.jar")))
            program = [sys.executable, "-m", "bench.joins.plain_spark"]
            return [
                *program,
                *topics,
                str(task.folder),
                interval,
                jars,
                task.case,
                SPARKS[name],
                str(self._spark_batch),
            ]
        if name == STREAMS:
            program = ["java", "-Xmx2g", "-cp", f"{self._streams}/*:{self._folder}", _PROGRAM]
            band, grace = str(CASES[task.case].band), str(GRACE * 1000)
            return [*program, *topics, tag, str(task.folder / "state"), interval, band, grace]
        file = task.folder / "query.json"
        file.write_text(json.dumps(_query(name, tag, task)), encoding="utf-8")
        return [MILLRACE, "run", file]


def _query(algorithm: str, name: str, task: JoinTask) -> Mapping[str, object]:
    def source(topic: str) -> Mapping[str, object]:
        return {
            "kafka": {"bootstrapServers": task.servers, "topic": topic},
            "format": "json",
            "schema": SCHEMA,
            "watermark": {"column": "at", "delay": f"{DELAY}s"},
        }

    spec = {
        "sources": {VIEWS: source(task.views), CLICKS: source(task.clicks)},
        "query": {"sql": CASES[task.case].sql},
        "sink": {"kafka": {"bootstrapServers": task.servers, "topic": task.sink, "key": ["page"]}},
        "batchInterval": f"{task.interval}ms",
        "partitioner": {"algorithm": algorithm, "replicas": {"initial": 2, "max": 4}},
        "parallelism": {"initial": 4, "max": 4},
        "checkpoint": {"uri": (task.folder / "checkpoint").as_uri()},
    }
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": name}, "spec": spec}
