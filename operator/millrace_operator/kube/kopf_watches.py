"""Fixes for kopf's watches, which miss deletions and end the operator on errors: see ``PatchedWatches``.

Each event goes to ``handlers.operator``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias, cast

from kopf._cogs.clients import watching
from kopf._cogs.clients.errors import APIError
from kopf._cogs.configs.configuration import OperatorSettings
from kopf._cogs.structs.bodies import RawBody, RawEvent, RawInput
from kopf._cogs.structs.references import Namespace, Resource

from millrace_support.backoff import Backoff

from ..telemetry.logs import in_short
from ..telemetry.watches import Watches
from .informer import REFUSALS, identity, is_restored

log = logging.getLogger(__name__)

_Event: TypeAlias = "RawEvent | watching.Bookmark"
_Watch: TypeAlias = "tuple[Resource, Namespace]"

OnEvent = Callable[[str | None, Mapping[str, Any]], None]
"""Receives the type of an event, None for a listed object, and the object."""

_kopf_watch, _kopf_stream = watching.continuous_watch, watching.watch_objs

_MARGIN_SECONDS = 5.0
"""Seconds by which the API server may end a watch before its time."""


def patch_watches(
    health: Watches, on_event: OnEvent, on_list: Callable[[str | None], None], on_restore: Callable[[], None]
) -> None:
    """Patch kopf so that all watches started from now on use ``PatchedWatches``, which report their health."""
    watching.continuous_watch = PatchedWatches(health, on_event, on_list, on_restore).follow
    watching.watch_objs = _stream


class PatchedWatches:
    """Watches like kopf's, each from one list until the next list is due, with four differences.

    All objects are listed again when a connection breaks. Kopf would watch on from the last version that it has seen.
    If a backup of the API server's store is restored meanwhile, that version is still to come, and nothing is heard.

    Objects deleted between the end of a watch and the next list are reported as deleted, as client-go does. Kopf
    reports existing objects only, so the operator would act on the deleted ones until it is restarted.

    A watch is restarted after a pause when the API server refuses it as too old, cannot answer now, or ends it with an
    error. Kopf would end the whole operator. Refusals that need a person still end it, but for those of a namespace
    that is watched by name: when that is gone or forbidden, its objects count as deleted, and the other namespaces are
    served on. It is tried again, and taken up when it is back.

    Kopf gets no more of an object than identifies it. It has a task for each object that keeps what it was given for
    seconds, so that after a list it would have all objects in memory at once.

    Args:
        health: where the watches report what they hear.
        on_event: receives each event with the whole object. It must be fast.
        on_list: receives the namespace of a watch, None for all, when it has listed all objects.
        on_restore: called when a listed object is older than the watch has seen it, see ``is_restored``.
    """

    def __init__(
        self, health: Watches, on_event: OnEvent, on_list: Callable[[str | None], None], on_restore: Callable[[], None]
    ) -> None:
        self._health, self._on_event, self._on_list, self._on_restore = health, on_event, on_list, on_restore
        self._known: defaultdict[_Watch, dict[str, RawBody]] = defaultdict(dict)
        """Identifying fields of the known objects, by watch and uid."""
        self._backoffs: defaultdict[_Watch, Backoff] = defaultdict(Backoff)

    async def follow(self, *, resource: Resource, namespace: Namespace, **others: Any) -> AsyncIterator[_Event]:
        """List all objects, then watch them; replaces kopf's ``continuous_watch``."""
        watch = resource, namespace
        known, listed, backoff = self._known[watch], set[str](), self._backoffs[watch]
        health = self._health.of(resource.plural, namespace)
        is_listed = False
        try:
            async for event in _kopf_watch(resource=resource, namespace=namespace, **others):
                if isinstance(event, watching.Bookmark):
                    is_listed = True
                    yield event
                    for uid in known.keys() - listed:
                        body = known.pop(uid)
                        self._on_event("DELETED", body)
                        yield {"type": "DELETED", "object": body}
                    self._on_list(namespace)
                    health.heard(len(known))
                    continue
                uid = event["object"]["metadata"].get("uid", "")
                if not is_listed and is_restored(known.get(uid), event["object"]):
                    self._on_restore()
                if event["type"] == "BOOKMARK":
                    yield event
                else:
                    self._report(event)
                    yield RawEvent(type=event["type"], object=cast("RawBody", identity(event["object"])))
                if is_listed:
                    backoff.reset()
                else:
                    listed.add(uid)
                _note(known, event)
                health.heard(len(known))
        except (APIError, watching.WatchingError) as error:
            if namespace is not None and _is_refusal(error):
                if not health.refused:
                    log.warning("namespace %s is not watched until it can be: %s", namespace, in_short(error))
                health.refuse()
                for body in known.values():
                    self._on_event("DELETED", body)
                    yield {"type": "DELETED", "object": body}
                known.clear()
                self._on_list(namespace)
            elif _is_temporary(error):
                health.failed()
                log.warning("the watch of %s is restarted: %s", resource.plural, in_short(error))
            else:
                raise
        await asyncio.sleep(backoff.next())

    def _report(self, event: RawEvent) -> None:
        try:
            self._on_event(event["type"], event["object"])
        except Exception as error:  # one object must not end the watch of all
            log.warning("an event is left out: %s", in_short(error))


async def _stream(*, settings: OperatorSettings, **others: Any) -> AsyncIterator[RawInput]:
    """Watch like kopf's ``watch_objs``, but raise an error when the connection breaks, or is silent for too long."""
    clock = asyncio.get_running_loop().time
    until = clock() + (settings.watching.server_timeout or 0.0) - _MARGIN_SECONDS
    async for event in _kopf_stream(settings=settings, **others):
        yield event
    if clock() < until:
        raise watching.WatchingError("the connection broke")


def _note(known: dict[str, RawBody], event: RawEvent) -> None:
    body: Any = event["object"]
    if event["type"] == "DELETED":
        known.pop(body["metadata"]["uid"], None)
    elif event["type"] != "BOOKMARK":
        known[body["metadata"]["uid"]] = identity(body)  # type: ignore[assignment]


def _is_refusal(error: Exception) -> bool:
    """Return whether the API server refuses to list the objects of a namespace, which may be gone."""
    return isinstance(error, APIError) and error.status in REFUSALS


def _is_temporary(error: Exception) -> bool:
    """Return whether an error may pass; kopf has already retried a refusal for a minute by then."""
    if not isinstance(error, APIError):
        return True
    return error.status == HTTPStatus.GONE or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
