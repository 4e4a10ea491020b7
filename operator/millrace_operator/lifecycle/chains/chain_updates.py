"""Changes of queries on their way into the index of chains, by turns of the namespaces: see ``ChainUpdates``."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from millrace_api.model.connections import ConnectionSpec, KafkaConnectionSpec
from millrace_api.model.registries import SchemaRegistrySpec
from millrace_api.validation.connections import Connections, references, resolve

from ...telemetry.logs import in_short
from .chains import Chains, reported_state

log = logging.getLogger(__name__)


class _Change(NamedTuple):
    """A query as far as chains need it, and whether it is deleted. JSON takes a tenth of the memory of objects."""

    document: bytes
    gone: bool


class ChainUpdates:
    """Thread that stores changes of queries in the index of chains.

    To compare a query with the others of its namespace takes time that its author chooses in part. So this is done
    outside the threads of the watches, and the namespaces take turns with one query each. All methods may be called
    from any thread.

    Args:
        chains: the index; nothing else may change it.
        on_change: receives the queries whose chains have changed, by namespace and name.
        brokers_of: returns the brokers of a Connection, given by namespace and name; None if it does not exist.
    """

    def __init__(
        self,
        chains: Chains,
        on_change: Callable[[set[tuple[str, str]]], None],
        brokers_of: Callable[[str, str], str | None] = lambda namespace, name: None,
    ) -> None:
        self._chains = chains
        self._on_change = on_change
        self._brokers_of = brokers_of
        self._referring: defaultdict[str, dict[str, _Change]] = defaultdict(dict)
        """The latest change of each query that refers to a Connection, by namespace and by uid."""
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
            "status": reported_state(body.get("status") or {}),
        }
        namespace, uid = metadata["namespace"], metadata["uid"]
        change = _Change(msgspec.json.encode(document), gone)
        refers = not gone and any(references(document))
        with self._changed:
            self._pending[namespace][uid] = change
            if refers:
                self._referring[namespace][uid] = change
            elif self._referring.get(namespace, {}).pop(uid, None) is not None and not self._referring[namespace]:
                del self._referring[namespace]
            self._changed.notify_all()

    def connection_changed(self, namespace: str) -> None:
        """Compare again the queries of a namespace that refer to Connections, as one of these has changed."""
        with self._changed:
            for uid, change in self._referring.get(namespace, {}).items():
                self._pending[namespace].setdefault(uid, change)
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
                self._on_change(store(self._with_brokers(msgspec.json.decode(change.document))))
            except Exception as error:  # one query must not stop the chains of all others
                log.warning("a chain is not up to date: %s", in_short(error))

    def _with_brokers(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a query with the brokers of its Connections in their place."""
        namespace = document["metadata"]["namespace"]
        names = sorted({name for _, name in references(document)})
        found = {name: brokers for name in names if (brokers := self._brokers_of(namespace, name))}
        if not names:
            return document
        registry = SchemaRegistrySpec.model_construct(url="http://registry")
        known: Connections = {
            name: ConnectionSpec.model_construct(
                kafka=KafkaConnectionSpec.model_construct(bootstrap_servers=brokers, registry=registry)
            )
            for name, brokers in found.items()
        }
        document["metadata"]["brokers"] = msgspec.json.encode(found).decode()
        return resolve(document, known).document

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
