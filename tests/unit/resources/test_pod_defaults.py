"""What the operator's options set on the pods of queries."""

from __future__ import annotations

import pytest
import yaml

from millrace_operator.resources.pod_defaults import PodDefaults

from .cases import DEDICATED, IMAGE, TEMPLATED, objects_of

SET = PodDefaults(IMAGE, "Always", ("registry", "mirror"), fixed_user=False)
USERS = {"runAsUser", "runAsGroup", "fsGroup"}


def pods_of(text, defaults=None):
    """Pod specs by the name of their container, and Spark's settings."""
    made = objects_of(text, defaults=defaults)
    files = next(each["data"] for each in made if "executor-pod.yaml" in each.get("data", {}))
    templates = [each["spec"]["template"]["spec"] for each in made if each["kind"] == "StatefulSet"]
    templates.append(yaml.safe_load(files["executor-pod.yaml"])["spec"])
    return {each["containers"][0]["name"]: each for each in templates}, files["spark-defaults.conf"].splitlines()


def test_all_pods_of_a_query_have_what_is_set():
    pods, settings = pods_of(DEDICATED, SET)
    assert set(pods) == {"driver", "executor", "partitioner"}
    for pod in pods.values():
        assert pod["containers"][0]["imagePullPolicy"] == "Always"
        assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert not pod["securityContext"].keys() & USERS
    assert "spark.kubernetes.container.image.pullPolicy Always" in settings


def test_without_settings_kubernetes_rules_and_the_user_of_the_image_hold():
    pods, settings = pods_of(DEDICATED)
    for pod in pods.values():
        assert "imagePullPolicy" not in pod["containers"][0]
        assert "imagePullSecrets" not in pod
        assert {pod["securityContext"][name] for name in USERS} == {10001}
    assert not [line for line in settings if "pullPolicy" in line]


@pytest.mark.parametrize("name", ["driver", "executor"])
def test_secrets_of_a_pod_template_are_beside_them(name):
    own = pods_of(TEMPLATED)[0][name].get("imagePullSecrets", [])
    assert pods_of(TEMPLATED, SET)[0][name]["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}, *own]
