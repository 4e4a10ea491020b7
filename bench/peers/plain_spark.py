"""The query of the benchmark in plain Structured Streaming with Spark's own Kafka connector, at least once.

    python -m bench.peers.plain_spark SERVERS SOURCE SINK FOLDER INTERVAL_MS JARS SLOTS PARTITIONS LARGEST

SLOTS is the number of tasks at once, PARTITIONS that of state partitions, and LARGEST the most records of a batch, or 0
for no limit. It prints one line of JSON for each batch: rows, and milliseconds by step.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Run until the process is ended."""
    servers, source, sink, folder, interval, jars, slots, partitions, largest = sys.argv[1:]
    spark = (
        SparkSession.builder.master(f"local[{slots}]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", partitions)
        .config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
    )
    messages = (reader if largest == "0" else reader.option("maxOffsetsPerTrigger", largest)).load()
    record = F.from_json(F.col("value").cast("string"), "at TIMESTAMP, key STRING, value STRING")
    records = messages.select(record.alias("record")).select("record.*").withWatermark("at", "5 seconds")
    counted = records.groupBy(F.window("at", "10 seconds"), "key").agg(
        F.count("*").alias("n"), F.max("at").alias("latest")
    )
    results = counted.select(F.col("window.start").alias("since"), "key", "n", "latest")
    query = (
        results.select("key", F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .outputMode("update")
        .trigger(processingTime=f"{interval} milliseconds")
        .start()
    )
    newest = -1
    while not query.awaitTermination(1):
        for progress in query.recentProgress:
            if progress.batchId > newest:
                newest = progress.batchId
                print(json.dumps({"rows": progress.numInputRows, "steps": progress.durationMs}), flush=True)


if __name__ == "__main__":
    main()
