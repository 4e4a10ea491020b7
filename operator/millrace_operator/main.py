"""Which event goes to which handler. ``millrace operator`` runs it; so does ``kopf run -m millrace_operator.main``."""

from __future__ import annotations

from typing import Any

import kopf

from millrace_api.crd.document import GROUP, PLURAL, VERSION

from .handlers.operator import Operator, OperatorOptions
from .handlers.query import query_changed
from .kube.relisting import mend_watches


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
def start(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
    """Begin with the operator that kopf was handed in its memo, else with one that was told nothing."""
    settings.posting.enabled = False  # events are the reconciler's affair
    settings.scanning.disabled = True  # it would take the right to list CRDs; ours is there, see Operator
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.process.ultimate_exiting_timeout = 60
    mend_watches()
    if "operator" not in memo:
        memo.operator = Operator(OperatorOptions())
    memo.operator.start()


@kopf.on.cleanup()
def stop(memo: Any, **_: Any) -> None:
    """Finish what was begun."""
    memo.operator.stop()


@kopf.on.event(GROUP, VERSION, PLURAL)
async def on_query(type: str | None, body: kopf.Body, memo: Any, **_: Any) -> None:
    """A StreamQuery was seen."""
    query_changed(memo.operator, type, dict(body))
