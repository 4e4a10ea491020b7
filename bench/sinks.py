"""Measure how fast large batches are written by the sinks: from tasks beside Spark's own writer, or the driver.

    python -m bench.sinks [--places folder,S3,Kafka] [--tasks 1,2,16] [--rounds 5] [--rows 1000000] [--json FILE]

A batch of rows, which Spark holds in memory, is written again and again by each contender in one session, by as many
tasks for all of them: into a folder, into an S3 server and into Kafka on this machine. With several numbers of tasks,
there is a session for each: so many tasks at once emulate as many executors on the cores of this machine. A turn is one
batch, from the call of the sink to the commit; into Kafka it is the second one of its size, as in a query whose batches
are large. Rounds are interleaved, every second one in the other order, and the first one, in which Spark and the JVM
warm up, does not count. The ratio of a turn is that to the contender that its place is measured by, in the same round:
above 1, the sink is faster. For files that is Spark's own writer of Parquet with the same compression, which has no
exactly once: its files appear one after the other. For Kafka it is the sink whose driver writes all results. The
table is printed to the output at the end, and each turn to the error output when it ends.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench.kafka.topics import create
from bench.processes import exit_on_sigterm
from lab.kafka import running_broker
from lab.parts.maven_jars import S3_JARS
from lab.s3_server import BUCKET, running_s3
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.session import local_session
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sinks.outputs import open_sink
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.spark import S3_CLIENT, store_settings

FOLDER, S3, KAFKA = PLACES = "folder", "S3", "Kafka"
COMPRESSION = {"files": "snappy", "delta": "zstd", "iceberg": "zstd"}
"""The compression of each kind of sink for files."""

SPARK = "Spark's writer"
BY_DRIVER, BY_TASKS, TABLE = "kafka, by the driver", "kafka, by tasks", "table, by the driver"
_TO_KAFKA: Mapping[str, tuple[str, Mapping[str, str]]] = {
    BY_DRIVER: ("kafka", {"transaction": "Batch"}),
    BY_TASKS: ("kafka", {"transaction": "Partition"}),
    TABLE: ("table", {}),
}
"""The sink of each contender that writes to Kafka, and fields of its spec."""

Contender = tuple[str, str]
"""Name of a writer, and its compression."""

_OF_FILES = [*((SPARK, each) for each in sorted(set(COMPRESSION.values()))), *COMPRESSION.items()]
CONTENDERS: Mapping[str, Sequence[Contender]] = {
    FOLDER: _OF_FILES,
    S3: _OF_FILES,
    KAFKA: [(name, "lz4") for name in _TO_KAFKA],
}

_NUMBERS = itertools.count()
"""Numbers for names of places."""

_ROW = (
    "id AS n",
    "concat('cell-', id % 1000) AS cell",
    "timestamp_micros(1700000000000000 + id * 1000) AS at",
    "CAST(id % 10000 / 100 AS DECIMAL(12,2)) AS fare",
    "rand(7) AS ratio",
    "md5(concat(id)) AS text",
)


@dataclass(frozen=True)
class SinkFigure:
    """One turn: rows per second, and the ratio to ``base`` in the same round."""

    tasks: int
    place: str
    writer: str
    compression: str
    round: int
    rate: float
    ratio: float


def base(place: str, compression: str) -> Contender:
    """Return the contender by which the others in a place are measured."""
    return (BY_DRIVER if place == KAFKA else SPARK), compression


class SinkBench:
    """All turns of a number of tasks, with the rows in memory; ``servers`` are those of Kafka."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, tasks: int, servers: str) -> None:
        self._spark, self._folder, self._count, self._tasks, self._servers = spark, folder, rows, tasks, servers
        self._rows = spark.range(0, rows, 1, tasks).selectExpr(*_ROW).persist()
        self._rows.count()

    def round(self, number: int, places: Sequence[str]) -> Iterator[SinkFigure]:
        """Measure each contender once, in each place."""
        for place in places:
            contenders, rates = CONTENDERS[place], {}
            for contender in contenders if number % 2 == 0 else contenders[::-1]:
                with self._ready(place, *contender) as write:
                    rates[contender] = self._rate(write)
            for writer, compression in contenders:
                rate = rates[writer, compression]
                ratio = rate / rates[base(place, compression)]
                yield SinkFigure(self._tasks, place, writer, compression, number, rate, ratio)
            if place != KAFKA:
                self._clear()

    def _rate(self, write: Callable[[DataFrame], None]) -> float:
        began = time.monotonic()
        write(self._rows)
        return self._count / (time.monotonic() - began)

    @contextmanager
    def _ready(self, place: str, writer: str, compression: str) -> Iterator[Callable[[DataFrame], None]]:
        """Yield a function that writes a batch; what comes before its call is not measured."""
        if writer == SPARK:
            target = self._new_place(place)
            yield lambda rows: rows.write.option("compression", compression).parquet(target)
            return
        sink = self._sink_of_kafka(writer) if place == KAFKA else self._sink_of_files(writer, self._new_place(place))
        numbers = itertools.count()

        def write(rows: DataFrame) -> None:
            written = sink.write(sink.shape(rows), ResultBatch(next(numbers), 1, 0))
            assert written == self._count, written

        try:
            sink.prepare(LastBatch(None, None))
            if place == KAFKA:
                write(self._rows)
            yield write
        finally:
            sink.close()

    def _sink_of_kafka(self, writer: str) -> Sink:
        topic, (kind, more) = f"rows-{next(_NUMBERS)}", _TO_KAFKA[writer]
        create(self._servers, topic, {"cleanup.policy": "compact"} if kind == "table" else {})
        return self._opened(kind, {"bootstrapServers": self._servers, "topic": topic, **more}, ResultKeys(("n",)))

    def _sink_of_files(self, kind: str, place: str) -> Sink:
        spec: Mapping[str, Any] = {"path": place}
        if kind == "iceberg":
            catalog = {"file": str(self._folder / "catalog.db")}
            spec = {"catalog": catalog, "table": f"bench.t{next(_NUMBERS)}", "location": place}
        return self._opened(kind, spec, ResultKeys())

    def _opened(self, kind: str, spec: Mapping[str, Any], keys: ResultKeys) -> Sink:
        parts = {"sources": {"s": {"rate": {}}}, "query": {"sql": "SELECT key FROM s"}, "sink": {kind: spec}}
        document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "rows"}}
        query = StreamQuery.model_validate(document | {"spec": parts | {"emit": "OnWindowClose"}}, by_name=False)
        own_id, schema = f"bench{next(_NUMBERS)}", self._rows.schema
        return open_sink(SinkContext(query, keys, own_id, lambda *_: None, results=schema, partitions=self._tasks))

    def _new_place(self, place: str) -> str:
        name = f"out/{next(_NUMBERS)}"
        return str(self._folder / name) if place == FOLDER else f"s3a://{BUCKET}/{name}"

    def _clear(self) -> None:
        shutil.rmtree(self._folder / "out", ignore_errors=True)
        ObjectPath.of(f"s3a://{BUCKET}/out").remove_all()


