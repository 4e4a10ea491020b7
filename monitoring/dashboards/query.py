"""Dashboard of one query: does it keep up, what takes its time, and does it get what it needs?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from .parts import RUNBOOKS, Panel, Variable, board, choice, graph, heat, number, rows, timeline
from .selections import firing, queries

ONE = '{cluster=~"$cluster", namespace="$namespace", query="$query"}'
"""Selector of the query."""
RECORDED = "namespace_query:millrace_"
"""Beginning of the names of recorded series."""

_EXECUTORS = '{cluster=~"$cluster", namespace="$namespace", container!="", pod=~"$query-[0-9a-f]{6}-exec-[0-9]+"}'
"""Selector of the containers of the query's executors, which have no metrics of the query."""
_OTHERS = '{cluster=~"$cluster", namespace="$namespace", container!="", pod=~".+-(driver-0|partitioner-[0-9]+)"}'
"""Selector of the containers of all drivers and replicas: a hash replaces the end of a long name of a query."""
_OF_QUERY = f'and on (namespace, pod) {{__name__=~"millrace_(partitioner_)?batches_total", {ONE[1:]}'
"""What leaves those of the query."""
_KUBELET = "Needs the kubelet's metrics of containers."


def dashboard() -> Dashboard:
    """Build the dashboard: current numbers first, then batches and lag, work by stage, and state."""
    return board(
        "query",
        "One query: does it keep up, and what takes its time?",
        choices(),
        [*_numbers(), *_findings(), *_keeping_up(), *_work(), *_resources(), *_state()],
        plans_of=ONE,
    )


def choices() -> list[Variable]:
    """Return the variables that select one query."""
    namespace = choice("namespace", queries('cluster=~"$cluster"'))
    return [namespace, choice("query", queries('cluster=~"$cluster", namespace="$namespace"'))]


def largest(metric: str) -> str:
    """Return the largest value of a metric of the query: while its driver moves there are two."""
    return f"max({metric}{ONE})"


def plan() -> list[Panel]:
    """Return the numbers of the plan of the last batch."""
    return [
        number(
            "Partitioner",
            "Algorithm in the plan of the last batch.",
            f"max by (algorithm) (millrace_plan_info{ONE})",
            name="{{algorithm}}",
        ),
        number(
            "Workers",
            "Combine tasks n of the last batch: fewer than planned while executors are missing.",
            largest("millrace_plan_workers"),
        ),
        number(
            "Replicas",
            "Partitioner replicas m of the last batch: fewer than planned while executors are missing.",
            largest("millrace_plan_replicas"),
        ),
    ]


def _by_pod(usage: str) -> str:
    """Return the usage of each pod of the query; in place of ``{}`` stands a selector of containers."""
    executors, others = usage.replace("{}", _EXECUTORS), usage.replace("{}", _OTHERS)
    return f"sum by (pod) ({executors} or {others} {_OF_QUERY})"


def _numbers() -> list[Panel]:
    return [
        number(
            "W",
            "Batch time over batch interval, mean of five minutes. Above 100% the query falls behind.",
            f"{RECORDED}utilization:ratio5m{ONE}",
            "percentunit",
            steps={0.9: "orange", 1: "red"},
            decimals=0,
        ),
        number(
            "Over the interval",
            "Share of the batches of the last hour that took longer than their interval. The objective is 1%.",
            f"{RECORDED}batches_over_interval:ratio1h{ONE}",
            "percentunit",
            steps={0.01: "orange", 0.06: "red"},
            decimals=1,
        ),
        number(
            "Lag",
            "Time to read all waiting records at the present rate.",
            f"{RECORDED}source_lag:seconds{ONE}",
            "s",
            decimals=1,
        ),
        *plan(),
    ]


def _findings() -> list[Panel]:
    conditions = f"max by (condition, reason) ({RECORDED}query_condition:max{ONE[:-1]}, condition=~"
    missing = '"Ready|UpstreamReady|MetricsAvailable", status="False"'
    alerts = firing(ONE[1:-1])
    return [
        rows(
            "Firing alerts",
            "Alerts of this query that fire; each links to its runbook.",
            {"Firing": (alerts, "none")},
            {"alertname": "Alert", "severity": "Severity", "reason": "Reason", "class": "Class"},
            link=("Alert", RUNBOOKS + "/${__data.fields.Alert}.md"),
            sort="Severity",
            descending=False,
            none="No alert fires.",
            width=12,
            height=10,
        ),
        rows(
            "Conditions",
            "Conditions in the status of the query, with their reasons: millrace status NAME has the messages.",
            {"Current": (f"{RECORDED}query_condition:max{ONE}", "none")},
            {"condition": "Condition", "status": "Status", "reason": "Reason"},
            sort="Condition",
            descending=False,
            width=12,
            height=10,
        ),
        timeline(
            "What was wrong, and when?",
            "Conditions while they were not as they should be, with their reasons, and alerts while they fired.",
            {
                "any alert": f"count({alerts}) > bool 0 or vector(0)",
                "{{condition}}: {{reason}}": f'{conditions}"Degraded|Scaling(Limited|Ineffective)", status="True"}})',
                "not {{condition}}: {{reason}}": f"{conditions}{missing}}})",
                "{{alertname}}": f"max by (alertname) ({alerts})",
            },
        ),
    ]


