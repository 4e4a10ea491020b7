"""What the session keeps in the driver's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_only_the_last_report_of_a_query_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / "in" / str(i)).write_text("line\n", encoding="utf-8")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    query = lines.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    assert [progress.batchId for progress in running.recentProgress] == [3]
