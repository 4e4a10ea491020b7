"""The delivery of events to a real receiver over HTTP: it never waits for one, and counts what is lost."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from lab.waiting import wait_until
from lineage_receiver import Receiver, check_event, receiver
from millrace_api.model.reporting import LineageHttpSpec
from millrace_api.sql.schema_ddl import parse_schema
from millrace_jobs.lineage.datasets import Dataset
from millrace_jobs.lineage.events import RunDescription, RunState
from millrace_jobs.lineage.sender import ATTEMPTS, MOST_WAITING, LineageSender
from millrace_jobs.lineage.transports import FileTransport, HttpTransport

AT = datetime.now(UTC)
RUN = RunDescription("streams", "trips-by-cell", "SELECT * FROM trips", "4.3.0")
TRIPS = Dataset(
    "kafka://kafka:9092", "trips", parse_schema("cell STRING, user STRUCT<id: BIGINT, tags: ARRAY<STRING>>")
)
TABLE = Dataset("s3://lake", "trips", parse_schema("cell STRING"), ("https://catalog.example.org", "sales.trips"))


@pytest.fixture
def marquez():
    with receiver() as found:
        yield found


def event(state: RunState = RunState.RUNNING, **more):
    return RUN.event(state, AT, [TRIPS], [TABLE], **more)


def sender(found: Receiver, said: list[str], **secrets) -> LineageSender:
    spec = LineageHttpSpec.model_validate({"url": found.url, **secrets}, by_name=False)
    return LineageSender(HttpTransport.of(spec), said.append, pause=0.01)


@pytest.mark.parametrize("state", RunState)
def test_each_event_is_valid(state):
    check_event(event(state))
    derived = {"cell": [(TRIPS, "cell")]}
    check_event(event(state, read=5, written=0, error="SinkFailed: spec.sink", derived=derived))
    check_event(RunDescription("n", "q", None, "4.3.0").event(state, AT, [], []))


def test_the_schema_of_the_tests_refuses_what_it_does_not_know():
    wrong = event()
    wrong["job"]["facets"]["sql"]["querry"] = "SELECT 1"
    with pytest.raises(Exception, match="querry"):
        check_event(wrong)


def test_events_arrive_in_order_with_the_key_that_is_in_the_file_now(marquez, tmp_path):
    said: list[str] = []
    key = tmp_path / "key"
    key.write_text("first\n")
    delivering = sender(marquez, said, apiKey={"file": str(key)})
    delivering.send(partial(event, RunState.START))
    marquez.wait(1)
    key.write_text("second\n")
    delivering.send(partial(event, RunState.COMPLETE))
    delivering.close()
    assert marquez.states == ["START", "COMPLETE"]
    assert [login for _, login in marquez.requests] == ["Bearer first", "Bearer second"]
    assert (delivering.sent, delivering.dropped, said) == (2, 0, [])


def test_an_answer_that_may_pass_is_waited_for_and_said_once(marquez):
    said: list[str] = []
    marquez.statuses = [503, 429]
    delivering = sender(marquez, said)
    delivering.send(event)
    marquez.wait(1)
    delivering.close()
    assert (delivering.sent, delivering.dropped, len(marquez.requests)) == (1, 0, 3)
    assert said == [
        "lineage: an event was not delivered, and the query goes on: it answers 503 Service Unavailable",
        "lineage: the receiver takes events again",
    ]


@pytest.mark.parametrize("status", [400, 401, 404, 302, 307])
def test_an_answer_that_will_not_pass_drops_the_event_and_no_redirect_is_followed(marquez, status):
    said: list[str] = []
    marquez.statuses = [status]
    delivering = sender(marquez, said)
    delivering.send(event)
    delivering.close()
    assert (delivering.sent, delivering.dropped) == (0, 1)
    assert [path for path, _ in marquez.requests] == ["/api/v1/lineage"]
    assert len(said) == 1


def test_an_event_is_given_up_after_some_attempts(marquez):
    said: list[str] = []
    marquez.statuses = [500] * ATTEMPTS
    delivering = sender(marquez, said)
    delivering.send(partial(event, RunState.START))
    delivering.send(partial(event, RunState.COMPLETE))
    marquez.wait(1)
    delivering.close()
    assert (delivering.sent, delivering.dropped, marquez.states) == (1, 1, ["COMPLETE"])


def test_a_secret_that_is_missing_drops_the_event(marquez, tmp_path):
    said: list[str] = []
    delivering = sender(marquez, said, apiKey={"file": str(tmp_path / "none")})
    delivering.send(event)
    delivering.close()
    assert (delivering.dropped, marquez.requests) == (1, [])
    assert "the key for the receiver of lineage cannot be read" in said[0]


def test_an_event_to_a_port_on_which_nothing_listens_is_dropped(tmp_path):
    said: list[str] = []
    delivering = LineageSender(HttpTransport("http://127.0.0.1:9/api/v1/lineage"), said.append, pause=0.001)
    delivering.send(event)
    delivering.close()
    assert (delivering.sent, delivering.dropped) == (0, 1)
    assert "it does not answer: [Errno 111]" in said[0]


def test_a_receiver_that_hangs_holds_nothing_up():
    hangs, reached = Event(), Event()

    class Hanging:
        def send(self, event):
            reached.set()
            hangs.wait()

    delivering = LineageSender(Hanging(), lambda _: None)
    delivering.send(event)
    assert reached.wait(60)
    for _ in range(MOST_WAITING + 5):
        delivering.send(event)
    assert (delivering.dropped, delivering.is_behind) == (5, True)
    delivering.close(0.1)
    assert delivering.dropped == MOST_WAITING + 5
    hangs.set()


def test_the_thread_sleeps_while_there_is_nothing_to_send(marquez):
    others = set(threading.enumerate())
    delivering = sender(marquez, [])
    (thread,) = [each for each in set(threading.enumerate()) - others if each.name == "lineage"]
    delivering.send(event)
    marquez.wait(1)
    wait_until(lambda: delivering.sent == 1 and is_at_rest(thread), "the thread rests", 60)
    delivering.send(event)
    marquez.wait(2)
    delivering.close()
    assert not thread.is_alive()


def is_at_rest(thread: threading.Thread, seconds: float = 1.0) -> bool:
    """Return whether a thread is not woken up within a second."""
    status = Path(f"/proc/self/task/{thread.native_id}/status")

    def wake_ups() -> list[str]:
        return [line for line in status.read_text(encoding="ascii").splitlines() if "ctxt_switches" in line]

    before = wake_ups()
    time.sleep(seconds)
    return wake_ups() == before


def test_a_transport_that_fails_in_any_way_drops_the_event():
    class Broken:
        def send(self, event):
            raise RuntimeError("a fault of ours")

    delivering = LineageSender(Broken(), lambda _: None)
    delivering.send(event)
    delivering.close()
    assert delivering.dropped == 1


def test_a_file_has_one_event_a_line(tmp_path):
    path = tmp_path / "out" / "lineage.jsonl"
    delivering = LineageSender(FileTransport(path), lambda _: None)
    for state in (RunState.START, RunState.COMPLETE):
        delivering.send(partial(event, state))
    delivering.close()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [each["eventType"] for each in lines] == ["START", "COMPLETE"]
