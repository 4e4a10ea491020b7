"""What a change of a spec does, field by field, and the warning of ``kubectl apply`` about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace_api.model.changes import Effect
from millrace_api.model.streamquery import Spec
from millrace_operator.resources.restart_warning import policy, policy_yaml
from millrace_operator.resources.spec_changes import EFFECTS, spec_changes

SHIPPED = Path(__file__).parents[3] / "charts/millrace/files/restart-warning.yaml"
SPEC = {
    "sources": {"trips": {"files": {"path": "data/*.csv", "format": "csv"}, "schema": "cell STRING"}},
    "query": {"sql": "SELECT cell, count(*) AS n FROM trips GROUP BY cell"},
    "sink": {"console": {}},
}


def changes(before, after):
    old, new = (Spec.model_validate(SPEC | each, by_name=False) for each in (before, after))
    return [(each.path, each.old, each.new, each.consequence) for each in spec_changes(old, new)]


@pytest.mark.parametrize(
    "same",
    [{}, {"batchInterval": "2s"}, {"executors": {"cores": 2}}, {"executors": {"cores": "2000m"}}, {"sparkConf": {}}],
)
def test_a_default_that_is_written_out_is_no_change(same):
    assert changes({}, same) == []


def test_each_field_is_named_as_precisely_as_it_can_be():
    source = SPEC["sources"]["trips"]
    found = changes({}, {"sources": {"trips": source | {"schema": "cell STRING, fare DOUBLE"}}})
    assert found == [
        ("spec.sources.trips.schema", "cell STRING", "cell STRING, fare DOUBLE", "replaces the driver"),
    ]
    conf = {"sparkConf": {"spark.ui.enabled": "true"}}
    assert changes({}, conf) == [("spec.sparkConf", {}, conf["sparkConf"], "replaces the driver")]


def test_what_is_in_place_says_when_it_takes_effect():
    found = changes(
        {}, {"executors": {"initial": 2, "max": 9}, "scaling": {"mode": "Off"}, "partitioner": {"pod": {"cores": 2}}}
    )
    assert {path: consequence for path, _, _, consequence in found} == {
        "spec.executors.initial": "in place, from the next batch",
        "spec.executors.max": "in place: a bound of the next plan",
        "spec.scaling.mode": "in place, from the next scaling decision",
        "spec.partitioner.pod.cores": "in place: partitioner replicas in pods of their own are replaced one by one",
    }


def test_look_ups_are_opened_with_the_driver_replaced_and_to_other_namespaces_in_place():
    sink = {"sink": {"table": {"bootstrapServers": "kafka:9092", "topic": "by-cell"}}}
    opened = sink | {"lookups": {"tokens": {"env": "READERS"}}}
    replaced = ("spec.lookups.tokens", None, {"env": "READERS"}, "replaces the driver")
    assert changes(sink, opened) == [replaced]
    namespaces = ("spec.lookups.namespaces", [], ["web"], "in place: the NetworkPolicy opens the port to these")
    assert changes(opened, opened | {"lookups": opened["lookups"] | {"namespaces": ["web"]}}) == [namespaces]


def test_a_query_that_is_suspended_has_no_results():
    ((_, _, _, suspended),) = changes({}, {"suspend": True})
    assert "no results come until the query is resumed" in suspended
    assert changes({"suspend": True}, {})[0][3].startswith("a driver starts")


def test_the_warning_that_the_chart_ships_is_about_all_fields_that_replace_a_driver():
    assert SHIPPED.read_text(encoding="utf-8") == policy_yaml()
    (variable,) = policy()["variables"]
    for field, effect in EFFECTS.items():
        assert (f"'spec.{field}'" in variable["expression"]) == (effect is Effect.REPLACED)
