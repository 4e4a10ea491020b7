"""NetworkPolicies that hold on the lab's cluster, whose network does not enforce them by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .cluster import Cluster
from .cluster_settings import NODE
from .parts.go_programs import go_program
from .processes import Process


@contextmanager
def enforced_policies(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Enforce NetworkPolicies for the length of the block. ``folder`` holds the log.

    A policy takes effect some time after it is made or its pods are there, so wait for what it forbids.
    """
    command: list[str | Path] = [go_program("firewall"), f"-kubeconfig={cluster.kubeconfig}", f"-node={NODE}"]
    with cluster.inside():
        firewall = Process(command, folder / "firewall.log")
        try:
            yield
            assert firewall.status is None, f"the firewall ended: {firewall.said[-3000:]}"
        finally:
            firewall.end()  # it removes its rules, which name addresses that other pods will have
