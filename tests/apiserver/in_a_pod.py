"""Run ``millrace`` as in a pod without a kubeconfig.

The service account is read from the folder MILLRACE_ACCOUNT instead of its usual mount.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from kubernetes.config import incluster_config

from lab.control_plane import ControlPlane
from lab.forked import run_forked
from millrace_jobs import cli
from spark.cli import PATIENCE, Result


def run_in_a_pod(plane: ControlPlane, folder: Path, namespace: str, token: str, command: Sequence[str]) -> Result:
    """Run a manifest's ``command`` with a service account whose files are in ``folder``, and return the result."""
    (folder / "namespace").write_text(namespace, encoding="utf-8")
    (folder / "token").write_text(token, encoding="utf-8")
    (folder / "ca.crt").write_bytes(plane.authority.read_bytes())
    program, *arguments = command
    assert program == "millrace"
    server = urlsplit(plane.url)
    pod = {
        "HOME": str(folder),
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
        "MILLRACE_ACCOUNT": str(folder),
        "KUBECONFIG": None,
    }
    done = run_forked(*arguments, environment=pod, patience=PATIENCE, entry="apiserver.in_a_pod:main")
    return Result(done.returncode, done.stdout, done.stderr)


def main() -> None:
    """Run the program."""
    account = Path(os.environ["MILLRACE_ACCOUNT"])
    incluster_config.SERVICE_TOKEN_FILENAME = str(account / "token")
    incluster_config.SERVICE_CERT_FILENAME = str(account / "ca.crt")
    cli.main()
