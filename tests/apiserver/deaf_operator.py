"""The operator, whose kopf does not notice that a watch has died: ``python -m apiserver.deaf_operator operator ...``.

The canary is touched every second, and looked at every two seconds by a standby.
"""

from __future__ import annotations

from typing import Any

import kopf

from millrace_jobs.cli import main
from millrace_operator.handlers import canary


@kopf.on.startup()
def wait_for_ever(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.watching.inactivity_timeout = 3600


if __name__ == "__main__":
    canary.TOUCH_SECONDS, canary.CHECK_SECONDS = 1.0, 2.0
    main()
