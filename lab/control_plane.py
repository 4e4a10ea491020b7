"""A Kubernetes control plane for tests: etcd, API server, controller manager and scheduler on loopback.

There is no kubelet: pods are created, bound and deleted, but never run. Parts can be killed, paused, and restarted with
their data on the same ports.
"""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .cache import require
from .parts.go_programs import go_program
from .ports import free_port
from .processes import Process
from .waiting import wait_until

_PATIENCE = 180.0
"""Seconds to wait for a start on a busy machine."""

_USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "operator-a": "system:masters",
    "operator-b": "system:masters",
    "operator": "",
}
"""Groups of the users, by name. Each user logs in with a token."""

_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": ["operator-a", "operator-b"], "verbs": ["create", "update", "patch", "delete"]},
        {"level": "Metadata", "users": ["operator"]},
        {"level": "None"},
    ],
}
"""Record only the changes of the operators, and all requests of the user ``operator``, who has no rights by default."""

_SERVICES = "10.96.0.0/16"

seconds_to_start: list[float] = []
"""Seconds from each start of a control plane to its first answer."""


@dataclass
class ControlPlane:
    """A control plane that runs from ``start`` to ``kill``. ``folder`` holds data, settings and logs."""

    folder: Path
    _processes: dict[str, Process] = field(default_factory=dict)
    _tokens: dict[str, str] = field(default_factory=lambda: {user: secrets.token_hex(16) for user in _USERS})
    _ports: dict[str, int] = field(
        default_factory=lambda: {name: free_port() for name in ("api", "etcd", "peers", "controllers", "scheduler")}
    )

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self._ports['api']}"

    @property
    def authority(self) -> Path:
        """The API server's self-signed certificate."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with all rights."""
        return self.folder / "admin.kubeconfig"

    def start(self) -> None:
        """Start all parts with their data, and wait until they answer and have created their own objects.

        Raises:
            MissingError: if openssl is not installed, or the program was not made.
        """
        program = go_program("kubernetes")
        require("openssl")
        began = time.monotonic()
        self._prepare()
        for name, options in self._options().items():
            self._processes[name] = Process([program, name, *options], self.folder / f"{name}.log")
            if name == "kube-apiserver":
                self._wait_until_ready()
        self._wait_for_accounts()
        seconds_to_start.append(time.monotonic() - began)

    def part(self, name: str) -> Process:
        """Return a process: ``etcd``, ``kube-apiserver``, ``kube-controller-manager`` or ``kube-scheduler``."""
        return self._processes[name]

    def restart(self, name: str) -> None:
        """Restart a part, with SIGKILL if it is running."""
        self._processes[name].kill()
        self._processes[name] = Process(
            [go_program("kubernetes"), name, *self._options()[name]], self.folder / f"{name}.log"
        )
        self._wait_until_ready()

    def kill(self) -> None:
        """Kill all parts."""
        for process in reversed(self._processes.values()):
            process.kill()
        self._processes.clear()

    def back_up(self, to: Path) -> None:
        """Copy what is stored, as a backup of etcd has it; all parts are restarted."""
        self.kill()
        shutil.copytree(self.folder / "etcd", to)
        self.start()

    def restore(self, backup: Path) -> None:
        """Replace what is stored by a backup, and restart all parts, as after the loss of etcd."""
        self.kill()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(backup, self.folder / "etcd")
        self.start()

    def kubectl(self, *arguments: str | Path, document: object = None) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl``. ``document`` is what it reads from ``-f -``: text, an object, or a list of objects."""
        if isinstance(document, list):
            document = yaml.safe_dump_all(document)
        elif document is not None and not isinstance(document, str):
            document = yaml.safe_dump(document)
        return subprocess.run(
            [go_program("kubernetes"), "kubectl", "--kubeconfig", self.kubeconfig, *arguments],
            input=document,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )

    def get(self, *what: str) -> Any:
        """Return the output of ``kubectl get -o json``."""
        done = self.kubectl("get", *what, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def wait_for_crd(self, name: str) -> None:
        """Wait until a CRD is served. ``kubectl wait`` fails if it has no conditions yet."""
        established = ("get", f"crd/{name}", "-o", 'jsonpath={.status.conditions[?(@.type=="Established")].status}')
        wait_until(
            lambda: self.kubectl(*established).stdout == "True", f"the API server serves {name}", seconds=_PATIENCE
        )

    def changes(self) -> list[dict[str, Any]]:
        """Return the audit events of changes that ``operator-a`` and ``operator-b`` made or attempted, in order."""
        return [event for event in self._audited() if event["user"]["username"] != "operator"]

    def requests(self) -> list[dict[str, Any]]:
        """Return the audit events of all requests by ``operator``, whose only rights come from RBAC, in order."""
        return [event for event in self._audited() if event["user"]["username"] == "operator"]

    def _audited(self) -> list[dict[str, Any]]:
        lines = (self.folder / "audit.log").read_text(encoding="utf-8").splitlines()
        return sorted(map(json.loads, lines), key=lambda event: event["requestReceivedTimestamp"])

    def kubeconfig_of(self, user: str, path: Path, url: str | None = None) -> Path:
        """Write a kubeconfig for one of the operators' users, with another URL if one is given."""
        return self.write_kubeconfig(path, self._tokens[user], url)

    def write_kubeconfig(self, path: Path, token: str, url: str | None = None) -> Path:
        """Write a kubeconfig for the owner of a token. ``url`` replaces the API server's own URL."""
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [
                {"name": "lab", "cluster": {"server": url or self.url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user", "namespace": "default"}}],
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        path.chmod(0o600)
        return path

    def _prepare(self) -> None:
        """Write the tokens, and the keys that sign service accounts' tokens."""
        tokens = self.folder / "tokens.csv"
        if tokens.exists():
            return
        lines = [
            f'{self._tokens[user]},{user},{number},"{group}"' for number, (user, group) in enumerate(_USERS.items())
        ]
        tokens.write_text("\n".join(lines), encoding="utf-8")
        (self.folder / "audit.yaml").write_text(yaml.safe_dump(_AUDIT), encoding="utf-8")
        key = self.folder / "accounts.key"
        _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
        _openssl("pkey", "-in", key, "-pubout", "-out", self.folder / "accounts.pub")

    def _options(self) -> dict[str, list[str]]:
        """Return the options of each part, in start order."""
        ports, folder = self._ports, self.folder
        clients, peers = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peers']}"
        follower = ["--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400"]
        return {
            "etcd": [
                f"--data-dir={folder / 'etcd'}",
                "--unsafe-no-fsync",  # a test's data need not survive a crash of the machine
                f"--listen-client-urls={clients}",
                f"--advertise-client-urls={clients}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
                "--log-level=warn",
            ],
            "kube-apiserver": [
                f"--etcd-servers={clients}",
                f"--cert-dir={folder / 'certificates'}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                f"--secure-port={ports['api']}",
                f"--service-cluster-ip-range={_SERVICES}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--allow-privileged",
                "--authorization-mode=RBAC",
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                "--anonymous-auth=false",
                f"--audit-policy-file={folder / 'audit.yaml'}",
                f"--audit-log-path={folder / 'audit.log'}",
                f"--service-account-issuer={self.url}",
                f"--service-account-key-file={folder / 'accounts.pub'}",
                f"--service-account-signing-key-file={folder / 'accounts.key'}",
            ],
            "kube-controller-manager": [
                f"--kubeconfig={folder / 'system:kube-controller-manager.kubeconfig'}",
                f"--secure-port={ports['controllers']}",
                "--bind-address=127.0.0.1",
                "--use-service-account-credentials",
                f"--service-account-private-key-file={folder / 'accounts.key'}",
                *follower,
            ],
            "kube-scheduler": [
                f"--kubeconfig={folder / 'system:kube-scheduler.kubeconfig'}",
                f"--secure-port={ports['scheduler']}",
                "--bind-address=127.0.0.1",
                *follower,
            ],
        }

    def _wait_until_ready(self) -> None:
        """Wait for the API server, and write the users' kubeconfigs, since its certificate then exists."""
        deadline = time.monotonic() + _PATIENCE
        while not self._is_ready():
            for name, process in self._processes.items():
                assert process.status is None, f"{name} ended: {process.said[-3000:]}"
            assert time.monotonic() < deadline, f"no API server: {self._processes['kube-apiserver'].said[-3000:]}"
            time.sleep(0.1)
        for user, token in self._tokens.items():
            self.write_kubeconfig(self.folder / f"{user}.kubeconfig", token)

    def _is_ready(self) -> bool:
        with suppress(OSError):
            request = urllib.request.Request(
                f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._tokens['admin']}"}
            )
            context = ssl.create_default_context(cafile=str(self.authority))
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        return False

    def _wait_for_accounts(self) -> None:
        """Wait for the default service account, whose existence shows that the controller manager works."""
        deadline = time.monotonic() + _PATIENCE
        while self.kubectl("get", "serviceaccount", "default").returncode:
            assert time.monotonic() < deadline, self._processes["kube-controller-manager"].said[-3000:]
            time.sleep(0.2)


@contextmanager
def running_control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Run a control plane, and kill it at the end."""
    plane = ControlPlane(folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.kill()


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
