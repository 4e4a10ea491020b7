"""From ``helm install`` to results: a query that is applied runs in pods, and computes what DuckDB does."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from lab import topics
from lab.deployed import Deployed, document
from lab.installation import NAMESPACE, Installation
from lab.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SQL = """
SELECT cell, count(*) AS trips, sum(fare) AS fares, min(fare) AS lowest, max(fare) AS highest, avg(fare) AS mean,
       approx_count_distinct(fare % 2) AS parities, stddev(fare) AS deviation, stddev_pop(fare) AS deviation_of_all,
       variance(fare) AS variance, var_pop(fare) AS variance_of_all
FROM trips GROUP BY cell
"""
"""Every aggregate that is routed: the image has what they need."""

RECORDS = 20_000


def trips() -> pa.Table:
    """Fares in cents, so that sums are exact, of cells of which some have many trips."""
    random = np.random.default_rng(11)
    cells = [f"cell-{number}" for number in random.zipf(1.4, RECORDS) % 200]
    return pa.table({"cell": cells, "fare": random.integers(250, 9000, RECORDS)})


def answer(trips: pa.Table) -> dict[str, Any]:
    """What the query comes to, by cell."""
    connection = duckdb.connect()
    connection.register("trips", trips)
    found = connection.execute(SQL.replace("approx_count_distinct(", "count(DISTINCT "))
    names = [column[0] for column in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return {row.pop("cell"): pytest.approx(row | {"fares": int(row["fares"])}, rel=1e-9) for row in rows}


def test_a_query_that_is_applied_computes_in_pods_what_duckdb_does(installation: Installation, namespace: str) -> None:
    broker, given = installation.broker, trips()
    topics.make(broker, "trips", 4)
    topics.make(broker, "trips-by-cell", 2, cleanup_policy="compact")
    topics.fill(broker, "trips", given.to_pylist())
    query = Deployed(installation, namespace, "trips-by-cell")
    query.apply(
        document(
            "trips-by-cell",
            sources={
                "trips": {
                    "kafka": {"bootstrapServers": broker.bootstrap, "topic": "trips", "startingOffsets": "Earliest"},
                    "schema": "cell STRING, fare BIGINT",
                }
            },
            query={"sql": SQL},
            sink={"table": {"bootstrapServers": broker.bootstrap, "topic": "trips-by-cell"}},
            executors={"initial": 2, "max": 2},
            partitioner={"algorithm": "pkg"},
        )
    )
    query.wait_until_running()

    wanted = answer(given)
    wait_until(lambda: table(installation) == wanted, "the table is what DuckDB computes")
    pods = [query.pod, *(each["metadata"]["name"] for each in query.executors)]
    assert len(pods) == 3
    assert all("spark-classes.jsa" in mapped(query, pod) for pod in pods)
    assert query.driver["status"]["containerStatuses"][0]["restartCount"] == 0
    said = refused_uninstall(installation)
    assert f"{namespace}/{query.name}" in said
    query.kubectl("delete", "sq", query.name)
    assert query.kubectl("get", "pods", "-o", "name") == ""


def refused_uninstall(installation: Installation) -> str:
    """Try to uninstall the release, go on with it, and return what the hook's Job said."""
    with pytest.raises(AssertionError, match="millrace-uninstall"):
        installation.helm("uninstall", "--timeout=120s")
    said = installation.kubectl("-n", NAMESPACE, "logs", "job/millrace-uninstall")
    installation.kubectl("-n", NAMESPACE, "delete", "job", "millrace-uninstall", "--cascade=foreground")
    installation.helm("rollback", str(installation.revision))  # later tests upgrade it
    installation.wait_for_operator()
    return said


def mapped(query: Deployed, pod: str) -> str:
    """The files that the processes of a pod have in their memory."""
    return query.kubectl("exec", pod, "--", "sh", "-c", "cat /proc/[0-9]*/maps 2>/dev/null || true")


def table(installation: Installation) -> dict[str, dict[str, Any]]:
    """What the topic of results comes to, by cell."""
    held = topics.table_of(topics.committed(installation.broker, "trips-by-cell"))
    rows = [json.loads(value) for value in held.values()]
    return {row.pop("cell"): row for row in rows}
