"""Results leave in as many partitions as is known of their query before it runs, whatever the plan of a batch is."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.kafka.sink import AppendSink, TaskWrites
from millrace_jobs.sinks.kafka.topic import TargetTopic

from .streams import Stream
from .tables import parquet

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
COLUMNS = "moment TIMESTAMP, key STRING, value BIGINT"
START = datetime(2024, 3, 1)
ROWS = [(START + timedelta(seconds=n), f"key {n % 7}", n) for n in range(50)]
PLANS = [("pkg", 3, 2), ("native", 1, 1), ("hash", 5, 3)]
JOIN = "FROM events a JOIN others b ON a.key = b.key AND b.moment BETWEEN a.moment AND a.moment + INTERVAL 9 SECONDS"
OTHERS = {"others": {"watermark": {"column": "moment", "delay": "30d"}}}


class Counted(Sink):
    """A sink that writes nothing, and notes in how many partitions the results come."""

    place = "nowhere"

    def __init__(self) -> None:
        self.found: set[int] = set()

    def prepare(self, last):
        pass

    def write(self, results, batch):
        self.found.add(results._jdf.queryExecution().toRdd().getNumPartitions())
        results.write.format("noop").mode("overwrite").save()
        return 0

    def close(self):
        pass


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("query", "places"),
    [
        pytest.param({"sql": "SELECT key, sum(value) AS total FROM events GROUP BY key"}, "state", id="routed"),
        pytest.param({"sql": "SELECT count(*) AS n FROM events"}, "one", id="one group"),
        pytest.param({"sql": "SELECT key, approx_count_distinct(value) AS n FROM events GROUP BY key"}, "state", id="native"),
        pytest.param({"sql": "SELECT skewness(value) AS n FROM events"}, "one", id="one native group"),
        pytest.param({"sql": f"SELECT a.key, count(*) AS n {JOIN} GROUP BY a.key", "others": OTHERS}, "state", id="joined groups"),
        pytest.param({"sql": f"SELECT a.key, a.value, b.value AS other {JOIN}", "others": OTHERS}, "others", id="join"),
    ],
)  # fmt: skip
def test_results_leave_in_the_partitions_that_are_known(spark, tmp_path, query, places):
    stream, sink = Stream(spark, tmp_path, schema=COLUMNS, watermark=("moment", "30d"), **query), Counted()
    plans = PLANS if places != "others" else [("pkg", 3, 2), ("pkg", 5, 2)]
    stream.feed([(each, parquet(SCHEMA, ROWS)) for each in plans], sink=sink)
    known = stream.execution.result_partitions(stream.state_partitions)
    assert known == {"state": stream.state_partitions, "one": 1, "others": None}[places]
    assert sink.found == {known} if known is not None else len(sink.found) > 1, sink.found


def test_tasks_write_nothing_of_results_in_other_partitions_than_those_of_the_state(spark):
    topic = TargetTopic("results", Connection("nowhere:9092"), "spec.sink.kafka.topic")
    sink = AppendSink(topic, ResultKeys(("key",)), "trips", "c1", TaskWrites(4, by_partition=True))
    sink._renewed = float("inf")
    results = sink.shape(spark.range(0, 10, 1, 3).selectExpr("concat('k', id) AS key", "id"))
    with pytest.raises(MillraceError) as refused:
        sink.write(results, ResultBatch(0, 1, 0))
    assert str(refused.value) == (
        "spec.sink.kafka.transaction: the results have 3 partitions instead of the 4 of the state, so tasks cannot write them; "
        f"write transaction: Batch, and start over with another topic and {ANOTHER_CHECKPOINT}"
    )
