"""Dashboard of one query's partitioner: is the load even, and at what cost?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from .board import board, choice, plan_changes
from .panels import Panels, graph, number

_ONE = '{namespace="$namespace", query="$query"}'


def dashboard() -> Dashboard:
    """Build the dashboard: evenness of load and tasks, the cost of evenness, and the behaviour of ``auto``."""
    made = board(
        "partitioning",
        "Millrace / Partitioning",
        "The partitioner of one query: is the load even, and at which price?",
        choice("namespace", "Namespace", "millrace_batches_total"),
        choice("query", "Query", 'millrace_batches_total{namespace="$namespace"}'),
    ).annotation(plan_changes(_ONE))
    for panel in (*_numbers(), *_evenness(), *_price(), *_auto()):
        made.with_panel(panel)
    return made


def _numbers() -> Panels:
    imbalance, replication = (
        f"max(millrace_load_imbalance_ratio{_ONE})",
        f"max(millrace_replication_factor_ratio{_ONE})",
    )
    return [
        number(
            "Partitioner", "Algorithm in the plan of the last batch.", f"millrace_plan_info{_ONE}", name="{{algorithm}}"
        ),
        number("Workers", "Combine tasks n in the plan of the last batch.", f"max(millrace_plan_workers{_ONE})"),
        number(
            "Replicas", "Partitioner replicas m in the plan of the last batch.", f"max(millrace_plan_replicas{_ONE})"
        ),
        number("Keys", "Different keys in the last batch.", f"max(millrace_distinct_keys{_ONE})", "short"),
        number(
            "Load imbalance",
            "Load of the busiest worker less that of the average one, as a share of the latter; 0 is even.",
            imbalance,
            "percentunit",
            steps={0.5: "orange", 1: "red"},
            decimals=0,
        ),
        number(
            "Workers per key", "Workers that a key was sent to, on average; 1 splits no key.", replication, decimals=2
        ),
    ]


def _evenness() -> Panels:
    tasks = f"sum by (stage, le) (rate(millrace_stage_task_seconds_bucket{_ONE}[$__rate_interval]))"
    return [
        graph(
            "Is a worker hot?",
            "Largest load of a worker less the average, as a share of the average: of records, and of different keys. "
            "Absent while no record is routed, as under the algorithm native.",
            {
                "records": f"max(millrace_load_imbalance_ratio{_ONE})",
                "keys": f"max(millrace_cardinality_imbalance_ratio{_ONE})",
            },
            "percentunit",
            steps={1: "orange"},
        ),
        graph(
            "Are tasks equally long?",
            "Time of tasks, estimated by buckets. Where p99 is far above p50, the batch waits for few tasks.",
            {
                "{{stage}} p50": f"histogram_quantile(0.5, {tasks})",
                "{{stage}} p99": f"histogram_quantile(0.99, {tasks})",
            },
            "s",
        ),
    ]


def _price() -> Panels:
    return [
        graph(
            "What does it cost?",
            "Aggregation cost: different keys of each worker, added up over the workers. It lies between the different "
            "keys of the batch, where no key is split, and that times the workers.",
            {
                "aggregation cost": f"max(millrace_aggregation_cost_keys{_ONE})",
                "different keys": f"max(millrace_distinct_keys{_ONE})",
            },
            "short",
        ),
        graph(
            "Do keys stay where they are?",
            "Of the keys that were also in the batch before, the share that went to other workers than there.",
            {"moved keys": f"max(millrace_moved_keys_ratio{_ONE})"},
            "percentunit",
        ),
    ]


def _auto() -> Panels:
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
            "Batch time that algorithm auto predicted, less the one observed, as a share of the latter, without sign.",
            {"error": f"max(abs(millrace_auto_prediction_error_ratio{_ONE}))"},
            "percentunit",
        ),
    ]
