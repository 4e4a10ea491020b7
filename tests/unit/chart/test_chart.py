"""The chart beside what it belongs to: the operator's options, its rights, the CRD, and the version."""

from __future__ import annotations

import json
import shutil
import tomllib

import pytest
import yaml

from millrace_api.validation.loading import read_query
from millrace_operator.leadership.shard import Shard
from millrace_operator.resources.restrictions import problems
from millrace_operator.resources.tenancy_policy import TenancyPolicy
from unit.resources.cases import SMALLEST, objects_of

from .parsed_options import parsed
from .tools import CHART, ROOT, VALUES, documents, find, rendered, tool

RULES = yaml.safe_load((CHART / "files/operator-rules.yaml").read_text())["rules"]


def operators_options(text):
    """What the operator makes of its command line, and its container."""
    (container,) = deployment(text)["spec"]["template"]["spec"]["containers"]
    return parsed(container["command"] + container["args"]), container


def deployment(text):
    """The operator's only Deployment, or that of its first shard."""
    return next(each for each in documents(text) if each["kind"] == "Deployment")


@pytest.mark.parametrize("values", VALUES)
def test_the_operator_takes_its_options(values):
    options, container = operators_options(rendered(values))
    assert options["leader_elect"]
    assert options["port"] == container["ports"][0]["containerPort"]


def test_every_option_has_the_value_that_was_meant():
    options, container = operators_options(rendered("namespaced"))
    assert options["namespace"] == ["cabs", "buses"]
    assert options["image"] == "millrace-jobs:0.1.0"
    assert options["prometheus_url"] == "https://prometheus.monitoring:9090"
    assert options["prometheus_user"] == "$(PROMETHEUS_USER)"
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {str(options[name].parent) for name in ("prometheus_ca_file", "prometheus_password_file")} <= mounted


def test_the_operator_reads_the_policy_that_it_mounts(tmp_path):
    text = rendered("everything")
    options, container = operators_options(text)
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in deployment(text)["spec"]["template"]["spec"]["volumes"]}
    files = find(text, "ConfigMap", volumes[mounts[str(options["policy"].parent)]]["configMap"]["name"])["data"]
    path = tmp_path / options["policy"].name
    path.write_text(files[path.name], encoding="utf-8")
    values = yaml.safe_load(VALUES["everything"].read_text(encoding="utf-8"))
    assert TenancyPolicy.load(path) == TenancyPolicy.model_validate({"policy": values["policy"]}, by_name=False)


@pytest.mark.parametrize("key", ["Team!", "a..b/team", "team "])
def test_a_key_of_a_label_that_the_operator_refuses_is_not_in_the_schema(key):
    """Otherwise an upgrade passes, and the operator does not start after it."""
    values = json.dumps([{"namespaces": ["cabs"], "labels": {key: ["x y"]}}])
    arguments = ("template", "millrace", str(CHART), "--set-json", f"policy={values}")
    refused = tool("helm", *arguments)
    assert refused.returncode != 0
    assert f"additional properties '{key}' not allowed" in refused.stderr


def test_another_policy_rolls_the_operator():
    def checksum(*options):
        template = deployment(rendered("everything", *options))["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/policy"]

    assert checksum() == checksum()
    assert checksum() != checksum("--set", "policy[0].limits.executors=17")


@pytest.mark.parametrize("values", VALUES)
def test_the_lease_is_named_after_the_release(values):
    text = rendered(values)
    assert operators_options(text)[0]["lease_name"] == find(text, "Service")["metadata"]["name"]


def test_settings_of_the_pods_of_queries_reach_the_operator():
    options, _ = operators_options(rendered("everything"))
    assert options["image_pull_policy"] == "Always"
    assert options["image_pull_secret"] == ["jobs-registry"]
    assert not options["fixed_user"]
    assert (options["shard"], options["lease_seconds"]) == ("1/2", 30)
    assert (options["bind"], options["port"], options["page_port"]) == ("::", 9090, 9091)


