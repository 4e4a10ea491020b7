"""What a pod of a tenant may export, scraped by a real Prometheus as the chart's monitors have it: only its own suffers."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from builders import a_batch
from lab.alerts import faster_rules
from lab.waiting import wait_until
from millrace_jobs.run.job_metrics import JobMetrics
from unit.chart.tools import find, rendered

from .jobs import PATIENCE, answer_with, driver, targets

soon = partial(wait_until, seconds=PATIENCE)

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(600)]

QUERY = "__meta_kubernetes_pod_label_millrace_io_query"
TEXT = r"<a href='http://mallory.example'>q</a> has failed {{ $value }} <!channel>"
PASSES_FOR = f'namespace="ns", pod="q-driver-0", job="pods", exported_namespace="ns", query="{TEXT}"'
LATER = round(time.time() + 300) * 1000
"""In milliseconds, as times of samples are written; Prometheus takes those of the next ten minutes."""

INVENTED = f"""\
millrace_batches_total{{{PASSES_FOR}}} 1e300
millrace_input_rows_total{{{PASSES_FOR}}} NaN
millrace_batch_interval_seconds{{{PASSES_FOR}}} +Inf
millrace_batch_interval_seconds{{{PASSES_FOR}, reason="b"}} -1
millrace_batches_total{{{PASSES_FOR}, severity="critical"}} 5 {LATER}
millrace:batch_bound:seconds{{le="2.0",namespace=""}} 0
millrace:batch_bound:seconds{{le="2.0",job="",instance=""}} 1e9
namespace_query:millrace_query_info:max{{namespace="ns",query="q",phase="Failed",instance="",pod=""}} 1
namespace_query:millrace_batch_interval_seconds:max{{query="q",severity="a"}} 2
namespace_query:millrace_batch_interval_seconds:max{{query="q",severity="b"}} 3
millrace_operator_leader{{namespace="millrace",job="operator"}} 1
ALERTS{{namespace="millrace",alertname="MillraceNoLeader",alertstate="firing",severity="critical"}} 1
{{"millrace_source_lag_rows", "namespace "="ns", "näme.space"="ns"}} 1e18
"""

TOO_MUCH = {
    "series": "".join(f'millrace_source_lag_rows{{query="q{number}"}} 1\n' for number in range(20_000)),
    "length": f'millrace_source_lag_rows{{query="q", source="{"x" * 2000}"}} 1\n',
    "past": "millrace_source_lag_rows 1 1000\n",
    "future": f"millrace_source_lag_rows 1 {LATER * 2}\n",
}
"""What makes a scrape fail or a sample be dropped."""


@contextmanager
def exporting(text: str) -> Iterator[str]:
    """Serve this text as metrics, and return the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=1.0.0; escaping=allow-utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def as_monitored(static: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the scrape configuration that prometheus-operator makes of the chart's monitor of drivers."""
    spec = find(rendered("everything"), "PodMonitor", "streaming-drivers")["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    places = {"__meta_kubernetes_namespace": "namespace", "__meta_kubernetes_pod_name": "pod"}
    return {
        "job_name": "streaming-drivers",
        "honor_labels": endpoint["honorLabels"],
        "sample_limit": spec["sampleLimit"],
        "label_value_length_limit": spec["labelValueLengthLimit"],
        "static_configs": static,
        "relabel_configs": [
            *({"source_labels": [source], "target_label": label} for source, label in places.items()),
            *map(_in_snake_case, endpoint["relabelings"]),
        ],
        "metric_relabel_configs": [*map(_in_snake_case, endpoint["metricRelabelings"])],
    }


def _in_snake_case(relabeling: dict[str, Any]) -> dict[str, Any]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(name, name): value for name, value in relabeling.items()}


def test_what_pods_invent_is_of_their_namespace_and_their_label_and_breaks_no_rule(start, connect):
    job = JobMetrics("q")
    job.record(a_batch(waiting=70))
    texts = {"own": INVENTED} | TOO_MUCH
    with driver(job, "ns") as true, exporting(INVENTED) as unlabeled, ExitStack() as stack:
        addresses = {name: stack.enter_context(exporting(text)) for name, text in texts.items()}
        mallory = {"__meta_kubernetes_namespace": "mallory"}
        static = [
            {"targets": [address], "labels": mallory | {"__meta_kubernetes_pod_name": name, QUERY: name}}
            for name, address in addresses.items()
        ]
        static.append({"targets": [unlabeled], "labels": mallory | {"__meta_kubernetes_pod_name": "unlabeled"}})
        server = start(targets(true), scrape_interval="500ms", rules=faster_rules(60.0), jobs=[as_monitored(static)])
        prometheus = connect(server)

        def values(expression: str, label: str) -> set[str]:
            return {one.labels.get(label, "") for one in prometheus.instant(expression)}

        soon(lambda: prometheus.instant('namespace_query:millrace_batches:rate5m{namespace="ns"}'))
        soon(lambda: prometheus.instant('namespace_query:millrace_batches:rate5m{namespace="mallory"}'))
        soon(lambda: {"series", "length"} <= values('up{namespace="mallory"} == 0', "pod"))
        assert values('{namespace="mallory"}', "query") == {*texts}
        assert values('up{namespace="mallory"} == 1', "pod") == {"own", "past", "future"}
        assert values('millrace_source_lag_rows{namespace="mallory"}', "pod") == {"own"}
        assert values('{namespace="ns"}', "pod") <= {"q-driver-0", ""}
        assert values('{__name__=~".+", namespace=~"millrace|"}', "instance") <= {""}
        assert values('{__name__=~".+", query=~".*(channel|value).*"}', "pod") == set()
        assert answer_with(prometheus, "ns", batches_total=1).lag_rows == 70
        with urllib.request.urlopen(f"{server.url}/api/v1/rules", timeout=60) as answer:
            groups = json.load(answer)["data"]["groups"]
        failed = {rule["name"]: rule["lastError"] for group in groups for rule in group["rules"] if "lastError" in rule}
        assert failed == {}
