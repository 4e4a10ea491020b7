"""Connections as last seen, and the queries that refer to them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from millrace_api.validation.connections import MOST_SUGGESTED, references

from ..resources.names import Manifest
from .kept import Kept
from .referred_connections import MOST_BYTES_OF_CONNECTIONS, ReferredConnections, brokers_in


class SeenConnections:
    """Cache of all Connections, and of the names that queries refer to. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: defaultdict[str, dict[str, Kept | None]] = defaultdict(dict)
        """Connections by namespace and name; None for one that there is no room for."""
        self._bytes: defaultdict[str, int] = defaultdict(int)
        """Bytes that are kept, by namespace; summed up for each event, many Connections would take quadratic time."""
        self._brokers: dict[tuple[str, str], str] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._names: dict[tuple[str, str], frozenset[str]] = {}
        """Names that a query refers to, by the query's namespace and name."""

    def seen(self, body: Manifest) -> None:
        """Store a Connection, as far as there is room for it, unless a newer version is stored."""
        metadata, now = body["metadata"], Kept(body)
        namespace, name = metadata["namespace"], metadata["name"]
        with self._lock:
            found = self._kept[namespace]
            before = found.get(name)
            if before is not None and now.is_older_than(before):
                return
            size = self._bytes[namespace] - (0 if before is None else len(before))
            found[name] = now if size + len(now) <= MOST_BYTES_OF_CONNECTIONS else None
            self._bytes[namespace] = size + (0 if found[name] is None else len(now))
            self._uids[namespace, name] = metadata["uid"]
            self._brokers[namespace, name] = brokers_in(body) if found[name] is not None else ""

    def gone(self, body: Manifest) -> None:
        """Remove a deleted Connection, unless a later one of the same name is stored."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        with self._lock:
            if self._uids.get((namespace, name)) != metadata["uid"]:
                return
            before = self._kept[namespace].pop(name)
            self._bytes[namespace] -= 0 if before is None else len(before)
            del self._uids[namespace, name], self._brokers[namespace, name]
            if not self._kept[namespace]:
                del self._kept[namespace], self._bytes[namespace]

    def refers(self, namespace: str, query: str, body: Mapping[str, Any]) -> None:
        """Store which names a query refers to."""
        names = frozenset(name for _, name in references(body))
        with self._lock:
            self._names.pop((namespace, query), None)
            if names:
                self._names[namespace, query] = names

    def forget(self, namespace: str, query: str) -> None:
        """Forget what a query refers to."""
        with self._lock:
            self._names.pop((namespace, query), None)

    def referring_to(self, namespace: str, name: str) -> list[str]:
        """Return the queries that refer to a Connection."""
        with self._lock:
            return [query for (of, query), names in self._names.items() if of == namespace and name in names]

    def of(self, namespace: str, names: Iterable[str]) -> ReferredConnections:
        """Return what a query that refers to these names needs of its namespace."""
        wanted = tuple(sorted(set(names)))
        if not wanted:
            return ReferredConnections()
        with self._lock:
            known = self._kept.get(namespace, {})
            others = tuple(islice(known, MOST_SUGGESTED))
            return ReferredConnections({name: known[name] for name in wanted if name in known}, wanted, others)

    def brokers_of(self, namespace: str, name: str) -> str | None:
        """Return the brokers that a Connection names, unchecked; None if it does not exist."""
        with self._lock:
            return self._brokers.get((namespace, name))

    def kept_bytes(self) -> dict[str, int]:
        """Return the bytes that are kept, by namespace."""
        with self._lock:
            return dict(self._bytes)
