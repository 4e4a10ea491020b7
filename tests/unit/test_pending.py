"""Calls that last: what a process notes of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lab.waiting import wait_until
from millrace_jobs import pending
from millrace_jobs.aggregates.in_sql import SqlAggregator
from millrace_jobs.aggregates.python_reducing import PythonReduction, input_column, key_column, merge_into
from millrace_jobs.own_code.functions import ScalarFunction
from millrace_jobs.own_code.sink_functions import SinkBatch, SinkFunction
from millrace_jobs.own_code.source_classes import OwnRecords, SourceClass
from millrace_jobs.partitioners.own_code import OwnPartitioner
from millrace_jobs.pending import AwaitedServer, CallKind, CallWatch, OngoingCall, own_code

HERE = Path(__file__).name


def lasting() -> list[str]:
    """What this process would note half a minute from now, if nothing changed, without the seconds."""
    return [re.sub(r"\b\d+ s\b", "N s", str(call)) for call in pending.WATCH.lasting(time.monotonic() + 30)]


def line_of(text: str) -> int:
    (line,) = [number for number, each in enumerate(Path(__file__).read_text().splitlines(), 1) if each.endswith(text)]
    return line


@contextmanager
def calls_of_a_thread(task):
    """A thread of the user's own code, until the block ends."""
    begun, go_on = threading.Event(), threading.Event()

    def run():
        with own_code("orders:Mean", "reducing records by key", "update"):
            task(begun, go_on)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    yield
    go_on.set()
    thread.join()


