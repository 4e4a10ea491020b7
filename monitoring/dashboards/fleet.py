"""Dashboard of all queries: which of them need attention?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.builders.dashboard import Dashboard

from .parts import KEPT, RUNBOOKS, Panel, board, choice, graph, number, rows
from .selections import critical, firing, queries, warnings

_ALL = '{cluster=~"$cluster", namespace=~"$namespace"}'
_QUERY = f"/d/millrace-query?{KEPT}&var-namespace=${{__data.fields.Namespace}}&var-query=${{__data.fields.Query}}"
_W = "namespace_query:millrace_utilization:ratio5m" + _ALL
_OVER = "namespace_query:millrace_batches_over_interval:ratio1h" + _ALL
_LAG = "namespace_query:millrace_source_lag:seconds" + _ALL
_LAG_ROWS = "namespace_query:millrace_source_lag_rows:max" + _ALL
_ROWS = "namespace_query:millrace_input_rows:rate5m" + _ALL
_INFO = "namespace_query:millrace_query_info:max" + _ALL
_CONDITION = "namespace_query:millrace_query_condition:max" + _ALL
_INTERVAL = "namespace_query:millrace_batch_interval_seconds:max"

_ALERTS = (_ALL[1:-1] + ', query!=""', 'cluster=~"$cluster", namespace="millrace", query=""')
"""Matchers of the alerts of the selected queries, and those of the operator, which concern all of them.

The operator's are believed from the operator's namespace only, which the chart writes here.
"""


def dashboard() -> Dashboard:
    """Build the dashboard: totals, a table with one row per query, busiest first, and graphs."""
    return board(
        "fleet",
        "All queries of the selected namespaces: which of them need attention?",
        [choice("namespace", queries('cluster=~"$cluster"'), many=True)],
        [*_numbers(), _alerts(), _table(), *_graphs()],
    )


def _with(selector: str, labels: str) -> str:
    """Return the series of a selector that have these labels, too."""
    return f"{selector[:-1]}, {labels}}}"


def _count(queries: str, alert: str = "") -> str:
    """Return an expression for the number of queries with a series, or for which this alert fires."""
    if alert:
        queries = f'{queries} or ALERTS{{{_ALL[1:-1]}, alertname="{alert}", alertstate="firing"}}'
    return f"count(group by (cluster, namespace, query) ({queries})) or vector(0)"


def _numbers() -> list[Panel]:
    failed = _with(_INFO, 'phase="Failed"')
    not_ready = _with(_CONDITION, 'condition="Ready", status!="True", reason!~"Suspended|Draining|Deleting"')
    return [
        number("Running", "Queries in the phase Running.", _count(_with(_INFO, 'phase="Running"')), width=3),
        number(
            "Not ready",
            "Queries that should run and whose condition Ready is not true. Failed ones are counted beside this.",
            _count(f"{not_ready} unless on (cluster, namespace, query) {failed}"),
            steps={1: "orange"},
            width=3,
        ),
        number(
            "Failed",
            "Queries in the phase Failed: millrace status NAME says why.",
            _count(failed),
            steps={1: "red"},
            width=3,
        ),
        number(
            "Too slow",
            "Queries whose batches of the last five minutes took longer than their interval, on average (W above 1) or "
            "so often that MillraceBatchesOverInterval fires.",
            _count(f"{_W} > 1", "MillraceBatchesOverInterval"),
            steps={1: "red"},
            width=3,
        ),
        number(
            "Behind",
            "Queries with more than ten intervals' worth of records waiting, whether or not they become more.",
            _count(f"{_LAG} > 10 * {_INTERVAL}", "MillraceLagGrowing"),
            steps={1: "orange"},
            width=3,
        ),
        number(
            "Critical",
            "Critical alerts that fire: results are wrong, late or missing.",
            f"count({critical(*_ALERTS)}) or vector(0)",
            steps={1: "red"},
            width=3,
        ),
        number(
            "Warnings",
            "Alerts that fire as warnings only.",
            f"count({warnings(*_ALERTS)}) or vector(0)",
            steps={1: "orange"},
            width=3,
        ),
        number(
            "Records/s",
            "Records that all queries together read per second.",
            f"sum({_ROWS} < Inf) or vector(0)",
            "short",
            width=3,
        ),
    ]


def _alerts() -> table.Panel:
    return rows(
        "Firing alerts",
        "Alerts of the selected queries and of the operator, the most severe first; each links to its runbook.",
        {"Firing": (firing(*_ALERTS), "none")},
        {"alertname": "Alert", "severity": "Severity", "namespace": "Namespace", "query": "Query", "reason": "Reason"},
        link=("Alert", RUNBOOKS + "/${__data.fields.Alert}.md"),
        sort="Severity",
        descending=False,
        none="No alert fires.",
        height=9,
    )


def _table() -> table.Panel:
    columns = {
        "W": (_W, "percentunit"),
        "Over, 1 h": (_OVER, "percentunit"),
        "Records/s": (_ROWS, "short"),
        "Lag": (_LAG, "s"),
        "Waiting": (_LAG_ROWS, "short"),
        "Workers": (f"millrace_plan_workers{_ALL}", "none"),
        "Replicas": (f"millrace_plan_replicas{_ALL}", "none"),
        "Executors": (_with(f"namespace_query:millrace_query_executors:max{_ALL}", 'state="ready"'), "none"),
        "Core-h/M": (f"namespace_query:millrace_core_hours_per_million_records:ratio1h{_ALL}", "none"),
    }
    return rows(
        "Queries",
        "State is the reason of the condition Ready, W batch time over batch interval, Over the share of batches that "
        "took longer, Lag the time to read all waiting records at the present rate, Executors those that are ready, "
        "Core-h/M the core-hours that a million records take, the driver's included. "
        "A query that has never run has a state only.",
        columns,
        {"cluster": "Cluster", "namespace": "Namespace", "query": "Query"},
        texts={"State": (_with(_CONDITION, 'condition="Ready"'), "reason")},
        steps={"W": {0.9: "orange", 1: "red"}, "Over, 1 h": {0.01: "orange", 0.06: "red"}},
        link=("Query", _QUERY),
        sort="W",
        height=14,
    )


def _graphs() -> list[Panel]:
    name = "{{namespace}}/{{query}}"
    return [
        graph(
            "Is every batch within its interval?",
            "Batch time over batch interval of the 20 busiest queries. Above 100% a query falls behind; the autoscaler "
            "aims below 90%.",
            {name: f"topk(20, {_W})"},
            "percentunit",
            steps={0.9: "orange", 1: "red"},
        ),
        graph(
            "How far behind are they?",
            "Time to read all waiting records at the present rate, of the 20 queries with the longest.",
            {name: f"topk(20, {_LAG} < Inf)"},
            "s",
        ),
        graph(
            "Batches over their interval",
            "Share of the batches of the last hour that took longer than their interval. The objective is 1%.",
            {name: f"topk(20, {_OVER})"},
            "percentunit",
            steps={0.01: "orange"},
        ),
        graph(
            "Records per second",
            "Records read by each of the 20 queries that read the most.",
            {name: f"topk(20, {_ROWS})"},
            "short",
        ),
    ]
