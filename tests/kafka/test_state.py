"""State from Kafka to Kafka: late records, expiry, both ways to emit, restarts from changelogs, repartitioning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from lab import topics
from lab.topics import Message
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.run.state import replace_state
from millrace_jobs.session import COUNTS_ROWS
from spark.answers import Row, assert_same, duckdb_rows, micros
from spark.disorder import HOPS, START, Record, disordered
from spark.late_records import Model
from spark.questions import Hop, Question
from spark.streams import Placing

from .late_queries import document, moment
from .live import LiveQuery

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow(minutes=0.3)]

VALUES = {"records": "count(*)", "total": "sum(value)", "last": "max(moment)"}
RUNS: dict[str, Sequence[Placing]] = {"routed": (("pkg", 3, 2), ("hash", 2, 3)), "native": (("native", 2, 2),) * 2}
"""The plans of the runs that the batches are dealt to."""

END = (START + timedelta(hours=1), "the end", 0)
"""A record that lets the watermark pass all windows of the others."""


@pytest.fixture(autouse=True)
def counted_rows(spark: SparkSession) -> Iterator[None]:
    """Let Spark count the rows of the state, as the queries of these tests ask for."""
    spark.conf.set(COUNTS_ROWS, "true")
    yield
    spark.conf.set(COUNTS_ROWS, "false")


def texts(records: Sequence[Record]) -> list[str]:
    return [json.dumps({"moment": f"{at.isoformat()}Z", "key": key, "value": value}) for at, key, value in records]


def run_batches(live: LiveQuery, placings: Sequence[Placing], batches: Sequence[list[Record]]) -> list[BatchReport]:
    """The first half of the batches in one run, the rest in the next."""
    reports = []
    for number, placing in enumerate(placings):
        half = len(batches) // 2
        with live.run(placing) as run:
            for batch in batches[half:] if number else batches[:half]:
                run.give(texts(batch))
        reports += run.reports
    return reports


def row_of(message: Message) -> Row:
    """window_start, window_end, key and the values of a result."""
    assert message.value is not None
    found = json.loads(message.value)
    times = {name: moment(found[name]) for name in ("window_start", "window_end", "last")}
    return tuple((found | times).values())


def final(messages: Sequence[Message]) -> list[Row]:
    """The last update of each key, by its batch."""
    ordered = sorted(messages, key=lambda message: int(message.headers["millrace-batch"] or b""))
    return list({row[:3]: row for row in map(row_of, ordered)}.values())


def expected(model: Model, hop: Hop) -> list[Row]:
    end = f"make_timestamp(window_start + {hop.size * 1_000_000})"
    select = f"make_timestamp(window_start), {end}, key, count(*), sum(value), max(moment)"
    return duckdb_rows(model.table(), f"SELECT {select} FROM events GROUP BY ALL")


def groups_in_state(
    model: Model, hop: Hop, reports: Sequence[BatchReport], batches: Sequence[list[Record]]
) -> list[int]:
    """After each batch: the groups so far whose windows its watermark has not closed."""
    kept = iter(model.kept)
    sizes, groups = [], set()
    held: tuple[int, Record] | None = next(kept, None)
    waiting = iter(batches)
    for report, watermark in zip(reports, model.watermarks, strict=True):
        if report.rows:
            records = next(waiting)
            while held is not None and held[1] in records:
                groups.add((held[0], held[1][1]))
                held = next(kept, None)
        closed = 0 if watermark is None else micros(watermark)
        groups = {(start, key) for start, key in groups if start + hop.size * 1_000_000 > closed}
        sizes.append(len(groups))
    return sizes


@pytest.mark.parametrize("plans", RUNS)
@pytest.mark.parametrize(("shape", "emit"), [("hopping", "OnWindowClose"), ("tumbling", "OnUpdate")])
def test_late_records_are_counted_and_closed_windows_leave_the_state(
    spark, broker, make_topic, tmp_path, plans, shape, emit
):
    """Late records are dropped and counted, closed windows are let go, also after a restart."""
    hop = HOPS[shape]
    question = Question(keys={"key": "key"}, values=VALUES, window=hop)
    source, results = make_topic(), make_topic()
    sink = {"kafka": {"bootstrapServers": broker.bootstrap, "topic": results}}
    live = LiveQuery(
        spark, broker, tmp_path, document(broker.bootstrap, source, sink, tmp_path, emit, sql=question.spark)
    )
    batches = [*disordered(seed=len(shape), batches=8, records=60), [END]]
    reports = run_batches(live, RUNS[plans], batches)

    model = Model(hop, reports, batches)
    assert [report.watermark and report.watermark.replace(tzinfo=None) for report in reports] == model.watermarks
    assert sum(model.late) > 20
    if plans != "native":
        assert [report.late for report in reports if report.rows] == model.late
    sizes = groups_in_state(model, hop, reports, batches)
    assert [report.state_rows for report in reports] == sizes
    assert sizes[-1] == len({start for start, record in model.kept if record == END}) < max(sizes) / 4
    assert_kept_by_changelogs(live)

    messages = topics.committed(broker, results)
    emitted = [row for row in expected(model, hop) if emit == "OnUpdate" or row[2] != END[1]]
    assert_same(final(messages) if emit == "OnUpdate" else map(row_of, messages), emitted, 3)


def assert_kept_by_changelogs(live: LiveQuery) -> None:
    """Each batch leaves its changes in RocksDB's changelogs, and few or no whole snapshots."""
    spark = checkpoint_root(live.query) / "spark"
    settings = Checkpoint(checkpoint_root(live.query)).settings()
    provider = settings["spark.sql.streaming.stateStore.providerClass"]
    assert provider.endswith(".RocksDBStateStoreProvider")
    changelogs = list((spark / "state" / "0").glob("[0-9]*/*.changelog"))
    assert len(changelogs) > 8


