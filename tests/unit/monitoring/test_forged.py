"""Metrics that a pod of one namespace invents: they break no rule and no panel, and change nothing about other queries.

A scrape sets the label ``namespace``, and so it is true. All other labels, and all names, are the pod's to choose: those
of recorded series, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .fleet_series import MINUTES, OPERATOR, assert_values, numbers, of_job, of_operator, selected, series
from .sources import dashboards, expressions, names, rules

ONE = [{"labels": "{}", "value": 1}]
NONE = [{"labels": "{}", "value": 0}]

SHAPES = (
    "0x60", "0.001x60", "1e300x60", "0+5x60", "5000-1x60", "NaN+0x60", "Inf+0x60", "{{count:5 sum:9 buckets:[1 4]}}x60"
)  # fmt: skip
"""Series that are flat, rising and falling, that are no number, and that are native histograms."""

_SELECTOR = re.compile(r"([\w:]+)\{([^}]*)\}")
_EQUAL = re.compile(r'(\w+)="([^"]*)"')
_RECORDED = "namespace_query:millrace_"


def questions() -> Iterator[str]:
    """Return the PromQL of the dashboards, with all queries chosen."""
    choices = {"$__rate_interval": "5m", "$cluster": ".*", "$namespace": ".*", "$query": ".*"}
    for dashboard in dashboards().values():
        for expression in expressions(dashboard):
            asked = expression
            if asked.startswith("label_values("):
                asked = asked.removeprefix("label_values(").rpartition(", ")[0]
            for name, value in choices.items():
                asked = asked.replace(name, value)
            yield asked


def of_every_name() -> Iterator[dict[str, str]]:
    """Return pairs of series for each selection of rules and dashboards, alike but for labels that mean nothing to it."""
    chosen: set[tuple[str, str]] = set()
    for expression in (*(rule["expr"] for rule in rules()), *questions()):
        chosen |= {(name, "") for name in names(expression)} | set(_SELECTOR.findall(expression))
    usual = {"query": "trips", "le": "2.0", "condition": "Ready", "status": "False", "state": "pending"}
    usual |= {"dimension": "workers", "query_namespace": "streams", "alertname": "MillraceLagGrowing"}
    for number, (name, matchers) in enumerate(sorted(chosen)):
        for shape, values in enumerate(SHAPES):
            for twin in ("a", "b"):
                labels = usual | dict(_EQUAL.findall(matchers)) | {"namespace": "mallory"}
                labels |= {"instance": f"{number}-{shape}", "severity": twin, "reason": twin}
                yield series(name, ", ".join(f'{label}="{value}"' for label, value in labels.items()), values)


def twins(name: str, values: str, *labels: str) -> list[dict[str, str]]:
    """Return series that all speak for one query of the pods' own namespace, each with these labels."""
    return [series(name, f'namespace="mallory", query="trips", {own}', values) for own in labels]


PODS = ('pod="a"', 'pod="b"')
SEVERITIES = ('severity="a"', 'severity="b"')
TRUE = [
    *of_job("slow", 47, 9, f"0+700x{MINUTES}"),  # most batches are too long, and more and more records wait
    *of_operator("streams", "slow", "Running", "Running"),
    *of_operator("streams", "broken", "Failed", "Failed"),
    *of_operator("streams", "new", "Pending", "Deploying"),
    series("millrace_operator_leader", OPERATOR, f"1x{MINUTES}"),
    series(
        "millrace_query_executors",
        f'{OPERATOR}, query_namespace="streams", query="slow", state="pending"',
        f"1x{MINUTES}",
    ),
]
"""An operator that leads, and queries with good reasons for alerts."""

ATTACKS = {
    "bounds of buckets": (
        "MillraceBatchesOverInterval",
        twins("millrace:batch_bound:seconds", "0x60", 'le="2.0", pod="a"', 'le="2.0", pod="b"'),
    ),
    "a far bound for each bucket": (
        "MillraceBatchesOverInterval",
        twins("millrace:batch_bound:seconds", "1e9x60", *(f'le="{each}.0"' for each in (1, 2, 3, 5, 10))),
    ),
    "two intervals": (
        "MillraceBatchesOverInterval",
        twins(f"{_RECORDED}batch_interval_seconds:max", "2x60", *PODS),
    ),
    "alerts that differ by severity": (
        "MillraceBatchesOverInterval",
        [
            one
            for window in ("5m", "1h")
            for one in twins(f"{_RECORDED}batches_over_interval:ratio{window}", "1x60", *SEVERITIES)
        ],
    ),
    "alerts that differ by name": (
        "MillraceLagGrowing",
        [
            one
            for name, values in (("source_lag:seconds", "1e6x60"), ("batch_interval_seconds:max", "1x60"))
            for one in twins(f"{_RECORDED}{name}", values, 'alertname="a"', 'alertname="b"')
        ]
        + twins(f"{_RECORDED}source_lag_rows:deriv15m", "1x60", 'alertname="a"', 'alertname="b"'),
    ),
    "two beginnings": (
        "MillraceQueryNotReady",
        twins(f"{_RECORDED}query_down_since:time", "0x60", *PODS),
    ),
    "failures that differ by severity": (
        "MillraceQueriesFailed",
        twins(f"{_RECORDED}query_down_since:time", "0x60", *SEVERITIES)
        + twins(f"{_RECORDED}query_down:max", "1x60", *SEVERITIES)
        + twins(f"{_RECORDED}query_info:max", "1x60", 'phase="Failed"'),
    ),
    "pods that wait for two reasons": (
        "MillraceUnschedulable",
        twins(f"{_RECORDED}query_executors:max", "1x60", 'state="pending", reason="a"', 'state="pending", reason="b"'),
    ),
    "another driver, as while one replaces the other": (
        "MillraceLagGrowing",
        [one | {"series": one["series"].replace("slow-driver-0", "slow-driver-1")} for one in TRUE[:8]],
    ),
}
"""Alerts that are true of another query, by what is invented to have no rule find out."""


