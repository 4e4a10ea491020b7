"""Settings of a cluster's parts beyond their command lines: files by name, and API objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .parts.pause_image import PAUSE

NODE = "node1"
ADDRESS = "198.51.100.1"
"""Address of the node, from a range reserved for documentation, so that no other machine has it."""

_DNS = "10.96.0.10"
_PODS = "10.244.0.0/24"
_CNI_PROGRAMS = ("/usr/lib/cni", "/opt/cni/bin")
_PORTS = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]

OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": _DNS, "ports": _PORTS},
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
        "ports": _PORTS,
    },
]
"""The DNS service of pods, which leads to CoreDNS. CoreDNS does not run in a pod."""


def write_settings(folder: Path, images: Path, cgroup: str, kubeconfig: Path) -> None:
    """Write all files: ``containerd.toml``, ``kubelet.yaml``, ``kube-proxy.yaml``, ``Corefile``."""
    (folder / "containerd.toml").write_text(_containerd(folder, images), encoding="utf-8")
    (folder / "resolv.conf").write_text(f"nameserver {ADDRESS}\n", encoding="utf-8")
    (folder / "Corefile").write_text(_coredns(kubeconfig), encoding="utf-8")
    (folder / "cni").mkdir()
    # JSON is YAML
    (folder / "cni" / "lab.conflist").write_text(json.dumps(_pod_network()), encoding="utf-8")
    (folder / "kubelet.yaml").write_text(json.dumps(_kubelet(folder, cgroup)), encoding="utf-8")
    (folder / "kube-proxy.yaml").write_text(json.dumps(_kube_proxy(kubeconfig)), encoding="utf-8")


def _containerd(folder: Path, images: Path) -> str:
    programs = next((place for place in _CNI_PROGRAMS if Path(place, "bridge").exists()), _CNI_PROGRAMS[0])
    return f"""version = 2
root = "{images}"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "{folder / "containerd.sock"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{programs}"
  conf_dir = "{folder / "cni"}"
"""


def _pod_network() -> dict[str, Any]:
    """Return a bridge network with no route out of the node."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": _PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge, ports]}


def _kubelet(folder: Path, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{folder / 'containerd.sock'}",
        "address": ADDRESS,
        # Only the cluster's own network reaches it, so that the API server needs no certificate to log in with.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDomain": "cluster.local",
        "clusterDNS": [_DNS],
        "resolvConf": str(folder / "resolv.conf"),
        "podLogsDir": str(folder / "pods"),
        "volumePluginDir": str(folder / "kubelet" / "plugins"),
        # The machine's disk is shared: nothing is evicted because others fill it.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    }


def _kube_proxy(kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": _PODS,
        "oomScoreAdj": 0,
        # Leave these settings of the machine unchanged.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "100ms"},
    }


def _coredns(kubeconfig: Path) -> str:
    """Return a Corefile that resolves names of services and pods and refuses others."""
    return f""".:53 {{
  bind {ADDRESS}
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 1
  }}
  cache 1
}}
"""
