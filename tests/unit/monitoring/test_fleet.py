"""The numbers and choices of the dashboard of all queries: they agree with the alerts, and keep to the selection."""

from __future__ import annotations

import pytest

from .fleet_series import FLEET, MINUTES, OPERATOR, assert_values, numbers, of_job, of_operator, selected, series
from .sources import dashboards

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
def test_the_numbers_are_those_of_the_series(tmp_path, inputs, namespace, expected):
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