def test_a_call_that_lasts_is_noted_until_it_returns(tmp_path, monkeypatch):
    monkeypatch.setattr(pending, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(pending, "WATCH", CallWatch())
    monkeypatch.setitem(pending.PATIENCE, CallKind.CODE, 0.05)
    with pending.noting_in(tmp_path / "pending") as calls:
        with own_code("orders:clean", "computing columns"):
            (call,) = wait_until(calls)
            assert (call.what, call.doing, call.calls) == ("function orders:clean", "computing columns", 1)
            assert call.is_one_call
        wait_until(lambda: not calls())
    assert pending.FOLDER not in os.environ


def test_without_a_folder_nothing_is_noted_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(pending.FOLDER, raising=False)
    watch = CallWatch()
    watch.begin(OngoingCall(CallKind.CODE, "function a:b", "computing", began=1000.0))
    watch.note(1030.0)
    assert not list(tmp_path.iterdir())


def test_a_process_notes_the_calls_that_last_longest(tmp_path):
    watch = CallWatch()
    for number in range(30):
        what = f"function a:f{number} " + "\N{GRINNING FACE}\ud800" * 1000
        watch.begin(OngoingCall(CallKind.CODE, what, "x" * 1000, why="y" * 1000, began=1000.0 - number))
    with pending.noting_in(tmp_path / "pending") as calls:
        watch.note(1030.0)
        assert [call.what[:14].rstrip() for call in calls()] == [f"function a:f{29 - each}" for each in range(10)]


def test_calls_that_begin_at_once_start_one_thread(tmp_path, monkeypatch):
    monkeypatch.setenv(pending.FOLDER, str(tmp_path))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            assert lookers_of(4) == 1
    finally:
        sys.setswitchinterval(interval)


def lookers_of(threads: int) -> int:
    """How many threads look at the calls that as many threads begin at once."""
    started, together = [], threading.Barrier(threads)

    class Watch(CallWatch):
        def _look(self):
            started.append(self)

    def begin():
        together.wait()
        watch.begin(OngoingCall(CallKind.CODE, "function a:b", "computing"))

    watch, callers = Watch(), [threading.Thread(target=begin) for _ in range(threads)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    wait_until(lambda: started)
    return len(started)


def test_a_look_that_fails_is_not_the_last_one(tmp_path, monkeypatch):
    monkeypatch.setattr(pending, "LOOK_SECONDS", 0.01)
    monkeypatch.setenv(pending.FOLDER, str(tmp_path))
    looks = []

    class Watch(CallWatch):
        def note(self, now):
            looks.append(now)
            if len(looks) == 1:
                raise RuntimeError("no memory")

    Watch().begin(OngoingCall(CallKind.CODE, "function a:b", "computing"))
    wait_until(lambda: len(looks) > 1)


def test_calls_that_return_soon_are_not_noted():
    watch, call = CallWatch(), own_code("orders:clean", "computing columns")
    call.began = 1000.0
    watch.begin(call)
    assert watch.lasting(1019.0) == []
    (found,) = watch.lasting(1021.0)
    assert str(found) == "the function orders:clean has not returned for 21 s while computing columns"
    watch.end(call)
    assert watch.lasting(1022.0) == []


def test_a_call_that_raises_is_over():
    with pytest.raises(ValueError, match="x"), own_code("orders:clean", "computing columns"):
        raise ValueError("x")
    assert lasting() == []


def test_the_place_is_the_innermost_line_of_the_users_code():
    def helper(begun, go_on):
        begun.set()
        go_on.wait()  # stuck here

    with calls_of_a_thread(helper):
        (said,) = lasting()
    place = f"{HERE}, line {line_of('# stuck here')}, in helper"
    assert said == (
        f"the method update() of orders:Mean has not returned for N s while reducing records by key, at {place}"
    )


def test_many_calls_that_take_long_together_are_told_from_one_that_does_not_return():
    watch, now = CallWatch(), 1000.0
    call = OngoingCall(CallKind.CODE, "method update() of orders:Mean", "reducing records by key", 0, began=now)
    watch.begin(call)
    for _ in range(5):
        call.calls += 100
        now += 5
        found = watch.lasting(now)
    assert [str(each) for each in found] == [
        "500 calls of the method update() of orders:Mean have taken 25 s while reducing records by key of one block"
    ]
    assert not found[0].is_one_call
    for _ in range(5):  # the 501st call does not return
        now += 5
        found = watch.lasting(now)
    assert [str(each) for each in found] == [
        "the method update() of orders:Mean has not returned for 25 s while reducing records by key"
    ]


def test_another_block_is_another_call():
    watch, now = CallWatch(), 1000.0
    for _ in range(100):  # each at the place in memory of the one before
        call = OngoingCall(CallKind.CODE, "function a:b", "computing", began=now)
        watch.begin(call)
        assert watch.lasting(now + 5) == []
        watch.end(call)
        now += 6


def test_a_forked_process_notes_its_own_calls(tmp_path):
    """Spark forks each worker of a daemon; threads of the parent are not in the child."""
    program = textwrap.dedent("""
        import os, time
        from millrace_jobs import pending
        pending.LOOK_SECONDS = 0.01
        pending.PATIENCE[pending.CallKind.CODE] = 0.0
        with pending.own_code("m:parent", "reading"):
            child = os.fork()
            if not child:
                with pending.own_code("m:child", "reading"):
                    time.sleep(60)
            own, other = (os.path.join(os.environ[pending.FOLDER], str(pid)) for pid in (os.getpid(), child))
            while not (os.path.exists(own) and os.path.exists(other)):
                time.sleep(0.01)
            os.kill(child, 9)
            print(open(other).read())
    """)
    noted = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, pending.FOLDER: str(tmp_path)},
        check=True,
        capture_output=True,
        timeout=60,
    ).stdout
    assert [each["what"] for each in json.loads(noted)[1]] == ["function m:child"]


