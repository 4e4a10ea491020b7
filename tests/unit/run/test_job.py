"""The steps of a start, each of which may fail, and between which the user may want it to end; Spark is acted."""

from __future__ import annotations

import json
import socket
import time
from contextlib import closing
from dataclasses import asdict, replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from builders import a_query
from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.lease import Holder
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.queries import results
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import Scan
from millrace_jobs.queries.tables.table_query import TableQuery
from millrace_jobs.run import endpoints, inputs, opening, platform, prepared_query
from millrace_jobs.run import job as module
from millrace_jobs.run.failures import class_of
from millrace_jobs.run.job import Job
from millrace_support.run_record import EndLine, FailureLine, RunLine, read_record
from spark.live_pages import get
from spark_logs import Log, offset

DISTINCT = Native(parsed_query("SELECT DISTINCT cell FROM trips"), "it has DISTINCT")
FILTERED = a_query("spec", "query", value={"sql": "SELECT count(*) FROM trips WHERE fare > 1"})


SUPERVISE = Job._supervise


class Start:
    """Runs a query up to its first batch; ``steps`` are those taken, ``at`` is what a step does besides."""

    def __init__(self, monkeypatch, root):
        self.steps = []
        self.at = {}
        sink = SimpleNamespace(place="nowhere", prepare=self._step("prepared"))
        sink.close, sink.withdraw = self._step("sink closed"), self._step("sink withdrawn")
        spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        monkeypatch.setattr(opening, "checkpoint_root", lambda _: root)
        monkeypatch.setattr(endpoints, "check_sinks", lambda _: None)
        planned = CompiledQuery(DISTINCT, StructType(), True)
        monkeypatch.setattr(prepared_query, "compile_query", self._step("planned", planned))
        monkeypatch.setattr(results, "result_keys", lambda *_: None)
        monkeypatch.setattr(endpoints, "open_sinks", self._step("sink", sink))
        monkeypatch.setattr(module, "stop", self._step("spark stopped"))
        monkeypatch.setattr(module, "RunLoop", lambda *_, **__: SimpleNamespace(drain=lambda: None))
        source = SimpleNamespace(schema=pa.schema([]), check_server=lambda: None)
        monkeypatch.setattr(inputs, "open_source", self._step("sources", source))
        monkeypatch.setattr(platform, "local_session", self._step("spark", spark))
        monkeypatch.setattr(Job, "_supervise", lambda *_: self.steps.append("running"))

    def __call__(self, query=None, job=None, **at):
        self.steps.clear()
        self.at = at
        self.run = job or Job(query or a_query())
        with self.run:
            self.run.run()

    def _step(self, name, result=None):
        def take(*_, **__):
            self.steps.append(name)
            self.at.get(name.replace(" ", "_"), lambda: None)()
            return result

        return take


@pytest.fixture
def start(monkeypatch, tmp_path):
    return Start(monkeypatch, tmp_path / "checkpoint")


ALL = ["sources", "spark", "planned", "sink", "prepared"]
END = ["sink closed", "spark stopped"]


def test_a_start_takes_all_steps_in_order(start):
    start()
    assert start.steps == [*ALL, "running", *END]


@pytest.mark.parametrize(
    ("step", "taken"),
    [
        ("spark", ["sources", "spark", "spark stopped"]),
        ("prepared", [*ALL, *END]),
    ],
)
def test_a_run_that_is_stopped_while_it_starts_skips_the_rest(start, tmp_path, step, taken):
    def stop():
        assert start.run.is_starting
        start.run.stop()

    start(**{step: stop})
    assert start.steps == taken
    assert not (tmp_path / "checkpoint" / "lease.json").exists()


def test_a_run_that_is_stopped_at_once_does_not_start_spark(start, monkeypatch, tmp_path):
    opened = Checkpoint.open

    def stop(checkpoint, query, partitions):
        opened(checkpoint, query, partitions)
        start.run.stop()

    monkeypatch.setattr(Checkpoint, "open", stop)
    start()
    assert start.steps == []
    assert not (tmp_path / "checkpoint" / "lease.json").exists()


