"""Kopf handlers of the operator; run by ``millrace operator`` or ``kopf run -m millrace_operator.main``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import kopf

from millrace_api.crd import GROUP, PLURAL, VERSION

from .handlers.operator import Operator, OperatorOptions, begin_afresh
from .kube.kopf_history import NoHistory
from .kube.kopf_watches import patch_watches

_SWITCH_SECONDS = 0.0005
"""Time for which a thread that computes keeps another one waiting that has just got an answer from the API server.

A step of a query has about ten requests and waits several times in each, so that Python's 5 ms would add up to seconds
while a query of another namespace is checked.
"""

_ASK_SECONDS = 2.0
"""Time between two questions whether the API server answers, while the operator starts without it."""


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
def start(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
    """Start the operator from kopf's memo, or one with default options if the memo has none."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    settings.posting.enabled = False  # the reconciler posts the events
    settings.scanning.disabled = True  # scanning needs the right to list CRDs; Operator checks for ours
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.watching.chunk_size = 25  # each of the listed queries may have a megabyte
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.process.ultimate_exiting_timeout = 60
    settings.persistence.diffbase_storage = NoHistory()
    if "operator" not in memo:
        memo.operator = Operator(OperatorOptions())
    patch_watches(memo.operator.watches, memo.operator.on_event, memo.operator.on_list, begin_afresh)
    memo.operator.start()


@kopf.on.startup()
async def await_api_server(memo: Any, **_: Any) -> None:
    """Hold kopf back until the API server answers: in an outage it would end the operator after a minute."""
    while not await asyncio.to_thread(memo.operator.api_answers):
        await asyncio.sleep(_ASK_SECONDS)


@kopf.on.cleanup()
def stop(memo: Any, **_: Any) -> None:
    """Finish the steps in progress and stop the operator."""
    memo.operator.stop()


@kopf.on.event(GROUP, VERSION, PLURAL)
async def on_query(**_: Any) -> None:
    """Let kopf watch StreamQueries: the patched watches report their events."""