def _keeping_up() -> list[Panel]:
    seconds = "millrace_batch_processing_seconds"
    buckets = f"sum by (le) (rate({seconds}_bucket{ONE}[$__rate_interval]))"
    latency = f"sum by (le) (rate(millrace_record_latency_seconds_bucket{ONE}[$__rate_interval]))"
    mean = f"sum(rate({seconds}_sum{ONE}[$__rate_interval])) / sum(rate({seconds}_count{ONE}[$__rate_interval]))"
    return [
        graph(
            "Is every batch within its interval?",
            "Processing time of batches, and the interval that it should stay below. Purple marks are changes of plan.",
            {
                "interval": largest("millrace_batch_interval_seconds"),
                "mean": mean,
                "p50, from buckets": f"histogram_quantile(0.5, {buckets})",
                "p99, from buckets": f"histogram_quantile(0.99, {buckets})",
            },
            "s",
            width=8,
        ),
        graph(
            "How old are results?",
            "Time from the arrival of a record to the commit of its batch, estimated from buckets, and the objective: "
            "two intervals and two seconds.",
            {
                "objective": f"{RECORDED}record_latency_objective:seconds{ONE}",
                "p50": f"histogram_quantile(0.5, {latency})",
                "p99": f"histogram_quantile(0.99, {latency})",
            },
            "s",
            width=8,
            runbook="MillraceResultsLate",
        ),
        graph(
            "How many records wait?",
            "Records left in the sources when the last batch was planned, and those in the partitions of Kafka that "
            "have the most. They should not grow, and no partition should have nearly all of them.",
            {
                "all": largest("millrace_source_lag_rows"),
                "{{source}}: {{partition}}": f"max by (source, partition) (millrace_source_partition_lag_rows{ONE})",
            },
            "short",
            width=8,
            runbook="MillraceLagGrowing",
        ),
        graph(
            "What comes in, and what is lost?",
            "Records read per second, and of these the ones that could not be decoded (rejected) or came after the "
            "watermark had passed them (late).",
            {
                "read": f"sum(rate(millrace_input_rows_total{ONE}[$__rate_interval]))",
                "rejected": f"sum(rate(millrace_rejected_rows_total{ONE}[$__rate_interval]))",
                "late": f"sum(rate(millrace_late_rows_total{ONE}[$__rate_interval]))",
            },
            "short",
            width=8,
        ),
    ]


def _work() -> list[Panel]:
    steps = f"sum by (step) (rate(millrace_batch_step_seconds_total{ONE}[$__rate_interval]))"
    batches = f"sum(rate(millrace_batches_total{ONE}[$__rate_interval]))"
    worker = f"max by (worker) (millrace_worker_rows{ONE})"
    return [
        graph(
            "Which steps does a batch take?",
            "Mean time of the steps of a batch, as Spark names them: walCommit and commitOffsets write the checkpoint, "
            "addBatch runs the tasks, latestOffset asks the source.",
            {"{{step}}": f"{steps} / on () group_left {batches}"},
            "s",
            stacked=True,
            width=8,
            runbook="MillraceBatchesOverInterval",
        ),
        graph(
            "Where does the time go?",
            "Cores that the tasks of each stage keep busy: route reads and places records, combine aggregates them, "
            "merge updates the state.",
            {
                "{{stage}}": f"sum by (stage) (rate(millrace_stage_task_seconds_sum{ONE}[$__rate_interval]))",
                "merge": f"sum(rate(millrace_merge_task_seconds_total{ONE}[$__rate_interval]))",
            },
            "none",
            stacked=True,
            width=8,
        ),
        heat(
            "Which workers get the records?",
            "Records of each worker in a batch: a row that stands out is a hot worker.",
            "{{worker}}",
            # Numbers are padded, since rows are in the order of their names.
            f'label_replace({worker}, "worker", "0$1$2", "worker", "([0-9])(-.*)?")',
            "short",
            width=8,
        ),
        graph(
            "Which plan?",
            "Executors that the operator decided; workers n, replicas m and number (epoch, right) of the plan of the "
            "last batch. Blue marks are decisions, with their reason; purple marks are batches that follow them.",
            {
                "executors": f'max({RECORDED}query_plan:max{ONE[:-1]}, dimension="executors"}})',
                "workers": largest("millrace_plan_workers"),
                "replicas": largest("millrace_plan_replicas"),
                "epoch": largest("millrace_plan_epoch"),
            },
            "none",
            right="epoch",
            right_unit="none",
            width=8,
            runbook="MillraceRescalesTooOften",
        ),
    ]


