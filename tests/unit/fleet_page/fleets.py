"""Fleets as the operator's cache has them, and an API server that says who may see what of them."""

import http.client
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from millrace_operator.kube.review_api import User
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.page.access import Access
from millrace_operator.page.fleet import FleetQueries
from millrace_operator.page.server import FleetPages, FleetServer

NOW = datetime.now(UTC) - timedelta(days=1)  # tests do not depend on when they run


def ago(**units):
    """A time before now as Kubernetes writes it."""
    return (NOW - timedelta(**units)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type, status, reason, message="", since=None):
    changed = since or ago(hours=1)
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": changed}


def status(phase="Running", busy=0.6, lag=0, rate=20_000.0, executors=3, ready=None, conditions=(), **more):
    """The status of a query, by default of one that keeps up."""
    known = {each["type"] for each in conditions}
    usual = (condition("Ready", "True", "Running"), condition("Progressing", "False", "Settled"),
             condition("MetricsAvailable", "True", "Available"), condition("ScalingLimited", "False", "WithinLimits"),
             condition("ScalingActive", "True", "Active"), condition("Degraded", "False", "AsExpected"))  # fmt: skip
    load = {"utilization": busy, "inputRate": rate, "lag": lag, "executorsReady": executors if ready is None else ready,
            "observedTime": ago(seconds=12)}  # fmt: skip
    plan = {"epoch": 4, "algorithm": "dalton", "replicas": 2, "parallelism": 4 * executors, "executors": executors,
            "appliedEpoch": 4}  # fmt: skip
    return {
        "observedGeneration": 1,
        "phase": phase,
        "conditions": [*conditions, *(each for each in usual if each["type"] not in known)],
        "plan": plan,
        "load": load,
        "driver": {"pod": "fares-driver-0", "startTime": ago(hours=3), "restarts": 0},
    } | more


def query(namespace="cabs", name="fares", reported=None, version=1, created=None, annotations=None, **spec):
    """A query as the API server stores it."""
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "generation": 1,
                "resourceVersion": str(version), "creationTimestamp": created or ago(days=3),
                "annotations": annotations or {}}  # fmt: skip
    sql = "SELECT cell, count(*) AS trips\nFROM trips\nWHERE fare < 100\nGROUP BY cell"
    return {"kind": "StreamQuery", "metadata": metadata, "spec": {"query": {"sql": sql}} | spec,
            "status": status() if reported is None else reported}  # fmt: skip


FAILING = status(
    "Failed",
    conditions=(condition("Ready", "False", "BackingOff", "SourceFailed: broker kafka:9092 does not answer",
                          ago(minutes=7)),
                condition("Progressing", "True", "BackingOff", "the driver is started again in 40 s")),
    attempts=[{"time": ago(minutes=2), "reason": "SourceFailed", "message": "broker kafka:9092 does not answer"}],
)  # fmt: skip
LATE = status(
    busy=1.34,
    lag=184_000,
    conditions=(condition("ScalingLimited", "True", "AtMaximum", "spec.executors.max is 3"),),
    lastScaling={"time": ago(minutes=12), "from": {"executors": 2, "parallelism": 8, "replicas": 2},
                 "to": {"executors": 3, "parallelism": 12, "replicas": 2}, "reason": "ScaleOut",
                 "message": "W was 1.52 (batches took 3.04 s, the interval is 2 s), and 51,234 records/s arrive"},
)  # fmt: skip
INVALID = status(
    conditions=(condition("Ready", "False", "InvalidQuery",
                          'spec.query.sql: there is no column "fair": did you mean "fare"?', ago(minutes=3)),),
)  # fmt: skip
DEPLOYING = status(
    "Deploying",
    conditions=(condition("Ready", "False", "Deploying", "container driver: ContainerCreating", ago(seconds=40)),
                condition("Progressing", "True", "Deploying")),
)  # fmt: skip
SUSPENDED = status("Suspended", conditions=(condition("Ready", "False", "Suspended", "spec.suspend is true"),))


def a_mixed_fleet():
    """Queries of two namespaces, of which some fail or fall behind."""
    return [
        query("cabs", "fares-by-zone"),
        query("cabs", "idle-cabs", status(busy=0.12, rate=800.0, executors=1)),
        query("cabs", "tips-by-hour", LATE),
        query("cabs", "trips-by-cell", FAILING),
        query("shops", "orders", status(busy=0.81, rate=51_234.0, lag=1_200, executors=6)),
        query("shops", "orders-enriched", INVALID),
        query("shops", "returns", DEPLOYING, created=ago(minutes=1)),
        query("shops", "stock-levels", SUSPENDED),
    ]


def a_large_fleet(number=1000):
    return [query(f"team-{at % 20}", f"query-{at}", status(busy=at / number)) for at in range(number)]


class ReviewsByList:
    """Reviews as an API server makes them where each token may list the queries of some namespaces; None is all."""

    def __init__(self, **rights):
        self.rights = rights
        self.asked = []
        self.error = None

    def user_of(self, token):
        self.asked.append(("token", token))
        if self.error is not None:
            raise self.error
        return User(f"system:serviceaccount:{token}") if token in self.rights else None

    def may(self, user, verb, namespace="", name=""):
        self.asked.append((verb, namespace, name))
        allowed = self.rights[user.name.rpartition(":")[2]]
        return allowed is None or (verb == "list" and namespace in allowed) or f"{namespace}/{name}" in allowed


def cache_of(queries):
    cache = ObservationCache()
    for each in queries:
        cache.query_seen(each)
    return cache


def pages_of(caches, access, **options):
    """The pages of some caches at the time from which the ages of their queries count, however late a test runs."""
    return FleetPages(FleetQueries(caches), access, now=lambda: NOW, **options)


def pages(queries, reviews, **options):
    return pages_of([cache_of(queries)], Access(reviews), **options)


@contextmanager
def served(fleet_pages):
    server = FleetServer(fleet_pages, "127.0.0.1", 0)
    server.start()
    with closing(server):
        yield server


def ask(server, path="/", method="GET", form=None, **headers):
    """Status, headers and text; names of headers have ``_`` for ``-``."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = None
    if form is not None:
        body = urlencode(form)
        given["Content-Type"] = "application/x-www-form-urlencoded"
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def log_in(server, token):
    """Log in, and return the cookie that the browser keeps."""
    status, headers, text = ask(server, "/login", "POST", {"token": token})
    assert (status, headers["Location"]) == (303, "./"), text
    return headers["Set-Cookie"].partition(";")[0]
