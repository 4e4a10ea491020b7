"""Millrace on the lab's cluster as a user installs it: images from their Dockerfiles, the chart by Helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .cluster import Cluster
from .kafka import Broker, running_broker
from .parts.millrace_images import JOBS_IMAGE, MILLRACE_IMAGES, OPERATOR_IMAGE, ROOT, TAG
from .prometheus import PrometheusServer, running_prometheus

RELEASE = NAMESPACE = "millrace"
"""Name of the release and of its namespace."""

PATIENCE = 240.0
"""Seconds to wait for anything on the cluster on a busy machine."""

CLAIM = "checkpoints"
"""Name of the claim for checkpoints in each namespace."""

SMALL = {"requests": {"cpu": "50m"}}
"""Requests small enough for many mostly idle pods on two cores."""


def scraped_pods(kubeconfig: Path) -> dict[str, Any]:
    """Return the usual scrape configuration for pods with the annotation ``prometheus.io/scrape``."""
    annotation = "__meta_kubernetes_pod_annotation_prometheus_io"
    return {
        "job_name": "kubernetes-pods",
        "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
        "relabel_configs": [
            {"source_labels": [f"{annotation}_scrape"], "regex": "true", "action": "keep"},
            {
                "source_labels": ["__meta_kubernetes_pod_ip", f"{annotation}_port"],
                "regex": "(.+);(.+)",
                "replacement": "$1:$2",
                "target_label": "__address__",
            },
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        ],
    }


def make_namespace(cluster: Cluster, name: str) -> None:
    """Create a namespace for restricted pods only, with a claim for checkpoints."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    spec = {
        "storageClassName": "local",
        "volumeName": name,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {"name": CLAIM, "namespace": name}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": spec},
    ]
    cluster.local_volume(name)
    done = cluster.kubectl("apply", "-f", "-", document=objects)
    assert done.returncode == 0, done.stderr


@contextmanager
def installed(cluster: Cluster, folder: Path) -> Iterator[Installation]:
    """Install everything that queries need on a cluster, from inside its network. ``folder`` holds data and logs."""
    images = MILLRACE_IMAGES.find()
    for kind in ("operator", "jobs", "scoring"):
        cluster.load(images / kind)
    places = {name: folder / name for name in ("kafka", "prometheus")}
    for place in places.values():
        place.mkdir()
    jobs = [scraped_pods(cluster.kubeconfig)]
    with (
        running_broker(places["kafka"], host=cluster.node_address) as broker,
        running_prometheus(places["prometheus"], host=cluster.node_address, jobs=jobs) as prometheus,
    ):
        made = Installation(cluster, broker, prometheus)
        made.install()
        yield made


@dataclass
class Installation:
    """A cluster with the chart installed, Kafka, and the Prometheus that scrapes the queries."""

    cluster: Cluster
    broker: Broker
    prometheus: PrometheusServer

    def install(self, *options: str) -> None:
        """Install the chart in a namespace of its own that admits only restricted pods, and wait for the operator."""
        make_namespace(self.cluster, NAMESPACE)
        self.helm("install", *options, document=self.values)
        self.wait_for_operator()

    def make_kafka_service(self, namespace: str) -> None:
        """Create a Service by which pods of a namespace find the broker as ``kafka:9092``."""
        self.make_service(namespace, "kafka", 9092, self.broker.bootstrap)

    def make_service(self, namespace: str, name: str, port: int, server: str) -> None:
        """Create a Service by which pods of a namespace find a server, host:port, under a name and a port."""
        host, _, target = server.rpartition(":")
        metadata = {"name": name, "namespace": namespace}
        of_service = {"kubernetes.io/service-name": name}
        ports = [{"port": port, "targetPort": int(target)}]
        objects = [
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata | {"labels": of_service},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [host]}],
                "ports": [{"port": int(target)}],
            },
        ]
        self.kubectl("apply", "-f", "-", document=objects)

    @property
    def values(self) -> dict[str, Any]:
        """The values of the chart."""
        return {
            "image": {"repository": OPERATOR_IMAGE, "tag": TAG},
            "jobs": {"image": {"repository": JOBS_IMAGE, "tag": TAG}},
            "prometheus": {"url": self.prometheus.url},
            "resources": SMALL,
        }

    def helm(self, verb: str, *options: str, document: Mapping[str, Any] | None = None) -> str:
        """Run a command of Helm on the release. ``document`` holds values."""
        command: list[str | Path] = [self.cluster.program("helm"), verb, RELEASE]
        command += [] if verb not in ("install", "upgrade") else [ROOT / "charts/millrace"]
        command += ["--namespace", NAMESPACE, "--kubeconfig", self.cluster.kubeconfig, *options]
        command += [] if document is None else ["--values", "-"]
        said = yaml.safe_dump(dict(document or {}))
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, f"helm {verb} fails: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def revision(self) -> int:
        """The release's last revision."""
        return int(json.loads(self.helm("history", "--output=json"))[-1]["revision"])

    def wait_for_operator(self) -> None:
        """Wait until the operator's pods are those of the release, and ready."""
        rollout = ("rollout", "status", "deployment/millrace-operator", f"--timeout={PATIENCE:.0f}s")
        self.kubectl("-n", NAMESPACE, *rollout)

    def kubectl(self, *arguments: str | Path, document: object = None) -> str:
        """Run ``kubectl``, which must succeed, and return its output."""
        done = self.cluster.kubectl(*arguments, document=document)
        assert done.returncode == 0, f"kubectl {' '.join(map(str, arguments))} fails: {done.stderr}"
        return done.stdout

    def get(self, *what: str) -> Any:
        """Return an object, or a list of objects."""
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def logs(self, pod: str, namespace: str = NAMESPACE) -> str:
        """Return a pod's log."""
        return self.kubectl("-n", namespace, "logs", pod)
