"""``millrace report`` of a query on a cluster: a real API server has its spec, status and events, Prometheus the rest."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from builders import PIN, a_batch
from lab.prometheus import PrometheusServer, running_prometheus
from lab.waiting import wait_until
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_operator.metrics_source.client import Prometheus
from millrace_operator.metrics_source.settings import PrometheusSettings
from prometheus.jobs import driver
from spark.cli import Result
from unit.api.documents import ON_CLUSTER
from unit.commands.queries import BUSY

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.timeout(1200)]

NAME = "trips-by-cell"
POD = f"{NAME}-driver-0"
LATE = a_batch(seconds=3.0, steps={"addBatch": 2.8}, rows=900, pin=PIN)


class PastQuery(NamedTuple):
    """A query that has run, and the URL of the Prometheus that has scraped it."""

    prometheus: str
    kubectl: Callable[..., str]


def moment(seconds_ago: float = 0.0) -> str:
    return f"{datetime.now(UTC) - timedelta(seconds=seconds_ago):%Y-%m-%dT%H:%M:%SZ}"


def an_event(namespace: str, name: str, reason: str, **changes: Any) -> dict[str, Any]:
    """An event as the operator writes it."""
    about = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "name": NAME, "namespace": namespace}
    known = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about}
    times = {"firstTimestamp": moment(), "lastTimestamp": moment()}
    return known | times | {"reason": reason, "type": "Normal"} | changes


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), scrape_interval="500ms") as server:
        yield server


@pytest.fixture
def past_query(kubectl: Callable[..., str], namespace: str, prometheus: PrometheusServer) -> PastQuery:
    """A query with five late batches, a decision of the operator, and a failed run before."""
    kubectl("apply", "-f", "-", document=ON_CLUSTER)
    status = BUSY | {"lastScaling": BUSY["lastScaling"] | {"time": moment()}}
    kubectl("patch", "sq", NAME, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    metrics = JobMetrics(NAME)
    metrics.record(a_batch())
    client = Prometheus(PrometheusSettings(prometheus.url))
    with driver(metrics, namespace, pod=POD) as job:
        prometheus.scrape({job.address: job.labels})
        for number in range(1, 6):
            count = f'millrace_batches_total{{query="{NAME}",namespace="{namespace}"}} == {number}'
            wait_until(lambda expected=count: bool(client.instant(expected)))
            time.sleep(4.0)  # a report has a point for every five seconds
            metrics.record(LATE)
        wait_until(lambda: bool(client.instant(f'millrace_batches_total{{namespace="{namespace}"}} == 6')))
        kubectl(
            "create", "-f", "-", document=an_event(namespace, "decided", "ScaleOut", message="from 2 to 3 executors.")
        )
        kubectl(
            "create", "-f", "-", document=an_event(namespace, "begun", "DriverCreated", message="the driver is created")
        )
        of_events_api = {"firstTimestamp": None, "lastTimestamp": None, "eventTime": f"{moment()[:-1]}.000000Z",
                         "action": "Note", "reportingComponent": "test", "reportingInstance": "test"}  # fmt: skip
        kubectl("create", "-f", "-", document=an_event(namespace, "empty", "Noted", **of_events_api))
        time.sleep(6.0)
    client.close()
    return PastQuery(prometheus.url, kubectl)


def plain_page(result: Result) -> str:
    assert (result.status, result.err) == (0, ""), result
    return re.sub(r"<[^>]*>", " ", result.out)


def test_a_query_on_a_cluster_has_a_page_of_its_batches_and_decisions(
    past_query: PastQuery, millrace: Callable[..., Result]
) -> None:
    page = plain_page(millrace("report", NAME, "--since", "10m", "--prometheus", past_query.prometheus, "-o", "-"))
    assert f"figures  Prometheus at {past_query.prometheus}" in page
    assert "Batches are late" in page
    assert "ScaleOut: from 2 to 3 executors." in page.replace("scaleOut", "ScaleOut")
    assert "DriverCreated: the driver is created" in page
    assert "Noted" in page
    assert page.count("Decision of the operator") == 1
