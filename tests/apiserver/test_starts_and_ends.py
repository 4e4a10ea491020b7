"""An operator starts without its API server or without its rights, and SIGTERM ends it at any time."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lab.control_plane import ControlPlane
from lab.forked import Forked
from lab.ports import free_port
from lab.processes import Process
from lab.tcp_proxy import TcpProxy
from unit.resources.cases import SMALLEST

from .granted_rights import RULES
from .observed import wait_until
from .operators import PATIENCE, ask, running_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]


@contextmanager
def operator_asking(port: int, folder: Path) -> Iterator[Process]:
    """Run an operator that takes what listens on a port for the API server."""
    kubeconfig = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "users": [{"name": "me", "user": {}}],
    }
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    arguments = ["operator", "--bind", "127.0.0.1", "--port", "0"]
    operator = Forked(arguments, folder / "operator.log", environment={"KUBECONFIG": str(kubeconfig)})
    try:
        yield operator
    finally:
        operator.kill()


def test_sigterm_ends_an_operator_whose_first_request_is_not_answered(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        with operator_asking(silent.getsockname()[1], tmp_path) as operator:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)
                operator.send(signal.SIGTERM)
                assert operator.wait(PATIENCE) == 0
    assert "does not answer" not in operator.said  # it has not waited for the answer


def test_sigterm_ends_an_operator_that_has_never_reached_its_api_server(tmp_path: Path) -> None:
    with operator_asking(free_port(), tmp_path) as operator:
        assert ask(operator, "/readyz")[0] == 503
        operator.send(signal.SIGTERM)
        assert operator.wait(PATIENCE) == 0


@pytest.mark.in_turn
def test_sigterm_ends_a_leader_whose_api_server_is_away(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    proxy = TcpProxy(free_port(), int(plane.url.rpartition(":")[2]))
    try:
        url = f"https://127.0.0.1:{proxy.port}"
        kubeconfig = plane.kubeconfig_of("operator-a", tmp_path / "kubeconfig", url)
        options = ("--leader-elect", "--lease-seconds", "45")  # longer than all its requests together
        with running_operator(plane, tmp_path, *options, namespace=namespace, kubeconfig=kubeconfig) as operator:
            wait_until(lambda: ask(operator, "/readyz")[0] == 200)
            proxy.black_hole(new=True)
            operator.send(signal.SIGTERM)
            assert operator.wait(PATIENCE) == 0
            assert "the lease is not released, and ends in 45 s" in operator.said
    finally:
        proxy.close()


def test_an_operator_that_may_not_list_all_namespaces_says_so_and_waits_for_the_right(
    plane: ControlPlane, namespace: str, kubectl, tmp_path: Path
) -> None:
    kubectl("create", "serviceaccount", "operator")
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig", kubectl("create", "token", "operator").strip())
    with running_operator(plane, tmp_path, kubeconfig=kubeconfig) as operator:
        wait_until(lambda: "pods of all namespaces are not watched until they can be" in operator.said)
        assert "grant that right in all namespaces, or name the ones to watch with --namespace" in operator.said
        assert "the watched objects are not all listed yet" in ask(operator, "/readyz")[1]
        group, name = "rbac.authorization.k8s.io", f"{namespace}-operator"
        kubectl("apply", "-f", "-", document={
            "apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": RULES,
        })  # fmt: skip
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={namespace}:operator")
        try:
            kubectl("apply", "-f", "-", document=SMALLEST)
            wait_until(lambda: "StatefulSet" in kubectl("get", "sts", "-o", "yaml"))
            assert operator.end() == 0
        finally:
            kubectl("delete", "clusterrolebinding,clusterrole", name)
