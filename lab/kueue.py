"""Kueue's controller for a control plane: it holds pods of a namespace back until a queue has room for them.

The API server calls its webhooks on loopback, so they have a URL in the place of a Service, and a certificate for it.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from .cache import require
from .control_plane import ControlPlane
from .parts.kueue_program import KUEUE
from .parts.printed_report import PrintedReport
from .ports import free_port
from .processes import Process
from .waiting import wait_until

_NAMESPACE, _SECRET, _SERVICE = "kueue-system", "kueue-webhook-server-cert", "kueue-webhook-service"
_PODS = ("mpod.kb.io", "vpod.kb.io", "mstatefulset.kb.io", "vstatefulset.kb.io")
"""Webhooks of objects that are not Kueue's own; they are asked about the objects of one namespace only."""

_CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
"""Kinds of which a webhook converts objects from one version to another."""

_PATIENCE = 180.0
"""Seconds to wait for a start on a busy machine."""


@contextmanager
def running_kueue(plane: ControlPlane, namespace: str) -> Iterator[Process]:
    """Run Kueue for the pods of a namespace, and kill it at the end; its CRDs and webhooks stay.

    It is compiled at its first use, and no part of ``make lab``: one test needs it, and it takes minutes.

    Raises:
        MissingError: Go or openssl is not installed.
    """
    KUEUE.make(PrintedReport(KUEUE.name))
    programs, folder, port = KUEUE.find(), plane.folder / "kueue", free_port()
    folder.mkdir()
    _make_certificates(folder)
    url = f"https://127.0.0.1:{port}"
    crds = [_converted(each, url) for each in _documents(programs / "crds.yaml")]
    hooks = [_called(each, url, namespace) for each in _documents(programs / "webhooks.yaml")]
    _apply(plane, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}])
    _apply(plane, [_secret(folder), *crds])
    for each in crds:
        plane.wait_for_crd(each["metadata"]["name"])
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_config(folder, port)), encoding="utf-8")
    command: list[str | Path] = [programs / "kueue", f"--config={config}", "--feature-gates=VisibilityOnDemand=false"]
    _apply(plane, hooks)  # Kueue writes into them which authority its certificate has
    kueue = Process(command, plane.folder / "kueue.log", environment={"KUBECONFIG": str(plane.kubeconfig)})
    try:
        wait_until(lambda: _answers(plane, kueue), "Kueue answers", seconds=_PATIENCE)
        yield kueue
    finally:
        kueue.kill()


def _answers(plane: ControlPlane, kueue: Process) -> bool:
    """Return whether Kueue's webhooks check one of its objects."""
    assert kueue.status is None, f"Kueue ended: {kueue.said[-3000:]}"
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    return plane.kubectl("apply", "-f", "-", document=flavor).returncode == 0


def _documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def _apply(plane: ControlPlane, documents: list[dict[str, Any]]) -> None:
    done = plane.kubectl("apply", "--server-side", "-f", "-", document=documents)
    assert done.returncode == 0, done.stderr


def _converted(crd: dict[str, Any], url: str) -> dict[str, Any]:
    if crd["spec"]["names"]["plural"] in _CONVERTED:
        webhook = {"clientConfig": {"url": f"{url}/convert"}, "conversionReviewVersions": ["v1"]}
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return crd


def _called(configuration: dict[str, Any], url: str, namespace: str) -> dict[str, Any]:
    """Return a configuration with the webhooks of Kueue's own objects, and of pods, by URL."""
    configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
    kept = []
    for each in configuration["webhooks"]:
        if each["name"] in _PODS:
            each["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        elif each["rules"][0]["apiGroups"] != ["kueue.x-k8s.io"]:
            continue
        each["clientConfig"] = {"url": url + each["clientConfig"]["service"]["path"]}
        kept.append(each)
    return configuration | {"webhooks": kept}


def _config(folder: Path, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": _NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True, "webhookServiceName": _SERVICE, "webhookSecretName": _SECRET},
        "integrations": {"frameworks": ["pod", "statefulset"]},
    }


def _secret(folder: Path) -> dict[str, Any]:
    """Return the Secret in which Kueue looks for a certificate, and would make one for its Service alone."""
    names = ("ca.crt", "ca.key", "tls.crt", "tls.key")
    data = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in names}
    metadata = {"name": _SECRET, "namespace": _NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _make_certificates(folder: Path) -> None:
    """Make an authority and a certificate for loopback, with the names that Kueue checks them for."""
    require("openssl")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ["-newkey", "rsa:2048", "-nodes", "-days", "3650"]
    named = ["-subj", "/CN=kueue-ca", "-addext", "subjectAltName=DNS:kueue-ca"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.crt", *named)
    openssl("rsa", "-traditional", "-in", "ca.key", "-out", "ca.key")  # the one form that Kueue reads
    openssl("req", *new[:3], "-keyout", "tls.key", "-out", "tls.csr", "-subj", f"/CN={_SERVICE}.{_NAMESPACE}.svc")
    (folder / "names").write_text(f"subjectAltName=DNS:{_SERVICE}.{_NAMESPACE}.svc,IP:127.0.0.1")
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3650", "-extfile", "names"]
    openssl("x509", "-req", "-in", "tls.csr", *signing, "-out", "tls.crt")
