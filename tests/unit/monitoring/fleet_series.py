"""Series of a fleet of queries for promtool."""

from __future__ import annotations

from typing import Any

import yaml

from .sources import RULES, dashboards, promtool

FLEET = dashboards()["fleet"]
GROUPS = [
    group["name"] for path in RULES for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
]  # fmt: skip
MINUTES = 60
OPERATOR = 'namespace="millrace", job="operator", instance="a"'


def series(name: str, labels: str, values: str) -> dict[str, str]:
    return {"series": f"{name}{{{labels}}}", "values": values}


def of_job(query: str, sum_of_seconds: int, in_time: int, lag: str) -> list[dict[str, str]]:
    """A query with 30 batches and 600 records a minute and an interval of 2 s."""
    labels, minutes = f'namespace="streams", pod="{query}-driver-0", query="{query}"', MINUTES
    seconds = "millrace_batch_processing_seconds"
    return [
        series("millrace_batch_interval_seconds", labels, f"2x{minutes}"),
        series("millrace_batches_total", labels, f"0+30x{minutes}"),
        series("millrace_input_rows_total", labels, f"0+600x{minutes}"),
        series("millrace_source_lag_rows", labels, lag),
        series(f"{seconds}_sum", labels, f"0+{sum_of_seconds}x{minutes}"),
        series(f"{seconds}_count", labels, f"0+30x{minutes}"),
        series(f"{seconds}_bucket", f'{labels}, le="2.0"', f"0+{in_time}x{minutes}"),
        series(f"{seconds}_bucket", f'{labels}, le="+Inf"', f"0+30x{minutes}"),
    ]


def of_operator(namespace: str, query: str, phase: str, reason: str) -> list[dict[str, str]]:
    """What the operator says of a query."""
    labels = f'{OPERATOR}, query_namespace="{namespace}", query="{query}"'
    info = f'{labels}, phase="{phase}", algorithm="", mode="Active", placement=""'
    ready = f'{labels}, condition="Ready", status="{phase == "Running"}", reason="{reason}"'
    return [
        series("millrace_query_info", info, f"1x{MINUTES}"),
        series("millrace_query_condition", ready, f"1x{MINUTES}"),
    ]


def numbers(namespace: str) -> dict[str, str]:
    """The expressions of the numbers by their titles, with this choice of namespaces."""
    return {
        panel["title"]: selected(panel["targets"][0]["expr"], namespace)
        for panel in FLEET["panels"]
        if panel["type"] == "stat"
    }


def selected(expression: str, namespace: str) -> str:
    return expression.replace("$cluster", ".*").replace("$namespace", namespace)


def assert_values(tmp_path: Any, inputs: list[dict[str, str]], expected: dict[str, list[dict[str, Any]]]) -> None:
    """Check what expressions return after an hour of these series, with the rules of the project."""
    test = {
        "interval": "1m",
        "input_series": inputs,
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{MINUTES}m", "exp_samples": samples}
            for expression, samples in expected.items()
        ],
    }
    document = {
        "rule_files": list(map(str, RULES)),
        "evaluation_interval": "1m",
        "group_eval_order": sorted(GROUPS, key=lambda name: name.endswith("alerts")),
        "tests": [test],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    status, said = promtool("test", "rules", path)
    assert status == 0, said
