"""Dashboard of all queries: which of them need attention?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.builders.dashboard import Dashboard

from .parts import KEPT, RUNBOOKS, Panel, board, choice, graph, number, rows

_ALL = '{cluster=~"$cluster", namespace=~"$namespace"}'
_QUERY = f"/d/millrace-query?{KEPT}&var-namespace=${{__data.fields.Namespace}}&var-query=${{__data.fields.Query}}"
_W = "namespace_query:millrace_utilization:ratio5m" + _ALL
_OVER = "namespace_query:millrace_batches_over_interval:ratio1h" + _ALL
_LAG = "namespace_query:millrace_source_lag:seconds" + _ALL
_LAG_ROWS = "namespace_query:millrace_source_lag_rows:max" + _ALL
_ROWS = "namespace_query:millrace_input_rows:rate5m" + _ALL


def dashboard() -> Dashboard:
    """Build the dashboard: totals, a table with one row per query, busiest first, and graphs."""
    return board(
        "fleet",
        "All queries of the selected namespaces: which of them need attention?",
        [choice("namespace", 'millrace_batches_total{cluster=~"$cluster"}', many=True)],
        [*_numbers(), _alerts(), _table(), *_graphs()],
    )


def _numbers() -> list[Panel]:
    phase = 'sum(max by (cluster, namespace, job) (millrace_operator_queries{{phase="{}"}})) or vector(0)'
    return [
        number("Running", "Queries in the phase Running, in all namespaces.", phase.format("Running")),
        number(
            "Failed",
            "Queries in the phase Failed, in all namespaces: millrace status NAME says why.",
            phase.format("Failed"),
            steps={1: "red"},
        ),
        number(
            "Too slow",
            "Queries whose batches of the last five minutes took longer than their interval on average (W above 1).",
            f"count({_W} > 1) or vector(0)",
            steps={1: "red"},
        ),
        number(
            "Growing lag",
            "Queries with more than ten intervals' worth of records waiting, whose number keeps growing.",
            f"count({_LAG} > 10 * namespace_query:millrace_batch_interval_seconds:max"
            " and namespace_query:millrace_source_lag_rows:deriv15m > 0) or vector(0)",
            steps={1: "orange"},
        ),
        number("Records per second", "Records that all queries together read.", f"sum({_ROWS})", "short"),
        number(
            "Alerts",
            "Firing alerts of Millrace, in all namespaces.",
            'count(ALERTS{alertname=~"Millrace.*", alertstate="firing"}) or vector(0)',
            steps={1: "red"},
        ),
    ]


def _alerts() -> table.Panel:
    return rows(
        "Firing alerts",
        "Alerts of Millrace that fire, in all namespaces; each links to its runbook.",
        {"Firing": ('ALERTS{cluster=~"$cluster", alertname=~"Millrace.*", alertstate="firing"}', "none")},
        {"alertname": "Alert", "severity": "Severity", "namespace": "Namespace", "query": "Query", "reason": "Reason"},
        link=("Alert", RUNBOOKS + "/${__data.fields.Alert}.md"),
        sort="Severity",
        height=6,
    )


def _table() -> table.Panel:
    columns = {
        "W": (_W, "percentunit"),
        "Over the interval, 1 h": (_OVER, "percentunit"),
        "Records per second": (_ROWS, "short"),
        "Lag": (_LAG, "s"),
        "Records waiting": (_LAG_ROWS, "short"),
        "Workers": (f"millrace_plan_workers{_ALL}", "none"),
        "Replicas": (f"millrace_plan_replicas{_ALL}", "none"),
        "Executors ready": (f'namespace_query:millrace_query_executors:max{_ALL[:-1]}, state="ready"}}', "none"),
    }
    return rows(
        "Queries",
        "W is batch time over batch interval. Lag is the time to read all waiting records at the present rate.",
        columns,
        {"cluster": "Cluster", "namespace": "Namespace", "query": "Query"},
        steps={"W": {0.9: "orange", 1: "red"}, "Over the interval, 1 h": {0.01: "orange", 0.06: "red"}},
        link=("Query", _QUERY),
        sort="W",
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
