"""A claim for checkpoints on a cluster whose nodes are simulated, so that no volume has to be mounted."""

from __future__ import annotations

from typing import Any


def claim_and_volume(namespace: str, name: str = "checkpoints") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a PersistentVolumeClaim and the PersistentVolume that Kubernetes binds it to.

    The scheduler finds a node only for pods whose claims are bound.
    """
    volume = f"{namespace}-{name}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": common | {"volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
    }
    nfs = {"server": "nfs.example.com", "path": f"/{volume}"}
    return claim, {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": common | {"capacity": {"storage": "1Gi"}, "nfs": nfs},
    }
