"""The numbers and choices of the dashboard of all queries: they agree with the alerts, and keep to the selection."""

from __future__ import annotations

from typing import Any

import pytest
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


WELL = of_job("calm", 30, 30, f"0x{MINUTES}") + of_operator("streams", "calm", "Running", "Running")
UNWELL = [
    *of_job("slow", 47, 9, f"0x{MINUTES}"),  # most batches are too long, and the mean is below the interval
    *of_operator("streams", "slow", "Running", "Running"),
    *of_job("behind", 30, 30, f"5000-1x{MINUTES}"),  # minutes of records wait, and do not become more
    *of_operator("streams", "behind", "Running", "Running"),
    *of_operator("streams", "wrong", "Pending", "InvalidQuery"),
    *of_operator("streams", "asleep", "Suspended", "Suspended"),
    *of_operator("far", "broken", "Failed", "Failed"),
    series("millrace_operator_leader", OPERATOR, f"0x{MINUTES}"),
    *(
        series("ALERTS", f'namespace="mallory", alertstate="firing", severity="{severity}", {name}', f"1x{MINUTES}")
        for severity in ("critical", "warning")
        for name in ('alertname="MillraceNoLeader"', 'alertname="MillraceAPIThrottled", job="operator"')
    ),
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


@pytest.mark.parametrize(
    ("inputs", "namespace", "expected"),
    [
        ([], ".*", (0, 0, 0, 0, 0, 1, 0, 0)),  # without any series, there is no operator
        ([*WELL, series("millrace_operator_leader", OPERATOR, f"1x{MINUTES}")], ".*", (1, 0, 0, 0, 0, 0, 0, 10)),
        ([*WELL, *UNWELL], ".*", (3, 1, 1, 1, 1, 3, 1, 30)),
        ([*WELL, *UNWELL], "streams", (3, 1, 0, 1, 1, 2, 1, 30)),
        ([*WELL, *UNWELL], "far", (0, 0, 1, 0, 0, 2, 0, 0)),
    ],
)
def test_the_numbers(tmp_path, inputs, namespace, expected):
    shown = numbers(namespace)
    assert [*shown] == [
        "Running", "Not ready", "Failed", "Too slow", "Behind", "Critical", "Warnings", "Records/s"
    ]  # fmt: skip
    values = {
        expression: [{"labels": "{}", "value": value}]
        for expression, value in zip(shown.values(), expected, strict=True)
    }
    assert_values(tmp_path, inputs, values)


def test_a_query_that_has_never_run_can_be_chosen_and_has_a_row(tmp_path):
    (choice,) = [each for each in FLEET["templating"]["list"] if each["name"] == "namespace"]
    chosen = selected(choice["query"]["query"], "").removeprefix("label_values(").removesuffix(", namespace)")
    (table,) = [panel for panel in FLEET["panels"] if panel["title"] == "Queries"]
    state = selected(table["targets"][-1]["expr"], "streams")
    labels = '{{namespace="streams", query="{}", reason="{}"}}'
    rows = [("calm", "Running"), ("wrong", "InvalidQuery")]
    expected = {
        f"group by (namespace) ({chosen})": [
            {"labels": '{namespace="streams"}', "value": 1},
            {"labels": '{namespace="far"}', "value": 1},
        ],
        state: [{"labels": labels.format(*row), "value": 1} for row in rows],
    }
    never = [
        *of_operator("streams", "wrong", "Pending", "InvalidQuery"),
        *of_operator("far", "new", "Pending", "Deploying"),
    ]
    assert_values(tmp_path, [*WELL, *never], expected)


def test_critical_alerts_come_first():
    tables = [
        panel for board in dashboards().values() for panel in board["panels"] if panel["title"] == "Firing alerts"
    ]
    assert len(tables) == 2
    for table in tables:
        assert table["options"]["sortBy"] == [{"displayName": "Severity", "desc": False}]
        assert table["fieldConfig"]["defaults"]["noValue"] == "No alert fires."
