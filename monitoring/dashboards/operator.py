"""Dashboard of the operator itself: does it lead, observe the cluster and keep up?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from .parts import Panel, board, choice, graph, number

_OF = '{cluster=~"$cluster", namespace="$namespace"}'
_RATE = _OF + "[$__rate_interval]"
_OPERATORS = " and on (cluster, namespace, job, instance) millrace_operator_leader" + _OF


def dashboard() -> Dashboard:
    """Build the dashboard: leader and canary first, then work, API requests, and resources."""
    return board(
        "operator",
        "The operator itself: does it lead, observe the cluster and keep up?",
        [choice("namespace", 'millrace_operator_leader{cluster=~"$cluster", namespace="millrace"}')],
        [*_numbers(), *_work(), *_watches(), *_requests(), *_resources()],
    )


def _numbers() -> list[Panel]:
    phase = (
        'sum(max by (cluster, job, phase) (millrace_operator_queries{{cluster=~"$cluster", namespace="$namespace", '
        'phase="{}"}})) or vector(0)'
    )
    return [
        number(
            "Operators",
            "Operators that Prometheus scrapes; one leads, the others stand by.",
            f"count(millrace_operator_leader{_OF}) or vector(0)",
        ),
        number(
            "Leaders",
            "Should be 1 for each release.",
            f"sum(millrace_operator_leader{_OF}) or vector(0)",
            steps={0: "red", 1: "green", 2: "orange"},
        ),
        number(
            "Canary",
            "Longest time since an operator's watch last showed the canary, which is touched every 30 seconds.",
            f"max(millrace_operator_canary_age_seconds{_OF})",
            "s",
            steps={60: "orange", 90: "red"},
            decimals=0,
        ),
        number("In the queue", "Queries that wait to be worked on.", f"max(millrace_operator_queue_depth{_OF})"),
        number("Running", "Queries in the phase Running.", phase.format("Running")),
        number("Failed", "Queries in the phase Failed.", phase.format("Failed"), steps={1: "red"}),
    ]


def _work() -> list[Panel]:
    queue = f"sum by (le) (rate(millrace_operator_queue_seconds_bucket{_RATE}))"
    step = f"sum by (le) (rate(millrace_operator_reconcile_seconds_bucket{_RATE}))"
    return [
        graph(
            "Is it making progress?",
            "Steps taken for queries, by their result, and queries requeued after an error. Errors are retried; if "
            "they persist, the operator's log has the details.",
            {
                "{{result}}": f"sum by (result) (rate(millrace_operator_reconciles_total{_RATE}))",
                "requeued": f"sum(rate(millrace_operator_retries_total{_RATE}))",
            },
            "ops",
        ),
        graph(
            "How long do queries wait?",
            "p99 of the time in the queue and of a step, estimated from buckets.",
            {"in the queue": f"histogram_quantile(0.99, {queue})", "a step": f"histogram_quantile(0.99, {step})"},
            "s",
        ),
        graph(
            "In which phase are the queries?",
            "Queries by the phase in their status.",
            {"{{phase}}": f"max by (phase) (millrace_operator_queries{_OF})"},
            "none",
            stacked=True,
        ),
        graph(
            "Does it observe the cluster, and lead?",
            "Longest time without the canary in the watch of each operator, and which operator leads (1, right).",
            {
                "canary {{instance}}": f"max_over_time(millrace_operator_canary_age_seconds{_RATE})",
                "leads {{instance}}": f"millrace_operator_leader{_OF}",
            },
            "s",
            steps={90: "red"},
            right="leads .*",
            right_unit="none",
        ),
    ]


def _watches() -> list[Panel]:
    age = f"max by (resource) (millrace_operator_informer_age_seconds{_OF})"
    return [
        graph(
            "Do the watches hear anything?",
            "Longest time since a watch of each kind heard from the API server, which sends something each minute.",
            {"{{resource}}": age},
            "s",
            steps={240: "red"},
            runbook="MillraceInformerStale",
        ),
        graph(
            "Do watches fail?",
            "Lists and watches that ended with an error and were started again, by kind.",
            {"{{resource}}": f"sum by (resource) (increase(millrace_operator_informer_errors_total{_OF}[5m]))"},
            "none",
            stacked=True,
            runbook="MillraceInformerStale",
        ),
        graph(
            "Does it act on what it sees?",
            "Time from a touch of the canary until its answer was seen: watch, queue, step and write.",
            {"whole path": f"max(millrace_operator_canary_path_seconds{_OF})"},
            "s",
            steps={120: "red"},
            runbook="MillraceCanaryUnanswered",
        ),
        graph(
            "Is it throttled?",
            "Requests that the API server refused as too many, as a share of all, and steps that ended with an error.",
            {
                "throttled (429)": f"max(namespace_job:millrace_operator_api_throttled:ratio10m{_OF})",
                "failed steps": f"max(namespace_job:millrace_operator_reconcile_errors:ratio15m{_OF})",
            },
            "percentunit",
            steps={0.01: "orange", 0.1: "red"},
            runbook="MillraceAPIThrottled",
        ),
    ]


def _requests() -> list[Panel]:
    seconds = f"sum by (le, verb) (rate(millrace_operator_api_request_seconds_bucket{_RATE}))"
    return [
        graph(
            "What does it ask of the API server?",
            "Requests by method and kind, without watches.",
            {"{{verb}} {{resource}}": f"sum by (verb, resource) (rate(millrace_operator_api_requests_total{_RATE}))"},
            "reqps",
            stacked=True,
        ),
        graph(
            "How does the API server answer?",
            "p99 of the time that requests take, and failed requests by status code (right).",
            {
                "{{verb}} p99": f"histogram_quantile(0.99, {seconds})",
                "status {{code}}": "sum by (code) (rate(millrace_operator_api_requests_total"
                '{cluster=~"$cluster", namespace="$namespace", code!~"2.."}[$__rate_interval]))',
            },
            "s",
            right="status .*",
            right_unit="reqps",
        ),
    ]


def _resources() -> list[Panel]:
    return [
        graph(
            "CPU",
            "Cores that each operator keeps busy.",
            {"{{instance}}": f"rate(process_cpu_seconds_total{_RATE}){_OPERATORS}"},
            "none",
        ),
        graph(
            "Memory",
            "Resident memory of each operator, and the limit of its container, above which it is killed.",
            {
                "{{instance}}": f"process_resident_memory_bytes{_OF}{_OPERATORS}",
                "limit": f"min(millrace_operator_memory_limit_bytes{_OF})",
            },
            "bytes",
            runbook="MillraceOperatorMemory",
        ),
    ]
