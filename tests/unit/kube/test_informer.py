"""A list and then watches: whatever happens to these, the events reported match what exists."""

import copy
import itertools
import threading
from types import SimpleNamespace

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from millrace_api.model.streamquery import QUERY_LABEL
from millrace_operator.handlers.canary import MISSED, TOUCH_SECONDS
from millrace_operator.kube import informer as informers
from millrace_operator.kube.informer import TIMEOUT, WATCH_SECONDS, Informer
from millrace_operator.kube.object_api import OWNED
from millrace_operator.telemetry.watches import WatchHealth
from millrace_support.backoff import FIRST_PAUSE

PODS = next(kind for kind in OWNED if kind.name == "Pod")


def pod(uid, version=1):
    return {"metadata": {"uid": uid, "name": uid, "namespace": "ns", "labels": {}, "resourceVersion": str(version)}}


def event(type, body):
    return {"type": type, "object": body}


class Server:
    """Gives its lists and watches, one after the other, and then ends the informer.

    A watch ends in time, or after the seconds that are its last event.
    """

    def __init__(self, lists, watches):
        self.lists, self.watches = iter(lists), iter(watches)
        self.asked = []
        self.informer = None
        self.now = 0.0

    def request(self, method, path, query):
        self.asked.append(("list", query.get("continue", "")))
        found = next(self.lists, None)
        if found is None:
            self.informer.stop()
            found = listed()
        if isinstance(found, Exception):
            raise found
        return copy.deepcopy(found)

    def lines(self, path, query, timeout):
        self.asked.append(("watch", query["resourceVersion"]))
        for each in next(self.watches, [None]):
            if each is None:
                self.informer.stop()
                break
            if isinstance(each, int):
                self.now += each
                return
            if isinstance(each, Exception):
                raise each
            yield copy.deepcopy(each)
        self.now += WATCH_SECONDS


def listed(*pods, version=10, more=""):
    return {"items": list(pods), "metadata": {"resourceVersion": str(version), "continue": more}}


@pytest.fixture
def follow(monkeypatch):
    """The events reported for such lists and watches, and the requests made."""
    pauses = []

    def wait(self, seconds=None):
        if not self.is_set():
            pauses.append(seconds)
        return self.is_set()

    def run(lists, watches, namespace=None, selector=QUERY_LABEL, fails=()):
        reported, server = [], Server(lists, watches)
        run.health = WatchHealth("pods", clock=lambda: next(run.ticks))

        def report(type, body):
            reported.append((type, body["metadata"]["uid"], body["kind"]))
            if body["metadata"]["uid"] in fails:
                raise KeyError("spec")

        server.informer = Informer(
            server, PODS, namespace, report, run.health, lambda: run.restores.append(len(reported)), selector
        )
        run.restores.clear()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Event, "wait", wait)
            patch.setattr(informers, "_PAUSE_JITTER", 0.0)
            patch.setattr(informers, "time", SimpleNamespace(monotonic=lambda: server.now))
            server.informer._run()
        run.listed = server.informer.listed.is_set()
        assert {kind for *_, kind in reported} <= {"Pod"}
        return [each[:2] for each in reported], server.asked

    run.pauses, run.ticks, run.health, run.restores, run.listed = pauses, itertools.count(), None, [], False
    return run


def test_an_error_that_lasts_is_logged_once(follow, caplog):
    """For example a right that is missing."""
    refused = ApiException(status=403, reason="Forbidden")
    follow([refused, refused, refused, listed(), refused, listed()], [[event("ERROR", {"code": 410})]])
    assert [record.getMessage() for record in caplog.records].count(
        "pods of all namespaces are not watched until they can be: the API server says 403 Forbidden"
    ) == 2


@pytest.mark.parametrize("status", [403, 404])
def test_a_namespace_that_is_refused_loses_its_objects_and_holds_nobody_up(follow, status, caplog):
    refused = ApiException(status=status)
    gone = event("ERROR", {"code": 410, "metadata": {}})
    reported, _ = follow([listed(pod("a")), refused, listed(pod("b"))], [[gone], [None]], namespace="gone")
    assert reported == [("LISTED", "a"), ("DELETED", "a"), ("LISTED", "b")]
    assert not follow.health.refused
    reported, _ = follow([refused, listed()], [[None]], namespace="gone")
    assert reported == []
    caplog.clear()
    reported, _ = follow([listed(pod("a"), pod("b")), refused, refused, refused], [[gone], [None]], namespace="gone")
    assert reported == [("LISTED", "a"), ("LISTED", "b"), ("DELETED", "a"), ("DELETED", "b")]
    (message,) = caplog.messages
    assert message.startswith(f"pods of namespace gone are not watched until they can be: the API server says {status}")


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_of_all_namespaces_deletes_nothing_and_is_an_error(follow, status):
    lists = [listed(pod("a")), ApiException(status=status), listed(pod("a"))]
    reported, _ = follow(lists, [[event("ERROR", {"code": 410, "metadata": {}})], [None]])
    assert reported == [("LISTED", "a"), ("LISTED", "a")]
    assert (follow.health.refused, follow.health.errors) == (False, 1)