def _resources() -> list[Panel]:
    executors = f"{RECORDED}query_executors:max{ONE}"
    ready, used = f'{executors[:-1]}, state="ready"}}', f"millrace_memory_used_bytes{ONE}"
    return [
        graph(
            "Does it get its executors?",
            "Executors that the plan wants, those whose pods are ready, and those whose pods are pending. Pending ones "
            "that stay need nodes or quota; without an operator this is empty.",
            {"{{state}}": executors},
            "none",
            width=8,
            runbook="MillraceUnschedulable",
        ),
        graph(
            "Are pods busy?",
            f"Cores that each pod uses. {_KUBELET}",
            {"{{pod}}": _by_pod("rate(container_cpu_usage_seconds_total{}[$__rate_interval])")},
            "none",
            width=8,
            none=_KUBELET,
        ),
        graph(
            "Is memory short?",
            "Memory that each pod uses, and (right) the share of time in which JVMs collect garbage, and the share of "
            "its limits that the driver uses, and the executor nearest to its limit: above a tenth of the time, or 85% "
            f"of a limit, memory is short. A pod above its limit is killed. {_KUBELET}",
            {
                "{{pod}}": _by_pod("container_memory_working_set_bytes{}"),
                "collecting: driver": _collecting("driver"),
                "collecting: executors": f"{_collecting('executors')} / (max({ready}) > 0)",
                "{{role}}: {{part}}": f"max by (role, part) ({used} / millrace_memory_limit_bytes{ONE})",
            },
            "bytes",
            right="collecting: .*|(driver|executors): .*",
            right_unit="percentunit",
            width=8,
        ),
        graph(
            "What fails?",
            "Runs of the driver, and executors beside a driver that went on, that failed within the last hour, by the "
            "class of the failure; and failed writes of the checkpoint within five minutes.",
            {
                "driver: {{class}}": f"{RECORDED}query_driver_restarts:increase1h{ONE}",
                "executors: {{class}}": f"{RECORDED}query_executor_failures:increase1h{ONE}",
                "checkpoint": f"sum(increase(millrace_checkpoint_failures_total{ONE}[5m])) > 0",
            },
            "none",
            stacked=True,
            width=8,
            runbook="MillraceQueryRestarting",
            none="Nothing has failed.",
        ),
    ]


def _collecting(role: str) -> str:
    """Return the seconds of each second that the JVMs of a role collect garbage, all together."""
    return f'sum(rate(millrace_gc_seconds_total{ONE[:-1]}, role="{role}"}}[$__rate_interval]))'


def _state() -> list[Panel]:
    writes = f"sum by (le) (rate(millrace_checkpoint_write_seconds_bucket{ONE}[$__rate_interval]))"
    ages = f"namespace_query_table:millrace_table_age:seconds{ONE}"
    intervals = f"namespace_query_table:millrace_table_refresh_interval_seconds:max{ONE}"
    return [
        graph(
            "Is the checkpoint fast, and is there room?",
            "Time that a batch takes to write its checkpoint, estimated from buckets, and the used share of its volume "
            "(right), of this query and all others. When the volume is full, no batch can end.",
            {
                "p50": f"histogram_quantile(0.5, {writes})",
                "p99": f"histogram_quantile(0.99, {writes})",
                "volume used": f"1 - {RECORDED}checkpoint_volume_free:ratio{ONE}",
            },
            "s",
            right="volume used",
            right_unit="percentunit",
            width=8,
            runbook="MillraceCheckpointVolumeFilling",
        ),
        graph(
            "How large is the state?",
            "Rows in the state store, where they are counted, and the memory that it takes (right). If it keeps "
            "growing, the watermark does not advance, or the query has no window.",
            {"rows": largest("millrace_state_rows"), "memory": largest("millrace_state_bytes")},
            "short",
            right="memory",
            right_unit="bytes",
            width=8,
        ),
        graph(
            "Are static tables refreshed?",
            "Time since each static table was last read, or found unchanged, in intervals between two refreshes, as "
            "refreshEvery says. It grows to 1 and begins again at 0; above 2, refreshes fail or take long.",
            {
                "{{table}}": f"max by (table) ({ages} / ({intervals} > 0))",
            },
            "none",
            width=8,
            runbook="MillraceTableStale",
            none="No table has refreshEvery.",
        ),
        graph(
            "How late are final results?",
            "Event time by which the watermark is behind the newest record.",
            {"watermark delay": largest("millrace_watermark_delay_seconds")},
            "s",
            width=8,
        ),
    ]
