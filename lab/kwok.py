"""Simulated nodes for a control plane: pods on them become Running and Ready, but run nothing.

The program is kwok (Kubernetes without kubelets). ``kwok_stages.yaml`` defines what it does to nodes and pods.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .control_plane import ControlPlane
from .parts.go_programs import go_program
from .processes import Process

_STAGES = Path(__file__).with_name("kwok_stages.yaml")
_LABEL = "millrace.io/simulated"
_PATIENCE = 120.0
"""Seconds to wait until nodes are ready on a busy machine."""


@contextmanager
def running_kwok(plane: ControlPlane, nodes: int = 10) -> Iterator[Process]:
    """Run kwok with ``nodes`` nodes that are ready. Both are removed at the end.

    Raises:
        MissingError: the program was not made.
    """
    program = go_program("kwok")
    options = {
        "kubeconfig": plane.kubeconfig,
        "config": _STAGES,
        "manage-nodes-with-label-selector": f"{_LABEL}=true",
        "manage-all-nodes": "false",
        "node-ip": "127.0.0.1",
        "node-lease-duration-seconds": "40",
        "cidr": "10.200.0.1/16",
    }
    kwok = Process([program, *(f"--{name}={value}" for name, value in options.items())], plane.folder / "kwok.log")
    try:
        done = plane.kubectl("apply", "-f", "-", document=[_node(number) for number in range(nodes)])
        assert done.returncode == 0, done.stderr
        _wait_until_ready(plane, kwok, nodes)
        yield kwok
    finally:
        kwok.kill()
        plane.kubectl("delete", "node", "-l", _LABEL, "--wait=false")


def _node(number: int) -> dict[str, Any]:
    metadata = {"name": f"simulated-{number}", "labels": {_LABEL: "true"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _wait_until_ready(plane: ControlPlane, kwok: Process, nodes: int) -> None:
    """Wait until pods can be bound to the nodes: they are ready, and the taint of new nodes is removed."""
    deadline = time.monotonic() + _PATIENCE
    while sum(map(_takes_pods, plane.get("node", "-l", _LABEL)["items"])) < nodes:
        assert kwok.status is None, f"kwok ended: {kwok.said[-3000:]}"
        assert time.monotonic() < deadline, f"nodes are not ready: {kwok.said[-3000:]}"
        time.sleep(0.2)


def _takes_pods(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return not node["spec"].get("taints") and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )
