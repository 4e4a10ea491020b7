"""Dashboard of one query: does it keep up, and what takes its time?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from .board import board, choice, plan_changes
from .panels import Panels, graph, number

_ONE = '{namespace="$namespace", query="$query"}'
_RECORDED = "namespace_query:millrace_"


def dashboard() -> Dashboard:
    """Build the dashboard: current numbers first, then batches and lag, work by stage, and state."""
    made = board(
        "query",
        "Millrace / Query",
        "One query: does it keep up, and what takes its time?",
        choice("namespace", "Namespace", "millrace_batches_total"),
        choice("query", "Query", 'millrace_batches_total{namespace="$namespace"}'),
    ).annotation(plan_changes(_ONE))
    for panel in (*_numbers(), *_keeping_up(), *_work(), *_kept()):
        made.with_panel(panel)
    return made


def _numbers() -> Panels:
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
            "Time that reading what waits would take at the present rate.",
            f"{_RECORDED}source_lag:seconds{_ONE}",
            "s",
            decimals=1,
        ),
        number(
            "Partitioner", "Algorithm in the plan of the last batch.", f"millrace_plan_info{_ONE}", name="{{algorithm}}"
        ),
        number("Workers", "Combine tasks n in the plan of the last batch.", f"max(millrace_plan_workers{_ONE})"),
        number(
            "Replicas", "Partitioner replicas m in the plan of the last batch.", f"max(millrace_plan_replicas{_ONE})"
        ),
    ]


def _keeping_up() -> Panels:
    seconds = "millrace_batch_processing_seconds"
    buckets = f"sum by (le) (rate({seconds}_bucket{_ONE}[$__rate_interval]))"
    mean = f"sum(rate({seconds}_sum{_ONE}[$__rate_interval])) / sum(rate({seconds}_count{_ONE}[$__rate_interval]))"
    return [
        graph(
            "Is every batch within its interval?",
            "Processing time of batches, and the interval that it should stay below. Purple marks are changes of plan.",
            {
                "interval": f"max(millrace_batch_interval_seconds{_ONE})",
                "mean": mean,
                "p50, by buckets": f"histogram_quantile(0.5, {buckets})",
                "p99, by buckets": f"histogram_quantile(0.99, {buckets})",
            },
            "s",
        ),
        graph(
            "What waits?",
            "Records that the sources had left when the last batch was planned. It should not grow.",
            {"records": f"max(millrace_source_lag_rows{_ONE})"},
            "short",
        ),
    ]


def _work() -> Panels:
    return [
        graph(
            "What comes in, and what is lost?",
            "Records per second that are read; of them those that could not be decoded (rejected), and those "
            "behind the watermark (late).",
            {
                "read": f"sum(rate(millrace_input_rows_total{_ONE}[$__rate_interval]))",
                "rejected": f"sum(rate(millrace_rejected_rows_total{_ONE}[$__rate_interval]))",
                "late": f"sum(rate(millrace_late_rows_total{_ONE}[$__rate_interval]))",
            },
            "short",
        ),
        graph(
            "Where does the time go?",
            "Cores that the tasks of each stage keep busy: route reads and places records, combine aggregates them, "
            "merge keeps the state.",
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
            {"imbalance": f"max(millrace_load_imbalance_ratio{_ONE})"},
            "percentunit",
            steps={1: "orange"},
        ),
        graph(
            "Which plan?",
            "Workers n, replicas m, and the plan's number (epoch, right).",
            {
                "workers": f"max(millrace_plan_workers{_ONE})",
                "replicas": f"max(millrace_plan_replicas{_ONE})",
                "epoch": f"max(millrace_plan_epoch{_ONE})",
            },
            "none",
            right="epoch",
            right_unit="none",
        ),
    ]


def _kept() -> Panels:
    return [
        graph(
            "How much is kept?",
            "Rows in the state store, and the memory they take (right). Where they grow without end, the watermark "
            "stands still, or the query has no window.",
            {"rows": f"max(millrace_state_rows{_ONE})", "memory": f"max(millrace_state_bytes{_ONE})"},
            "short",
            right="memory",
            right_unit="bytes",
        ),
        graph(
            "How late are final results?",
            "Event time by which the watermark is behind the newest record.",
            {"watermark delay": f"max(millrace_watermark_delay_seconds{_ONE})"},
            "s",
        ),
    ]
