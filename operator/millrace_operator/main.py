"""Which event goes to which handler. ``millrace operator`` runs it; so does ``kopf run -m millrace_operator.main``."""

from __future__ import annotations

from typing import Any

import kopf

from millrace_api.crd import GROUP, PLURAL, VERSION

from .handlers.indexing import wake_at_changes_only
from .handlers.objects import object_changed, object_known
from .handlers.operator import Operator, Options
from .handlers.query import query_changed
from .kube.relisting import mend_watches
from .resources.names import QUERY_LABEL

OWNED = (
    ("v1", "serviceaccounts"),
    ("v1", "configmaps"),
    ("v1", "services"),
    ("v1", "pods"),
    ("rbac.authorization.k8s.io", "v1", "roles"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("apps", "v1", "statefulsets"),
)
"""Kinds of what belongs to queries."""

OURS = {QUERY_LABEL: kopf.PRESENT}


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
    for kind in OWNED:  # the API server sends no others; the handlers' own filter is on this side
        settings.watching.label_selectors[kind] = QUERY_LABEL
    wake_at_changes_only()
    mend_watches()
    if "operator" not in memo:
        memo.operator = Operator(Options())
    memo.operator.start()


@kopf.on.cleanup()
def stop(memo: Any, **_: Any) -> None:
    """Finish what was begun."""
    memo.operator.stop()


@kopf.on.event(GROUP, VERSION, PLURAL)
async def on_query(type: str | None, body: kopf.Body, memo: Any, **_: Any) -> None:
    """A StreamQuery was seen."""
    query_changed(memo.operator, type, dict(body))


async def known(body: kopf.Body, memo: Any, **_: Any) -> None:
    """Kopf fills its indices before any event is handled: so all that there is is known before a query is looked at."""
    object_known(memo.operator, dict(body))


async def on_object(type: str | None, body: kopf.Body, memo: Any, **_: Any) -> None:
    """Something that belongs to a query was seen."""
    object_changed(memo.operator, type, dict(body))


for kind in OWNED:
    kopf.index(*kind, labels=OURS)(known)
    kopf.on.event(*kind, labels=OURS)(on_object)
