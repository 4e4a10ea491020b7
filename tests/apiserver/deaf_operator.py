"""The operator with watches that do not notice when their connection is dead, and with short times.

The leader touches the canary every second, and a standby checks it every two seconds. A watch is stale that has heard
nothing for half a minute, so the objects of a query must change meanwhile. With a query's name in ``MILLRACE_HANGS``, the
only worker hangs in the step of that query.
"""

from __future__ import annotations

import os
import time

from millrace_jobs import cli
from millrace_operator.handlers import canary
from millrace_operator.kube import informer
from millrace_operator.lifecycle import reconcile
from millrace_operator.lifecycle.observed_query import QueryKey
from millrace_operator.telemetry import watches


def main() -> None:
    """Run the operator."""
    canary.TOUCH_SECONDS, canary.CHECK_SECONDS = 1.0, 2.0
    watches.STALE_SECONDS = 30.0
    informer.TIMEOUT = informer.TIMEOUT[0], 3600.0
    if hangs := os.environ.get("MILLRACE_HANGS"):
        hang_at(hangs)
    cli.main()


def hang_at(name: str) -> None:
    """Let the only worker hang in the step of this query."""
    step = reconcile.Reconciler.reconcile

    def hanging(self: reconcile.Reconciler, key: QueryKey) -> None:
        while key.name == name:
            time.sleep(1)
        step(self, key)

    reconcile.WORKERS = 1
    reconcile.Reconciler.reconcile = hanging  # type: ignore[method-assign]
