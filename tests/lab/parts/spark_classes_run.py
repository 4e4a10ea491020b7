"""A query that uses much of what Spark's tests do, in a process of its own, so that Java can note the classes."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(folder: Path) -> None:
    """Count words of a file with workers in Python and a store for state, and end the JVM in good order."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", _STORE)
        .getOrCreate()
    )
    words = folder / "words"
    words.mkdir()
    (words / "words.csv").write_text("a\nb\na\n", encoding="utf-8")
    read = session.readStream.schema("word STRING").csv(str(words))
    counted = read.mapInArrow(lambda batches: batches, "word STRING").groupBy("word").count()
    query = (
        counted.writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda rows, batch: rows.write.mode("append").json(str(folder / "counts")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with this, and then writes the archive
    gateway.proc.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
