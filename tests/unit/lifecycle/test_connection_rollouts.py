"""A change of a Connection replaces the drivers of its queries one after the other, and stops after a rollback."""

from __future__ import annotations

from datetime import timedelta

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.lifecycle.connections.connection_rollouts import ConnectionRollouts

from .cluster import KEY, NOW, copied, stamp
from .connected import LOGIN, connection, query, runs, shown
from .fleet import Fleet

NAMES = ("a", "b", "c", "d")


def fleet_of(names=NAMES, most=1):
    return Fleet(names, query(), connection(sasl=LOGIN), most)


def change(fleet, brokers, generation=2):
    fleet.connection = connection(brokers, generation=generation, sasl=LOGIN)
    fleet.settle()


def updates(fleet):
    return {each.name: each.update for each in fleet.members}


def progress(member):
    found = member.condition("Progressing")
    return found.status, found.reason, found.message


@pytest.fixture
def fleet():
    """Four queries with one Connection, whose drivers have been healthy for long enough."""
    found = fleet_of()
    assert all(("ConfigMap", f"{each.name}-healthy") in each.objects for each in found.members)
    return found


def test_drivers_are_replaced_one_after_the_other_each_once_the_one_before_is_ready(fleet):
    change(fleet, "kafka:9094")
    for number, name in enumerate(NAMES):
        assert fleet.not_ready() == [name]
        waiting = NAMES[number + 1 :]
        assert [each for each, update in updates(fleet).items() if update == "Waiting"] == list(waiting)
        assert [fleet[each].brokers for each in waiting] == ["kafka:9093"] * len(waiting)
        assert (fleet[name].brokers, fleet[name].update) == ("kafka:9094", "Replacing")
        for each in waiting:
            status, reason, message = progress(fleet[each])
            assert (status, reason) == ("False", "WaitingForTurn")
            assert message.startswith("Connection trips has changed: the drivers of its queries are replaced one after")
            assert fleet[each].condition("Ready").status == "True"
        fleet[name].become_ready()
        fleet.settle()
    assert fleet.not_ready() == []
    fleet.pass_time(seconds=61)
    assert set(updates(fleet).values()) == {None}
    assert progress(fleet["d"])[1] == "Settled"


STEPS = st.tuples(
    st.sampled_from(["sees", "hears", "works", "works", "ready", "restarts"]), st.integers(0, 2), st.integers(0, 2)
)


@settings(max_examples=15, deadline=None)
@given(most=st.integers(1, 2), steps=st.lists(STEPS, min_size=8, max_size=20))
def test_never_more_than_so_many_are_replaced_at_once_whatever_operators_have_seen_and_all_are_in_the_end(most, steps):
    fleet = fleet_of(NAMES[:3], most)
    fleet.connection = connection("kafka:9094", generation=2, sasl=LOGIN)
    for action, one, other in steps:
        member = fleet.members[one]
        match action:
            case "sees":
                member.reconciler.observations.connection_seen(copied(fleet.connection))
            case "hears":
                fleet.deliver(fleet.members[other], member)
            case "works":
                member.settle()
            case "ready":
                member.become_ready()
            case "restarts":
                member.start_operator()
        assert len(fleet.not_ready()) <= most
    for _ in fleet.members:
        fleet.settle()
        assert len(fleet.not_ready()) <= most
        for each in fleet.members:
            each.become_ready()
    fleet.pass_time(seconds=61)
    assert fleet.not_ready() == []
    assert [each.brokers for each in fleet.members] == ["kafka:9094"] * len(fleet.members)
    assert set(updates(fleet).values()) == {None}


def hang(member):
    """Let the driver's container run for longer than it may take until it is ready."""
    running = {"running": {"startedAt": stamp(member.time)}}
    state = {"name": "driver", "started": False, "state": running}
    member.pod_shows(("Pod", f"{member.name}-driver-0"), containerStatuses=[state])
    member.fleet.pass_time(minutes=10)


@pytest.fixture
def held(fleet):
    """The fleet after a wrong address, from which its first query was rolled back."""
    change(fleet, "wrong:9093")
    hang(fleet["a"])
    assert fleet.not_ready() == ["a"]
    fleet["a"].become_ready()
    fleet.settle()
    return fleet