def test_a_driver_that_was_replaced_while_it_started_fences_nobody(start, tmp_path):
    other = replace(Holder.this_process(30.0), holder="other", host="far-away", pid=7)
    lease = tmp_path / "checkpoint" / "lease.json"
    with pytest.raises(MillraceError, match="process 7 on far-away has taken over"):
        start(sink=lambda: lease.write_text(json.dumps(asdict(other)), encoding="utf-8"))
    assert "prepared" not in start.steps
    assert json.loads(lease.read_text(encoding="utf-8")) == asdict(other)


def stored(root):
    return json.loads((root / "checkpoint" / "millrace.json").read_text(encoding="utf-8"))["query"]["spec"]["query"]


def begin_batch(root):
    Log(Checkpoint(root / "checkpoint")).begin(0, offset(0))


@pytest.mark.parametrize("step", ["planned", "prepared"])
def test_a_changed_query_that_fails_leaves_the_checkpoint_to_the_good_one(start, tmp_path, capsys, step):
    def fail():
        raise MillraceError(Problem("this cannot be", "write another"))

    start()
    begin_batch(tmp_path)
    before = stored(tmp_path)
    with pytest.raises(MillraceError, match="this cannot be"):
        start(FILTERED, **{step: fail})
    assert stored(tmp_path) == before
    assert "the filter has changed" not in capsys.readouterr().err
    start(FILTERED)
    assert stored(tmp_path) != before
    assert "the filter has changed" in capsys.readouterr().err
    start(FILTERED)
    assert "the filter has changed" not in capsys.readouterr().err


def test_a_first_start_that_fails_leaves_nothing_behind(start, tmp_path):
    def fail():
        assert (tmp_path / "checkpoint" / "millrace.json").exists()
        raise MillraceError(Problem("this cannot be", "write another"))

    for step, taken in [("sources", []), ("planned", ["spark", "planned", "spark stopped"])]:
        with pytest.raises(MillraceError, match="this cannot be"):
            start(**{step: fail})
        assert start.steps == ["sources", *taken]
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(MillraceError, match="this cannot be"):
        start(prepared=fail)
    assert start.steps == [*ALL, "sink withdrawn", *END]
    assert list(tmp_path.iterdir()) == []


def test_what_a_batch_has_begun_on_is_left_where_the_run_fails(start, tmp_path):
    start()
    begin_batch(tmp_path)
    with pytest.raises(ZeroDivisionError):
        start(prepared=lambda: 1 / 0)
    assert start.steps == [*ALL, *END]
    assert stored(tmp_path)


def test_a_first_start_that_may_be_tried_again_keeps_what_it_has_settled(start, tmp_path):
    def is_away():
        raise TransientError(Problem("the broker did not answer"))

    with pytest.raises(MillraceError, match="did not answer"):
        start(prepared=is_away)
    assert start.steps == [*ALL, *END]
    assert stored(tmp_path)


def test_the_change_is_told_by_the_run_that_takes_it_over_even_if_it_goes_no_further(start, tmp_path, capsys):
    start()
    begin_batch(tmp_path)
    start(FILTERED, prepared=lambda: start.run.stop())
    assert "running" not in start.steps
    assert "the filter has changed" in capsys.readouterr().err


@pytest.mark.parametrize(("step", "part"), [("sources", FailureClass.SOURCE), ("prepared", FailureClass.SINK)])
def test_a_server_that_is_away_at_the_start_is_a_failure_of_the_part_that_asked_it(start, step, part):
    def is_away():
        raise TransientError(Problem("the broker did not answer"))

    with pytest.raises(MillraceError, match="did not answer") as raised:
        start(**{step: is_away})
    assert class_of(raised.value) is part


ALONE = TableQuery("", Scan("trips", (), "at", ()), (), Contents.RECORDS, False, 0, {}, (), 1, None)
PLACED = Routed("trips", None, Projection("", (), pa.schema([]), 1), None, None)


@pytest.mark.parametrize(
    ("algorithm", "execution", "why"),
    [
        ("prompt", DISTINCT, "the query runs natively: it has DISTINCT"),
        ("hash", ALONE, "the query runs by operators on tables without a join"),
        ("native", DISTINCT, None),
        ("auto", ALONE, None),
        ("prompt", PLACED, None),
    ],
)
def test_an_algorithm_that_has_nothing_to_place_is_noted(start, monkeypatch, capsys, algorithm, execution, why):
    monkeypatch.setattr(prepared_query, "compile_query", lambda *_: CompiledQuery(execution, StructType(), True))
    monkeypatch.setattr(Routed, "layout", lambda _: {})
    start(a_query("spec", "partitioner", value={"algorithm": algorithm}))
    said = " ".join(capsys.readouterr().err.split())
    assert ("spec.partitioner.algorithm has no effect" in said) == (why is not None)
    assert (why or "") in said


