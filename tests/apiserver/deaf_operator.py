"""The operator with a kopf that does not notice a dead watch.

The leader touches the canary every second, and a standby checks it every two seconds.
"""

from __future__ import annotations

from typing import Any

import kopf

from millrace_jobs import cli
from millrace_operator.handlers import canary


@kopf.on.startup()
def wait_for_ever(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.watching.inactivity_timeout = 3600


def main() -> None:
    """Run the operator."""
    canary.TOUCH_SECONDS, canary.CHECK_SECONDS = 1.0, 2.0
    cli.main()