def test_shards_are_those_of_the_operator_and_share_no_pods():
    deployments = [each for each in documents(rendered("everything")) if each["kind"] == "Deployment"]
    shards = []
    for each in deployments:
        (container,) = each["spec"]["template"]["spec"]["containers"]
        options = parsed(container["command"] + container["args"])
        shard = Shard.parse(options["shard"])
        shards.append(shard)
        assert each["metadata"]["name"] == shard.name("streaming-operator")
        assert each["spec"]["selector"]["matchLabels"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
    assert shards == [Shard(1, 2), Shard(2, 2)]
    selectors = [json.dumps(each["spec"]["selector"]) for each in deployments]
    assert len(set(selectors)) == 2


def test_the_guard_looks_where_the_operator_watches():
    (container,) = find(rendered("namespaced"), "Job")["spec"]["template"]["spec"]["containers"]
    assert parsed(container["command"])["namespace"] == ["cabs", "buses"]
    (container,) = find(rendered(), "Job")["spec"]["template"]["spec"]["containers"]
    assert parsed(container["command"])["namespace"] == ()


def test_the_readme_is_that_of_the_values(tmp_path):
    copy = shutil.copytree(CHART, tmp_path / "millrace")
    done = tool("helm-docs", "--chart-search-root", copy, "--output-file", "README.md")
    assert done.returncode == 0, done.stderr
    assert (copy / "README.md").read_text("utf-8") == (CHART / "README.md").read_text("utf-8")


def test_the_test_waits_by_a_command_that_there_is():
    (container,) = find(rendered("namespaced"), "Pod")["spec"]["containers"]
    options = parsed(container["command"])
    assert (options["name"], options["namespace"], options["wait"]) == ("millrace-test", "cabs", True)


def test_the_query_of_the_test_is_one_that_the_operator_deploys():
    query = read_query(find(rendered(), "StreamQuery"))
    assert query.name == "millrace-test"
    assert problems(query) == []


def test_the_query_of_the_notes_is_one_that_the_operator_deploys(tmp_path):
    chart = shutil.copytree(CHART, tmp_path / "millrace")
    (chart / "templates/notes.yaml").write_text(
        'text: |\n  {{- tpl (.Files.Get "NOTES.txt") . | nindent 2 }}\n', encoding="utf-8"
    )
    shutil.copy(chart / "templates/NOTES.txt", chart / "NOTES.txt")
    (notes,) = [each["text"] for each in documents(rendered(chart=chart)) if "text" in each]
    claim, query = yaml.safe_load_all(notes.split("<<'EOF'\n")[1].split("\nEOF")[0])
    assert read_query(query).spec.checkpoint.claim_name == claim["metadata"]["name"]
    assert problems(read_query(query)) == []


def test_drivers_have_the_label_and_the_port_of_their_pod_monitor():
    monitored = find(rendered("everything"), "PodMonitor", "streaming-drivers")["spec"]
    (driver,) = [each for each in objects_of(SMALLEST) if each["kind"] == "StatefulSet"]
    template = driver["spec"]["template"]
    assert monitored["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert monitored["podMetricsEndpoints"][0]["port"] in ports


@pytest.mark.parametrize("values", VALUES)
def test_the_operators_rights_are_those_of_the_one_file(values):
    text = rendered(values)
    name = find(text, "Service")["metadata"]["name"]
    roles = [each for each in documents(text) if each["kind"] in ("Role", "ClusterRole")]
    of_queries = [each["rules"] for each in roles if each["metadata"]["name"] == name]
    leases = find(text, "Role", f"{name}-leases")["rules"]
    assert of_queries
    for rules in of_queries:
        assert sorted(map(json.dumps, rules + leases)) == sorted(map(json.dumps, RULES))


@pytest.mark.parametrize("name", ["streamqueries.millrace.io", "connections.millrace.io"])
def test_the_crd_is_that_of_the_repository(name):
    of_chart, of_repository = CHART / f"files/{name}.yaml", ROOT / f"crds/{name}.yaml"
    assert of_chart.read_bytes() == of_repository.read_bytes()
    crd = find(rendered(), "CustomResourceDefinition", name)
    assert crd["spec"] == yaml.safe_load(of_repository.read_text(encoding="utf-8"))["spec"]


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_every_value_is_in_the_schema_and_has_a_comment():
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = set(_names(yaml.safe_load(text)))
    assert values == set(_names(schema, "properties"))
    assert len([line for line in text.splitlines() if line.strip().startswith("# -- ")]) == len(values)


KUBERNETES_OWN = {
    ".affinity",
    ".monitoring.dashboards.annotations",
    ".monitoring.dashboards.labels",
    ".podSecurityContext",
    ".resources",
    ".securityContext",
}


def _names(of, below=None, above=""):
    """Names of all values, or of all that a schema has; those whose parts are not the chart's are one."""
    parts = of.get(below, {}) if below and isinstance(of, dict) else of
    if not isinstance(parts, dict) or not parts or above in KUBERNETES_OWN:
        return [above]
    return [each for name, part in parts.items() for each in _names(part, below, f"{above}.{name}")]


@pytest.fixture
def chart_with(tmp_path):
    """Makes a copy of the chart with these files as its only dashboards and rules."""

    def make(files):
        chart = shutil.copytree(CHART, tmp_path / "millrace")
        for folder in ("dashboards", "rules"):
            shutil.rmtree(chart / "files" / folder, ignore_errors=True)
            (chart / "files" / folder).mkdir()
        for name, text in files.items():
            (chart / "files" / name).write_text(text, encoding="utf-8")
        return chart

    return make


RULES_FILE = """\
groups:
  - name: millrace
    rules:
      - alert: Late
        expr: up == 0
        annotations: {summary: "{{ $labels.namespace }} is late"}
"""
DASHBOARD = '{"title": "Fleet", "panels": [{"targets": [{"legendFormat": "{{pod}}"}]}]}\n'
ON = ("--set", "monitoring.dashboards.enabled=true,monitoring.rules.enabled=true")


def test_no_dashboards_and_rules_make_no_objects(chart_with):
    text = rendered("default", *ON, chart=chart_with({}))
    assert [each["metadata"]["name"] for each in documents(text) if each["kind"] == "ConfigMap"] == []
    assert "PrometheusRule" not in text


def test_dashboards_and_rules_are_as_they_were_written(chart_with):
    chart = chart_with({"dashboards/fleet.json": DASHBOARD, "rules/alerts.yaml": RULES_FILE})
    text = rendered("default", *ON, "--set", "monitoring.rules.labels.release=prometheus", chart=chart)
    dashboard = find(text, "ConfigMap", "millrace-dashboard-fleet")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["millrace-fleet.json"]) == json.loads(DASHBOARD)
    rule = find(text, "PrometheusRule")
    assert rule["metadata"]["name"] == "millrace-rules-alerts"
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"] == yaml.safe_load(RULES_FILE)


def test_rules_may_be_in_a_config_map(chart_with):
    chart = chart_with({"rules/alerts.yaml": RULES_FILE})
    text = rendered("default", *ON, "--set", "monitoring.rules.kind=ConfigMap", chart=chart)
    rules = find(text, "ConfigMap", "millrace-rules-alerts")
    assert yaml.safe_load(rules["data"]["millrace-alerts.yaml"]) == yaml.safe_load(RULES_FILE)


def test_all_objects_have_the_common_labels():
    wanted = {"example.org/owner": "streams"}.items()
    made = documents(rendered("everything"))
    without = [each["metadata"]["name"] for each in made if not wanted <= each["metadata"].get("labels", {}).items()]
    assert without == []
