"""The API server refuses, hangs, loses answers, ends watches, or is away: afterwards all is as without it."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.api_proxy import ApiProxy, Delay, EndWatch, Fault, LoseAnswer, Refuse, Request, Rule
from lab.control_plane import ControlPlane, running_control_plane
from lab.ports import free_port
from lab.processes import Process

from .conftest import install_crd
from .deployed import apply_queries, are_deployed
from .observed import wait_until
from .operators import ask, start_operator

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(1800)]

NEW, CHANGED, SUSPENDED, DELETED = (
    tuple(f"{what}-{number}" for number in range(2)) for what in ("fluid", "changed", "suspended", "deleted")
)
"""Names of queries, by what happens to them during a fault. A refusal names them: "uid" in it says nothing then."""

KINDS = ("sts", "svc", "cm", "pdb", "netpol", "role", "rolebinding", "sa", "pod")
OBJECTS = 10
"""That each query has, with the driver's pod."""

OUTAGE = 75.0
"""Seconds: longer than kopf tries by default, also from the start of an operator that has lost its lease meanwhile."""

IMAGE, OTHER_IMAGE = "example.org/jobs:1", "example.org/jobs:2"

LEADING = ("--leader-elect", "--lease-seconds", "15")

MOST_CHANGES, MOST_READS = 2, 20
"""Requests a second: for each query, and for all the kinds together that are watched."""


