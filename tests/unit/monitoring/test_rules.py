"""Recording rules and alerts: Prometheus takes them, they fire and are silent, and all that they name is there."""

from __future__ import annotations

import pytest
import yaml

from millrace_jobs.run.metrics_contract import CONTRACT

from .sources import FILES, PLACED, RULE_TESTS, RULES, RUNBOOKS, alerts, exported, names, promtool, rules, selected

WITHOUT_VALUE = (
    "MillraceOperatorDown",
    "MillraceNoLeader",
    "MillraceQueryNotAllowed",
    "MillraceQueriesWithoutMetrics",
    "MillraceSourceSilent",
    "MillraceNamespaceRefused",
    "MillraceSnapshotStale",
)
"""Alerts of something that is not there."""

ALERTS = sorted({rule["alert"] for rule in alerts()})


def test_prometheus_takes_the_rules():
    status, said = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert status == 0, said


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_and_are_silent_as_their_tests_say(path):
    status, said = promtool("test", "rules", path)
    assert status == 0, said


def expected(alert):
    """What is expected of an alert, in all tests: at one time that it fires, at another that it does not."""
    documents = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULE_TESTS]
    cases = [case for document in documents for test in document["tests"] for case in test.get("alert_rule_test", ())]
    return [bool(case["exp_alerts"]) for case in cases if case["alertname"] == alert]


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_firing_and_silent(alert):
    assert set(expected(alert)) == {True, False}


def test_every_metric_is_exported_or_recorded():
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = set().union(*(names(rule["expr"]) for rule in rules()))
    assert used - recorded - exported().keys() == set()


def test_series_are_selected_by_labels_that_they_have():
    labels = exported()
    wrong = {
        (name, label)
        for rule in rules()
        for name, label in selected(rule["expr"])
        if label not in labels[name] | PLACED
    }
    assert wrong == set()


def test_the_bounds_of_buckets_are_those_of_the_histogram():
    both = ("millrace_batch_processing_seconds", "millrace_record_latency_seconds")
    histogram, latency = [metric for metric in CONTRACT if metric.name in both]
    assert histogram.buckets == latency.buckets
    bounds = {
        rule["labels"]["le"]: rule["expr"]
        for rule in rules()
        if rule.get("record", "").endswith("_bound:seconds") and "labels" in rule
    }
    assert bounds == {str(float(bound)): f"vector({bound})" for bound in histogram.buckets} | {"+Inf": "vector(Inf)"}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_says_what_where_and_what_to_do(rule):
    notes = rule["annotations"]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(notes) == {"summary", "description", "runbook"}
    assert notes["runbook"] == f"docs/runbooks/{rule['alert']}.md"
    assert any(text in notes["description"] for text in ("{{ $value", "{{ $labels.reason")) or (
        rule["alert"] in WITHOUT_VALUE
    )
    if "namespace_query:" in rule["expr"]:
        for text in (notes["summary"], notes["description"]):
            assert "{{ $labels.namespace }}/{{ $labels.query }}" in text


def test_each_alert_has_its_runbook_and_each_runbook_its_alert():
    assert sorted(path.stem for path in RUNBOOKS.glob("Millrace*.md")) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_has_its_parts(alert):
    lines = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"# {alert}"
    assert [line for line in lines if line.startswith("## ")] == [
        "## How to see it",
        "## Likely causes",
        "## What to do",
    ]


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("Millrace*.md")), ids=lambda path: path.stem)
def test_a_runbook_names_only_metrics_that_there_are(path):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert names(path.read_text(encoding="utf-8")) - recorded - exported().keys() == set()


def test_the_chart_has_these_rules():
    shipped = {path.name: path.read_bytes() for path in (FILES / "rules").iterdir()}
    assert shipped == {path.name: path.read_bytes() for path in RULES}
