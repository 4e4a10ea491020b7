"""A real one-node Kubernetes for tests, on which pods run: see ``Cluster``.

It has its own network, mounts and process ids, and ends with the process that started it. Pods reach the node by its
address, and nothing else of the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cache import MissingError
from .cluster_containerd import Containerd
from .cluster_node import Node
from .cluster_settings import ADDRESS, NODE, OBJECTS, write_settings
from .control_plane import ControlPlane
from .networks import network_of
from .parts.debian_packages import NODE_PACKAGES
from .parts.go_programs import go_program
from .parts.pause_image import PAUSE_IMAGE
from .processes import Process

_PATIENCE = 180.0
"""Seconds to wait for a start on a busy machine."""

JOBS_USER = 10001
"""The owner of local volumes."""

seconds_to_start: list[float] = []
"""Seconds from the start of each cluster until pods could run."""

seconds_to_stop: list[float] = []
"""Seconds to stop each cluster."""


@dataclass
class Cluster(ControlPlane):
    """A control plane and a node, from ``start`` to ``stop``. ``folder`` holds data, settings and logs."""

    node_address: str = ADDRESS
    """The address at which pods reach what tests start in the cluster's network."""

    _ports: dict[str, int] = field(
        default_factory=lambda: {"api": 6443, "etcd": 2379, "peers": 2380, "controllers": 10257, "scheduler": 10259}
    )

    def __post_init__(self) -> None:
        self._node = Node(self.folder, NODE, ADDRESS)
        self._containerd = Containerd(self.folder)

    @property
    def url(self) -> str:
        """The URL of the API server, for tests and for pods."""
        return f"https://{ADDRESS}:{self._ports['api']}"

    def start(self) -> None:
        """Start all parts, and wait until the cluster is ready for pods.

        Raises:
            MissingError: if this user is not root, or a part was not made or installed.
        """
        if os.geteuid():
            raise MissingError("a node of Kubernetes needs root")
        NODE_PACKAGES.find()
        pause = PAUSE_IMAGE.find()
        self._link_programs()
        began = time.monotonic()
        self._node.start()
        self._prepare()
        write_settings(self.folder, self._containerd.root, self._node.cgroup, self.kubeconfig)
        for name in ("containerd", "etcd", "kube-apiserver"):
            self._run(name)
        self._prepare_containerd(pause)
        self._wait_until_ready()
        for name in ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns"):
            self._run(name)
        done = self.kubectl("apply", "-f", "-", document=OBJECTS)
        assert done.returncode == 0, done.stderr
        self._wait_for_accounts()
        self._wait_for_node()
        seconds_to_start.append(time.monotonic() - began)

    def stop(self) -> None:
        """Kill everything, including pods. Only settings and logs remain."""
        began = time.monotonic()
        self._node.stop()
        self.kill()
        self._containerd.close()
        for name in ("etcd", "kubelet", "volumes"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        seconds_to_stop.append(time.monotonic() - began)

    def inside(self) -> AbstractContextManager[None]:
        """Move the calling thread, and what it starts, into the cluster's network and back. Calls may be nested."""
        return network_of(self._node.pid)

    def program(self, name: str) -> Path:
        """Return the path of ``kubectl`` or ``helm``, to be run inside with ``kubeconfig``."""
        return self.folder / "programs" / name

    def part(self, name: str) -> Process:
        """Return one of the cluster's processes.

        ``etcd``, ``kube-apiserver``, ``kube-controller-manager``, ``kube-scheduler``, ``containerd``, ``kubelet``,
        ``kube-proxy`` or ``coredns``. Killing or pausing ``containerd`` includes the shims of pods.
        """
        return super().part(name)

    def restart(self, name: str) -> None:
        """Restart a part with SIGKILL if it is running, and wait for the API server if it is that one."""
        self._processes[name].kill()
        self._run(name)
        deadline = time.monotonic() + _PATIENCE
        while name == "kube-apiserver" and not self._is_ready():
            process = self.part(name)  # the test may have stopped other parts
            assert process.status is None, f"{name} ended: {process.said[-3000:]}"
            assert time.monotonic() < deadline, f"no API server: {process.said[-3000:]}"
            time.sleep(0.1)

    def kubectl(self, *arguments: str | Path, document: object = None) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl``, from inside or outside the cluster's network."""
        with self.inside():
            return super().kubectl(*arguments, document=document)

    def run_on_node(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command as root on the node, with its mounts and processes."""
        return subprocess.run(self._node.inside(*command), capture_output=True, text=True, timeout=60, check=False)

    def load(self, image: Path) -> None:
        """Load an exported image into the node."""
        self._containerd.load(image)

    def local_volume(self, name: str, size: str = "1Gi") -> Path:
        """Create a volume on the node for a claim of the storage class ``local``, and return its folder."""
        folder = self.volume_folder(name)
        folder.mkdir(parents=True)
        os.chown(folder, JOBS_USER, JOBS_USER)
        done = self.kubectl("apply", "-f", "-", document=_volume(name, size, folder))
        assert done.returncode == 0, done.stderr
        return folder

    def volume_folder(self, name: str) -> Path:
        """Return the folder of a volume's files on this machine."""
        return self.folder / "volumes" / name

    def _is_ready(self) -> bool:
        with self.inside():
            return super()._is_ready()

    def _link_programs(self) -> None:
        """Link each program under its own name, by which the lab's one binary chooses what to run."""
        (self.folder / "programs").mkdir(exist_ok=True)
        for name in ("kubectl", "kubelet", "kube-proxy", *super()._options()):
            self.program(name).symlink_to(go_program("kubernetes"))
        for name in ("coredns", "helm"):
            self.program(name).symlink_to(go_program(name))
        self.program("containerd").symlink_to(shutil.which("containerd") or "containerd")

    def _prepare_containerd(self, pause: Path) -> None:
        """Remove what ran on a node before, and load the image that every pod needs."""
        self._containerd.wait_until_ready()
        if self._containerd.remove_stale():
            self.restart("containerd")  # it still has them in memory
            self._containerd.wait_until_ready()
        self.load(pause)

    def _run(self, name: str) -> None:
        command = self._node.inside(self.program(name), *self._options()[name])
        self._processes[name] = Process(command, self.folder / f"{name}.log")

    def _options(self) -> dict[str, list[str]]:
        folder, options = self.folder, super()._options()
        options["kube-apiserver"] += [
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            "--endpoint-reconciler-type=lease",
            "--kubelet-preferred-address-types=InternalIP",
        ]
        options["kube-controller-manager"] += [f"--root-ca-file={self.authority}"]
        return options | {
            "containerd": [f"--config={folder / 'containerd.toml'}"],
            "kubelet": [
                f"--config={folder / 'kubelet.yaml'}",
                f"--kubeconfig={self.kubeconfig}",
                f"--root-dir={folder / 'kubelet'}",
                f"--cert-dir={folder / 'kubelet' / 'pki'}",
                f"--hostname-override={NODE}",
                f"--node-ip={ADDRESS}",
            ],
            "kube-proxy": [f"--config={folder / 'kube-proxy.yaml'}", f"--hostname-override={NODE}"],
            "coredns": ["-conf", str(folder / "Corefile")],
        }

    def _wait_for_node(self) -> None:
        """Wait until pods can be bound to the node and DNS answers."""
        deadline = time.monotonic() + _PATIENCE
        while not (self._takes_pods() and self._answers_names()):
            for name, process in self._processes.items():
                assert process.status is None, f"{name} ended: {process.said[-3000:]}"
            assert time.monotonic() < deadline, f"the node is not ready: {self.part('kubelet').said[-3000:]}"
            time.sleep(0.1)

    def _takes_pods(self) -> bool:
        nodes = self.get("node")["items"]
        return bool(nodes) and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in nodes[0]["status"].get("conditions", ())
        )

    def _answers_names(self) -> bool:
        with suppress(OSError), self.inside(), urllib.request.urlopen("http://127.0.0.1:8181/ready", timeout=5):
            return True
        return False


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster, and stop it at the end."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _volume(name: str, size: str, folder: Path) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
