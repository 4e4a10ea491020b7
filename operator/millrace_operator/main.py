"""Which event goes to which handler; run it by ``kopf run -m millrace_operator.main``."""

from __future__ import annotations

import os
from typing import Any

import kopf
from kubernetes import config
from kubernetes.client import ApiClient

from millrace_api.crd import GROUP, PLURAL, VERSION

from .handlers.objects import object_changed
from .handlers.query import query_changed
from .kube.objects import ObjectApi
from .kube.queries import QueryApi
from .lifecycle.reconcile import Reconciler
from .resources.names import QUERY_LABEL

DEFAULT_IMAGE = "millrace-jobs"
"""Of drivers and executors, where neither the query nor MILLRACE_IMAGE says another."""

OURS = {QUERY_LABEL: kopf.PRESENT}


@kopf.on.startup()
def start(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
    """Begin to work on queries, as the kubeconfig or the pod's own account allows."""
    settings.posting.enabled = False  # events are the reconciler's affair
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    config.load_config()  # type: ignore[no-untyped-call]
    client = ApiClient()
    memo.reconciler = Reconciler(QueryApi(client), ObjectApi(client), os.environ.get("MILLRACE_IMAGE", DEFAULT_IMAGE))
    memo.reconciler.start()


@kopf.on.cleanup()
def stop(memo: Any, **_: Any) -> None:
    """Finish what was begun."""
    memo.reconciler.stop()


@kopf.on.event(GROUP, VERSION, PLURAL)
async def on_query(type: str | None, body: kopf.Body, memo: Any, **_: Any) -> None:
    """A StreamQuery was seen."""
    query_changed(memo.reconciler, type, dict(body))


@kopf.index("v1", "serviceaccounts", labels=OURS)
@kopf.index("v1", "configmaps", labels=OURS)
@kopf.index("v1", "services", labels=OURS)
@kopf.index("v1", "pods", labels=OURS)
@kopf.index("rbac.authorization.k8s.io", "v1", "roles", labels=OURS)
@kopf.index("rbac.authorization.k8s.io", "v1", "rolebindings", labels=OURS)
@kopf.index("networking.k8s.io", "v1", "networkpolicies", labels=OURS)
@kopf.index("policy", "v1", "poddisruptionbudgets", labels=OURS)
@kopf.index("apps", "v1", "statefulsets", labels=OURS)
async def known(body: kopf.Body, memo: Any, **_: Any) -> None:
    """Kopf fills its indices before any event is handled: so all that there is is known before a query is looked at."""
    memo.reconciler.observations.object_seen(dict(body))


@kopf.on.event("v1", "serviceaccounts", labels=OURS)
@kopf.on.event("v1", "configmaps", labels=OURS)
@kopf.on.event("v1", "services", labels=OURS)
@kopf.on.event("v1", "pods", labels=OURS)
@kopf.on.event("rbac.authorization.k8s.io", "v1", "roles", labels=OURS)
@kopf.on.event("rbac.authorization.k8s.io", "v1", "rolebindings", labels=OURS)
@kopf.on.event("networking.k8s.io", "v1", "networkpolicies", labels=OURS)
@kopf.on.event("policy", "v1", "poddisruptionbudgets", labels=OURS)
@kopf.on.event("apps", "v1", "statefulsets", labels=OURS)
async def on_object(type: str | None, body: kopf.Body, memo: Any, **_: Any) -> None:
    """Something that belongs to a query was seen."""
    object_changed(memo.reconciler, type, dict(body))
