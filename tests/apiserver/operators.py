"""The operator in a separate process."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.control_plane import ControlPlane
from lab.forked import MILLRACE, Forked
from lab.processes import Process

PATIENCE = 120.0


def start_operator(
    plane: ControlPlane,
    log: Path,
    *options: str,
    namespace: str | None = None,
    dies: str | None = None,
    deaf: bool = False,
    hangs: str | None = None,
    kubeconfig: Path | None = None,
) -> Process:
    """Start ``millrace operator`` with the administrator's rights and no leader election, for one namespace or for all.

    ``options`` are added to the command. ``dies`` is the request at which it dies (see ``dying_operator``), and ``deaf``
    starts ``deaf_operator``, whose worker hangs in the step of the query ``hangs``.
    """
    where = [] if namespace is None else ["--namespace", namespace]
    entry = (
        "apiserver.deaf_operator:main" if deaf else "apiserver.dying_operator:main" if dies is not None else MILLRACE
    )
    environment = {
        "KUBECONFIG": str(kubeconfig or plane.kubeconfig),
        "MILLRACE_DIES": dies or "",
        "MILLRACE_HANGS": hangs or "",
    }
    elect = [] if "--leader-elect" in options else ["--no-leader-elect"]
    arguments = ["operator", "--bind", "127.0.0.1", "--port", "0", *where, *elect, *options]
    return Forked(arguments, log, entry=entry, environment=environment)


@contextmanager
def running_operator(
    plane: ControlPlane, folder: Path, *options: str, namespace: str | None = None, **others: Any
) -> Iterator[Process]:
    """Run an operator that logs to ``operator.log``, and kill it at the end."""
    operator = start_operator(plane, folder / "operator.log", *options, namespace=namespace, **others)
    try:
        yield operator
    finally:
        operator.kill()


def ask(operator: Process, path: str) -> tuple[int, str]:
    """Wait until the operator listens, and return the status and text of one of its pages."""
    deadline = time.monotonic() + PATIENCE
    while (found := re.search(r"metrics and probes are on port (\d+)", operator.said)) is None:
        assert operator.status is None, operator.said
        assert time.monotonic() < deadline, operator.said
        time.sleep(0.1)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()