def test_a_python_aggregator_lets_its_state_go(spark, broker, make_topic, tmp_path):
    source, results = make_topic(), make_topic()
    python = {
        "aggregator": "spark.aggregators:Spread",
        "options": {"column": "value"},
        "groupBy": ["key"],
        "window": {"column": "moment", "size": "20s"},
    }
    sink = {"kafka": {"bootstrapServers": broker.bootstrap, "topic": results}}
    live = LiveQuery(
        spark, broker, tmp_path, document(broker.bootstrap, source, sink, tmp_path, "OnWindowClose", python=python)
    )
    batches = [*disordered(seed=3, batches=6, records=60), [END]]
    reports = run_batches(live, RUNS["routed"], batches)
    sizes = [report.state_rows for report in reports]
    assert sizes[-1] < max(sizes) / 4

    model = Model(HOPS["tumbling"], reports, batches)
    assert sum(model.late) > 10
    seen = {
        (moment(row["window_start"]), row["key"]): row["seen"]
        for row in (json.loads(message.value or b"") for message in topics.committed(broker, results))
    }
    emitted = {(row[0], row[2]): row[3] for row in expected(model, HOPS["tumbling"]) if row[2] != END[1]}
    assert seen == emitted


def test_state_that_is_repartitioned_between_two_runs_leaves_no_trace_in_the_sink(spark, broker, make_topic, tmp_path):
    """The batch that Spark makes of it leaves no trace in the sink, and what follows goes on from the state."""
    hop = HOPS["hopping"]
    question = Question(keys={"key": "key"}, values=VALUES, window=hop)
    source, results = make_topic(), make_topic(cleanup_policy="compact")
    sink = {"table": {"bootstrapServers": broker.bootstrap, "topic": results}}
    live = LiveQuery(
        spark, broker, tmp_path, document(broker.bootstrap, source, sink, tmp_path, "OnWindowClose", sql=question.spark)
    )
    batches = [*disordered(seed=9, batches=6, records=60), [END]]
    reports = []
    for partitions, part in ((5, batches[:3]), (3, batches[3:5]), (None, batches[5:])):
        with live.run(("pkg", 3, 2)) as run:
            for batch in part:
                run.give(texts(batch))
        reports += run.reports
        if partitions is not None:
            checkpoint = Checkpoint(checkpoint_root(live.query))
            checkpoint.open(live.query)
            replace_state(spark, checkpoint, partitions)
            assert checkpoint.state_partitions == partitions
            checkpoint.close()
    model = Model(hop, reports, batches)
    emitted = [row for row in expected(model, hop) if row[2] != END[1]]
    messages = topics.committed(broker, results)
    assert len(topics.table_of(messages)) == len(messages)
    assert_same(map(row_of, messages), emitted, 3)