class Kept:
    """An operator by way of a proxy that is started again when it has ended by itself, as Kubernetes does."""

    def __init__(self, plane: ControlPlane, proxy: ApiProxy, folder: Path, *options: str, namespace: str) -> None:
        kubeconfig = plane.kubeconfig_of("operator-a", folder / "operator.kubeconfig", proxy.url)
        self._start = lambda: start_operator(
            plane, folder / "operator.log", "--image", IMAGE, *options, namespace=namespace, kubeconfig=kubeconfig
        )
        self.operator: Process = self._start()
        self.ends = 0

    def tend(self) -> None:
        """Start it again where it has ended."""
        if self.operator.status is not None:
            assert self.operator.status == 1, self.operator.said[-5000:]
            self.ends += 1
            self.operator = self._start()

    def for_seconds(self, seconds: float) -> None:
        """Tend it so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tend()
            time.sleep(0.5)

    def until(self, condition: Callable[[], bool]) -> None:
        """Tend it until that holds."""

        def tended() -> bool:
            self.tend()
            return condition()

        wait_until(tended)


@contextmanager
def kept_operator(plane: ControlPlane, folder: Path, *options: str, namespace: str) -> Iterator[tuple[Kept, ApiProxy]]:
    """One that is ready, and the proxy by which it asks the API server."""
    proxy = ApiProxy(free_port(), int(plane.url.rpartition(":")[2]), plane.authority)
    try:
        kept = Kept(plane, proxy, folder, *options, namespace=namespace)
        try:
            wait_until(lambda: ask(kept.operator, "/readyz")[0] == 200)
            yield kept, proxy
        finally:
            kept.operator.kill()
    finally:
        proxy.close()


def prepare(kubectl: Callable[..., str]) -> None:
    """Deploy what is changed, suspended and deleted later."""
    before = CHANGED + SUSPENDED + DELETED
    apply_queries(kubectl, before)
    wait_until(lambda: are_deployed(kubectl, before))


def disturb(kubectl: Callable[..., str]) -> None:
    """Do all that users do with queries."""
    apply_queries(kubectl, NEW)
    for name in CHANGED:
        kubectl("patch", "sq", name, "--type=merge", "-p", json.dumps({"spec": {"image": OTHER_IMAGE}}))
    for name in SUSPENDED:
        kubectl("patch", "sq", name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    kubectl("delete", "sq", *DELETED, "--wait=false")
    kubectl("delete", "svc", f"{CHANGED[0]}-driver")


def has_converged(kubectl: Callable[..., str]) -> bool:
    """Whether all is as users want it; fails with what is not."""
    queries = {each["metadata"]["name"]: each for each in listed(kubectl, "sq", "-l", "!millrace.io/canary")}
    objects = listed(kubectl, ",".join(KINDS), "-l", "millrace.io/query")
    owned = Counter(each["metadata"]["labels"]["millrace.io/query"] for each in objects)
    assert owned == dict.fromkeys(NEW + CHANGED, OBJECTS) | dict.fromkeys(SUSPENDED, OBJECTS - 1), owned
    assert sorted(queries) == sorted(NEW + CHANGED + SUSPENDED), list(queries)
    for name, query in queries.items():
        status = query.get("status", {})
        phase = "Suspended" if name in SUSPENDED else "Deploying"
        assert (status.get("phase"), status.get("observedGeneration")) == (phase, query["metadata"]["generation"]), name
        assert ((status.get("driver") or {}).get("revision") == status["revision"]) == (phase == "Deploying"), name
    images = {
        each["metadata"]["labels"]["millrace.io/query"]: each["spec"]["containers"][0]["image"]
        for each in objects
        if each["kind"] == "Pod"
    }
    assert images == dict.fromkeys(NEW, IMAGE) | dict.fromkeys(CHANGED, OTHER_IMAGE), images
    return True


def listed(kubectl: Callable[..., str], *what: str) -> list[dict[str, Any]]:
    return list(json.loads(kubectl("get", *what, "-o", "json"))["items"])


def every_second(fault: Fault) -> Rule:
    """That fault for every second request."""
    numbers = itertools.count()
    return lambda request: fault if next(numbers) % 2 else None


def on(condition: Callable[[Request], bool], fault: Fault) -> Rule:
    """That fault for some requests."""
    return lambda request: fault if condition(request) else None


def is_status(request: Request) -> bool:
    return request.method == "PATCH" and request.path.endswith("/status")


def changes(request: Request) -> bool:
    return request.changes


def watches(request: Request) -> bool:
    return request.watches


def anything(request: Request) -> bool:
    return True


def is_bounded(made: Counter[str], seconds: float) -> bool:
    """Whether so many requests in so many seconds are few enough."""
    queries = len(NEW + CHANGED + SUSPENDED + DELETED)
    reads = made["read"] + made["watch"]
    return made["change"] <= MOST_CHANGES * queries * seconds and reads <= MOST_READS * seconds


def done_by(plane: ControlPlane, *arguments: str, document: object = None) -> str:
    """Run ``kubectl``; what it printed."""
    done = plane.kubectl(*arguments, document=document)
    assert done.returncode == 0, done.stderr
    return done.stdout


FAULTS: dict[str, tuple[Callable[[], Rule], float]] = {
    "changes are too many": (partial(on, changes, Refuse(429, retry_after=1)), 10),
    "every second request fails": (partial(every_second, Refuse(500)), 15),
    "the status is in conflict": (partial(on, is_status, Refuse(409)), 8),
    "watches are refused as too old": (partial(on, watches, Refuse(410)), 10),
    "watches end as too old": (partial(on, watches, EndWatch(1.0)), 15),
    "every second answer is lost": (partial(every_second, LoseAnswer()), 15),
    "every second answer is cut": (partial(every_second, LoseAnswer(half=True)), 15),
    "changes hang": (partial(on, changes, Delay(20.0)), 40),
    "all is slow": (partial(on, anything, Delay(2.0)), 40),
}
"""What happens to requests, and for how many seconds."""

LONG = ("every second answer is lost", "every second answer is cut", "changes hang", "all is slow")
"""Minutes each."""


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=pytest.mark.slow(minutes=1) if each in LONG else ()) for each in FAULTS]
)
def test_after_a_fault_all_is_as_without_it(plane, namespace, kubectl, tmp_path, fault):
    rule, seconds = FAULTS[fault][0](), FAULTS[fault][1]
    options = LEADING if fault == "all is slow" else ()
    with kept_operator(plane, tmp_path, *options, namespace=namespace) as (kept, proxy):
        prepare(kubectl)
        before = proxy.counted
        with proxy.fault(rule):
            proxy.break_watches()
            disturb(kubectl)
            kept.for_seconds(seconds)
            made = proxy.counted - before
        kept.until(lambda: has_converged(kubectl))
        assert is_bounded(made, seconds), made
        assert options or kept.ends == 0


@pytest.mark.slow(minutes=1.7)
@pytest.mark.parametrize("options", [LEADING, ()], ids=["leading", "alone"])
def test_after_an_outage_all_is_as_without_it(tmp_path_factory, tmp_path, options):
    with running_control_plane(tmp_path_factory.mktemp("own-control-plane")) as plane:
        install_crd(plane)
        kubectl = partial(done_by, plane)
        with kept_operator(plane, tmp_path, *options, namespace="default") as (kept, proxy):
            prepare(kubectl)
            before = proxy.counted
            apply_queries(kubectl, NEW)  # the operator is in the middle of it
            plane.part("kube-apiserver").kill()
            kept.for_seconds(OUTAGE)
            made = proxy.counted - before
            plane.restart("kube-apiserver")
            disturb(kubectl)  # before the operator watches again
            for part in ("kube-controller-manager", "kube-scheduler"):
                plane.restart(part)  # or else they pause for longer than the operator
            kept.until(lambda: has_converged(kubectl))
            assert is_bounded(made, OUTAGE), made
            assert kept.ends == 1 if options else kept.ends == 0
