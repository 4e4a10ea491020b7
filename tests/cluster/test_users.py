"""Pods of users without a name, as OpenShift assigns them."""

from __future__ import annotations

from typing import Any

import pytest

from lab.deployed import Deployed, document
from lab.installation import Installation
from lab.waiting import wait_until

pytestmark = [pytest.mark.in_turn, pytest.mark.cluster, pytest.mark.timeout(1800)]

ASSIGNED = {"runAsUser": 1000670000, "runAsGroup": 0, "fsGroup": 1000670000}


def test_a_query_runs_as_any_user(installation: Installation, namespace: str) -> None:
    query = Deployed(installation, namespace, "arbitrary")
    made = document(
        "arbitrary",
        sources={"ticks": {"rate": {"recordsPerSecond": 10}}},
        query={"sql": "SELECT key, value FROM ticks WHERE value >= 0.5"},
        sink={"console": {}},
    )
    for part in ("driver", "executors"):
        made["spec"][part]["podTemplate"]["spec"]["securityContext"] = ASSIGNED
    query.apply(made)
    query.wait_until_running()
    wait_until(lambda: "key-" in query.log, "the console shows rows")
    pods: list[dict[str, Any]] = [query.driver, *query.executors]
    assert len(pods) == 2
    for pod in pods:
        assert query.kubectl("exec", pod["metadata"]["name"], "--", "id", "-u").strip() == "1000670000"
        assert all(each["restartCount"] == 0 for each in pod["status"]["containerStatuses"])
