"""What watches report about the objects of queries wakes a query once, and not at all if the operator has done it."""

from typing import Any, cast

from millrace_operator.handlers.owned_objects import DEBOUNCE_SECONDS, OwnedObjects
from millrace_operator.kube.client import Client
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.lifecycle.observed_query import QueryKey
from millrace_operator.lifecycle.workqueue import WorkQueue
from millrace_operator.telemetry.watches import Watches

KEY, OTHER = QueryKey("shop", "totals"), QueryKey("shop", "other")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def config_map(version: int) -> dict[str, Any]:
    metadata = {"name": "totals-plan", "namespace": "shop", "uid": "1", "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "metadata": metadata | {"labels": {"millrace.io/query": "totals"}}}


def test_only_news_wakes_a_query() -> None:
    observations, time = ObservationCache(), Time()
    queue: WorkQueue[QueryKey] = WorkQueue(time)
    objects = OwnedObjects(
        cast(Client, None), [], observations, queue, lambda namespace, name: True, Watches(), lambda: None
    )

    def wakes(type: str, version: int) -> bool:
        objects._on_event(type, config_map(version))
        time.now += 2 * DEBOUNCE_SECONDS
        queue.add(OTHER)
        assert queue.get() == OTHER  # and what is due waits behind it
        queue.done(OTHER)
        if not len(queue):
            return False
        assert queue.get() == KEY
        queue.done(KEY)
        return True

    assert wakes("ADDED", 3)
    observations.object_seen(config_map(5))  # as the operator's own change returns it
    assert not wakes("MODIFIED", 5)
    assert wakes("MODIFIED", 6)
    assert wakes("DELETED", 6)
