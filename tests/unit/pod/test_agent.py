"""What the driver's agent counts as a sign of life of a batch, and what it reports of calls that last."""

from types import SimpleNamespace

import pytest

from lab.waiting import wait_until
from millrace_api.model.driver_waits import WAITS_KEY, DriverWaits
from millrace_api.model.memory_use import (
    MEMORY_KEY,
    ExecutorSeries,
    MemoryPart,
    MemoryReport,
    MemorySample,
    MemorySeries,
)
from millrace_jobs.pending import CallKind, PendingCall
from millrace_jobs.pod import agent as module
from millrace_jobs.pod.agent import Agent


class Executors:
    """As many as there are, which finish so many tasks between two checks."""

    def __init__(self, ready, finishing):
        self.ready, self.finishing = ready, finishing
        self.finished_tasks = self.checks = 0

    def reconcile(self, number):
        self.checks += 1
        self.finished_tasks += self.finishing
        return self.ready


@pytest.mark.parametrize(
    ("ready", "finishing", "is_sign"), [(2, 3, True), (0, 0, True), (2, 0, False)], ids=["tasks", "none", "hangs"]
)
def test_finished_tasks_and_missing_executors_are_signs_of_life(monkeypatch, ready, finishing, is_sign):
    monkeypatch.setattr(module, "PERIOD", 0.01)
    plans = SimpleNamespace(newest=SimpleNamespace(executors=2))
    agent, executors = Agent(None, "default", "plan", plans), Executors(ready, finishing)
    agent.start(executors, 1)
    try:
        wait_until(lambda: executors.checks > 3)
    finally:
        agent.stop()
    assert agent.ready == ready
    assert (agent.signs > 0) == is_sign


class RestingExecutors(Executors):
    """Executors of a job at rest; ``waits`` says whether a stage runs, and ``asked`` what was requested."""

    def __init__(self):
        super().__init__(0, 0)
        self.waits, self.asked = False, []

    def tasks_wait(self):
        return self.waits

    def reconcile(self, number):
        self.asked.append(number)
        return number


def resting_agent(executors, epoch=3):
    """An agent, what the operator then reads, and the plan without executors that it follows."""
    held, plan = ConfigMap(), SimpleNamespace(executors=0, epoch=epoch)
    versions = SimpleNamespace(pod="pod 1", report=None)
    agent = Agent(held, "default", "plan", SimpleNamespace(newest=plan, restores=0), versions)

    def step():
        executors.reconcile(agent._wanted(executors))
        assert agent._report()
        return DriverWaits.from_json(held.data.get(WAITS_KEY, '{"pod": ""}')).executors

    return step, plan


def test_tasks_of_a_job_at_rest_get_an_executor_at_once_and_are_reported_until_another_plan():
    executors = RestingExecutors()
    step, plan = resting_agent(executors)
    assert [step(), step()] == [False, False]
    executors.waits = True
    assert step()
    executors.waits = False
    assert step(), "the executor is kept: the operator may be down, and the next batch would wait for another one"
    plan.executors, plan.epoch = 2, 4
    assert not step()
    plan.executors, plan.epoch = 0, 5
    assert not step()
    assert executors.asked == [0, 0, 1, 1, 2, 0]


def test_a_batch_that_runs_when_the_plan_comes_keeps_an_executor():
    executors = RestingExecutors()
    executors.waits = True
    step, _ = resting_agent(executors)
    assert step()
    assert executors.asked == [1]


class ConfigMap:
    """The plan's ConfigMap, as a client of the API server has it."""

    def __init__(self):
        self.patches, self.data = [], {}

    def patch_namespaced_config_map(self, name, namespace, body, **_):
        self.patches.append(body["data"])
        self.data = {key: text for key, text in (self.data | body["data"]).items() if text is not None}


def silent(seconds, why=""):
    return PendingCall(CallKind.SERVER, "Kafka at b:9092", "finding new records", 1, seconds, seconds, why=why)


@pytest.fixture
def held():
    return ConfigMap()


@pytest.fixture
def reports(held):
    """A function that reports calls, and returns the sentences on them that the operator then reads."""
    plans, versions = SimpleNamespace(restores=0), SimpleNamespace(pod="pod 1", report=None)
    agent = Agent(held, "default", "plan", plans, versions)

    def report(*calls):
        agent.waits(calls)
        assert agent._report()
        return [each.text for each in DriverWaits.from_json(held.data.get(WAITS_KEY, '{"pod": ""}')).waits]

    return report


