"""Dashboard of the autoscaler: what was decided and why, and was it right?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from .parts import Panel, board, choice, graph, number
from .selections import queries

_SOME = '{cluster=~"$cluster", namespace=~"$namespace", query=~"$query"}'
_NAME = "{{namespace}}/{{query}}"
_DECISIONS = "millrace_operator_scaling_decisions_total"
_ERROR = "millrace_operator_prediction_error_ratio"
_OPERATOR = 'cluster=~"$cluster", namespace="millrace"'
"""Matchers of the operator's own series: any pod may export their names. The chart writes its namespace here."""
_OF_ALL = "Covers all queries, because the operator's metrics do not name the query."


def dashboard() -> Dashboard:
    """Build the dashboard: the operator's decisions and predictions, and their effect on the queries."""
    return board(
        "autoscaler",
        "What was decided and why, and was it right? millrace explain NAME shows it for one query.",
        [
            choice("namespace", queries('cluster=~"$cluster"'), many=True),
            choice("query", queries('cluster=~"$cluster", namespace=~"$namespace"'), many=True),
        ],
        [*_numbers(), *_decisions(), *_outcome()],
        plans_of=_SOME,
    )


def _numbers() -> list[Panel]:
    short = 'reason=~"AtCapacity|AtQuota|AtClusterCapacity"'
    return [
        number(
            "Changes of plan, 1 h",
            "Changes of plan of the selected queries within the last hour.",
            f"sum(changes(namespace_query:millrace_plan_epoch:max{_SOME}[1h])) or vector(0)",
            width=6,
        ),
        number(
            "Most changes of one query, 1 h",
            "Changes of plan within the last hour of the selected query with the most; above 6, an alert fires.",
            f"max(changes(namespace_query:millrace_plan_epoch:max{_SOME}[1h])) or vector(0)",
            steps={4: "orange", 7: "red"},
            width=6,
        ),
        number(
            "At capacity, 10 min",
            f"Decisions that a query needs more executors than it may have, or than would help. {_OF_ALL}",
            f"sum(increase({_DECISIONS}{{{_OPERATOR}, {short}}}[10m])) or vector(0)",
            steps={1: "orange"},
            decimals=0,
            width=6,
        ),
        number(
            "Prediction error, 6 h",
            f"Median difference between predicted and observed batch time after changes of plan. {_OF_ALL}",
            f"histogram_quantile(0.5, sum by (le) (increase({_ERROR}_bucket{{{_OPERATOR}}}[6h]))) >= 0",
            "percentunit",
            steps={0.2: "orange", 0.3: "red"},
            decimals=0,
            width=6,
        ),
    ]


def _decisions() -> list[Panel]:
    return [
        graph(
            "What was decided, and why?",
            "Decisions per minute by their reason; each running query is checked every ten seconds. "
            f"docs/autoscaling.md says what the reasons mean. {_OF_ALL}",
            {"{{reason}}": f"60 * sum by (reason) (rate({_DECISIONS}{{{_OPERATOR}}}[$__rate_interval]))"},
            "none",
            stacked=True,
        ),
        graph(
            "Was the load as it should be?",
            "Batch time over batch interval. The autoscaler aims at 80% to 90%, unless spec.scaling says otherwise.",
            {_NAME: f"topk(20, namespace_query:millrace_utilization:ratio5m{_SOME})"},
            "percentunit",
            steps={0.9: "orange", 1: "red"},
        ),
    ]


def _outcome() -> list[Panel]:
    workers = f"max by (cluster, namespace, query) (millrace_plan_workers{_SOME})"
    replicas = f"max by (cluster, namespace, query) (millrace_plan_replicas{_SOME})"
    errors = f"sum by (le) (increase({_ERROR}_bucket{{{_OPERATOR}}}[6h]))"
    return [
        graph(
            "Workers",
            "Combine tasks n of the last batch: fewer than planned while executors are missing.",
            {_NAME: workers},
            "none",
        ),
        graph(
            "Replicas",
            "Partitioner replicas m of the last batch: fewer than planned while executors are missing.",
            {_NAME: replicas},
            "none",
        ),
        graph(
            "Records per second",
            "The load that drives plans: more records need replicas, more distinct keys need workers.",
            {_NAME: f"namespace_query:millrace_input_rows:rate5m{_SOME}"},
            "short",
        ),
        graph(
            "Are predictions right?",
            "Difference between predicted and observed batch time after the changes of plan of the last six hours, "
            f"estimated from buckets. {_OF_ALL}",
            {"median": f"histogram_quantile(0.5, {errors})", "p90": f"histogram_quantile(0.9, {errors})"},
            "percentunit",
            steps={0.3: "orange"},
        ),
    ]
