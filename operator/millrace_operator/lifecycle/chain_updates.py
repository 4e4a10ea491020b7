"""Changes of queries on their way into the index of chains, by turns of the namespaces: see ``ChainUpdates``."""

from __future__ import annotations

import json
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..telemetry.logs import in_short
from .chains import Chains

log = logging.getLogger(__name__)


class _Change(NamedTuple):
    """A query as far as chains need it, and whether it is deleted. JSON takes a tenth of the memory of objects."""

    document: str
    gone: bool


class ChainUpdates:
    """Thread that stores changes of queries in the index of chains.

    To compare a query with the others of its namespace takes time that its author chooses in part. So this is done
    outside the event loop, and the namespaces take turns with one query each. All methods may be called from any
    thread.

    Args:
        chains: the index; nothing else may change it.
        on_change: receives the queries whose chains have changed, by namespace and name.
    """

    def __init__(self, chains: Chains, on_change: Callable[[set[tuple[str, str]]], None]) -> None:
        self._chains = chains
        self._on_change = on_change
        self._changed = threading.Condition()
        self._pending: defaultdict[str, dict[str, _Change]] = defaultdict(dict)
        """The latest change of each query that is not stored yet, by namespace in their turns, and by uid."""
        self._is_working = self._ended = False
        self._thread = threading.Thread(target=self._run, name="chains", daemon=True)

    def note(self, body: Mapping[str, Any], *, gone: bool = False) -> None:
        """Take a query as it was last seen, or that it is gone; this is fast."""
        metadata, spec = body["metadata"], body.get("spec") or {}
        document = {
            "metadata": {name: metadata.get(name) for name in ("namespace", "name", "uid", "generation")},
            "spec": {name: spec.get(name) for name in ("sources", "sink", "additionalOutputs")},
            "status": body.get("status"),
        }
        with self._changed:
            self._pending[metadata["namespace"]][metadata["uid"]] = _Change(json.dumps(document), gone)
            self._changed.notify_all()

    def start(self) -> None:
        """Start to store changes."""
        self._thread.start()

    def stop(self) -> None:
        """Store no more changes."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until all changes are stored; return False if they are not after some seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended or not (self._pending or self._is_working), seconds)

    def _run(self) -> None:
        while (change := self._next()) is not None:
            try:
                store = self._chains.gone if change.gone else self._chains.seen
                self._on_change(store(json.loads(change.document)))
            except Exception as error:  # one query must not stop the chains of all others
                log.warning("a chain is not up to date: %s", in_short(error))

    def _next(self) -> _Change | None:
        """Return the next change; None after ``stop``."""
        with self._changed:
            self._is_working = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._pending)
            if self._ended:
                return None
            namespace, changes = next(iter(self._pending.items()))
            change = changes.pop(next(iter(changes)))
            del self._pending[namespace]
            if changes:
                self._pending[namespace] = changes  # its next turn comes after those of all others
            self._is_working = True
            return change
