"""The join of the benchmark in plain Structured Streaming with Spark's own Kafka connector, at least once.

    python -m bench.joins.plain_spark SERVERS VIEWS CLICKS SINK FOLDER INTERVAL_MS JARS CASE STATE LARGEST

STATE is a name in ``STATES``. LARGEST is the most records of each topic in a batch, or 0 for no limit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from bench.joins.cases import CASES, CLICKS, DELAY, SCHEMA, VIEWS

_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
STATES: Mapping[str, Mapping[str, str]] = {
    "heap": {},
    "rocksdb": _ROCKSDB,
    "rocksdb-3": _ROCKSDB | {"spark.sql.streaming.join.stateFormatVersion": "3"},
    "rocksdb-4": _ROCKSDB | {"spark.sql.streaming.join.stateFormatVersion": "4"},
}
"""Settings by where the state of the join is kept, with the version of its format."""


def main() -> None:
    """Run until the process is ended."""
    servers, views, clicks, sink, folder, interval, jars, case, state, largest = sys.argv[1:]
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    for name, value in STATES[state].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for name, topic in ((VIEWS, views), (CLICKS, clicks)):
        _records(spark, servers, topic, largest).createOrReplaceTempView(name)
    (
        spark.sql(CASES[case].sql)
        .select(F.col("page").alias("key"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .outputMode("append")
        .trigger(processingTime=f"{interval} milliseconds")
        .start()
        .awaitTermination()
    )


def _records(spark: SparkSession, servers: str, topic: str, largest: str) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    messages = (reader if largest == "0" else reader.option("maxOffsetsPerTrigger", largest)).load()
    record = F.from_json(F.col("value").cast("string"), SCHEMA)
    return messages.select(record.alias("record")).select("record.*").withWatermark("at", f"{DELAY} seconds")


if __name__ == "__main__":
    main()