def test_after_a_rollback_no_further_driver_is_replaced_until_the_connection_changes(held):
    assert updates(held) == {"a": "RolledBack", "b": "Waiting", "c": "Waiting", "d": "Waiting"}
    assert [each.brokers for each in held.members] == ["kafka:9093"] * len(NAMES)
    assert held["a"].condition("Degraded").reason == "RolledBack"
    for name in "bcd":
        status, reason, message = progress(held[name])
        assert (status, reason) == ("False", "RolloutHeld")
        said = "Connection trips has changed, and no further driver is replaced: query a was rolled back from it: not ready"
        assert message.startswith(said)
    for each in held.members:
        each.start_operator()
    held.pass_time(minutes=30)
    assert held.not_ready() == []
    change(held, "kafka:9095", generation=3)
    for name in NAMES:
        assert held.not_ready() == [name]
        held[name].become_ready()
        held.settle()
    assert [each.brokers for each in held.members] == ["kafka:9095"] * len(NAMES)


def test_a_connection_that_is_what_it_was_again_replaces_nothing(held):
    pods = [each.pod["metadata"]["uid"] for each in held.members]
    change(held, "kafka:9093", generation=3)
    assert [each.pod["metadata"]["uid"] for each in held.members] == pods
    assert set(updates(held).values()) == {None}


@pytest.mark.parametrize("how", ["paused", "suspended", "deleted"])
def test_a_query_that_is_set_aside_holds_up_no_other_one(held, how):
    if how == "paused":
        held["a"].put(query(), annotations={"millrace.io/paused": "true"})
    elif how == "suspended":
        held["a"].put(query(suspend=True))
    else:
        held["a"].delete()
    held.settle()
    others = [name for name in held.not_ready() if name != "a"]
    assert others == ["b"]
    assert held["b"].brokers == "wrong:9093"


def test_a_driver_that_is_tried_again_and_becomes_healthy_lets_the_others_follow(held):
    """The first query names a change that may pass: its own user tries it again at once."""
    held["a"].put(query(restartNonce=1))
    held.settle()
    assert held["a"].update == "Replacing"
    assert held.not_ready() == ["a"]
    held["a"].become_ready()
    held.settle()
    assert held.not_ready() == ["b"]


def test_what_a_user_changes_does_not_wait(fleet):
    change(fleet, "kafka:9094")
    fleet["c"].put(query(restartNonce=1))
    fleet.settle()
    assert fleet.not_ready() == ["a", "c"]
    assert fleet["c"].brokers == "kafka:9094"
    fleet["d"].put(query(suspend=True))
    fleet.settle()
    assert fleet["d"].pod is None
    fleet["d"].put(query())
    fleet.settle()
    assert fleet["d"].brokers == "kafka:9094"


def test_fields_that_are_applied_in_place_are_so_while_a_query_waits(fleet):
    change(fleet, "kafka:9094")
    pod = fleet["b"].pod["metadata"]["uid"]
    fleet["b"].put(query(executors={"initial": 3, "min": 3, "max": 4}))
    fleet.settle()
    assert fleet["b"].status.plan.executors == 3
    assert (fleet["b"].pod["metadata"]["uid"], fleet["b"].update) == (pod, "Waiting")


def test_drivers_that_keep_failing_do_not_wait_for_a_change_that_may_help(fleet):
    """Their brokers may have moved: to wait for one after the other would only be longer without results."""
    for _ in range(2):
        for each in fleet.members:
            if each.pod is not None:
                each.pod_fails('{"failure": "SourceFailed", "message": "no"}', key=("Pod", f"{each.name}-driver-0"))
        fleet.settle()
    change(fleet, "kafka:9094")
    assert fleet.not_ready() == list(NAMES)
    assert [each.brokers for each in fleet.members] == ["kafka:9094"] * len(NAMES)


def runs_its_first_batch(member):
    """Let the driver serve its probes on all executors that the plan wants; it has not finished a batch."""
    for number in range(member.status.plan.executors):
        member.executor(number)
    running = {"running": {"startedAt": stamp(member.time)}}
    state = {"name": "driver", "started": True, "state": running}
    member.pod_shows(("Pod", f"{member.name}-driver-0"), containerStatuses=[state])
    assert member.condition("Ready").reason == "FirstBatch"


def fail_twice(fleet, names):
    """Let drivers fail twice in a row, of which the old login is revoked, say."""
    for _ in range(2):
        for name in names:
            if fleet[name].brokers == "kafka:9093":
                fleet[name].pod_fails('{"failure": "SourceFailed", "message": "no"}', key=("Pod", f"{name}-driver-0"))
        fleet.settle()
    assert all(fleet[name].condition("Ready").status == "False" for name in names)


