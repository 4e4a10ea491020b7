"""A change of a Connection under queries of two operators' shards: one driver after the other, and a mistake costs one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane import ControlPlane
from millrace_operator.leadership.shard import Shard

from .connection_objects import connection, query
from .observed import status_of, wait_until
from .operators import running_operator
from .played_pods import fail, show, stamp

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

Kubectl = Callable[..., str]
SHARDS = ("1/2", "2/2")


@contextmanager
def operators(plane: ControlPlane, folder: Path, namespace: str) -> Iterator[None]:
    """Run an operator for each shard."""
    with ExitStack() as stack:
        for number, shard in enumerate(SHARDS):
            place = folder / f"operator-{number}"
            place.mkdir(exist_ok=True)
            options = ("--leader-elect", "--shard", shard)
            stack.enter_context(running_operator(plane, place, *options, namespace=namespace))
        yield


def names_in(namespace: str) -> list[str]:
    """Return names in their order, of which every second one is of the other shard."""
    found: list[str] = []
    for number in count(100):
        if Shard(1, 2).owns(namespace, name := f"query-{number}") == (len(found) % 2 == 0):
            found.append(name)
            if len(found) == 3:
                return found
    raise AssertionError


def pods(kubectl: Kubectl) -> dict[str, str]:
    """The uids of the drivers' pods, by query."""
    found = json.loads(kubectl("get", "pod", "-o", "json"))["items"]
    return {each["metadata"]["labels"]["millrace.io/query"]: each["metadata"]["uid"] for each in found}


def become_ready(kubectl: Kubectl, name: str, ago: timedelta = timedelta(minutes=2)) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(ago)}
    show(kubectl, f"{name}-driver-0", phase="Running", conditions=[ready])


def updates(kubectl: Kubectl, names: list[str]) -> list[tuple[int, str | None]]:
    """The generation that each query has seen, and how far it follows it."""
    seen = [status_of(kubectl, name).get("connections", [{"generation": 0}])[0] for name in names]
    return [(each["generation"], each.get("update")) for each in seen]


def progressing(kubectl: Kubectl, name: str) -> dict[str, Any]:
    return next(each for each in status_of(kubectl, name)["conditions"] if each["type"] == "Progressing")


@pytest.mark.in_turn
def test_queries_of_two_shards_follow_one_after_the_other_and_none_after_a_rollback(
    plane: ControlPlane, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    names = names_in(namespace)
    with operators(plane, tmp_path, namespace):
        kubectl("apply", "-f", "-", document=connection())
        for name in names:
            kubectl("apply", "-f", "-", document=query() | {"metadata": {"name": name}})
        wait_until(lambda: sorted(pods(kubectl)) == names)
        for name in names:
            become_ready(kubectl, name)
        wait_until(lambda: all(f"{name}-healthy" in kubectl("get", "cm", "-o", "name") for name in names))
        before = pods(kubectl)
        kubectl("apply", "-f", "-", document=connection(bootstrapServers="kafka:9094"))
        wait_until(lambda: updates(kubectl, names) == [(2, "Replacing"), (2, "Waiting"), (2, "Waiting")])
        wait_until(lambda: pods(kubectl).get(names[0]) not in (None, before[names[0]]))
    with operators(plane, tmp_path, namespace):  # which know only what is there
        for number, name in enumerate(names):
            wait_until(lambda name=name: pods(kubectl).get(name) not in (None, before[name]))  # type: ignore[misc]
            later = names[number + 1 :]
            assert updates(kubectl, later) == [(2, "Waiting")] * len(later)
            assert [pods(kubectl)[each] for each in later] == [before[each] for each in later]
            become_ready(kubectl, name)
        wait_until(lambda: updates(kubectl, names) == [(2, None)] * 3)

        before = pods(kubectl)
        kubectl("apply", "-f", "-", document=connection(bootstrapServers="wrong:9094"))
        wait_until(lambda: pods(kubectl).get(names[0]) not in (None, before[names[0]]))
        for run in (1, 2):
            fail(kubectl, "InvalidConfiguration", "no such brokers", run, f"{names[0]}-driver-0")
            wait_until(lambda run=run: len(status_of(kubectl, names[0]).get("attempts", ())) >= run)  # type: ignore[misc]
        wait_until(lambda: updates(kubectl, names) == [(3, "RolledBack"), (3, "Waiting"), (3, "Waiting")])
        for name in names[1:]:
            wait_until(lambda name=name: progressing(kubectl, name)["reason"] == "RolloutHeld")  # type: ignore[misc]
            assert f"query {names[0]} was rolled back from it: " in progressing(kubectl, name)["message"]
            assert pods(kubectl)[name] == before[name]
