"""Dashboard of the partitioner of one query: is its load even, and at what cost?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from .parts import Panel, board, graph, number
from .query import ONE, RECORDED, choices, largest, plan


def dashboard() -> Dashboard:
    """Build the dashboard: evenness of load and tasks, the cost of evenness, and the behavior of ``auto``."""
    return board(
        "partitioning",
        "The partitioner of one query: is the load even, and at what cost?",
        choices(),
        [*_balance(), *_evenness(), *_price(), *_auto(), *_replicas()],
        plans_of=ONE,
    )


def _balance() -> list[Panel]:
    return [
        *plan(),
        number("Keys", "Distinct keys in the last batch.", largest("millrace_distinct_keys"), "short"),
        number(
            "Load imbalance",
            "Load of the busiest worker less that of the average one, as a share of the latter; 0 is even.",
            largest("millrace_load_imbalance_ratio"),
            "percentunit",
            steps={0.5: "orange", 1: "red"},
            decimals=0,
        ),
        number(
            "Workers per key",
            "Workers that a key was sent to, on average; 1 splits no key.",
            largest("millrace_replication_factor_ratio"),
            decimals=2,
        ),
    ]


def _evenness() -> list[Panel]:
    tasks = f"sum by (stage, le) (rate(millrace_stage_task_seconds_bucket{ONE}[$__rate_interval]))"
    return [
        graph(
            "Is a worker hot?",
            "Largest load of a worker less the average, as a share of the average: of records, and of distinct keys. "
            "Absent while no record is routed, as under the algorithm native.",
            {
                "records": largest("millrace_load_imbalance_ratio"),
                "keys": largest("millrace_cardinality_imbalance_ratio"),
            },
            "percentunit",
            steps={1: "orange"},
        ),
        graph(
            "Are tasks equally long?",
            "Time of tasks, estimated from buckets. Where p99 is far above p50, the batch waits for few tasks.",
            {
                "{{stage}} p50": f"histogram_quantile(0.5, {tasks})",
                "{{stage}} p99": f"histogram_quantile(0.99, {tasks})",
            },
            "s",
        ),
    ]


def _price() -> list[Panel]:
    return [
        graph(
            "What does it cost?",
            "Aggregation cost: the sum of the workers' distinct keys. It is between the distinct keys of the batch, if "
            "no key is split, and that number times the workers.",
            {
                "aggregation cost": largest("millrace_aggregation_cost_keys"),
                "distinct keys": largest("millrace_distinct_keys"),
            },
            "short",
        ),
        graph(
            "Do keys stay on their workers?",
            "Share of the keys of the previous batch that went to other workers this time.",
            {"moved keys": largest("millrace_moved_keys_ratio")},
            "percentunit",
        ),
    ]


def _auto() -> list[Panel]:
    return [
        graph(
            "Which algorithm, and why another one?",
            "Switches of algorithm auto within an hour, by their reason. Many of them mean that it cannot "
            "distinguish the algorithms.",
            {"{{reason}}": f"sum by (reason) (increase(millrace_auto_switches_total{ONE}[1h]))"},
            "none",
            stacked=True,
        ),
        graph(
            "Does auto predict well?",
            "Absolute difference between predicted and observed batch time with algorithm auto, over the observed one.",
            {"error": f"max(abs(millrace_auto_prediction_error_ratio{ONE}))"},
            "percentunit",
        ),
    ]


def _each(metric: str) -> str:
    """Return the value of each partitioner replica; one that moved has the series of two pods for some minutes."""
    return f"max by (replica) (millrace_partitioner_{metric}{ONE})"


def _replicas() -> list[Panel]:
    """Return panels about replicas in pods of their own; they are empty while replicas are tasks of the job."""
    own = "Only for placement Dedicated."
    seconds = "millrace_partitioner_place_seconds"
    buckets = f"sum by (le) (rate({seconds}_bucket{ONE}[$__rate_interval]))"
    mean = f"sum(rate({seconds}_sum{ONE}[$__rate_interval])) / sum(rate({seconds}_count{ONE}[$__rate_interval]))"
    paused = f"max by (replica) (rate(millrace_partitioner_paused_seconds_total{ONE}[$__rate_interval]))"
    return [
        graph(
            "Are replicas busy, or held back?",
            "Share of time that each replica works, and that it waits for the job to read what it placed (paused). "
            f"Replicas that wait for the job need no others beside them. {own}",
            {
                "{{replica}} busy": f"namespace_query_replica:millrace_partitioner_busy:ratio5m{ONE}",
                "{{replica}} paused": paused,
            },
            "percentunit",
            steps={0.9: "orange"},
        ),
        graph(
            "What is left to do when an interval ends?",
            "Time from the end of an interval's intake until its records are written, its mean as a share of the "
            "interval (right), and how long before the end of the interval the intake ends, to make up for it (early "
            "release). "
            f"{own}",
            {
                "to place, p50, from buckets": f"histogram_quantile(0.5, {buckets})",
                "to place, p99, from buckets": f"histogram_quantile(0.99, {buckets})",
                "early release": f"max(millrace_partitioner_release_margin_seconds{ONE})",
                "share of the interval": f"{mean} / max(millrace_partitioner_interval_seconds{ONE})",
            },
            "s",
            right="share of the interval",
            right_unit="percentunit",
        ),
        graph(
            "Do replicas place evenly, and on few workers?",
            "Of the last interval of each replica: the load of the busiest worker less the mean, as a share of the "
            f"mean, and the workers that a key is on (right); 1 splits no key. {own}",
            {
                "{{replica}} imbalance": _each("load_imbalance_ratio"),
                "{{replica}} workers per key": _each("key_split_ratio"),
            },
            "percentunit",
            right=".*workers per key",
            right_unit="none",
        ),
        graph(
            "What waits in front of replicas?",
            "Records that wait in the partitions of each replica, and how long placing all of them would take at the "
            f"present rate (right). They are part of the lag of the query. {own}",
            {
                "{{replica}}": _each("lag_rows"),
                "time to place them": f"{RECORDED}partitioner_lag:seconds{ONE}",
            },
            "short",
            right="time to place them",
            right_unit="s",
        ),
    ]
