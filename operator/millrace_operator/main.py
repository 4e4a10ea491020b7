"""Kopf handlers of the operator; run by ``millrace operator`` or ``kopf run -m millrace_operator.main``."""

from __future__ import annotations

from typing import Any

import kopf

from millrace_api.crd import GROUP, PLURAL, VERSION

from .handlers.operator import Operator, OperatorOptions
from .kube.kopf_history import NoHistory
from .kube.kopf_watches import patch_watches


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
def start(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
    """Start the operator from kopf's memo, or one with default options if the memo has none."""
    settings.posting.enabled = False  # the reconciler posts the events
    settings.scanning.disabled = True  # scanning needs the right to list CRDs; Operator checks for ours
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.process.ultimate_exiting_timeout = 60
    settings.persistence.diffbase_storage = NoHistory()
    if "operator" not in memo:
        memo.operator = Operator(OperatorOptions())
    patch_watches(memo.operator.watches)
    memo.operator.start()


@kopf.on.cleanup()
def stop(memo: Any, **_: Any) -> None:
    """Finish the steps in progress and stop the operator."""
    memo.operator.stop()


@kopf.index(GROUP, VERSION, PLURAL)
async def chains(body: kopf.Body, memo: Any, **_: Any) -> None:
    """Note what a StreamQuery reads and writes; kopf does this for all listed ones before it handles any event."""
    memo.operator.note_chain(dict(body))


@kopf.on.event(GROUP, VERSION, PLURAL)
async def on_query(type: str | None, body: kopf.Body, memo: Any, **_: Any) -> None:
    """Handle a watch event of a StreamQuery."""
    memo.operator.on_query(type, dict(body))
