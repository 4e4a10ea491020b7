"""What an administrator's policy and the operator itself refuse, on a real API server: reported, and nothing deployed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import incluster_config

from lab.control_plane import ControlPlane
from millrace_operator.kube.client import own_account
from spark.cli import PATIENCE
from unit.resources.cases import SMALLEST

from .observed import ready_of, status_of, wait_until
from .operators import running_operator, start_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

Kubectl = Callable[..., str]

OWNED = "sts,pod,cm,sa,role,rolebinding,svc,netpol,pdb"
RULE = {
    "images": ["registry.example.com/**"],
    "serviceAccounts": ["streams-*"],
    "checkpointClaims": ["checkpoints"],
    "checkpointUris": ["file:///mnt/state/**"],
    "brokers": ["kafka:9092"],
    "files": ["/data/**"],
    "sparkConf": {"allow": ["spark.sql.*"]},
    "limits": {"executors": 8, "coresPerPod": 4, "memoryPerPod": "8g", "cores": 40},
}
SIDE = {"spec": {"containers": [{"name": "side", "image": "evil.com/side"}]}}
NOT_ALLOWED: dict[str, tuple[dict[str, Any], str]] = {
    "image": (
        {"image": "registry.example.com.evil.com/a"},
        'spec.image: "registry.example.com.evil.com/a" is not allowed in namespace {}; '
        "write a value that matches one of registry.example.com/**",
    ),
    "sidecar": (
        {"executors": {"podTemplate": SIDE}},
        'spec.executors.podTemplate.spec.containers[0].image: "evil.com/side" is not allowed in namespace {}',
    ),
    "account": (
        {"serviceAccountName": "admin"},
        'spec.serviceAccountName: "admin" is not allowed in namespace {}; write a value that matches one of streams-*',
    ),
    "claim": (
        {"checkpoint": {"claimName": "other"}},
        'spec.checkpoint.claimName: a checkpoint on the claim "other" is not allowed in namespace {}',
    ),
    "broker": (
        {"sink": {"kafka": {"bootstrapServers": "evil:9092", "topic": "out"}}},
        'spec.sink.kafka.bootstrapServers: "evil:9092" is not allowed in namespace {}',
    ),
    "files": (
        {"sink": {"files": {"path": "/etc/out"}}},
        'spec.sink.files.path: "/etc/out" is not allowed in namespace {}; write a value that matches one of /data/**',
    ),
    "setting": (
        {"sparkConf": {"spark.extraListeners": "a.B"}},
        'spec.sparkConf[spark.extraListeners]: "spark.extraListeners" is not allowed in namespace {}',
    ),
    "executors": (
        {"executors": {"max": 9}},
        "spec.executors.max: 9 executors are more than the 8 that a query may have in namespace {}",
    ),
    "cores": (
        {"driver": {"cores": 5}},
        "spec.driver.cores: 5 cores are more than the 4 that a pod may have in namespace {}",
    ),
}
INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "pod-local": (
        {"checkpoint": {"uri": "file:///tmp/checkpoint"}},
        'spec.checkpoint.uri: the checkpoint "file:///tmp/checkpoint" is not on a volume that driver and executors share',
    ),
    "default-account": ({"serviceAccountName": "default"}, 'spec.serviceAccountName: "default" is the account of all'),
    "plugins": ({"sparkConf": {"spark.plugins": "a.B"}}, '"spark.plugins" is set by Millrace itself'),
    "off-heap": ({"sparkConf": {"spark.unsafe.offHeap": "true"}}, '"spark.unsafe.offHeap" is set by Millrace itself'),
    "secret": (
        {"sparkConf": {"spark.executorEnv.AWS_ACCESS_KEY_ID": "hunter2"}},
        '"spark.executorEnv.AWS_ACCESS_KEY_ID" is a secret',
    ),
    "java-option": (
        {"sparkConf": {"spark.driver.extraJavaOptions": "-Dfs.s3a.secret.key=hunter2"}},
        'the value of "spark.driver.extraJavaOptions" has a secret in it',
    ),
    "spark-label": (
        {"driver": {"podTemplate": {"metadata": {"labels": {"spark-app-selector": "spark-1"}}}}},
        'spec.driver.podTemplate.metadata.labels: "spark-app-selector" says what the pod belongs to',
    ),
}


def query(name: str, **spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SMALLEST)
    document["metadata"]["name"] = name
    document["spec"] |= copy.deepcopy(spec)
    return document


def policy_file(folder: Path, namespace: str, **rule: Any) -> str:
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump({"policy": [{"namespaces": [namespace], **rule}]}), encoding="utf-8")
    return str(path)


def driver(kubectl: Kubectl, name: str) -> str:
    """Return the identity of a query's driver pod once there is one."""
    wait_until(lambda: (status_of(kubectl, name).get("driver") or {}).get("pod") is not None)
    return str(json.loads(kubectl("get", "pod", f"{name}-driver-0", "-o", "json"))["metadata"]["uid"])


