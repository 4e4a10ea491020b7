"""Whatever people and drivers do, and wherever the operator dies meanwhile: it ends as it would have without."""

import ast
import copy
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.lifecycle.objects.as_applied import APPLIED
from unit.api.documents import MINIMAL, changed

from .cluster import POD, SET, Cluster

OTHER_SQL = changed(MINIMAL, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell")
KAFKA = changed(MINIMAL, 7, '      kafka: {bootstrapServers: "kafka:9092", topic: trips}')
SECRET = re.compile(r"trips-by-cell-auth-\d+")
CONFIGURATION = re.compile(r"trips-by-cell-query-[0-9a-f]{10}")
ACTS = {
    "dedicated": lambda cluster: cluster.put(KAFKA + "  partitioner: {placement: Dedicated}\n"),
    "inline": lambda cluster: cluster.put(KAFKA),
    "acknowledge": lambda cluster: cluster.driver_follows(executors=1, partitions=8),
    "create": lambda cluster: cluster.put(MINIMAL),
    "scale": lambda cluster: cluster.put(changed(MINIMAL, 12, "  executors: {initial: 4}")),
    "suspend": lambda cluster: cluster.put(changed(MINIMAL, 12, "  suspend: true")),
    "replace": lambda cluster: cluster.put(OTHER_SQL),
    "restart": lambda cluster: cluster.put(OTHER_SQL + "  restartNonce: 7\n"),
    "invalid": lambda cluster: cluster.put(changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")),
    "ready": lambda cluster: cluster.pod and cluster.pod["status"].update(_ready(cluster)),
    "fail": lambda cluster: cluster.pod and cluster.pod["status"].update(_failed(cluster)),
    "wait": lambda cluster: setattr(cluster, "time", cluster.time.replace(minute=(cluster.time.minute + 2) % 60)),
    "service": lambda cluster: cluster.objects.pop(("Service", "trips-by-cell-driver"), None),
}
"""``wait`` moves on by two minutes, within the hour."""


def _ready(cluster):
    since = cluster.time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}


def _failed(cluster):
    ended = {"exitCode": 1, "finishedAt": cluster.time.strftime("%Y-%m-%dT%H:%M:%SZ"), "containerID": str(cluster.time)}
    return {"conditions": [], "containerStatuses": [{"name": "driver", "lastState": {"terminated": ended}}]}


def end_of(acts, deaths):
    """What there is after the acts; the operator dies before the action of each number, counted from the one before."""
    cluster, left = Cluster(), list(deaths)
    for act in ("create", *acts):
        ACTS[act](cluster)
        if act in ("ready", "fail") and cluster.pod:
            cluster._changed(cluster.pod)
        while True:
            cluster.dies_at = left[0] if left else None
            try:
                cluster.start_operator() if act == "service" else None
                cluster.settle()
                break
            except ConnectionError:
                left.pop(0)
                cluster.start_operator()
    return _comparable(cluster)


def _comparable(cluster):
    """The query and its objects without what differs each time, such as names of Secrets; each of those is there.

    So are the configurations that are mounted, and no others.
    """
    mounted = {name for each in cluster.objects.values() for name in SECRET.findall(str(each))}
    assert mounted <= cluster.secrets
    found = copy.deepcopy({"query": cluster.query, **cluster.objects})
    for each in found.values():
        for name in ("resourceVersion", "uid", "creationTimestamp"):
            each["metadata"].pop(name, None)
        each["metadata"].get("annotations", {}).pop(APPLIED, None)
        if each["kind"] == "StatefulSet":
            del each["metadata"]["generation"], each["status"]
    for at in (POD, SET):
        assert at not in cluster.objects or cluster.configuration(at)
    pods = [each for each in cluster.objects.values() if each["kind"] in ("Pod", "StatefulSet")]
    assert cluster.configurations == {name for each in pods for name in CONFIGURATION.findall(str(each))}
    return ast.literal_eval(CONFIGURATION.sub("trips-by-cell-query", SECRET.sub("trips-by-cell-auth", str(found))))


@settings(max_examples=40, deadline=None)
@given(
    acts=st.lists(st.sampled_from(sorted(ACTS)), max_size=7),
    deaths=st.lists(st.integers(0, 14), min_size=1, max_size=5),
)
def test_deaths_make_no_difference(acts, deaths):
    assert end_of(acts, deaths) == end_of(acts, [])
