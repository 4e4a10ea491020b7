"""Watches that break: deletions in the meantime are reported, and the operator goes on."""

import asyncio
import contextlib
import hashlib
import inspect
import itertools

import pytest
from kopf._cogs.clients import watching
from kopf._cogs.clients.errors import APIError, APIForbiddenError
from kopf._cogs.configs.configuration import OperatorSettings
from kopf._cogs.structs.references import Resource

from millrace_operator.kube import kopf_watches
from millrace_operator.telemetry.watches import Watches, WatchHealth

PODS = Resource("", "v1", "pods")
LISTED = watching.Bookmark.LISTED


def events(type, *uids):
    return [
        {"type": type, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": uid, "name": uid}}}
        for uid in uids
    ]


def refusal(status):
    kind = APIForbiddenError if status == 403 else APIError
    return kind({"code": status, "message": "no"}, status=status, headers={})


@pytest.fixture
def follow(monkeypatch):
    """Follows watches that give these things, one watch after the other; what came of each."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    def run(*watches, namespace=None):
        begun = iter(watches)

        async def of_kopf(**_):
            for each in next(begun):
                if isinstance(each, Exception):
                    raise each
                yield each

        monkeypatch.setattr(kopf_watches, "_kopf_watch", of_kopf)
        monkeypatch.setattr(kopf_watches.asyncio, "sleep", sleep)
        run.noted.clear()
        patched = kopf_watches.PatchedWatches(
            run.health,
            lambda kind, body: run.noted.append((kind, body["metadata"]["uid"])),
            lambda namespace: run.noted.append(("LISTED", namespace)),
            lambda: run.noted.append(("RESTORED", None)),
        )

        async def all_of_them():
            return [[each async for each in patched.follow(resource=PODS, namespace=namespace)] for _ in watches]

        return [
            [(each["type"], each["object"]["metadata"]["uid"]) for each in came if isinstance(each, dict)]
            for came in asyncio.run(all_of_them())
        ]

    run.pauses, run.health, run.noted = pauses, Watches(), []
    return run


def test_what_went_between_two_watches_is_told_as_deleted(follow):
    first = [*events(None, "a", "b"), LISTED, *events("ADDED", "c"), *events("DELETED", "b")]
    second = [*events(None, "c"), LISTED, *events("MODIFIED", "c")]
    assert follow(first, second)[1] == [(None, "c"), ("DELETED", "a"), ("MODIFIED", "c")]


def test_all_events_are_noted_before_the_list_counts_as_complete(follow):
    first = [*events(None, "a", "b"), LISTED, *events("ADDED", "c")]
    second = [*events(None, "c"), LISTED]
    follow(first, second)
    follow.noted[5:7] = sorted(follow.noted[5:7])
    listed = ("LISTED", None)
    assert follow.noted == [
        (None, "a"), (None, "b"), listed, ("ADDED", "c"), (None, "c"), ("DELETED", "a"), ("DELETED", "b"), listed
    ]  # fmt: skip


def test_what_was_replaced_under_the_same_name_is_another(follow):
    assert follow([*events(None, "a"), LISTED], [*events(None, "z"), LISTED])[1] == [(None, "z"), ("DELETED", "a")]


def test_a_list_that_breaks_deletes_nothing(follow):
    broken = [*events(None, "a"), refusal(500)]
    assert follow([*events(None, "a", "b"), LISTED], broken, [*events(None, "a"), LISTED])[1:] == [
        [(None, "a")],
        [(None, "a"), ("DELETED", "b")],
    ]


def test_a_query_that_is_older_than_it_was_shows_that_a_backup_was_restored(follow):
    def at(version, kind):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": "a", "resourceVersion": version}}
        return {"type": kind, "object": body}

    follow([at("9", None), LISTED, at("10", "MODIFIED")], [at("10", None), LISTED], [at("9", None), LISTED])
    assert follow.noted[-3:] == [("RESTORED", None), (None, "a"), ("LISTED", None)]
    assert follow.noted.count(("RESTORED", None)) == 1


@pytest.mark.parametrize(("seconds", "breaks"), [(2, True), (71, True), (294, True), (296, False)])
def test_a_connection_that_ends_before_its_time_has_broken(monkeypatch, seconds, breaks):
    """Kopf would watch on, and never hear of a backup that was restored meanwhile."""
    settings = OperatorSettings()
    settings.watching.server_timeout = 300
    clock = iter([0.0, float(seconds)])

    async def of_kopf(**_):
        for each in events("ADDED", "a"):
            yield each

    async def came():
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: next(clock, seconds + 1.0))
        return [each async for each in kopf_watches._stream(settings=settings)]

    monkeypatch.setattr(kopf_watches, "_kopf_stream", of_kopf)
    with pytest.raises(watching.WatchingError) if breaks else contextlib.nullcontext():
        assert asyncio.run(came()) == events("ADDED", "a")


@pytest.mark.parametrize("error", [refusal(410), refusal(503), watching.WatchingError("410")], ids=str)
def test_what_may_pass_is_started_again_after_a_pause_that_grows(follow, error):
    assert follow(*([[error]] * 7)) == [[]] * 7
    assert follow.pauses == [1, 2, 4, 8, 16, 30, 30]


def test_what_a_person_has_to_look_at_is_raised(follow):
    with pytest.raises(APIForbiddenError):
        follow([refusal(403)])


@pytest.mark.parametrize("status", [403, 404])
def test_a_namespace_that_is_refused_loses_its_objects_until_it_can_be_listed(follow, status):
    first, back = [*events(None, "a", "b"), LISTED], [*events(None, "c"), LISTED]
    found = follow(first, [refusal(status)], [refusal(status)], namespace="gone")
    assert found[1:] == [[("DELETED", "a"), ("DELETED", "b")], []]
    assert follow.health.refused == ["gone"]
    assert follow.noted[-4:] == [("DELETED", "a"), ("DELETED", "b"), ("LISTED", "gone"), ("LISTED", "gone")]
    assert follow.health.stale == []
    assert follow(back, namespace="gone") == [[(None, "c")]]
    assert follow.health.refused == []


def test_kopf_reports_its_errors_and_objects_like_our_informers(follow):
    follow([*events(None, "a", "b"), LISTED, *events("DELETED", "a")], [refusal(503)], [refusal(410)])
    ((health,),) = follow.health.by_resource().values()
    assert (health.resource, health.errors, health.objects) == ("pods", 2, 1)


@pytest.mark.parametrize(
    "watch", [[LISTED], events("ADDED", "a"), events("BOOKMARK", "")], ids=["list", "event", "bookmark"]
)
def test_whatever_kopf_hears_makes_its_watch_young(follow, watch, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(follow.health, "_watches", {("pods", None): WatchHealth("pods", clock=lambda: next(ticks))})
    follow(watch)
    assert follow.health.of("pods", None).age == 1  # the clock goes on by 1 whenever it is read
    assert next(ticks) == 3


READ = {
    "continuous_watch": "e84c2b044d828e98",
    "infinite_watch": "624e1e72b2c38dde",
}
"""What was replaced in kopf 1.45.2, and what calls it, by the first digits of their sources' SHA-256."""


@pytest.mark.parametrize("function", READ)
def test_what_is_replaced_in_kopf_is_what_was_read(function):
    """With another kopf, read both functions again, check that the patch still fits, and write their checksums here."""
    original = kopf_watches._kopf_watch if function == "continuous_watch" else getattr(watching, function)
    assert hashlib.sha256(inspect.getsource(original).encode()).hexdigest()[:16] == READ[function]