def test_calls_that_last_are_reported_once_while_they_do_and_again_once_it_is_known_why(held, reports):
    assert (reports(), held.patches) == ([], [])
    assert reports(silent(11.0)) == ["Kafka at b:9092 has not answered while finding new records"]
    assert DriverWaits.from_json(held.data[WAITS_KEY]).pod == "pod 1"
    reports(silent(16.0))
    assert len(held.patches) == 1, "a message that counts seconds would be a patch every few seconds"
    why = "Kafka at b:9092 cannot be reached (connection refused) while finding new records"
    assert reports(silent(21.0, why)) == [why]
    assert reports(silent(26.0, why)) == [why]
    assert len(held.patches) == 2
    assert reports() == []
    assert held.patches[-1] == {WAITS_KEY: None}
    reports()
    assert len(held.patches) == 3


def test_a_call_that_lasts_for_another_reason_and_a_further_failure_are_reported_again(reports):
    for why in ("Kafka at b:9092 cannot be reached", "Kafka at b:9092 refuses the login"):
        assert reports(silent(21.0, why)) == [why]
    for cause in ("Kafka at b:9092 cannot be reached", "a file of the input is gone"):
        again = f"the query was started again because {cause}"
        assert reports(PendingCall(CallKind.SERVER, "query", "starting again", 1, 0.0, 0.0, why=again)) == [again]


def test_a_call_is_reported_however_long_a_note_says_that_it_has_lasted(reports):
    """User code can write notes with any number."""
    assert len(reports(silent(1e15))) == 1


def test_a_driver_that_does_not_know_its_pod_reports_no_waits():
    held = ConfigMap()
    plans, versions = SimpleNamespace(restores=0), SimpleNamespace(pod="", report=None)
    agent = Agent(held, "default", "plan", plans, versions)
    agent.waits((silent(11.0),))
    assert agent._report()
    assert held.patches == []


@pytest.fixture
def memory_reports(held, monkeypatch):
    """A function that lets so many seconds pass and reports memory, and returns what the operator then reads."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    plans, versions = SimpleNamespace(restores=0), SimpleNamespace(pod="pod 1", report=None)
    agent = Agent(held, "default", "plan", plans, versions)

    def report(used, seconds=10.0):
        now[0] += seconds
        samples = (MemorySample(time=1, used=5), MemorySample(time=2, used=used))
        agent.memory((MemorySeries(part=MemoryPart.HEAP, limit=100, samples=samples),))
        assert agent._report()
        found = MemoryReport.from_json(held.data.get(MEMORY_KEY, '{"pod": ""}'))
        return [each.samples[-1].used for each in found.series]

    return report


def test_an_executor_is_reported_once_much_of_what_is_beside_its_heap_is_in_use(held, monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0)
    plans, versions = SimpleNamespace(restores=0), SimpleNamespace(pod="pod 1", report=None)
    agent = Agent(held, "default", "plan", plans, versions)

    def reported(beside):
        used = {MemoryPart.CONTAINER: 99, MemoryPart.BESIDE_HEAP: beside}
        series = [
            MemorySeries(part=part, limit=100, samples=(MemorySample(time=1, used=each),))
            for part, each in used.items()
        ]
        agent.memory((), ExecutorSeries(executor="7", series=tuple(series)))
        assert agent._report()
        return MemoryReport.from_json(held.data.get(MEMORY_KEY, '{"pod": ""}')).executor

    assert reported(74) is None, "a container is full in good health"
    assert reported(75).executor == "7"


def test_memory_is_reported_every_five_minutes_while_much_is_in_use(held, memory_reports):
    assert (memory_reports(74), held.patches) == ([], [])
    assert memory_reports(75) == [75]
    assert MemoryReport.from_json(held.data[MEMORY_KEY]).pod == "pod 1"
    assert memory_reports(99) == [75], "each report wakes the operator"
    assert memory_reports(90, seconds=300) == [90]
    assert memory_reports(20, seconds=300) == []
    assert held.patches[-1] == {MEMORY_KEY: None}
    assert len(held.patches) == 3