@pytest.mark.in_turn
def test_nothing_is_deployed_that_is_refused_and_each_refusal_names_field_and_value(
    plane: ControlPlane, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    policy = policy_file(tmp_path, namespace, **RULE)
    empty = set(kubectl("get", OWNED, "-o", "name").splitlines())
    refused = NOT_ALLOWED | INVALID
    with running_operator(plane, tmp_path, "--policy", policy, namespace=namespace):
        kubectl("apply", "-f", "-", document=[query(name, **spec) for name, (spec, _) in refused.items()])
        for name, (_, said) in refused.items():
            ready = ready_of(kubectl, name)
            reason = "NotAllowed" if name in NOT_ALLOWED else "InvalidQuery"
            assert (ready["status"], ready["reason"]) == ("False", reason), name
            assert said.format(namespace) in ready["message"], name
            assert "hunter2" not in ready["message"], name
        found = set(kubectl("get", OWNED, "-o", "name").splitlines()) - empty
        assert not {each for each in found if each not in ("configmap/kube-root-ca.crt", "serviceaccount/default")}


@pytest.mark.in_turn
def test_a_stricter_policy_kills_nothing_and_a_wider_one_lets_the_query_run(
    plane: ControlPlane, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    ours = query("ours", image="registry.example.com/a:1")
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    with running_operator(plane, folders[0], namespace=namespace):
        kubectl("apply", "-f", "-", document=query("theirs", image="elsewhere.example.com/a:1"))
        pod = driver(kubectl, "theirs")
    strict = policy_file(folders[1], namespace, images=["registry.example.com/**"])
    with running_operator(plane, folders[1], "--policy", strict, namespace=namespace):
        kubectl("apply", "-f", "-", document=[ours, query("new", image="elsewhere.example.com/a:1")])
        driver(kubectl, "ours")
        for name in ("theirs", "new"):
            wait_until(lambda name=name: ready_of(kubectl, name)["reason"] == "NotAllowed")  # type: ignore[misc]
        assert driver(kubectl, "theirs") == pod
        kubectl("get", "sts", "theirs-driver")
        assert "new-driver" not in kubectl("get", OWNED, "-o", "name")
        mine = driver(kubectl, "ours")
        kubectl("apply", "-f", "-", document=query("ours", image="elsewhere.example.com/a:2"))
        assert ready_of(kubectl, "ours", generation=2)["reason"] == "NotAllowed"
        assert driver(kubectl, "ours") == mine
    wide = policy_file(folders[2], namespace, images=["registry.example.com/**", "elsewhere.example.com/*"])
    with running_operator(plane, folders[2], "--policy", wide, namespace=namespace):
        driver(kubectl, "new")
        wait_until(lambda: ready_of(kubectl, "theirs")["reason"] == "Deploying")
        assert driver(kubectl, "theirs") == pod


def test_the_operator_knows_its_own_account_by_its_token(
    namespace: str, kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl("create", "serviceaccount", "millrace-operator")
    token = tmp_path / "token"
    token.write_text(kubectl("create", "token", "millrace-operator"), encoding="utf-8")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    assert own_account() == (namespace, "millrace-operator")


def test_an_operator_does_not_start_with_a_policy_that_it_cannot_read(plane: ControlPlane, tmp_path: Path) -> None:
    policy = policy_file(tmp_path, "Cabs", images=["jobs"])
    operator = start_operator(plane, tmp_path / "operator.log", "--policy", policy, namespace="default")
    assert operator.wait(PATIENCE) != 0
    assert f'{policy}:3: policy[0].images[0]: "jobs" is not a pattern of images; write registry' in operator.said
    assert 'policy[0].namespaces[0]: "Cabs" is not a pattern of namespaces' in operator.said
    assert "Traceback" not in operator.said