def test_what_a_checkpoint_makes_run_natively_is_checked_for_the_partitions_of_its_state(start, monkeypatch):
    joined = Native(
        parsed_query("SELECT count(*) AS n FROM trips JOIN cells ON a = b"), "the state was built by Spark's own plan"
    )
    monkeypatch.setattr(prepared_query, "continue_from", lambda *_: (CompiledQuery(joined, StructType(), True), None))
    kafka = {"bootstrapServers": "nowhere:9092", "topic": "out", "transaction": "Partition"}
    with pytest.raises(MillraceError, match="the results may be shuffled after the state"):
        start(a_query("spec", "sink", value={"kafka": kafka}))


def test_the_page_says_what_the_start_does_and_probes_wait_for_its_end(start, monkeypatch):
    """A pod whose start takes too long is started again, since its probe of a start has no good answer."""
    urls, seen = [], []
    serve = module.HttpServer.start
    monkeypatch.setattr(module.HttpServer, "start", lambda server: (urls.append(server.url), serve(server)))

    def look():
        seen.extend((get(f"{urls[0]}/healthz"), get(f"{urls[0]}/")[1], get(f"{urls[0]}/metrics")))

    start(planned=look)
    alive, page, metrics = seen
    assert alive == (503, "starting\n")
    assert "Compiling the query, " in page
    assert metrics == (200, "")


def ends_of(record):
    """The starts, failures and ends in a record."""
    return [
        each.outcome if isinstance(each, EndLine) else each.line
        for each in read_record(record)
        if isinstance(each, RunLine | FailureLine | EndLine)
    ]


@pytest.mark.parametrize("step", ["sources", "prepared"])
def test_a_start_that_fails_is_recorded_with_its_reason_and_then_its_end(start, tmp_path, step):
    record = tmp_path / "run.jsonl"
    with pytest.raises(ZeroDivisionError):
        start(job=Job(a_query(), record=record), **{step: lambda: 1 / 0})
    assert ends_of(record) == ["run", "failure", "failed"]


def test_a_run_whose_batch_fails_is_recorded_with_one_end_after_its_reason(start, monkeypatch, tmp_path):
    def fail():
        raise ZeroDivisionError

    def loop(query, _, environment, **__):
        return SimpleNamespace(
            run=fail,
            query=query,
            environment=environment,
            is_accepted=False,
            drain=lambda: None,
            give_up=lambda _: None,
        )

    monkeypatch.setattr(Job, "_supervise", SUPERVISE)
    monkeypatch.setattr(module, "RunLoop", loop)
    monkeypatch.setattr(platform.OneProcess, "started", lambda *_: None)
    record = tmp_path / "run.jsonl"
    with pytest.raises(ZeroDivisionError):
        start(job=Job(a_query(), record=record))
    assert ends_of(record) == ["run", "failure", "failed"]


def test_a_port_that_is_taken_is_recorded_as_a_failure(start, tmp_path):
    record = tmp_path / "run.jsonl"
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        job = Job(a_query(), record=record, metrics_port=taken.getsockname()[1])
        with pytest.raises(MillraceError, match="port"):
            start(job=job)
    assert ends_of(record) == ["run", "failure", "failed"]


def test_an_open_page_is_waited_for_once_all_else_is_closed(start, monkeypatch):
    waited = []
    monkeypatch.setattr(module.LivePage, "wait_until_seen", lambda _, seconds: waited.append((seconds, [*start.steps])))
    start()
    assert waited == [(module.SEEN_SECONDS, [*ALL, "running", *END])]


def test_an_open_page_is_waited_for_no_longer_than_the_grace_period(start, monkeypatch):
    waited = []
    monkeypatch.setattr(module.LivePage, "wait_until_seen", lambda _, seconds: waited.append(seconds))
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    start(job=Job(a_query(), grace=1.5), prepared=lambda: start.run.stop())
    start(job=Job(a_query(), grace=0.0), prepared=lambda: start.run.stop())
    assert waited == [pytest.approx(0.5), 0.0]