def summary(figures: list[SinkFigure], title: str) -> Table:
    """Return the median of the rounds and their range, in rows per second and beside ``base``."""
    table = Table(title=title)
    table.add_column("tasks", justify="right")
    for name in ("place", "writer", "compression"):
        table.add_column(name)
    for name in ("1,000 rows/s", "of all rounds", "ratio", "of all rounds"):
        table.add_column(name, justify="right")
    part = figures[0].tasks, figures[0].place
    for key in {(each.tasks, each.place, each.writer, each.compression): None for each in figures}:
        found = [each for each in figures if (each.tasks, each.place, each.writer, each.compression) == key]
        rates, ratios = [each.rate / 1000 for each in found], [each.ratio for each in found]
        if key[:2] != part:
            table.add_section()
            part = key[:2]
        own = key[2:] == base(*key[1::2])
        table.add_row(
            *map(str, key),
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            "" if own else f"{statistics.median(ratios):.2f}",
            "" if own else f"{min(ratios):.2f} to {max(ratios):.2f}",
        )
    return table


@contextmanager
def services(folder: Path, places: Sequence[str]) -> Iterator[str]:
    """Start what the places need for the length of the block; yield the servers of Kafka."""
    with ExitStack() as stack:
        if S3 in places:
            server = stack.enter_context(running_s3(folder))
            os.environ.update(
                server.environment | {"AWS_ENDPOINT_URL": server.direct_url, S3_CLIENT.variable: str(S3_JARS.find())}
            )
        if KAFKA not in places:
            yield ""
            return
        (folder / "broker").mkdir()
        yield stack.enter_context(running_broker(folder / "broker")).bootstrap


@contextmanager
def running_bench(
    folder: Path, rows: int, tasks: int, servers: str = "", places: Sequence[str] = (FOLDER, S3)
) -> Iterator[SinkBench]:
    """Start Spark for the length of the block."""
    settings = store_settings(ObjectPath.of(f"s3a://{BUCKET}/out")) if S3 in places else {}
    settings |= {"spark.master": f"local[{tasks}]", "spark.driver.memory": "2g"}
    spark = local_session("sinks", tasks, settings, folder, quiet=True)
    try:
        yield SinkBench(spark, folder, rows, tasks, servers)
    finally:
        spark.stop()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", default=",".join((FOLDER, S3)), help=f"of {', '.join(PLACES)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, after one that does not")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a batch")
    parser.add_argument("--tasks", default="2", help="tasks, and threads of Spark; or several such numbers")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    places, figures = options.places.split(","), []
    with tempfile.TemporaryDirectory(prefix="millrace-sinks-") as name, services(Path(name), places) as servers:
        for tasks in map(int, options.tasks.split(",")):
            with running_bench(Path(name), options.rows, tasks, servers, places) as bench:
                for number in range(options.rounds + 1):
                    for each in bench.round(number, places):
                        print(json.dumps(asdict(each)), file=sys.stderr, flush=True)
                        if number:
                            figures.append(each)
    title = f"Batches of {options.rows:,} rows, medians of {options.rounds} rounds"
    Console(width=120).print(summary(figures, title))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
