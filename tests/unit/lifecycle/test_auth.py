"""The Secret of a driver and its executors: made before them, replaced with them, and no other is touched."""

import pytest

from unit.api.documents import MINIMAL, changed

from .cluster import KEY, SET

RESTARTED = MINIMAL + "  restartNonce: 1\n"
SUSPENDED = changed(MINIMAL, 12, "  suspend: true")


def mounted(pod):
    """The Secret that a pod, or the template of one, mounts for this."""
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "millrace-auth"]
    return volume["secret"]["secretName"]


def rename(pod, name):
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "millrace-auth"]
    volume["secret"]["secretName"] = name


@pytest.fixture
def running(cluster):
    """A query whose driver is ready."""
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    return cluster


def test_the_secret_is_made_before_anything_names_it(running):
    assert running.secrets == {mounted(running.pod)}
    made = [action[0] for action in running.actions if action[0] in ("make", "apply")]
    assert made.index("make") == 0
    assert made.count("make") == 1
    executor = running.configuration()["data"]["executor-pod.yaml"]
    assert f"secretName: {mounted(running.pod)}" in executor


def test_a_restart_makes_another_secret_and_drops_the_one_before(running):
    before = mounted(running.pod)
    running.actions.clear()
    running.put(RESTARTED)
    running.settle()
    assert running.secrets == {mounted(running.pod)} != {before}
    order = [action for action in running.actions if action in (("make", "Secret"), ("apply", *SET), ("drop", before))]
    assert order == [("make", "Secret"), ("apply", *SET), ("drop", before)]


def test_a_deleted_secret_is_replaced_with_the_driver(running):
    running.secrets.clear()
    running.put(SUSPENDED)
    running.settle()
    running.put(MINIMAL)
    running.settle()
    assert running.secrets == {mounted(running.pod)}


def test_another_operator_keeps_the_secret_that_the_driver_has(running):
    before, running.actions[:] = mounted(running.pod), []
    running.start_operator()
    running.put(changed(MINIMAL, 12, "  executors: {initial: 4}"))
    running.settle()
    assert (mounted(running.pod), running.secrets) == (before, {before})
    assert ("make", "Secret") not in running.actions


def test_a_driver_keeps_its_own_when_its_stateful_set_is_made_again(running):
    before = mounted(running.pod)
    running.reconciler.observations.object_gone(running.objects.pop(SET))
    running.settle()
    assert mounted(running.objects[SET]["spec"]["template"]) == before


def test_a_driver_of_an_earlier_operator_is_not_restarted_for_it(running):
    pod = running.pod["metadata"]["uid"]
    for each in (running.pod, running.objects[SET]["spec"]["template"]):
        each["spec"]["volumes"] = [volume for volume in each["spec"]["volumes"] if volume["name"] != "millrace-auth"]
    running.secrets.clear()
    running.start_operator()
    running.settle()
    assert running.pod["metadata"]["uid"] == pod
    assert running.secrets == {mounted(running.objects[SET]["spec"]["template"])}


def test_a_secret_of_another_name_is_never_deleted_whatever_the_stateful_set_says(running):
    for each in (running.pod, running.objects[SET]["spec"]["template"]):
        rename(each, "kafka-login")
    running.start_operator()
    running.put(RESTARTED)
    running.settle()
    assert ("drop", "kafka-login") not in running.actions
    assert mounted(running.pod) != "kafka-login"


def test_a_driver_is_not_drained_for_a_secret_that_cannot_be_made(running):
    pod, running.policy = running.pod["metadata"]["uid"], "Secret"
    running.put(RESTARTED)
    assert running.settle().phase == "Running"
    assert running.pod["metadata"]["uid"] == pod
    assert running.condition("Ready").message.startswith("Secret: a policy")


def test_what_is_made_for_a_query_is_not_used_for_a_later_one_of_its_name(cluster):
    cluster.put(MINIMAL)
    cluster.show()
    cluster.reconciler.reconcile(KEY)
    (made,) = cluster.secrets
    cluster.query["metadata"]["uid"] = "later"
    cluster.show()
    cluster.settle()
    assert mounted(cluster.pod) != made