def test_an_executor_without_the_folder_prints_a_call_once(tmp_path):
    program = textwrap.dedent("""
        import time
        from millrace_jobs import pending
        pending.LOOK_SECONDS = 0.01
        pending.PATIENCE[pending.CallKind.CODE] = 0.1
        with pending.own_code("m:stuck", "reading"):
            time.sleep(2)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, pending.FOLDER: str(tmp_path / "of the driver")},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    place = "at <string>, line 7, in <module>"
    assert re.fullmatch(rf"note: the function m:stuck has not returned for \d+ s while reading, {place}\n", done.stderr)


def test_a_server_is_waited_for_from_the_first_try_that_fails_until_it_answers():
    with AwaitedServer("Kafka at b:9092", "asking for offsets") as server:
        assert lasting() == []
        server.failed()
        assert lasting() == ["Kafka at b:9092 has not answered while asking for offsets, for N s so far"]
        server.failed("Kafka at b:9092 cannot be reached while asking for offsets", "check bootstrapServers")
        assert lasting() == ["Kafka at b:9092 cannot be reached while asking for offsets, for N s so far"]
        server.answered()
        assert lasting() == []
        server.failed()
    assert lasting() == []


SEEN: list[str] = []
"""What is noted while each function and method below is called."""


def look() -> None:
    thread = threading.Thread(target=lambda: SEEN.extend(lasting()))
    thread.start()
    thread.join()


def doubled(values: pa.Array) -> pa.Array:
    look()
    return values


def write(results: pa.Table, batch: SinkBatch) -> None:
    look()


class Rows:
    columns = ("n",)
    state_schema = result_schema = pa.schema([("rows", pa.int64())])

    def init(self):
        return {"rows": 0}

    def update(self, state, batch):
        look()
        return {"rows": state["rows"] + len(batch)}

    def merge(self, a, b):
        look()
        return {"rows": a["rows"] + b["rows"]}

    def finish(self, state):
        look()
        return state


class Numbers:
    def latest(self) -> int:
        look()
        return 3

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        look()
        yield pa.RecordBatch.from_pydict({"n": range(start, end)})


class First:
    def __init__(self, workers):
        self.workers = workers

    def route(self, keys):
        look()
        return np.zeros(len(keys), np.int32)

    def save(self):
        look()
        return b""

    def restore(self, state):
        look()

    def resize(self, workers):
        look()


def reduce_records():
    keys = pa.schema([(key_column("key"), pa.string())])
    reducer = PythonReduction(("key",), keys, None, Rows(), 4)()
    reducer.add(pa.RecordBatch.from_pydict({key_column("key"): ["a"], input_column("n"): [1]}))
    reducer.records()


def in_sql(method):
    aggregator = SqlAggregator("rows", f"{__name__}:Rows", Rows())
    match method:
        case "update":
            aggregator.reduced(pa.table({"n": [1]}), pa.array([[0]]))
        case "merge":
            aggregator.merged({"rows": 1}, {"rows": 1})
        case "finish":
            aggregator.finished(aggregator.encoded([{"rows": 1}]))


RECORDS = SourceClass("events", f"{__name__}:Numbers", {})
PLACING = {"class": f"{__name__}:First"}


@pytest.mark.parametrize(
    ("call", "what", "doing"),
    [
        (lambda: ScalarFunction("two", f"{__name__}:doubled", pa.int64())(pa.array([1])),
         f"function {__name__}:doubled", "computing two() of records"),
        (lambda: SinkFunction(f"{__name__}:write", {})(pa.table({"n": [1]}), SinkBatch(7, "c", "q")),
         f"function {__name__}:write", "writing the results of batch 7"),
        (lambda: OwnRecords(RECORDS).latest(0),
         f"method latest() of {__name__}:Numbers", "looking for records of source events"),
        (lambda: list(OwnRecords(RECORDS).read(0, 3)),
         f"method read() of {__name__}:Numbers", "reading source events"),
        (lambda: OwnPartitioner(PLACING, 4, 0, 0, 1).route(np.arange(3, dtype=np.uint64)),
         f"method route() of {__name__}:First", "placing records on workers"),
        (lambda: OwnPartitioner(PLACING, 4, 0, 0, 1).save(),
         f"method save() of {__name__}:First", "placing records on workers"),
        (reduce_records, f"method update() of {__name__}:Rows", "reducing records by key"),
        (lambda: list(merge_into(Rows(), {("a",): {"rows": 1}}, [(("a",), {"rows": 1})])),
         f"method merge() of {__name__}:Rows", "merging states"),
        (lambda: in_sql("update"), f"method update() of {__name__}:Rows", "reducing records by key"),
        (lambda: in_sql("merge"), f"method merge() of {__name__}:Rows", "merging states"),
        (lambda: in_sql("finish"), f"method finish() of {__name__}:Rows", "computing results"),
    ],
    ids=["function", "sink", "latest", "read", "route", "save", "update", "merge", "update in SQL", "merge in SQL",
         "finish in SQL"],
)  # fmt: skip
def test_each_call_of_own_code_is_named_with_its_step_and_line(call, what, doing):
    SEEN.clear()
    call()
    (said,) = SEEN
    assert said.startswith(f"the {what} has not returned for N s while {doing}, at {HERE}, line ")
    assert said.endswith(", in look")
    assert lasting() == []