def test_a_first_batch_that_takes_long_is_no_trouble_and_drivers_that_fail_do_not_wait_for_it(fleet):
    change(fleet, "kafka:9094")
    runs_its_first_batch(fleet["a"])
    fleet.pass_time(minutes=16)
    assert [progress(fleet[name])[1] for name in "bcd"] == ["WaitingForTurn"] * 3
    fail_twice(fleet, "bcd")
    assert updates(fleet) == {"a": "Replacing", "b": None, "c": None, "d": None}
    assert [each.brokers for each in fleet.members] == ["kafka:9094"] * len(NAMES)


def test_drivers_that_fail_do_not_wait_after_a_rollback_of_another_one(held):
    """The Connection may be wrong for that one alone; if it is wrong for all, they are rolled back to what fails."""
    fail_twice(held, "bcd")
    assert updates(held) == {"a": "RolledBack", "b": None, "c": None, "d": None}
    assert [each.brokers for each in held.members] == ["kafka:9093"] + ["wrong:9093"] * 3


def test_a_driver_whose_first_batch_takes_long_waits_for_its_turn(fleet):
    """It computes, and would lose the batch for a Connection that may be wrong."""
    fleet["d"].pod_shows(("Pod", "d-driver-0"))
    runs_its_first_batch(fleet["d"])
    fleet.pass_time(minutes=10)
    change(fleet, "kafka:9094")
    assert updates(fleet) == {"a": "Replacing", "b": "Waiting", "c": "Waiting", "d": "Waiting"}
    assert fleet["d"].brokers == "kafka:9093"


INVALID = query(executors={"min": 3, "max": 1})


def test_a_spec_that_becomes_invalid_after_its_driver_is_ready_stops_no_other_one(fleet):
    change(fleet, "kafka:9094")
    fleet["a"].become_ready()
    fleet["a"].put(INVALID)
    fleet.settle()
    assert (fleet["a"].condition("Ready").reason, fleet["a"].update) == ("InvalidQuery", "Replacing")
    assert fleet.not_ready() == ["b"]


def test_a_spec_that_is_invalid_is_not_rolled_back_from_a_generation_that_it_never_tried(held):
    held["a"].put(INVALID)
    held.settle()
    assert held["a"].update == "RolledBack"
    change(held, "kafka:9095", generation=3)
    assert [(each.generation, each.update) for each in held["a"].status.connections] == [(3, None)]
    assert held.not_ready() == ["b"]


def test_a_driver_that_was_not_ready_before_holds_up_no_other_one(fleet):
    """The first query waits for a node, say; it follows the change, and its turn is none of the others'."""
    fleet["a"].pod_shows(("Pod", "a-driver-0"))
    fleet.pass_time(minutes=10)
    change(fleet, "kafka:9094")
    assert (fleet["a"].brokers, fleet["a"].update) == ("kafka:9094", None)
    assert fleet.not_ready() == ["a", "b"]
    assert fleet["b"].update == "Replacing"


def reported(name, update="", generation=2, ready="True", phase=None, names="trips", reason="R", **metadata):
    """A query as its status shows it; ``names`` are its one or two Connections."""
    source, *others = names.split()
    body = yaml.safe_load(query(source))
    body["spec"]["sink"]["kafka"]["connection"] = others[0] if others else source
    body["metadata"] = {"namespace": KEY.namespace, "name": name, "uid": f"uid of {name}", **metadata}
    entry = {"generation": generation, "brokers": "kafka:9093"} | ({"update": update} if update else {})
    condition = {"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": stamp(NOW)}
    body["status"] = {
        "phase": phase or ("Running" if ready == "True" else "Deploying"),
        "conditions": [condition],
        "connections": [entry | {"name": each} for each in names.split()],
    }
    return body


def rollout_beside(*others, generation=2, now=NOW):
    """What the query ``m`` may do, given the others."""
    rollouts = ConnectionRollouts()
    for each in others:
        rollouts.note(each)
    return rollouts.of(KEY.namespace, "m", "trips", generation, now)


@pytest.mark.parametrize(
    ("other", "goes"),
    [
        (reported("a"), True),
        (reported("a", "Waiting"), False),
        (reported("z", "Waiting"), True),
        (reported("a", generation=1), False),
        (reported("a", generation=1, phase="Failed", ready="False"), True),
        (reported("z", generation=1), True),
        (reported("a", "Replacing", ready="False"), False),
        (reported("z", "Replacing", ready="False"), False),
        (reported("a", "Replacing"), True),
        (reported("a", "Replacing", ready="False", reason="InvalidQuery", phase="Running"), True),
        (reported("z", "RolledBack"), False),
        (reported("z", "RolledBack", generation=1), True),
        (reported("a", "Waiting", names="orders"), True),
        (reported("a", "Waiting", deletionTimestamp=stamp(NOW)), True),
    ],
)
def test_what_another_query_reports_decides_whose_turn_it_is(other, goes):
    assert rollout_beside(other).goes == goes


