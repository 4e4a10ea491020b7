"""A watch is dead when it shows none of several touches that the API server has taken; workers, when none is answered."""

from datetime import UTC, datetime

import pytest
from kubernetes.client import ApiException
from pydantic import TypeAdapter
from urllib3.exceptions import ConnectTimeoutError

from millrace_api.model.streamquery import CANARY_LABEL
from millrace_api.model.values import ObjectName
from millrace_operator.handlers import canary as canaries
from millrace_operator.handlers.canary import MISSED, UNANSWERED, Canary, Staleness
from millrace_operator.handlers.operator import canary_of
from millrace_operator.leadership.leader import NotLeadingError
from millrace_operator.leadership.shard import Shard
from millrace_operator.lifecycle.canary import TOUCHED, answered_touch, canary_status, is_canary
from millrace_operator.lifecycle.observed_query import ObservedQuery


def touch(staleness, stamp):
    staleness.touching(stamp)
    staleness.touched(stamp)


def shown(name, namespace, stamp):
    return {"metadata": {"name": name, "namespace": namespace, "annotations": {TOUCHED: stamp}}}


def test_a_watch_that_shows_every_touch_is_alive():
    staleness = Staleness()
    for number in range(20):
        touch(staleness, str(number))
        staleness.seen(str(number))
    assert not staleness.stale


def test_a_watch_that_shows_nothing_is_dead_after_three_intervals():
    staleness = Staleness()
    touch(staleness, "0")
    for number in range(MISSED):
        assert not staleness.stale
        touch(staleness, f"{number + 1}")
    assert staleness.stale
    staleness.seen("2")
    assert not staleness.stale


def test_a_watch_may_show_a_touch_before_its_answer_is_there():
    staleness = Staleness()
    for number in range(10):
        staleness.touching(str(number))
        staleness.seen(str(number))
        staleness.touched(str(number))
    assert not staleness.stale


def test_while_the_api_server_is_away_the_watch_is_not_blamed():
    staleness = Staleness()
    for number in range(10):
        touch(staleness, f"taken {number}")
        staleness.touching(f"failed {number}")
        staleness.reset()
    assert not staleness.stale


def test_touches_of_another_operator_make_it_no_younger_than_they_are():
    now = [0.0]
    staleness = Staleness(lambda: now[0])
    assert staleness.age is None
    staleness.seen("another's")
    now[0] = 7.0
    assert staleness.age == 7.0
    for number in range(MISSED + 1):
        touch(staleness, str(number))
    staleness.seen("another's")
    assert staleness.stale


def test_there_is_no_age_before_every_canary_was_shown():
    canary = Canary("millrace-canary", {"a": None, "b": None})
    canary.seen(shown("millrace-canary", "a", "1"))
    assert canary.age is None
    canary.seen(shown("millrace-canary", "b", "1"))
    assert canary.age is not None
    assert canary.dead == []


class Looks:
    """A canary that another operator touches; counts who asks for it."""

    def __init__(self):
        self.stamp, self.asked = None, 0

    def last_touch(self):
        self.asked += 1
        if isinstance(self.stamp, Exception):
            raise self.stamp
        return self.stamp


@pytest.fixture
def standby(monkeypatch):
    """One whose watch has always been silent for too long; ``found`` lets it look when there is such a touch."""
    monkeypatch.setattr(canaries, "CHECK_SECONDS", 0.0)
    looks = Looks()
    canary = Canary("millrace-canary", {"a": looks})

    def found(stamp):
        looks.stamp = stamp
        canary.check("a")
        return canary.dead

    return canary, found


def test_a_standby_whose_watch_shows_nothing_of_what_the_leader_does_is_dead(standby):
    canary, found = standby
    canary.seen(shown("millrace-canary", "a", "0"))
    assert [found(str(number)) for number in range(1, MISSED + 2)] == [[]] * MISSED + [["a"]]
    canary.seen(shown("millrace-canary", "a", "3"))
    assert canary.dead == []


def test_where_nobody_leads_a_standby_is_alive(standby):
    _, found = standby
    assert not any(found(stamp) for stamp in [None, None, *["0"] * 10])


def test_a_standby_that_is_not_answered_does_not_blame_its_watch(standby):
    _, found = standby
    for number in range(10):
        assert not found(f"{number}")
        assert not found(OSError("away"))


def test_a_standby_whose_watch_shows_touches_asks_nothing(standby, monkeypatch):
    canary, found = standby
    for number in range(MISSED + 1):
        found(str(number))
    assert canary.dead == ["a"]
    monkeypatch.setattr(canaries, "CHECK_SECONDS", 3600.0)
    canary.seen(shown("millrace-canary", "a", "one that no look has found"))
    assert found("another") == []
    assert canary._apis["a"].asked == MISSED + 1


def test_a_canary_is_known_by_its_label():
    assert is_canary({"metadata": {"labels": {CANARY_LABEL: "true"}}})
    assert not is_canary({"metadata": {}})


