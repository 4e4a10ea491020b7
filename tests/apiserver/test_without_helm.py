"""What docs/install.md does with kubectl alone: the base for Kustomize, and the health check for Argo CD."""

from __future__ import annotations

import re
import shlex

import pytest

from lab.control_plane import running_control_plane
from unit.chart.tools import ROOT

from .crd_documents import VALID
from .observed import wait_until

pytestmark = [pytest.mark.apiserver, pytest.mark.in_turn, pytest.mark.timeout(900)]

HEALTH = "resource.customizations.health.millrace.io_StreamQuery"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A control plane of its own, since here the base brings the CRD."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as started:
        yield started


def command(start):
    """Return the arguments of the docs' only kubectl command that begins like this."""
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [each.strip() for each in re.split(r"[|\n]", page)]
    (found,) = [each for each in commands if each.startswith(f"kubectl {start}")]
    return [each.replace("charts/", f"{ROOT}/charts/") for each in shlex.split(found)[1:]]


def test_the_base_installs_an_operator_and_goes_away_again(plane):
    done = plane.kubectl(*command("apply --server-side -k"))
    assert done.returncode == 0, done.stderr
    plane.wait_for_crd("streamqueries.millrace.io")
    for text in VALID:
        done = plane.kubectl("apply", "--dry-run=server", "-f", "-", document=text)
        assert done.returncode == 0, done.stderr
    pods = ("pod", "--namespace", "millrace", "-l", "app.kubernetes.io/component=operator")
    wait_until(lambda: len(plane.get(*pods)["items"]) == 2)  # the namespace takes restricted pods only
    done = plane.kubectl("delete", "--timeout=120s", "-k", str(ROOT / "charts/kustomize"))
    assert done.returncode == 0, done.stderr
    assert plane.kubectl("get", "crd", "streamqueries.millrace.io").returncode != 0


def test_the_health_check_is_one_key_more_in_the_settings_of_argo_cd(plane):
    assert plane.kubectl("create", "namespace", "argocd").returncode == 0
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": "argocd", "labels": {"app.kubernetes.io/part-of": "argocd"}},
        "data": {"url": "https://argocd.example.org"},
    }
    assert plane.kubectl("apply", "-f", "-", document=settings).returncode == 0
    made = plane.kubectl(*command("-n argocd create configmap"))
    assert made.returncode == 0, made.stderr
    patched = plane.kubectl(*command("-n argocd patch"), document=made.stdout)
    assert patched.returncode == 0, patched.stderr
    found = plane.get("configmap", "argocd-cm", "--namespace", "argocd")
    assert found["data"]["url"] == "https://argocd.example.org"
    assert found["data"][HEALTH] == (ROOT / "charts/argocd/health.lua").read_text(encoding="utf-8")
    assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "argocd"