def test_a_driver_that_is_not_ready_for_long_is_named():
    late = reported("z", "Replacing", ready="False", phase="Deploying")
    assert rollout_beside(late, now=NOW + timedelta(minutes=9)) == (False, "")
    said = f"query z follows it, and has not been ready since {stamp(NOW)}"
    assert rollout_beside(late, now=NOW + timedelta(minutes=10)) == (False, said)
    failed = reported("z", "Replacing", ready="False", phase="Failed")
    assert rollout_beside(failed) == (False, f"query z has followed it, and has failed since {stamp(NOW)}")


def test_a_first_batch_is_no_trouble_however_long_it_takes():
    first = reported("z", "Replacing", ready="False", reason="FirstBatch")
    assert rollout_beside(first, now=NOW + timedelta(hours=5)) == (False, "")


def test_a_query_does_not_wait_for_one_that_waits_because_of_another_connection():
    both, alone = reported("a", "Waiting", names="trips orders"), reported("c", "Waiting")
    held = reported("z", "RolledBack", names="orders")
    assert rollout_beside(both) == (False, "")
    assert rollout_beside(both, held) == (True, "")
    assert rollout_beside(both, held, alone) == (False, "")
    assert rollout_beside(both, reported("z", "RolledBack", generation=1, names="orders")) == (False, "")
    late = reported("z", "Replacing", ready="False", names="orders")
    assert rollout_beside(both, late) == (False, "")
    assert rollout_beside(both, late, now=NOW + timedelta(minutes=10)) == (True, "")
    own = reported("z", "RolledBack", names="orders trips")
    assert rollout_beside(both, own).held_by.startswith("query z was rolled back from it")


def test_a_query_that_waits_for_one_connection_is_looked_at_again_beside_one_that_waits_for_two():
    rollouts = ConnectionRollouts()
    for each in (reported("a", "Waiting", names="trips orders"), reported("m", "Waiting"), reported("n", "Waiting")):
        rollouts.note(each)
    assert rollouts.note(reported("z")) == {(KEY.namespace, "a"), (KEY.namespace, "m")}


def test_the_deletion_of_an_earlier_query_does_not_remove_one_of_the_same_name():
    rollouts = ConnectionRollouts()
    rollouts.note(reported("a", "Waiting", uid="new"))
    assert rollouts.note(reported("a", uid="old"), gone=True) == set()
    assert not rollouts.of(KEY.namespace, "m", "trips", 2, NOW).goes
    rollouts.note(reported("a", uid="new"), gone=True)
    assert rollouts.of(KEY.namespace, "m", "trips", 2, NOW).goes


@pytest.mark.parametrize(("name", "waits"), [("c15", True), ("c16", False)])
def test_no_query_waits_for_a_connection_that_its_status_does_not_show(cluster, name, waits):
    names = [f"c{number:02}" for number in range(17)]
    kafka = [{"connection": each, "topic": "trips"} for each in names]
    sources = [{"kafka": each, "schema": "cell STRING"} for each in kafka[:16]]
    for each in names:
        cluster.reconciler.observations.connection_seen(connection(name=each))
    cluster.put(
        query(
            sources=dict(zip(["trips", *names[1:16]], sources, strict=True)),
            sink={"kafka": kafka[16] | {"topic": "by-cell"}},
        )
    )
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    before = runs(cluster)
    cluster.reconciler.rollouts.note(reported("a", "Replacing", ready="False", names=name))
    status = shown(cluster, connection("kafka:9094", name=name, generation=2))
    assert (runs(cluster) == before) == waits
    assert [each.name for each in status.connections if each.update] == ([name] if waits else [])


def test_only_queries_whose_turn_or_conditions_may_change_are_looked_at_again():
    rollouts, at = ConnectionRollouts(), lambda *names: {(KEY.namespace, name) for name in names}
    for name in "bcd":
        rollouts.note(reported(name, "Waiting"))
    assert rollouts.note(reported("a", "Replacing", ready="False")) == at("b")
    assert rollouts.note(reported("a", "Replacing", ready="False")) == set()
    assert rollouts.note(reported("a", "Replacing")) == at("b")
    assert rollouts.note(reported("a", "RolledBack", ready="False")) == at("b", "c", "d")
    assert rollouts.note(reported("a", "RolledBack")) == at("b")
    assert rollouts.note(reported("a"), gone=True) == at("b", "c", "d")
    assert rollouts.note(reported("other", names="orders")) == set()
