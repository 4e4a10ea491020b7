"""The operator as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.control_plane import ControlPlane
from lab.processes import Process

TESTS = Path(__file__).parents[1]


def start_operator(plane: ControlPlane, log: Path, *, namespace: str | None = None, dies: str | None = None) -> Process:
    """``kopf run`` on all namespaces or on one, with the administrator's rights.

    ``dies``: at which request, as ``dying_operator`` says.
    """
    kopf = Path(sys.executable).with_name("kopf")
    where = ["--all-namespaces"] if namespace is None else ["--namespace", namespace]
    module = "millrace_operator.main" if dies is None else "apiserver.dying_operator"
    environment = {"KUBECONFIG": str(plane.kubeconfig), "PYTHONPATH": str(TESTS), "MILLRACE_DIES": dies or ""}
    return Process([kopf, "run", "--standalone", *where, "-m", module], log, environment=environment)


@contextmanager
def running_operator(plane: ControlPlane, folder: Path, *, namespace: str | None = None) -> Iterator[Process]:
    """A started operator, which is killed at the end; its log is ``operator.log``."""
    operator = start_operator(plane, folder / "operator.log", namespace=namespace)
    try:
        yield operator
    finally:
        operator.kill()
