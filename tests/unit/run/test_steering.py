from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from builders import a_batch
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import Spec
from millrace_jobs.partitioners import registry
from millrace_jobs.plan.control import Pin, read_control
from millrace_jobs.plan.policies import state_text
from millrace_jobs.queries.execution import RoutingMode
from millrace_jobs.run.steering import REPLICA_RECORDS, Steering
from millrace_jobs.session import ExecutorState

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

    def made(plan_source=None, executors=lambda: None, **sources):
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
            spec,
            sources,
            plan_source,
            policies,
            control,
            watcher,
            query=query,
            require=lambda _: None,
            once=False,
            executors=executors,
        )
        steering._pin = None if plan_source else PIN
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


class Executors:
    """Executors of which some may be missing."""

    def __init__(self):
        self.ready = 0

    def __call__(self):
        return ExecutorState(self.ready, wanted=1, signs=0)


class Plans:
    """A plan source to which plans are given."""

    def __init__(self):
        self.next = None

    def current(self):
        plan, self.next = self.next, None
        return plan


def plan(epoch, **tasks):
    """A plan of six executors, which have two cores each."""
    return Plan(epoch=epoch, algorithm="hash", executors=6, **({"replicas": 12, "parallelism": 24} | tasks))


@pytest.fixture
def adapting(steer, tmp_path):
    """A function that sets the ready executors, and a new plan if there is one, and returns the tasks of the batch."""
    executors, plans = Executors(), Plans()
    steering = steer(plan_source=plans, executors=executors, events=EVENTS)

    def tasks(ready, new=None):
        executors.ready, plans.next = ready, new
        tasks.changed = steering.follow_plan()
        steering.instruct_sources(draining=False, closing_time=None)
        pin = read_control(tmp_path / "control.json").pin
        return pin.epoch, pin.workers, pin.replicas

    tasks.steering, tasks.learn_from = steering, steering.learn_from
    return tasks


def test_while_executors_are_missing_batches_need_no_other_wave_of_tasks(adapting, messages):
    assert adapting(6, plan(1)) == (1, 24, 12)
    assert adapting(5) == (1, 20, 10)
    assert adapting.changed
    assert adapting(5) == (1, 20, 10)
    assert not adapting.changed
    assert adapting(6) == (1, 24, 12)
    assert adapting.changed
    assert (adapting.steering.plan_changes, messages) == (0, [])  # it is the same plan


def test_tasks_that_leave_cores_idle_are_as_planned_as_long_as_they_need_no_other_wave(adapting):
    few = plan(1, parallelism=16, replicas=8)  # 16 tasks take two waves on 12 cores, and 8 one
    assert [adapting(6, few), *map(adapting, (5, 4, 3))] == [(1, 16, 8), (1, 16, 8), (1, 16, 8), (1, 12, 6)]


def test_a_new_plan_begins_with_the_executors_that_are_there(adapting):
    adapting(6, plan(1))
    assert adapting(4, plan(2, parallelism=12)) == (2, 8, 8)


def test_until_all_executors_have_come_after_a_start_tasks_are_as_planned(adapting):
    assert [adapting(1, plan(1)), *map(adapting, (3, 6, 5))] == [(1, 24, 12), (1, 24, 12), (1, 24, 12), (1, 20, 10)]


def test_replicas_that_are_needed_to_read_what_waits_stay(adapting):
    adapting(6, plan(1))
    adapting.learn_from(replace(report(1), rows=11 * REPLICA_RECORDS, waiting=1, bytes=11 * REPLICA_RECORDS))
    assert adapting(3) == (1, 12, 12)
    adapting.learn_from(replace(report(2), rows=7 * REPLICA_RECORDS, waiting=1, bytes=7 * REPLICA_RECORDS))
    assert adapting(3) == (1, 12, 8)


def test_a_loss_of_executors_is_no_change_of_plan_to_the_limit_of_batches(adapting):
    """With each plan, costs are learned again, and tried with batches of other sizes."""
    adapting(6, plan(1))
    pins = [Pin(1, "hash", 12, 24), Pin(1, "hash", 10, 20)]
    keys = []
    for number in range(6):
        adapting.learn_from(replace(report(number), pin=pins[number % 2]))
        keys.append(adapting.steering._admission._plan)
    assert set(keys) == {("hash", 12, 24)}


@pytest.mark.parametrize("ready", [0, 7])
def test_without_any_executor_and_with_more_than_planned_tasks_are_as_planned(adapting, ready):
    assert adapting(ready, plan(1)) == (1, 24, 12)


def test_replicas_in_processes_of_their_own_keep_to_the_plan(adapting):
    assert adapting(4, plan(1, placement="Dedicated")) == (1, 24, 12)


def test_in_one_process_tasks_are_as_planned(steer, tmp_path):
    plans = Plans()
    plans.next = plan(1)
    steering = steer(plan_source=plans, events=EVENTS)
    steering.follow_plan()
    assert (steering.pin.workers, steering.pin.replicas) == (24, 12)
