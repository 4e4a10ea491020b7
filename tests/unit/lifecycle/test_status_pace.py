"""How often a status is written: at once where it matters, and otherwise several changes together."""

import pytest

from unit.api.documents import MINIMAL

from .cluster import KEY, POD


@pytest.fixture
def starting(cluster):
    """A query whose driver has just been created; what it shows next is written at once."""
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pass_time(seconds=5)
    cluster.writes = 0
    return cluster


def show(cluster, **status):
    """Let the operator see a state of the pod once."""
    cluster.objects[POD]["status"] = status
    cluster._changed(cluster.objects[POD])
    cluster.show()
    cluster.reconciler.reconcile(KEY)


def waiting(reason):
    return [{"name": "driver", "restartCount": 0, "state": {"waiting": {"reason": reason}}}]


def ready(cluster):
    return [{"type": "Ready", "status": "True", "lastTransitionTime": cluster.time.isoformat()}]


def test_descriptions_that_follow_each_other_closely_are_one_write(starting):
    show(starting, containerStatuses=waiting("PodInitializing"))
    assert starting.writes == 1
    for reason in ("ContainerCreating", "PodInitializing", "ContainerCreating"):
        show(starting, containerStatuses=waiting(reason))
    assert starting.writes == 1
    starting.pass_time(seconds=1)
    assert starting.writes == 1
    starting.pass_time(seconds=1)
    assert starting.writes == 2
    assert "ContainerCreating" in starting.condition("Ready").message


def test_a_description_that_returns_to_what_was_written_is_no_write(starting):
    for reason in ("PodInitializing", "ContainerCreating", "PodInitializing"):
        show(starting, containerStatuses=waiting(reason))
    starting.pass_time(seconds=10)
    assert starting.writes == 1


def test_another_phase_is_written_at_once(starting):
    show(starting, containerStatuses=waiting("PodInitializing"))
    show(starting, conditions=ready(starting), startTime=starting.time.isoformat())
    assert (starting.writes, starting.status.phase) == (2, "Running")


def test_what_the_operator_has_to_remember_is_written_at_once(starting):
    show(starting, containerStatuses=waiting("PodInitializing"))
    ended = {"exitCode": 1, "reason": "Error", "message": "", "finishedAt": starting.time.isoformat()}
    failed = waiting("CrashLoopBackOff")[0] | {"restartCount": 1, "lastState": {"terminated": ended}}
    show(starting, containerStatuses=[failed])
    assert (starting.writes, starting.status.failures) == (2, 1)


def test_a_status_is_written_before_the_actions_that_it_names(starting):
    show(starting, containerStatuses=waiting("PodInitializing"))
    del starting.objects["Service", f"{KEY.name}-driver"]
    starting.start_operator()
    starting.memory.pace.written(starting.time.timestamp())
    starting.reconciler.reconcile(KEY)
    assert starting.writes == 2
    assert starting.actions[-2:] == [
        ("status", "Deploying"),
        ("apply", "Service", f"{KEY.name}-driver"),
    ]
