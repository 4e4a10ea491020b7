"""Two dashboards of one query. Does it keep up, and what takes its time? Is its load even, and at what cost?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from .parts import Panel, Variable, board, choice, graph, number

_ONE = '{namespace="$namespace", query="$query"}'
_RECORDED = "namespace_query:millrace_"


def dashboard() -> Dashboard:
    """Build the dashboard: current numbers first, then batches and lag, work by stage, and state."""
    return board(
        "query",
        "One query: does it keep up, and what takes its time?",
        _choices(),
        [*_numbers(), *_keeping_up(), *_work(), *_state()],
        plans_of=_ONE,
    )


def partitioning() -> Dashboard:
    """Build the dashboard: evenness of load and tasks, the cost of evenness, and the behavior of ``auto``."""
    return board(
        "partitioning",
        "The partitioner of one query: is the load even, and at what cost?",
        _choices(),
        [*_balance(), *_evenness(), *_price(), *_auto(), *_replicas()],
        plans_of=_ONE,
    )


def _choices() -> list[Variable]:
    namespace = choice("namespace", "millrace_batches_total")
    return [namespace, choice("query", 'millrace_batches_total{namespace="$namespace"}')]


def _max(metric: str) -> str:
    return f"max({metric}{_ONE})"


def _plan() -> list[Panel]:
    return [
        number(
            "Partitioner", "Algorithm in the plan of the last batch.", f"millrace_plan_info{_ONE}", name="{{algorithm}}"
        ),
        number("Workers", "Combine tasks n in the plan of the last batch.", _max("millrace_plan_workers")),
        number("Replicas", "Partitioner replicas m in the plan of the last batch.", _max("millrace_plan_replicas")),
    ]


def _numbers() -> list[Panel]:
    return [
        number(
            "W",
            "Batch time over batch interval, mean of five minutes. Above 100% the query falls behind.",
            f"{_RECORDED}utilization:ratio5m{_ONE}",
            "percentunit",
            steps={0.9: "orange", 1: "red"},
            decimals=0,
        ),
        number(
            "Over the interval",
            "Share of the batches of the last hour that took longer than their interval. The objective is 1%.",
            f"{_RECORDED}batches_over_interval:ratio1h{_ONE}",
            "percentunit",
            steps={0.01: "orange", 0.06: "red"},
            decimals=1,
        ),
        number(
            "Lag",
            "Time to read all waiting records at the present rate.",
            f"{_RECORDED}source_lag:seconds{_ONE}",
            "s",
            decimals=1,
        ),
        *_plan(),
    ]


def _keeping_up() -> list[Panel]:
    seconds = "millrace_batch_processing_seconds"
    buckets = f"sum by (le) (rate({seconds}_bucket{_ONE}[$__rate_interval]))"
    mean = f"sum(rate({seconds}_sum{_ONE}[$__rate_interval])) / sum(rate({seconds}_count{_ONE}[$__rate_interval]))"
    return [
        graph(
            "Is every batch within its interval?",
            "Processing time of batches, and the interval that it should stay below. Purple marks are changes of plan.",
            {
                "interval": _max("millrace_batch_interval_seconds"),
                "mean": mean,
                "p50, from buckets": f"histogram_quantile(0.5, {buckets})",
                "p99, from buckets": f"histogram_quantile(0.99, {buckets})",
            },
            "s",
        ),
        graph(
            "How many records wait?",
            "Records left in the sources when the last batch was planned. It should not grow.",
            {"records": _max("millrace_source_lag_rows")},
            "short",
        ),
        graph(
            "What comes in, and what is lost?",
            "Records read per second, and of these the ones that could not be decoded (rejected) or came after the "
            "watermark had passed them (late).",
            {
                "read": f"sum(rate(millrace_input_rows_total{_ONE}[$__rate_interval]))",
                "rejected": f"sum(rate(millrace_rejected_rows_total{_ONE}[$__rate_interval]))",
                "late": f"sum(rate(millrace_late_rows_total{_ONE}[$__rate_interval]))",
            },
            "short",
        ),
    ]


def _work() -> list[Panel]:
    return [
        graph(
            "Where does the time go?",
            "Cores that the tasks of each stage keep busy: route reads and places records, combine aggregates them, "
            "merge updates the state.",
            {
                "{{stage}}": f"sum by (stage) (rate(millrace_stage_task_seconds_sum{_ONE}[$__rate_interval]))",
                "merge": f"sum(rate(millrace_merge_task_seconds_total{_ONE}[$__rate_interval]))",
            },
            "none",
            stacked=True,
        ),
        graph(
            "Is a worker hot?",
            "Load of the busiest worker less that of the average one, as a share of the latter; 0 is even. At 100% the "
            "busiest does twice the average. Absent while no record is routed.",
            {"imbalance": _max("millrace_load_imbalance_ratio")},
            "percentunit",
            steps={1: "orange"},
        ),
        graph(
            "Which plan?",
            "Workers n, replicas m, and the plan's number (epoch, right).",
            {
                "workers": _max("millrace_plan_workers"),
                "replicas": _max("millrace_plan_replicas"),
                "epoch": _max("millrace_plan_epoch"),
            },
            "none",
            right="epoch",
            right_unit="none",
        ),
    ]


def _state() -> list[Panel]:
    return [
        graph(
            "How large is the state?",
            "Rows in the state store, and the memory they take (right). If they keep growing, the watermark "
            "does not advance, or the query has no window.",
            {"rows": _max("millrace_state_rows"), "memory": _max("millrace_state_bytes")},
            "short",
            right="memory",
            right_unit="bytes",
        ),
        graph(
            "How late are final results?",
            "Event time by which the watermark is behind the newest record.",
            {"watermark delay": _max("millrace_watermark_delay_seconds")},
            "s",
        ),
    ]


def _balance() -> list[Panel]:
    return [
        *_plan(),
        number("Keys", "Distinct keys in the last batch.", _max("millrace_distinct_keys"), "short"),
        number(
            "Load imbalance",
            "Load of the busiest worker less that of the average one, as a share of the latter; 0 is even.",
            _max("millrace_load_imbalance_ratio"),
            "percentunit",
            steps={0.5: "orange", 1: "red"},
            decimals=0,
        ),
        number(
            "Workers per key",
            "Workers that a key was sent to, on average; 1 splits no key.",
            _max("millrace_replication_factor_ratio"),
            decimals=2,
        ),
    ]


def _evenness() -> list[Panel]:
    tasks = f"sum by (stage, le) (rate(millrace_stage_task_seconds_bucket{_ONE}[$__rate_interval]))"
    return [
        graph(
            "Is a worker hot?",
            "Largest load of a worker less the average, as a share of the average: of records, and of distinct keys. "
            "Absent while no record is routed, as under the algorithm native.",
            {"records": _max("millrace_load_imbalance_ratio"), "keys": _max("millrace_cardinality_imbalance_ratio")},
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
                "aggregation cost": _max("millrace_aggregation_cost_keys"),
                "distinct keys": _max("millrace_distinct_keys"),
            },
            "short",
        ),
        graph(
            "Do keys stay on their workers?",
            "Share of the keys of the previous batch that went to other workers this time.",
            {"moved keys": _max("millrace_moved_keys_ratio")},
            "percentunit",
        ),
    ]


def _auto() -> list[Panel]:
    return [
        graph(
            "Which algorithm, and why another one?",
            "Switches of algorithm auto within an hour, by their reason. Many of them mean that it cannot "
            "distinguish the algorithms.",
            {"{{reason}}": f"sum by (reason) (increase(millrace_auto_switches_total{_ONE}[1h]))"},
            "none",
            stacked=True,
        ),
        graph(
            "Does auto predict well?",
            "Absolute difference between predicted and observed batch time with algorithm auto, over the observed one.",
            {"error": f"max(abs(millrace_auto_prediction_error_ratio{_ONE}))"},
            "percentunit",
        ),
    ]


def _each(metric: str) -> str:
    """Return the value of each partitioner replica; one that moved has the series of two pods for some minutes."""
    return f"max by (replica) (millrace_partitioner_{metric}{_ONE})"


def _replicas() -> list[Panel]:
    """Return panels about replicas in pods of their own; they are empty while replicas are tasks of the job."""
    own = "Only for placement Dedicated."
    seconds = "millrace_partitioner_place_seconds"
    buckets = f"sum by (le) (rate({seconds}_bucket{_ONE}[$__rate_interval]))"
    mean = f"sum(rate({seconds}_sum{_ONE}[$__rate_interval])) / sum(rate({seconds}_count{_ONE}[$__rate_interval]))"
    paused = f"max by (replica) (rate(millrace_partitioner_paused_seconds_total{_ONE}[$__rate_interval]))"
    return [
        graph(
            "Are replicas busy, or held back?",
            "Share of time that each replica works, and that it waits for the job to read what it placed (paused). "
            f"Replicas that wait for the job need no others beside them. {own}",
            {
                "{{replica}} busy": f"namespace_query_replica:millrace_partitioner_busy:ratio5m{_ONE}",
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
                "early release": f"max(millrace_partitioner_release_margin_seconds{_ONE})",
                "share of the interval": f"{mean} / max(millrace_partitioner_interval_seconds{_ONE})",
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
                "time to place them": f"{_RECORDED}partitioner_lag:seconds{_ONE}",
            },
            "short",
            right="time to place them",
            right_unit="s",
        ),
    ]
