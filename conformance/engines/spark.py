"""Plain Spark Structured Streaming: files as streams with watermarks, in a local session with Spark's own settings."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from conformance.cases import Arrival, Case, Outcome, Query, Row

from .common import last_rounds, own_rows, time_of, with_seconds
from .versions import version_of

_SCHEMA = "k STRING, f STRING, v BIGINT, ts TIMESTAMP"


class SparkRunner:
    """Spark in one session for all cases, each a streaming query of its own."""

    name = "spark"
    version = version_of("spark")

    def outcomes(self, work: Sequence[tuple[Query, Case]]) -> Iterator[tuple[str, Outcome]]:
        """Yield the id and the outcome of each case. Spark does not say at which event time a table changes."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            session = (
                SparkSession.builder.master("local[2]")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.sql.session.timeZone", "UTC")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
                .getOrCreate()
            )
            session.sparkContext.setLogLevel("OFF")
            try:
                for query, case in work:
                    yield case.id, _outcome(session, Path(folder, case.id), query, case)
            finally:
                session.stop()


def _outcome(spark: SparkSession, folder: Path, query: Query, case: Case) -> Outcome:
    asked = query.engines["spark"]
    for name in query.inputs:
        (folder / name).mkdir(parents=True)
        stream = spark.readStream.schema(_SCHEMA).json(str(folder / name))
        stream.withWatermark("ts", f"{query.grace} seconds").createOrReplaceTempView(name)
    batches: list[list[Row]] = []

    def collect(frame: DataFrame, _: int) -> None:
        batches.append([with_seconds(row.asDict(), query.times) for row in frame.collect()])

    try:
        writer = spark.sql(asked["sql"]).writeStream.outputMode(asked.get("mode", "append")).foreachBatch(collect)
        running = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    except PySparkException as error:
        return Outcome(error=str(error).splitlines()[0])
    try:
        for number, arrivals in enumerate([*case.rounds, *last_rounds(query)]):
            for name in query.inputs:
                _give(folder, name, number, [each for each in arrivals if each.to == name])
            running.processAllAvailable()
    except PySparkException as error:
        return Outcome(error=str(error).splitlines()[0])
    finally:
        running.stop()
    if query.result == "stream":
        return Outcome(own_rows(row for rows in batches for row in rows))
    if asked.get("mode") == "complete":
        return Outcome(own_rows(batches[-1]))
    table = {tuple(row[name] for name in query.key): row for rows in batches for row in rows}
    return Outcome(own_rows(table.values()))


def _give(folder: Path, name: str, number: int, arrivals: Sequence[Arrival]) -> None:
    if arrivals:
        part = folder / f"{name}-{number}.part"
        part.write_text("".join(f"{json.dumps(_record(each))}\n" for each in arrivals), encoding="utf-8")
        part.rename(folder / name / f"{number}.json")


def _record(arrival: Arrival) -> dict[str, Any]:
    return {"k": arrival.k, "f": arrival.f, "v": arrival.v, "ts": time_of(arrival.at).isoformat()}