@pytest.mark.parametrize("status", [403, 404])
def test_nothing_waits_for_the_list_of_a_namespace_that_is_refused(follow, status):
    follow([ApiException(status=status)], [], namespace="gone")
    assert follow.listed


def test_a_list_in_pages_and_then_a_watch_from_there(follow):
    reported, asked = follow(
        [listed(pod("a"), more="next"), listed(pod("b"))],
        [[event("ADDED", pod("c", 11)), event("DELETED", pod("a", 12)), event("BOOKMARK", pod("", 20))]],
    )
    assert reported == [("LISTED", "a"), ("LISTED", "b"), ("ADDED", "c"), ("DELETED", "a")]
    assert asked == [("list", ""), ("list", "next"), ("watch", "10"), ("watch", "20")]


@pytest.mark.parametrize(
    "end", [ApiException(status=410), event("ERROR", {"code": 410, "metadata": {}})], ids=["refused", "reported"]
)
def test_a_watch_that_is_too_old_is_listed_again_and_deletions_are_reported(follow, end):
    reported, asked = follow(
        [listed(pod("a"), pod("b")), listed(pod("b"), version=30)], [[event("ADDED", pod("c", 11)), end]]
    )
    assert reported[3:] == [("LISTED", "b"), ("DELETED", "a"), ("DELETED", "c")] or reported[3:] == [
        ("LISTED", "b"),
        ("DELETED", "c"),
        ("DELETED", "a"),
    ]
    assert asked[-1] == ("watch", "30")


def test_after_a_connection_that_breaks_and_a_pause_all_is_listed_again(follow):
    reported, asked = follow(
        [listed(pod("a")), listed(pod("b", 15), version=16)],
        [[event("ADDED", pod("b", 15)), ProtocolError("cut")], [None]],
    )
    assert reported == [("LISTED", "a"), ("ADDED", "b"), ("LISTED", "b"), ("DELETED", "a")]
    assert asked == [("list", ""), ("watch", "10"), ("list", ""), ("watch", "16")]
    assert follow.pauses == [FIRST_PAUSE]