def test_no_duplicate_breaks_a_rule_or_a_panel(tmp_path):
    """An expression that finds two series where it takes one has no answer for any query."""
    answered = {f"vector(1) unless on () (count({each}) < 0)": ONE for each in questions()}
    assert_values(tmp_path, list(of_every_name()), answered)


@pytest.mark.parametrize(("alert", "invented"), ATTACKS.values(), ids=ATTACKS)
def test_a_true_alert_fires_beside_what_is_invented(tmp_path, alert, invented):
    fires = f'group(ALERTS{{namespace="streams", alertname="{alert}", alertstate="firing"}})'
    assert_values(tmp_path, [*TRUE, *invented], {fires: ONE})


def test_an_alert_has_no_labels_but_those_that_its_rule_names():
    """Two alerts that differ by a label which the rule sets, such as the severity, are an error for all queries."""
    begins = re.compile(r"(1 - |2 \* )?\(?\s*(sum|count|max|min|avg|bottomk|vector|absent|histogram_quantile)\b")
    pinned = []
    for rule in rules():
        if not all(begins.match(operand) for operand in _operands(rule["expr"])):
            pinned.append(rule["alert"])
            selections = _SELECTOR.findall(rule["expr"])
            assert names(rule["expr"]) == {name for name, _ in selections}
            assert all('namespace="millrace"' in matchers for _, matchers in selections)
    assert pinned == [
        "MillraceOperatorDown", "MillraceOperatorMemory", "MillraceReconcileErrors", "MillraceAPIThrottled"
    ]  # fmt: skip


def _operands(expression: str) -> Iterator[str]:
    """Return what ``or`` joins outside of parentheses."""
    depth, begin = 0, 0
    for found in re.finditer(r"[({\[]|[)}\]]|\bor\b", expression):
        if found[0] != "or":
            depth += 1 if found[0] in "({[" else -1
        elif depth == 0:
            yield expression[begin : found.start()].strip()
            begin = found.end()
    yield expression[begin:].strip()


def test_marks_of_decisions_are_shown_beside_what_is_invented(tmp_path):
    (mark,) = [each for each in dashboards()["autoscaler"]["annotations"]["list"] if each["name"] == "Decisions"]
    name = f"{_RECORDED}query_plan:max"
    invented = [
        one for number, pod in enumerate(PODS) for one in twins(name, f"{number}x60", f'dimension="workers", {pod}')
    ]
    of_query = f'{OPERATOR}, query_namespace="streams", query="slow"'
    decided = [
        series("millrace_query_plan", f'{of_query}, dimension="workers"', "1x59 2x1"),
        series("millrace_query_rescales_total", f'{of_query}, reason="Growing"', "0x59 1x1"),
    ]
    shown = f"count({selected(mark['expr'], '.*').replace('$query', '.*')})"
    assert_values(tmp_path, [*decided, *invented], {shown: ONE})


def test_no_query_takes_the_sum_of_all_away(tmp_path):
    """A sum with one NaN or infinity is no number."""
    invented = [
        series("millrace_input_rows_total", f'namespace="mallory", pod="p", query="{values}"', values)
        for values in ("NaN+0x60", "0x58 Inf+0x2", "Inf+0x60")
    ]
    assert_values(tmp_path, [*TRUE, *invented], {numbers(".*")["Records/s"]: [{"labels": "{}", "value": 10}]})


@pytest.mark.parametrize("title", ["At capacity, 10 min", "Prediction error, 6 h", "Are predictions right?"])
def test_the_operators_figures_are_its_own(tmp_path, title):
    invented = [
        series(name, f'namespace="mallory", reason="AtQuota", le="{bound}"', "0+50x60")
        for name in ("millrace_operator_scaling_decisions_total", "millrace_operator_prediction_error_ratio_bucket")
        for bound in ("1.0", "+Inf")
    ]
    (panel,) = [each for each in dashboards()["autoscaler"]["panels"] if each["title"] == title]
    expression = panel["targets"][0]["expr"]
    assert_values(tmp_path, invented, {selected(expression, ".*"): NONE if "vector(0)" in expression else []})


def test_a_pod_cannot_be_chosen_as_an_operator(tmp_path):
    """The first of the choices is what is shown, and some namespaces come before the operator's."""
    (choice,) = [each for each in dashboards()["operator"]["templating"]["list"] if each["name"] == "namespace"]
    chosen = selected(choice["query"]["query"], "").removeprefix("label_values(").removesuffix(", namespace)")
    leaders = [series("millrace_operator_leader", f'namespace="{each}"', "1x60") for each in ("mallory", "millrace")]
    found = [{"labels": '{namespace="millrace"}', "value": 1}]
    assert_values(tmp_path, leaders, {f"group by (namespace) ({chosen})": found})
