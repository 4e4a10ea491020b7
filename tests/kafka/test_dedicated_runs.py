"""Runs whose records are placed by replicas in processes of their own: exact results through plans, crashes and ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from fault_settings import chance
from lab import topics
from lab.kafka import Broker
from lab.processes import signal_all
from spark.answers import assert_same

from .faults.changelog import read_by, up_to
from .faults.feed import events_in
from .faults.job import Job
from .faults.kinds import rebalance, replica_killed
from .faults.queries import DEDICATED_TABLE, DEDICATED_WINDOWS, NAME
from .faults.scene import SINK, SOURCE, Scene, scene
from .replicas import record
from .sources import remove

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.in_turn, pytest.mark.timeout(1500)]

ROUTED, MANIFESTS = (f"millrace.default.{NAME}.{what}" for what in ("routed", "manifests"))
INLINE, DEDICATED = "Inline", "Dedicated"


def plan_text(algorithm: str, replicas: int, workers: int, placement: str) -> str:
    plan = {"algorithm": algorithm, "replicas": replicas, "parallelism": workers, "placement": placement}
    return yaml.safe_dump(plan)


def numbers(checkpoint: Path, log: str) -> list[int]:
    """Return the batches in one of Spark's logs, in order."""
    return sorted(int(file.name) for file in (checkpoint / "spark" / log).iterdir() if file.name.isdigit())


