"""Pods that a test runs without an operator."""

from __future__ import annotations

from typing import Any

from .cluster import JOBS_USER, Cluster


class Pods:
    """Pods in a namespace, each of which runs a shell script in an image."""

    def __init__(self, cluster: Cluster, namespace: str, image: str) -> None:
        self._cluster, self._namespace, self._image = cluster, namespace, image

    def kubectl(self, *arguments: str, document: object = None) -> str:
        """Run ``kubectl`` in the namespace, and return its output."""
        done = self._cluster.kubectl("-n", self._namespace, *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, script: str, container: Any = None, volumes: Any = ()) -> None:
        """Start a pod."""
        described = {"image": self._image, "command": ["sh", "-c", script], **(container or {})}
        self.kubectl("apply", "-f", "-", document=_pod(name, described, volumes))

    def wait(self, name: str, condition: str) -> None:
        """Wait until a condition holds."""
        self.kubectl("wait", f"pod/{name}", f"--for={condition}", "--timeout=60s")

    def run(self, name: str, script: str, **options: Any) -> str:
        """Run a pod to its end, and return its output."""
        self.start(name, script, **options)
        self.wait(name, "jsonpath={.status.phase}=Succeeded")
        return self.kubectl("logs", name)


def _pod(name: str, container: dict[str, Any], volumes: Any) -> dict[str, Any]:
    """Return a pod for a namespace that enforces the security standard ``restricted``."""
    security = {
        "runAsNonRoot": True,
        "runAsUser": JOBS_USER,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    described = {
        "name": "main",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": security,
        **container,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [described],
            "volumes": list(volumes),
        },
    }