def test_canaries_of_other_operators_and_shards_are_not_ours():
    canary = Canary("millrace-canary", {"a": None})
    assert canary.owns("a", "millrace-canary")
    assert not canary.owns("a", "another")
    assert not canary.owns("b", "millrace-canary")


def answered(body):
    """The canary after a worker's step."""
    metadata = {"uid": "u", "generation": 1, "annotations": body["metadata"]["annotations"]}
    status = canary_status(ObservedQuery(body | {"metadata": metadata}), datetime(2026, 1, 31, tzinfo=UTC))
    return body | {"status": status.to_document()}


class Touches:
    """A canary that the API server takes touches of."""

    def __init__(self):
        self.stamps = []

    def touch(self, stamp):
        if self.stamps is None:
            raise ApiException(status=503)
        self.stamps.append(stamp)


@pytest.fixture
def leader():
    """One whose watch shows every touch; ``touch`` makes one, and returns the canary as it is shown then."""
    touches = Touches()
    canary = Canary("millrace-canary", {"a": touches})

    def touch():
        canary._touch("a")
        body = shown("millrace-canary", "a", touches.stamps[-1])
        assert canary.seen(body)  # a worker has to answer
        return body

    canary.api = touches
    return canary, touch


def test_a_step_answers_the_last_touch_and_no_other():
    body = answered(shown("millrace-canary", "a", "2026-01-31T12:00:00+00:00"))
    assert answered_touch(body) == "2026-01-31T12:00:00+00:00"
    assert body["status"]["phase"] == "Suspended"
    assert answered_touch(shown("millrace-canary", "a", "1")) is None


def test_while_every_touch_is_answered_the_path_is_well(leader):
    canary, touch = leader
    assert canary.path is None
    for _ in range(3 * UNANSWERED):
        assert not canary.seen(answered(touch()))  # nothing is left to answer
    assert canary.stuck == []
    assert 0 <= canary.path < 60


def test_workers_that_answer_nothing_are_stuck_though_the_watch_is_alive(leader):
    canary, touch = leader
    for _ in range(UNANSWERED):
        touch()
    assert canary.stuck == []
    last = touch()
    assert canary.stuck == ["a"]
    assert canary.dead == []
    canary.seen(answered(last))
    assert canary.stuck == []


def test_an_answer_that_waits_is_as_old_as_the_first_touch_that_it_misses():
    now = [0.0]
    answers = Staleness(lambda: now[0])
    touch(answers, "0")
    now[0] = 2.0
    answers.seen("0")
    assert answers.took == 2.0
    touch(answers, "1")
    now[0] = 32.0
    touch(answers, "2")
    now[0] = 40.0
    assert answers.took == 38.0
    answers.reset()
    assert answers.took == 2.0


@pytest.mark.parametrize("error", [ApiException(status=500), ConnectTimeoutError("away"), NotLeadingError()], ids=repr)
def test_a_status_that_the_api_server_does_not_take_is_no_fault_of_the_path(leader, error):
    canary, touch = leader
    for _ in range(3 * UNANSWERED):
        touch()
        canary.failed("a", "millrace-canary", error)
    assert canary.stuck == []


def test_a_step_that_fails_by_itself_is_a_fault_of_the_path(leader):
    canary, touch = leader
    for _ in range(UNANSWERED + 1):
        touch()
        canary.failed("a", "millrace-canary", TypeError("a fault in the operator"))
        canary.failed("a", "a query that fails", ApiException(status=500))
    assert canary.stuck == ["a"]


@pytest.mark.parametrize("change", ["another touch", "no touch", "removed"])
def test_a_tenant_who_changes_the_canary_cannot_make_the_path_look_stuck(leader, change):
    """Who may edit the queries of a watched namespace may do so before a worker has answered."""
    canary, touch = leader
    for _ in range(3 * UNANSWERED):
        body = touch()
        if change == "removed":
            canary.disturbed("a")
        else:
            annotations = {TOUCHED: "theirs"} if change == "another touch" else {}
            canary.seen(body | {"metadata": body["metadata"] | {"annotations": annotations}})
    assert canary.stuck == []


def test_while_the_api_server_is_away_the_path_is_not_blamed(leader):
    canary, touch = leader
    for _ in range(UNANSWERED):
        touch()
    canary.api.stamps = None
    for _ in range(3 * UNANSWERED):
        canary._touch("a")
    assert canary.stuck == []


def test_canaries_are_named_after_the_lease_and_the_shard():
    assert canary_of("millrace-operator", Shard()) == "millrace-canary"
    assert canary_of("cabs", Shard(2, 5)) == "cabs-canary-2-of-5"


def test_a_canary_of_a_lease_with_a_long_name_is_a_valid_query():
    leases = [f"{'a' * 44}{end}-operator" for end in "bc"]
    names = {canary_of(lease, shard) for lease in leases for shard in (Shard(), Shard(1, 12), Shard(12, 12))}
    assert len(names) == 6
    for name in names:
        TypeAdapter(ObjectName).validate_python(name)
