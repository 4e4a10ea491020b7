from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from builders import a_batch
from millrace_api.model.streamquery import Spec
from millrace_jobs.partitioners import registry
from millrace_jobs.plan.control import Pin, read_control
from millrace_jobs.plan.policies import state_text
from millrace_jobs.queries.execution import RoutingMode
from millrace_jobs.run.steering import Steering

START = datetime(2026, 1, 1, tzinfo=UTC)
PIN = Pin(1, "pkg", 1, 2, {"choices": 2})


def report(batch):
    partitioner = registry.make("pkg", workers=2, replica=0, replicas=1, seed=0, parameters={"choices": 2})
    states = {0: state_text(partitioner.save())}
    return a_batch(batch=batch, pin=PIN, states=states)


@pytest.fixture
def messages():
    return []


EVENTS = {"files": {"path": "in", "format": "csv"}, "schema": "who STRING, at TIMESTAMP"}
USERS = EVENTS | {"watermark": {"column": "at", "delay": "0s"}, "table": {"keys": ["who"]}}


@pytest.fixture
def steer(tmp_path, messages):
    """A function that returns the steering of a query of these sources."""

    def made(**sources):
        spec = Spec.model_validate(
            {
                "sources": sources,
                "query": {"sql": "SELECT who, count(*) FROM events GROUP BY who"},
                "sink": {"console": {}},
            }
        )
        watcher = SimpleNamespace(message=messages.append)
        control, policies = tmp_path / "control.json", tmp_path / "policies"
        query = SimpleNamespace(mode=lambda pin: RoutingMode.INLINE)
        steering = Steering(
            spec, sources, None, policies, control, watcher, query=query, require=lambda _: None, once=False
        )
        steering._pin = PIN
        return steering

    return made


@pytest.fixture
def steering(steer):
    return steer(events=EVENTS)


def test_a_batch_is_limited_in_what_its_source_counts(steering, tmp_path):
    for number in range(1, 40):
        steering.instruct_sources(draining=False, closing_time=None)
        most = read_control(tmp_path / "control.json").most["events"]
        part = {"rows": most // 20, "taken": most, "waiting": 10**9, "waiting_in": {"events": 10**9}}
        seconds = 0.1 + 1e-6 * most
        steps = {"addBatch": seconds}
        steering.learn_from(
            replace(report(number), seconds=seconds, steps=steps, began=START + timedelta(seconds=2 * number), **part)
        )
    assert most == pytest.approx(1.5e6, rel=0.5)  # in the goal of the interval of 2 s


def test_batches_grow_sooner_where_tasks_show_how_little_of_them_the_records_took(steer, tmp_path):
    def limit(results):
        steering = steer(events=EVENTS)
        for number in (1, 2):
            took = {"seconds": 1.9, "steps": {"addBatch": 1.7}, "combine": (0.1, 0.1), "merge_seconds": 0.1}
            steering.learn_from(replace(report(number), results=results, waiting_in={"events": 10**9}, **took))
        steering.instruct_sources(draining=False, closing_time=None)
        return read_control(tmp_path / "control.json").most["events"]

    assert limit(results=10) > 1.2 * limit(results=None)
    assert limit(results=10**6) == limit(results=None)


def limits_after(steering, folder, **waiting):
    """The limits after a batch that took far too long and left so many records."""
    steering.learn_from(replace(report(1), rows=100, seconds=60.0, waiting_in=waiting))
    steering.instruct_sources(draining=False, closing_time=None)
    return read_control(folder / "control.json").most


def test_a_table_is_read_before_a_stream(steer, tmp_path):
    """However small batches have to be, the table gets what fits into memory, and the stream waits for it."""
    steering = steer(events=EVENTS, users=USERS)
    most = limits_after(steering, tmp_path, events=10**6, users=0)
    assert 1 < most["events"] < 2000 < most["users"]
    assert limits_after(steering, tmp_path, events=10**6, users=1)["events"] == 1


def test_tables_alone_share_the_limit(steer, tmp_path):
    most = limits_after(steer(users=USERS, plans=USERS), tmp_path, users=3 * 10**6, plans=10**6)
    assert most["users"] // most["plans"] == 3
    assert most["users"] < 2000


def test_what_was_learned_and_cannot_be_written_is_told_once_and_ends_nothing(
    steering, messages, tmp_path, monkeypatch
):
    steering.instruct_sources(draining=False, closing_time=None)
    steering.learn_from(report(1))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        steering.learn_from(report(2))
        steering.learn_from(report(3))
    assert messages == ["what the partitioners learn cannot be saved: No space left on device; results stay correct"]
    assert steering._learned.attach(PIN).policy == 1
    steering.learn_from(report(4))
    assert steering._learned.attach(PIN).policy == 4
    assert len(messages) == 1
