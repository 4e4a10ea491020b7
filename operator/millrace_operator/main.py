"""How kopf starts and ends the operator: by ``millrace operator``, or by ``kopf run -m millrace_operator.main``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import kopf

from millrace_support.backoff import Backoff

from .handlers.operator import Operator, OperatorOptions

_SWITCH_SECONDS = 0.0005
"""Time for which a thread that computes keeps another one waiting that has just got an answer from the API server.

A step of a query has about ten requests and waits several times in each, so that Python's 5 ms would add up to seconds
while a query of another namespace is checked.
"""


class _Pauses:
    """Pauses between kopf's attempts at a request, without an end.

    Kopf asks at its start which resources there are, even for an operator without handlers of any. By default, it ends
    the operator when the API server has been away, or has refused that, for a minute. A login that the API server does
    not know (401) ends it at once.
    """

    def __iter__(self) -> Iterator[float]:
        backoff = Backoff()
        while True:
            yield backoff.next()


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
def start(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
    """Start the operator from kopf's memo, or one with default options if the memo has none."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    settings.scanning.disabled = True  # scanning needs the right to list CRDs; Operator checks for ours
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = _Pauses()
    settings.process.ultimate_exiting_timeout = 60
    if "operator" not in memo:
        memo.operator = Operator(OperatorOptions())
    memo.operator.start()


@kopf.on.cleanup()
def stop(memo: Any, **_: Any) -> None:
    """Finish the steps in progress and stop the operator."""
    memo.operator.stop()
