"""The base for Kustomize: the chart with its default values, and overlays as the docs have them."""

from __future__ import annotations

import re

import pytest
import yaml

from .parsed_options import parsed
from .tools import CHART, ROOT, documents, find, rendered, tool

BASE = ROOT / "charts/kustomize"


def built(folder):
    """What Kustomize makes of a folder."""
    done = tool("kubernetes", "kubectl", "kustomize", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_base_is_the_chart():
    """If this fails: run ``make chart-files``."""
    chart = ("--namespace", "millrace", "--no-hooks", "--set", "crds.install=false", "--kube-version", "1.30.0")
    assert (BASE / "operator.yaml").read_text(encoding="utf-8") == rendered("default", *chart)


def test_the_base_has_the_crd_and_its_namespace_and_nothing_of_helm():
    text = built(BASE)
    kinds = [each["kind"] for each in documents(text)]
    assert {"CustomResourceDefinition", "Namespace", "Deployment"} <= set(kinds)
    for name in ("streamqueries.millrace.io", "connections.millrace.io"):
        crd = yaml.safe_load((CHART / f"files/{name}.yaml").read_text(encoding="utf-8"))
        assert find(text, "CustomResourceDefinition", name)["spec"] == crd["spec"]
    assert "Helm" not in text
    assert "helm.sh/hook" not in text


@pytest.fixture
def overlay(tmp_path):
    """The overlay of the docs, of the base in this repository."""
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(apiVersion: kustomize.config.k8s.io/v1beta1\n.*?)```", page, re.DOTALL)
    document = yaml.safe_load(example)
    (tmp_path / "overlay").mkdir()
    for name in ("charts/kustomize", "crds"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    document["resources"] = ["../charts/kustomize"]
    (tmp_path / "overlay/kustomization.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return tmp_path / "overlay"


def test_an_overlay_sets_images_and_options_and_moves_all_to_its_namespace(overlay):
    text = built(overlay)
    deployment = find(text, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "REGISTRY/millrace-operator:0.1.0"
    options = parsed(container["command"] + container["args"])
    assert options["image"] == "REGISTRY/millrace-jobs:0.1.0"
    assert options["prometheus_url"] == "http://prometheus.monitoring:9090"
    found = documents(text)
    assert {each["metadata"].get("namespace", "streams") for each in found} == {"streams"}
    subjects = [subject for each in found for subject in each.get("subjects", ())]
    assert subjects
    assert {each["namespace"] for each in subjects} == {"streams"}
    assert find(text, "Namespace")["metadata"]["name"] == "streams"