@pytest.mark.parametrize(
    "end",
    [
        ReadTimeoutError(None, "/", "Read timed out."),
        ApiException(status=500),
        event("ERROR", {"code": 500, "metadata": {}}),
    ],
    ids=["silent", "refused", "reported"],
)
def test_a_watch_that_is_silent_or_refused_goes_on_from_where_it_was_after_a_pause(follow, end):
    reported, asked = follow(
        [listed(pod("a"))], [[event("ADDED", pod("b", 15)), end], [event("DELETED", pod("a", 16))]]
    )
    assert reported == [("LISTED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert asked == [("list", ""), ("watch", "10"), ("watch", "15"), ("watch", "16")]
    assert (follow.pauses, follow.health.errors) == ([FIRST_PAUSE], 1)


def test_a_watch_that_ends_goes_on_from_where_it_was(follow):
    reported, asked = follow([listed(pod("a"))], [[event("ADDED", pod("b", 15))], [event("DELETED", pod("a", 16))]])
    assert reported == [("LISTED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert asked == [("list", ""), ("watch", "10"), ("watch", "15"), ("watch", "16")]


@pytest.mark.parametrize(("seconds", "breaks"), [(2, True), (71, True), (294, True), (296, False)])
def test_a_connection_that_ends_before_its_time_has_broken(follow, seconds, breaks):
    """Watched on from where it was, a backup that was restored meanwhile would never be heard of."""
    watches = [[event("ADDED", pod("b", 15)), seconds], [None]]
    reported, asked = follow([listed(pod("a"), version=10), listed(pod("b", 14), version=14)], watches)
    if breaks:
        assert asked == [("list", ""), ("watch", "10"), ("list", ""), ("watch", "14")]
        assert reported == [("LISTED", "a"), ("ADDED", "b"), ("LISTED", "b"), ("DELETED", "a")]
        assert (follow.restores, follow.health.errors) == ([2], 1)
    else:
        assert asked == [("list", ""), ("watch", "10"), ("watch", "15")]
        assert follow.health.errors == 0


def test_what_was_replaced_under_the_same_name_is_another(follow):
    again = pod("z")
    again["metadata"]["name"] = "a"
    reported, _ = follow([listed(pod("a")), listed(again)], [[ApiException(status=410)], [None]])
    assert reported == [("LISTED", "a"), ("LISTED", "z"), ("DELETED", "a")]


def test_an_object_that_cannot_be_handled_does_not_hold_up_the_others(follow, caplog):
    watched = [event("MODIFIED", pod("a", 11)), event("MODIFIED", pod("b", 12)), event("DELETED", pod("a", 13))]
    reported, asked = follow([listed(pod("a"), pod("b"))], [[*watched, None]], fails=("a",))
    assert reported == [("LISTED", "a"), ("LISTED", "b"), ("MODIFIED", "a"), ("MODIFIED", "b"), ("DELETED", "a")]
    assert asked == [("list", ""), ("watch", "10")]
    assert "an event of pods is left out: KeyError: 'spec'" in caplog.messages
    assert follow.health.errors == 3


def test_a_deletion_that_the_handler_failed_at_is_reported_again_after_the_next_list(follow):
    watched = [event("DELETED", pod("a", 13)), event("ERROR", {"code": 410, "metadata": {}})]
    reported, _ = follow([listed(pod("a")), listed()], [watched, [None]], fails=("a",))
    assert reported == [("LISTED", "a"), ("DELETED", "a"), ("DELETED", "a")]


def test_a_dead_watch_is_opened_again_before_the_canary_is_missed():
    assert TIMEOUT[1] + FIRST_PAUSE < MISSED * TOUCH_SECONDS


@pytest.mark.parametrize(("selector", "moves"), [(QUERY_LABEL, True), ("", False)])
def test_an_object_with_another_querys_label_is_deleted_only_from_watches_by_that_label(follow, selector, moves):
    """A StreamQuery or a Connection, which may have any labels, is the same one."""
    other = pod("a", 11)
    other["metadata"]["labels"] = {QUERY_LABEL: "other"}
    reported, _ = follow([listed(pod("a"))], [[event("MODIFIED", other), None]], selector=selector)
    assert reported == [("LISTED", "a"), *[("DELETED", "a")] * moves, ("MODIFIED", "a")]


@pytest.mark.parametrize(("version", "restores"), [(14, [2]), (15, []), (16, []), ("a", [])])
def test_an_object_that_is_older_than_it_was_shows_that_a_backup_was_restored(follow, version, restores):
    """It is said before the object is reported."""
    broken = ProtocolError("cut")
    follow([listed(pod("a")), listed(pod("b", version))], [[event("ADDED", pod("b", 15)), broken], [None]])
    assert follow.restores == restores


def test_pauses_grow_until_the_watch_sends_something(follow):
    broken = ApiException(status=503)
    follow([broken] * 7 + [listed()], [[event("ADDED", pod("a", 11)), broken]])
    assert follow.pauses == [1, 2, 4, 8, 16, 30, 30, 1]


def test_a_list_that_breaks_in_the_middle_deletes_nothing(follow):
    reported, _ = follow(
        [listed(pod("a"), pod("b")), listed(pod("a"), more="next"), ApiException(status=500), listed(pod("a"))],
        [[ApiException(status=410)]],
    )
    assert reported[:3] == [("LISTED", "a"), ("LISTED", "b"), ("LISTED", "a")]
    assert reported[3:] == [("LISTED", "a"), ("DELETED", "b")]


def test_health_is_what_was_heard_last_the_errors_and_the_objects(follow):
    broken, gone = ProtocolError("cut"), ApiException(status=410)
    lists = [listed(pod("a"), pod("b")), listed(pod("b")), listed(pod("b"))]
    follow(lists, [[event("BOOKMARK", pod("", 20)), broken], [gone]])
    assert (follow.health.errors, follow.health.objects) == (1, 1)  # a version that is too old is no error


@pytest.mark.parametrize(
    ("lists", "watches"),
    [
        ([listed(pod("a"))], []),
        ([listed()], [[event("ADDED", pod("a", 11))]]),
        ([listed(pod("a"))], [[event("BOOKMARK", pod("", 20))]]),
    ],
    ids=["list", "event", "bookmark"],
)
def test_whatever_the_api_server_sends_makes_a_watch_young(follow, lists, watches):
    follow.ticks = itertools.count()
    follow(lists, watches)
    heard = len(lists) + sum(map(len, watches))
    assert follow.health.age == 1  # the clock goes on by 1 whenever it is read: at the start, and when something comes
    assert next(follow.ticks) == heard + 2
    assert follow.health.objects == 1
