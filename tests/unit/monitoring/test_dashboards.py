"""Dashboards: the chart has what the sources make, and panels show only what there is, with a unit and a description."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .sources import FILES, PLACED, ROOT, dashboards, exported, expressions, names, promtool, rules, selected

DASHBOARDS = dashboards()


def test_five_dashboards_have_their_names():
    assert sorted(DASHBOARDS) == ["autoscaler", "fleet", "operator", "partitioning", "query"]
    assert {each["uid"] for each in DASHBOARDS.values()} == {f"millrace-{name}" for name in DASHBOARDS}


def contents(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_the_chart_has_what_the_sources_make(tmp_path):
    subprocess.run([sys.executable, "-m", "monitoring.dashboards", tmp_path], cwd=ROOT, check=True)
    assert contents(FILES / "dashboards") == contents(tmp_path)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_metric_is_exported_or_recorded(name):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = set().union(*map(names, expressions(DASHBOARDS[name])))
    assert used
    assert used - recorded - exported().keys() == set()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_series_are_selected_by_labels_that_they_have(name):
    labels = exported()
    pairs = {pair for expression in expressions(DASHBOARDS[name]) for pair in selected(expression)}
    assert {(metric, label) for metric, label in pairs if label not in labels[metric] | PLACED} == set()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_prometheus_takes_the_expressions(name):
    variables = {"$__rate_interval": "1m", "$cluster": ".*", "$namespace": "streams", "$query": "trips"}
    for expression in expressions(DASHBOARDS[name]):
        if expression.startswith("label_values("):
            continue
        for variable, value in variables.items():
            expression = expression.replace(variable, value)
        status, said = promtool("promql", "format", expression, "--experimental")
        assert status == 0, f"{expression}: {said}"


def panels(name):
    return DASHBOARDS[name]["panels"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_say_what_they_show(name):
    assert len(panels(name)) <= 25
    for panel in panels(name):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["type"] == "table" or panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap(name):
    places = [panel["gridPos"] for panel in panels(name)]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_the_variables_of_its_scope(name):
    variables = [each["name"] for each in DASHBOARDS[name]["templating"]["list"]]
    wanted = {"fleet": ["namespace"], "operator": ["namespace"]}.get(name, ["namespace", "query"])
    assert variables == ["datasource", "cluster", *wanted]