def pins(checkpoint: Path) -> list[dict[str, Any]]:
    """Return the pins of the batches with records that Spark's log still has, in order."""
    found = []
    for number in numbers(checkpoint, "offsets"):
        _, _, *lines = (checkpoint / "spark" / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
        found += [offset["pin"] for offset in map(json.loads, lines) if offset.get("taken")]
    return found


def wait_for_plan(stage: Scene, algorithm: str, replicas: int, workers: int, placement: str) -> None:
    """Wait until a batch was begun under this plan, and its replicas run."""
    expected = (algorithm, replicas, workers, placement)

    def follows() -> bool:
        pin = pins(stage.checkpoint)[-1]
        began = (pin["algorithm"], pin["replicas"], pin["workers"], pin.get("placement", INLINE)) == expected
        return began and len(stage.replicas) == (replicas if placement == DEDICATED else 0)

    assert stage.job.wait_for(follows, f"batch under {expected}"), stage.job.report()


def test_one_run_under_changing_plans_counts_each_record_once(own_broker: Broker, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(plan_text("pkg", 2, 2, INLINE), encoding="utf-8")
    with scene(
        DEDICATED_TABLE,
        own_broker,
        tmp_path,
        chance("plans"),
        iter(()),
        own_machine=False,
        options=("--plan", "plan.yaml"),
    ) as stage:
        assert stage.job.wait_for_batches(2), stage.job.report()
        for algorithm, replicas, workers in [("cam", 1, 2), ("cam", 4, 5), ("dalton", 2, 3)]:
            plan.write_text(plan_text(algorithm, replicas, workers, DEDICATED), encoding="utf-8")
            wait_for_plan(stage, algorithm, replicas, workers, DEDICATED)
            signal_all([stage.chance.choice(stage.replicas)], signal.SIGKILL)
            assert stage.job.wait_for_batches(3), stage.job.report()
            stage.check()
        plan.write_text(plan_text("hash", 1, 2, INLINE), encoding="utf-8")
        wait_for_plan(stage, "hash", 1, 2, INLINE)
        assert len(stage.job.processes) == 1, "it was one run"
        stage.end(by_itself=True)


def killed_in_a_batch(stage: Scene) -> None:
    """Kill the driver and its replicas while a batch of placed records is unfinished."""
    while True:

        def in_a_batch() -> bool:
            return numbers(stage.checkpoint, "offsets")[-1] > max(numbers(stage.checkpoint, "commits"), default=-1)

        assert stage.job.wait_for(in_a_batch, "unfinished batch"), stage.job.report()
        stage.job.process.kill()
        if in_a_batch():
            assert pins(stage.checkpoint)[-1].get("placement") == DEDICATED
            return
        stage.job.start()
        assert stage.job.wait_for_batches(), stage.job.report()


def test_an_unfinished_batch_of_placed_records_is_finished(own_broker: Broker, tmp_path: Path) -> None:
    """It is finished from its packs, or from the raw topic if they are gone, with what was placed beyond it."""
    with scene(DEDICATED_TABLE, own_broker, tmp_path, chance("crash"), iter(()), own_machine=False) as stage:
        assert stage.job.wait_for_batches(2), stage.job.report()
        killed_in_a_batch(stage)
        stage.go_on()
        stage.check()
        killed_in_a_batch(stage)
        for topic in (ROUTED, MANIFESTS):
            remove(own_broker, topic)
        stage.go_on()
        stage.check()
        killed_in_a_batch(stage)
        plan = tmp_path / "plan.yaml"
        plan.write_text(plan_text("pkg", 1, 3, INLINE), encoding="utf-8")
        stage.job.start("--plan", "plan.yaml")
        stage.go_on()
        stage.end()


def test_replicas_that_learn_together_lose_no_record_under_faults(own_broker: Broker, tmp_path: Path) -> None:
    with scene(DEDICATED_WINDOWS, own_broker, tmp_path, chance("replicas"), iter(()), own_machine=False) as stage:
        assert stage.job.wait_for_batches(2), stage.job.report()
        for fault in (replica_killed, rebalance, replica_killed):
            print(f"{fault.__name__}: {fault(stage)}", flush=True)
            stage.go_on()
            stage.check()
        stage.end()


def document(broker: Broker, folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a StreamQuery with replicas; ``changes`` are fields of its spec, or of its source by ``events``."""
    made = DEDICATED_TABLE.document(broker.bootstrap, SOURCE, SINK, (folder / "checkpoint").as_uri())
    made["spec"]["sources"]["events"] |= changes.pop("events", {})
    made["spec"] |= changes
    return made


def job_of(folder: Path, query: Mapping[str, Any]) -> Job:
    file = folder / f"{NAME}.yaml"
    file.write_text(yaml.safe_dump(dict(query)), encoding="utf-8")
    return Job(file)


def totals(broker: Broker) -> list[tuple[Any, ...]]:
    """Return the table of results."""
    return [(row["key"], row["records"], row["total"]) for row in topics.rows(broker, SINK)]


@pytest.fixture
def made_topics(own_broker: Broker) -> Broker:
    """A broker with an empty raw topic and a topic of results."""
    topics.make(own_broker, SOURCE, 3)
    topics.make(own_broker, SINK, 2, cleanup_policy="compact")
    return own_broker


@pytest.fixture
def run(made_topics: Broker, tmp_path: Path) -> Iterable[Callable[..., Job]]:
    """Return ``run(*options, **changes)``, which starts a run of a query on the broker."""
    job = job_of(tmp_path, document(made_topics, tmp_path))

    def start(*options: str, **changes: Any) -> Job:
        job_of(tmp_path, document(made_topics, tmp_path, **changes))
        job.start(*options)
        return job

    yield start
    job.close()


def test_a_run_ends_when_another_one_takes_over(made_topics: Broker, tmp_path: Path, run: Callable[..., Job]) -> None:
    """The older one says why it ends, also where no record comes, and the newer one's replicas work on."""
    older = run(query=sums("value > 0"))
    topics.fill(made_topics, SOURCE, [record(i) for i in range(100)], 0)
    assert older.wait_for_batches(), older.report()
    newer = Job.like(older, "newer")
    second = document(made_topics, tmp_path, query=sums("value > 0"))
    second["spec"]["checkpoint"] = {"uri": (tmp_path / "another").as_uri()}
    newer.query.write_text(yaml.safe_dump(second), encoding="utf-8")
    newer.start()
    try:
        older.assert_failed(f"another run of query {NAME} has taken its topics")
        assert newer.wait_for_batches(), newer.report()
        topics.fill(made_topics, SOURCE, [record(i) for i in range(100, 200)], 1)
        assert newer.wait_for_batches(), newer.report()
        assert "replica" not in newer.complained, newer.report()
        newer.drain()
    finally:
        newer.close()


def sums(where: str, query: str = "") -> dict[str, str]:
    return {"sql": f"SELECT key, count(*) AS records, sum(value) AS total FROM events WHERE {where} GROUP BY key"}


def test_a_run_that_ends_by_itself_goes_on_with_another_filter(
    made_topics: Broker, tmp_path: Path, run: Callable[..., Job]
) -> None:
    for partition in range(3):
        values = [record(i, f"key {i % 7}", i % 100 - 50) for i in range(partition, 3000, 3)]
        topics.fill(made_topics, SOURCE, values, partition)
    job = run("--once", query=sums("value > 0"))
    assert job.wait() == 0, job.report()
    first = events_in(made_topics, SOURCE)
    old = "SELECT key, count(*), sum(value) FROM first WHERE value > 0 GROUP BY key"
    with duckdb.connect() as db:
        db.register("first", first)
        assert_same(totals(made_topics), db.execute(old).fetchall(), 1)

    job = run(query=sums("value > 0"))  # packs of the old filter are left over from this run
    assert job.wait_for(lambda: "started=" in job.said, "start"), job.report()
    topics.fill(made_topics, SOURCE, [record(i, f"key {i % 7}", i % 100 - 50) for i in range(4000, 6000)], 1)
    assert job.wait_for_batches(), job.report()
    topics.fill(made_topics, SOURCE, [record(i, f"key {i % 7}", i % 100 - 50) for i in range(6000, 8000)], 0)
    job.drain()
    checkpoint = tmp_path / "checkpoint"
    committed = numbers(checkpoint, "commits")[-1]
    positions = read_by(checkpoint, committed)
    assert positions is not None

    job = run("--once", query=sums("value < 20"))
    assert job.wait() == 0, job.report()
    events = events_in(made_topics, SOURCE)
    before = up_to(events, positions["events"])
    with duckdb.connect() as db:
        db.register("events", events)
        db.register("before", before)
        exact = db.execute(
            "SELECT key, count(*), sum(value) FROM events WHERE CASE WHEN id IN (SELECT id FROM before) "
            "THEN value > 0 ELSE value < 20 END GROUP BY key"
        ).fetchall()
    assert_same(totals(made_topics), exact, 1)


def test_a_query_that_ends_where_the_topic_ends(made_topics: Broker, run: Callable[..., Job]) -> None:
    topics.fill(made_topics, SOURCE, [record(i) for i in range(100)], 0)
    kafka = {"bootstrapServers": made_topics.bootstrap, "topic": SOURCE, "endingOffsets": "Latest"}
    job = run(query=sums("value > 0"), events={"kafka": kafka})
    assert job.wait() == 0, job.report()
    assert sum(records for _, records, _ in totals(made_topics)) == 100


def test_a_record_that_does_not_decode_ends_the_query_as_inline(
    made_topics: Broker, tmp_path: Path, run: Callable[..., Job]
) -> None:
    topics.fill(made_topics, SOURCE, [record(1), '{"id": "\\u00e9'], 2)
    said = []
    for placement in (DEDICATED, INLINE):
        job = run(query=sums("value > 0"), partitioner={"algorithm": "cam", "placement": placement})
        job.assert_refused()
        said.append(job.complained.splitlines()[-1])
    assert said[0] == said[1]
    assert "offset 1" in said[0]
    assert not totals(made_topics)


def test_queries_that_replicas_cannot_serve_are_refused(made_topics: Broker, run: Callable[..., Job]) -> None:
    distinct = "SELECT key, percentile(value, 0.5) AS middle FROM events GROUP BY key"
    pattern = {"kafka": {"bootstrapServers": made_topics.bootstrap, "topicPattern": "event.*"}}
    for changes in [{"query": {"sql": distinct}}, {"query": sums("value > 0"), "events": pattern}]:
        job = run(**changes)
        job.assert_refused()
        assert "placement" in job.complained, job.report()
        assert "Inline" in job.complained, job.report()
