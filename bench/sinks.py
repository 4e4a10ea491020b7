"""Measure how fast large batches are written: the sinks that write from tasks beside Spark's own writer of Parquet.

    python -m bench.sinks [--rounds 5] [--rows 1000000] [--tasks 2] [--json FILE]

A batch of rows, which Spark holds in memory, is written again and again by each contender in one session, by as many
tasks for all of them: into a folder, and into an S3 server on this machine. A turn is one batch, from the call of the
sink to the commit. Rounds are interleaved, every second one in the other order, and the first one, in which Spark and
the JVM warm up, does not count. The ratio of a turn is that to Spark's own writer in the same place, with the same
compression, in the same round: above 1, the sink is faster. Spark's writer has no exactly once: its files appear one
after the other. The table is printed to the output at the end, and each turn to the error output when it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table
from tests.lab.parts.maven_jars import S3_JARS
from tests.lab.s3_server import BUCKET, running_s3

from bench.processes import exit_on_sigterm
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.object_store import ObjectPath
from millrace_jobs.s3_client import JARS, s3_settings
from millrace_jobs.session import local_session
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.sink_factory import open_sink

FOLDER, S3 = "folder", "S3"
COMPRESSION = {"files": "snappy", "delta": "zstd", "iceberg": "zstd"}
"""The compression of each kind of sink."""

SPARK = "Spark's writer"

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
    """One turn: rows per second, and the ratio to Spark's own writer in the same round; 1 for that itself."""

    place: str
    writer: str
    compression: str
    round: int
    rate: float
    ratio: float


class SinkBench:
    """All turns of a run, with the rows in memory."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, tasks: int) -> None:
        self._spark, self._folder, self._count, self._tasks = spark, folder, rows, tasks
        self._rows = spark.range(0, rows, 1, tasks).selectExpr(*_ROW).persist()
        self._rows.count()
        self._numbers = iter(range(1 << 30))

    def round(self, number: int) -> Iterator[SinkFigure]:
        """Measure each contender once, in each place."""
        contenders = [(SPARK, each) for each in sorted(set(COMPRESSION.values()))] + list(COMPRESSION.items())
        for place in (FOLDER, S3):
            rates = {}
            for writer, compression in contenders if number % 2 == 0 else contenders[::-1]:
                write = self._spark_writer(place, compression) if writer == SPARK else self._sink_writer(place, writer)
                rates[writer, compression] = self._rate(write)
            for writer, compression in contenders:
                rate = rates[writer, compression]
                yield SinkFigure(place, writer, compression, number, rate, rate / rates[SPARK, compression])
            self._clear()

    def _rate(self, write: Callable[[DataFrame], None]) -> float:
        began = time.monotonic()
        write(self._rows)
        return self._count / (time.monotonic() - began)

    def _spark_writer(self, place: str, compression: str) -> Callable[[DataFrame], None]:
        target = self._new_place(place)
        return lambda rows: rows.write.option("compression", compression).parquet(target)

    def _sink_writer(self, place: str, kind: str) -> Callable[[DataFrame], None]:
        sink = self._opened(kind, self._new_place(place))

        def write(rows: DataFrame) -> None:
            written = sink.write(sink.shape(rows), ResultBatch(0, 1, 0))
            assert written == self._count, written

        return write

    def _opened(self, kind: str, place: str) -> Sink:
        """Return a sink that is ready for its first batch; that is not measured."""
        spec: Mapping[str, Any] = {"path": place}
        if kind == "iceberg":
            catalog = {"file": str(self._folder / "catalog.db")}
            spec = {"catalog": catalog, "table": f"bench.t{next(self._numbers)}", "location": place}
        parts = {"sources": {"s": {"rate": {}}}, "query": {"sql": "SELECT key FROM s"}, "sink": {kind: spec}}
        document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "rows"}}
        query = StreamQuery.model_validate(document | {"spec": parts | {"emit": "OnWindowClose"}}, by_name=False)
        sink = open_sink(query, ResultKeys(), "bench", lambda *_: None, results=self._rows.schema)
        sink.prepare(LastBatch(None, None))
        return sink

    def _new_place(self, place: str) -> str:
        name = f"out/{next(self._numbers)}"
        return str(self._folder / name) if place == FOLDER else f"s3a://{BUCKET}/{name}"

    def _clear(self) -> None:
        shutil.rmtree(self._folder / "out", ignore_errors=True)
        ObjectPath.of(f"s3a://{BUCKET}/out").remove_all()


def summary(figures: list[SinkFigure], title: str) -> Table:
    """Return the median of the rounds and their range, in rows per second and beside Spark's own writer."""
    table = Table(title=title)
    for name in ("place", "writer", "compression"):
        table.add_column(name)
    for name in ("1,000 rows/s", "of all rounds", "x Spark's writer", "of all rounds"):
        table.add_column(name, justify="right")
    place = figures[0].place
    for key in {(each.place, each.writer, each.compression): None for each in figures}:
        found = [each for each in figures if (each.place, each.writer, each.compression) == key]
        rates, ratios = [each.rate / 1000 for each in found], [each.ratio for each in found]
        if key[0] != place:
            table.add_section()
            place = key[0]
        own = key[1] == SPARK
        table.add_row(
            *key,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            "" if own else f"{statistics.median(ratios):.2f}",
            "" if own else f"{min(ratios):.2f} to {max(ratios):.2f}",
        )
    return table


@contextmanager
def running_bench(folder: Path, rows: int, tasks: int) -> Iterator[SinkBench]:
    """Start an S3 server and Spark for the length of the block."""
    with running_s3(folder) as server:
        os.environ.update(server.environment | {"AWS_ENDPOINT_URL": server.direct_url, JARS: str(S3_JARS.find())})
        settings = s3_settings(ObjectPath.of(f"s3a://{BUCKET}/out"))
        settings |= {"spark.master": f"local[{tasks}]", "spark.driver.memory": "2g"}
        spark = local_session("sinks", tasks, settings, folder, quiet=True)
        try:
            yield SinkBench(spark, folder, rows, tasks)
        finally:
            spark.stop()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, after one that does not")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a batch")
    parser.add_argument("--tasks", type=int, default=2, help="tasks, and threads of Spark")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    figures = []
    with (
        tempfile.TemporaryDirectory(prefix="millrace-sinks-") as name,
        running_bench(Path(name), options.rows, options.tasks) as bench,
    ):
        for number in range(options.rounds + 1):
            for each in bench.round(number):
                print(json.dumps(asdict(each)), file=sys.stderr, flush=True)
                if number:
                    figures.append(each)
    title = f"Batches of {options.rows:,} rows by {options.tasks} tasks, medians of {options.rounds} rounds"
    Console(width=120).print(summary(figures, title))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
