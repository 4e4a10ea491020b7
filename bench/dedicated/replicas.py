"""Replicas of a query without its job: the bench is their driver, and takes what they place as read."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from bench.dedicated.arrivals import Arrival, arriving
from bench.processes import running
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.dedicated.coordinator import Coordinator, topics_of
from millrace_jobs.dedicated.processes import PodReplicas
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.session import local_session
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.kafka.offsets import PLACED
from millrace_jobs.sources.kafka.source import KafkaSource

_NO_LIMIT = 1 << 40
"""Records that the job is said to take in a batch."""


def compiled(query: StreamQuery) -> Routed:
    """Return the query as Spark compiles it, by a session that ends with the call."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = _source_of(query, folder)
        spark = local_session("bench", 1, {}, folder, quiet=True)
        try:
            execution = compile_query(spark, query.spec, {"s": source.schema}).execution
        finally:
            spark.stop()
    assert isinstance(execution, Routed)
    return execution


class RunningReplicas:
    """The processes of a query's replicas, and their driver.

    Attributes:
        pids: process ids, by index.
    """

    def __init__(self, query: StreamQuery, pin: Pin, pids: list[int], coordinator: Coordinator) -> None:
        self._query, self._pin, self._coordinator = query, pin, coordinator
        self.pids = pids

    def arrivals(self, goes_on: Callable[[], bool]) -> Iterator[Arrival]:
        """Yield manifests as they come, each of which then counts as consumed."""
        source = self._query.spec.sources["s"].kafka
        assert source is not None
        topics = topics_of(self._query)
        for arrival in arriving(source.bootstrap_servers, topics.manifests, goes_on):
            yield arrival
            place = {"generation": arrival.manifest.generation, "end": arrival.offset + 1}
            self._coordinator.instruct(self._pin, {PLACED: place}, _NO_LIMIT)


@contextmanager
def running_replicas(query: StreamQuery, execution: Routed, pin: Pin, folder: Path) -> Iterator[RunningReplicas]:
    """Run the replicas of a plan for the length of the block; what they print is in files of ``folder``."""
    folder.mkdir(parents=True)
    file = folder / "query.yaml"
    file.write_text(yaml.safe_dump(query.to_document()), encoding="utf-8")
    coordinator = Coordinator(query, execution, _source_of(query, folder), PodReplicas().driver)
    coordinator.begin(None, pin)
    coordinator.instruct(pin, None, _NO_LIMIT)
    command = [sys.executable, "-c", "from millrace_jobs.cli import main; main()", "partitioner", str(file)]
    with ExitStack() as stack:
        pids = []
        for index in range(pin.replicas):
            whole = [*command, "--index", str(index), "--metrics-port", "0"]
            pids.append(stack.enter_context(running(whole, folder / f"replica-{index}.log")).pid)
        yield RunningReplicas(query, pin, pids, coordinator)


def _source_of(query: StreamQuery, folder: Path) -> KafkaSource:
    source = open_source("s", query.spec.sources["s"], folder / "source", folder / "cache")
    assert isinstance(source, KafkaSource)
    return source
