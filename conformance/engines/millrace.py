"""Millrace: topics of a Kafka broker as streams and tables, results in topics, all cases in one process.

Each query is a document as users write it. Each case is a run of its own: from an empty checkpoint, with its own topics
and its own Spark session. A few run at a time, since a case mostly waits. A table keeps its history, so that its
versions can be compared, too.
"""

from __future__ import annotations

import json
import queue
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pydantic import ValidationError
from pyspark.sql import SparkSession

from conformance.cases import Arrival, Case, Change, Outcome, Query, Row
from lab import topics
from lab.kafka import Broker, running_broker
from millrace_api.errors import MillraceError
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.results import result_keys
from millrace_jobs.run.assembly import RunEnvironment, RunInputs, RunQuery
from millrace_jobs.run.loop import RunLoop
from millrace_jobs.session import local_session
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sinks.outputs import open_sink
from millrace_jobs.sources.connector import open_source

from .common import last_rounds, own_rows, seconds_of, time_of, with_seconds
from .versions import version_of

_PATIENCE = 120.0
_AT_A_TIME = 3
_SETTINGS = {"spark.master": "local[2, 2]", "spark.default.parallelism": "2"}


class MillraceRunner:
    """Millrace with one Spark context and one broker for all cases."""

    name = "millrace"
    version = version_of("millrace")

    def outcomes(self, work: Sequence[tuple[Query, Case]]) -> Iterator[tuple[str, Outcome]]:
        """Yield the id and the outcome of each case, in the order in which they end."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as name:
            folder = Path(name)
            for part in ("broker", "spark", "runs"):
                (folder / part).mkdir()
            with running_broker(folder / "broker") as broker:
                session = local_session("conformance", 2, _SETTINGS, folder / "spark", quiet=True)
                pool = ThreadPoolExecutor(_AT_A_TIME)
                try:
                    running = {
                        pool.submit(_in_session_of_its_own, session, broker, folder / "runs" / str(number), *each): each
                        for number, each in enumerate(work)
                    }
                    for done in as_completed(running):
                        yield running[done][1].id, done.result()
                finally:
                    pool.shutdown(cancel_futures=True)
                    session.stop()


def _in_session_of_its_own(session: SparkSession, broker: Broker, folder: Path, query: Query, case: Case) -> Outcome:
    """Return the outcome of a case, whose views and settings are not those of cases that run beside it."""
    return outcome(session.newSession(), broker, folder, query, case)


def outcome(session: SparkSession, broker: Broker, folder: Path, query: Query, case: Case) -> Outcome:
    """Return the outcome of a case, without versions where a query can have no history. ``folder`` must not exist."""
    found = Outcome()
    for has_history in [True, False] if query.result == "table" else [False]:
        part = folder / ("with-history" if has_history else "without-history")
        part.mkdir(parents=True)
        try:
            run = _CaseRun(session, broker, part, query, case, has_history=has_history)
            run.give_all()
            return run.outcome()
        except (MillraceError, ValidationError) as error:
            found = Outcome(error=str(error).partition(" [type=")[0])
            if ".history" not in str(error):
                break
    return found


class _CaseRun:
    """The run of one case."""

    def __init__(
        self, session: SparkSession, broker: Broker, folder: Path, query: Query, case: Case, *, has_history: bool
    ) -> None:
        self._session, self._broker, self._folder, self._query, self._case = session, broker, folder, query, case
        tag = f"{case.id.replace('/', '.')}-{threading.get_ident()}-{folder.parent.name}-{folder.name}"
        self._inputs = {name: topics.make(broker, f"{tag}-{name}", retention_ms=-1) for name in query.inputs}
        policy = "compact" if query.result == "table" else "delete"
        self._result = topics.make(broker, f"{tag}-result", cleanup_policy=policy)
        self._history = topics.make(broker, f"{tag}-history", retention_ms=-1) if has_history else None
        self._reports: queue.Queue[BatchReport] = queue.Queue()
        self._failure: BaseException | None = None
        self._run = self._run_loop()

    def give_all(self) -> None:
        """Run the query while the rounds of the case arrive, each when the one before has been processed."""
        thread = threading.Thread(target=self._go, daemon=True)
        thread.start()
        try:
            for arrivals in [*self._case.rounds, *last_rounds(self._query)]:
                self._produce(arrivals)
                read = 0
                while read < len(arrivals):
                    read += self._next_report(thread).rows
        finally:
            self._run.drain()
            thread.join(_PATIENCE)
        if self._failure is not None:
            raise self._failure

    def outcome(self) -> Outcome:
        """Return what the topics of the result have."""
        messages = topics.committed(self._broker, self._result)
        if self._query.result == "stream":
            return Outcome(own_rows(self._row(each.value) for each in messages if each.value is not None))
        table = topics.table_of(messages)
        rows = own_rows(self._row(value) for value in table.values())
        return Outcome(rows, self._changelog(messages) if self._history else None)

    def _row(self, value: bytes) -> Row:
        return with_seconds(json.loads(value), self._query.times)

    def _changelog(self, messages: Sequence[topics.Message]) -> list[Change]:
        """Return the changes of the evolving table that the table and its history are together."""
        assert self._history is not None
        found: dict[tuple[bytes | None, int], tuple[int | None, Row]] = {}
        for each in topics.committed(self._broker, self._history):
            version = (each.key, _header(each, "millrace-valid-from"))
            if each.value is None:
                found.pop(version, None)
            else:
                found[version] = (_header(each, "millrace-valid-to"), self._row(each.value))
        newest = {each.key: each for each in messages}
        for key, each in newest.items():
            if each.value is not None:
                found[(key, _header(each, "millrace-valid-from"))] = (None, self._row(each.value))
        changes: list[Change] = []
        for (key, begin), (end, row) in found.items():
            if own_rows([row]):
                names = json.loads(key or b"{}")
                changes.append((begin, names, row))
                changes += [(end, names, None)] if end is not None else []
        return sorted(changes, key=lambda change: (change[0], change[2] is not None))

    def _produce(self, arrivals: Sequence[Arrival]) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "enable.idempotence": True})
        for each in arrivals:
            value = None if each.delete else json.dumps(_record(each))
            at = int(time_of(each.at).timestamp() * 1000)
            marks: dict[str, str | bytes | None] = {} if each.exact else {"millrace-watermark": str(at)}
            producer.produce(self._inputs[each.to], value, each.k, timestamp=at, headers=marks)
        assert producer.flush(_PATIENCE) == 0, "the broker took not all arrivals"

    def _next_report(self, thread: threading.Thread) -> BatchReport:
        while True:
            try:
                return self._reports.get(timeout=0.5)
            except queue.Empty:
                if not thread.is_alive():
                    raise self._failure or RuntimeError(f"{self._case.id}: the run has ended") from None

    def _go(self) -> None:
        try:
            self._run.run()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._run.query.sink.close()
            self._run.environment.checkpoint.close()

    def _run_loop(self) -> RunLoop:
        query = StreamQuery.model_validate(self._document())
        spec = query.spec
        checkpoint = Checkpoint(checkpoint_root(query))
        checkpoint.open(query)
        try:
            sources = {
                name: open_source(name, source, checkpoint.source_folder(name), self._folder / "cache")
                for name, source in spec.sources.items()
            }
            compiled = compile_query(self._session, spec, {name: each.schema for name, each in sources.items()})
            keys, partitions = result_keys(compiled, spec), checkpoint.state_partitions
            sink = open_sink(SinkContext(query, keys, checkpoint.id, lambda *_: None, partitions=partitions))
            sink.prepare(checkpoint.last_batch())
        except BaseException:
            checkpoint.close()
            raise
        plan = Plan.model_validate({"epoch": 1, "algorithm": "hash", "parallelism": 1, "replicas": 1})
        return RunLoop(
            RunQuery(query.name, spec, compiled, sink),
            RunInputs(sources),
            RunEnvironment(self._session, checkpoint, self._folder),
            plans=FixedPlan(plan),
            watcher=_Watcher(self._reports),
        )

    def _document(self) -> dict[str, Any]:
        asked = self._query.engines["millrace"]
        return document(
            self._query,
            self._inputs,
            self._broker.bootstrap,
            self._sink(),
            asked.get("emit", "OnUpdate"),
            (self._folder / "checkpoint").as_uri(),
        )

    def _sink(self) -> dict[str, Any]:
        topic = {"bootstrapServers": self._broker.bootstrap, "topic": self._result}
        if self._query.result == "stream":
            return {"kafka": topic}
        history = {"history": {"topic": self._history, "retention": "1000d"}} if self._history else {}
        return {"table": topic | {"key": list(self._query.key)} | history}


class _Watcher:
    """A watcher that hands reports to another thread."""

    def __init__(self, reports: queue.Queue[BatchReport]) -> None:
        self._reports = reports

    def batch(self, report: BatchReport) -> None:
        self._reports.put(report)

    def message(self, text: str) -> None:
        pass

    def idle(self, pin: Pin) -> None:
        pass


def document(
    query: Query, inputs: Mapping[str, str], servers: str, sink: Mapping[str, Any], emit: str, checkpoint: str
) -> dict[str, Any]:
    """Return the StreamQuery of a query over topics."""
    sources = {}
    for name, kind in query.inputs.items():
        sources[name] = {
            "kafka": {"bootstrapServers": servers, "topic": inputs[name]},
            "format": "json",
            "schema": "k STRING, f STRING, v BIGINT, ts TIMESTAMP",
            "watermark": {"column": "ts", "delay": f"{query.grace}s"},
        } | ({"table": {"keys": ["k"]}} if kind == "table" else {})
    spec = {
        "sources": sources,
        "query": {"sql": query.engines["millrace"]["sql"]},
        "sink": sink,
        "emit": emit,
        "batchInterval": "50ms",
        "parallelism": {"max": 2},
        "sparkConf": {"spark.sql.shuffle.partitions": "2"},
        "checkpoint": {"uri": checkpoint},
    }
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": query.name}, "spec": spec}


def _record(arrival: Arrival) -> dict[str, Any]:
    return {"k": arrival.k, "f": arrival.f, "v": arrival.v, "ts": time_of(arrival.at).isoformat()}


def _header(message: topics.Message, name: str) -> int:
    value = message.headers[name]
    assert value is not None
    micros = int(value)
    return seconds_of(time_of(0)) + round(micros / 1e6 - time_of(0).timestamp())
