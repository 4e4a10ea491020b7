"""What the driver's agent counts as a sign of life of a batch."""

from types import SimpleNamespace

import pytest

from lab.waiting import wait_until
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
