from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from builders import a_batch
from millrace_api.model.streamquery import Spec
from millrace_jobs.partitioners import registry
from millrace_jobs.plan.control import Pin, read_control
from millrace_jobs.plan.policies import state_text
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


@pytest.fixture
def steering(tmp_path, messages):
    spec = Spec.model_validate(
        {
            "sources": {"events": {"files": {"path": "in", "format": "csv"}, "schema": "who STRING"}},
            "query": {"sql": "SELECT who, count(*) FROM events GROUP BY who"},
            "sink": {"console": {}},
        }
    )
    watcher = SimpleNamespace(message=messages.append)
    control, policies = tmp_path / "control.json", tmp_path / "policies"
    made = Steering(spec, ["events"], None, policies, control, watcher, routable=True, once=False)
    made._pin = PIN
    return made


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
