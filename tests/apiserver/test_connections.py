"""Connections on a real API server: what is refused at ``kubectl apply``, and what the operator makes of references."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane

from .connection_objects import NAME, connection, query
from .observed import ready_of, status_of, wait_until
from .operators import ask, running_operator
from .played_pods import become_healthy, pod

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

Kubectl = Callable[..., str]
OIDC = {"tokenEndpoint": "https://login.example.org/token", "clientId": "a", "clientSecret": {"env": "A"}}


@pytest.mark.parametrize(
    ("kafka", "refused"),
    [
        ({"sasl": {"mechanism": "GSSAPI"}}, 'Unsupported value: "GSSAPI"'),
        ({"sasl": {"mechanism": "OAUTHBEARER"}}, "OAUTHBEARER takes exactly one of oidc and awsMskIam"),
        (
            {"sasl": {"mechanism": "OAUTHBEARER", "oidc": OIDC | {"tokenEndpoint": "file:///a"}}},
            "spec.kafka.sasl.oidc.tokenEndpoint",
        ),
        ({"tls": {"key": {"env": "A"}}}, "certificate and key belong together"),
        ({"options": {"plugin.library.paths": "/tmp/x.so"}}, "options has a name that a query may not set"),
        ({"options": {"client.rack": 5}}, "spec.kafka.options.client.rack: Invalid value"),
        ({"registry": {}}, "spec.kafka.registry.url: Required value"),
        ({"registry": {"url": "http://registry", "login": {"tls": {}}}}, "login.tls needs a registry with TLS"),
        ({"topic": "trips"}, 'unknown field "spec.kafka.topic"'),
    ],
)
def test_a_broken_connection_is_refused_where_its_owner_sees_it(
    plane: ControlPlane, namespace: str, kafka: dict[str, Any], refused: str
) -> None:
    done = plane.kubectl("--namespace", namespace, "apply", "-f", "-", document=connection(**kafka))
    assert done.returncode != 0
    assert refused in done.stderr


def test_kubectl_shows_brokers_and_login(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=connection())
    header, row = (line.split() for line in kubectl("get", "connections.millrace.io").splitlines())
    assert header == ["NAME", "BROKERS", "LOGIN", "AGE"]
    assert row[:3] == ["trips", "kafka:9093", "PLAIN"]


@pytest.mark.in_turn
def test_a_query_follows_its_connection(plane: ControlPlane, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
    with running_operator(plane, tmp_path, namespace=namespace) as operator:
        kubectl("apply", "-f", "-", document=connection() | {"metadata": {"name": "tripz"}})
        kubectl("apply", "-f", "-", document=query())
        said = 'there is no Connection "trips"; did you mean "tripz"?'
        wait_until(lambda: said in ready_of(kubectl, NAME)["message"])
        assert ready_of(kubectl, NAME)["reason"] == "ConnectionNotFound"
        assert kubectl("get", "sts", "-o", "name") == ""

        kubectl("apply", "-f", "-", document=connection())
        wait_until(lambda: f"pod/{NAME}-driver-0" in kubectl("get", "pod", "-o", "name"))
        become_healthy(kubectl)
        before = pod(kubectl)["metadata"]["uid"]
        assert _mounted(kubectl)["spec"]["sink"]["kafka"]["bootstrapServers"] == "kafka:9093"

        kubectl("annotate", "connections.millrace.io", "trips", "note=seen")
        kubectl("apply", "-f", "-", document=connection(bootstrapServers="kafka:9094"))
        wait_until(lambda: _shown(kubectl) == ("trips", 2, "kafka:9094"))
        wait_until(lambda: _uid(kubectl) not in (None, before))
        assert _mounted(kubectl)["spec"]["sink"]["kafka"]["bootstrapServers"] == "kafka:9094"

        kubectl("delete", "connections.millrace.io", "trips")
        wait_until(lambda: ready_of(kubectl, NAME)["reason"] == "ConnectionNotFound")
        assert _uid(kubectl) not in (None, before)
        assert ask(operator, "/readyz") == (200, "ok\n")


def _shown(kubectl: Kubectl) -> tuple[str, int, str] | None:
    found = status_of(kubectl, NAME).get("connections", ())
    return (found[0]["name"], found[0]["generation"], found[0]["brokers"]) if found else None


def _uid(kubectl: Kubectl) -> str | None:
    found = kubectl("get", "pod", f"{NAME}-driver-0", "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
    return found or None


def _mounted(kubectl: Kubectl) -> dict[str, Any]:
    """The query as the driver reads it."""
    names = [each["configMap"]["name"] for each in pod(kubectl)["spec"]["volumes"] if each["name"] == "query"]
    data = json.loads(kubectl("get", "cm", *names, "-o", "json"))["data"]
    found: dict[str, Any] = yaml.safe_load(data["query.yaml"])
    return found
