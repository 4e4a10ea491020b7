"""Two operators that share the queries: each is one's alone."""

from __future__ import annotations

import pytest

from millrace_operator.leadership.shard import Shard

from .deployed import apply_queries, are_deployed
from .observed import wait_until
from .operators import ask, start_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

NAMES = [f"query-{number}" for number in range(20)]


def test_each_query_is_deployed_by_the_operator_of_its_shard(plane, namespace, kubectl, tmp_path):
    users, operators = {"operator-a": "1/2", "operator-b": "2/2"}, []
    try:
        for user, shard in users.items():
            kubeconfig = plane.kubeconfig_of(user, tmp_path / f"{user}.kubeconfig")
            options = ("--leader-elect", "--shard", shard)
            log = tmp_path / f"{user}.log"
            operators.append(start_operator(plane, log, *options, namespace=namespace, kubeconfig=kubeconfig))
        apply_queries(kubectl, NAMES)
        wait_until(lambda: are_deployed(kubectl, NAMES))
        pages = [ask(operator, "/metrics")[1] for operator in operators]
    finally:
        for operator in operators:
            operator.kill()
    owners = {name: "operator-a" if Shard(1, 2).owns(namespace, name) else "operator-b" for name in NAMES}
    assert set(owners.values()) == set(users)
    found = {
        (event["objectRef"]["name"], event["user"]["username"])
        for event in plane.changes()
        if event["objectRef"].get("namespace") == namespace and event["objectRef"].get("subresource") == "status"
    }
    canaries = {(f"millrace-canary-{number}-of-2", user) for number, user in enumerate(users, start=1)}
    assert found - canaries == set(owners.items())
    for user, page in zip(users, pages, strict=True):
        phases = [float(line.split()[1]) for line in page.splitlines() if line.startswith("millrace_operator_queries{")]
        assert sum(phases) == list(owners.values()).count(user)
    leases = kubectl("get", "leases", "-o", "name").split()
    assert leases == [f"lease.coordination.k8s.io/millrace-operator-{number}-of-2" for number in (1, 2)]
