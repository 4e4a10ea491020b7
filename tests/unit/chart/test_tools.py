"""The chart before Helm, kubeconform and helm-unittest."""

from __future__ import annotations

import tarfile

import pytest

from .schemas import LOCATION
from .tools import CHART, KUBERNETES, VALUES, rendered, tool

_FOREIGN = "PodMonitor,ServiceMonitor,PrometheusRule"
"""Kinds of prometheus-operator, whose schemas are not at hand."""


@pytest.mark.parametrize("values", VALUES)
def test_helm_has_nothing_to_say_of_it(values):
    files = [] if VALUES[values] is None else ["--values", VALUES[values]]
    done = tool("helm", "lint", "--strict", "--kube-version", KUBERNETES, *files, CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", VALUES)
def test_every_object_is_as_kubernetes_has_it(values, schemas):
    done = _kubeconform(schemas, rendered(values))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Invalid: 0, Errors: 0" in done.stdout


@pytest.mark.parametrize("known", ["maxUnavailable: 0", "batchInterval: 2s"])
def test_what_kubernetes_does_not_have_is_noticed(known, schemas):
    text = rendered()
    assert known in text
    done = _kubeconform(schemas, text.replace(known, f"misspelt{known}"))
    assert done.returncode == 1
    assert "additional properties 'misspelt" in done.stdout


def _kubeconform(schemas, text):
    options = ("-strict", "-summary", "-skip", _FOREIGN, "-schema-location", f"{schemas}/{LOCATION}")
    return tool("kubeconform", *options, stdin=text)


def test_the_tests_of_the_chart_pass():
    done = tool("helm-unittest", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_has_no_tests_of_its_own(tmp_path):
    assert tool("helm", "package", CHART, "--destination", tmp_path).returncode == 0
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = archive.getnames()
    assert "millrace/templates/tests/query.yaml" in names
    assert "millrace/files/operator-rules.yaml" in names
    assert not [name for name in names if name.startswith("millrace/tests/")]
