"""Queries as they were last checked, within a number of bytes: see ``CheckedQueries``."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from typing import NamedTuple

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery

from .observed_query import ObservedQuery, QueryKey

MOST_BYTES = 32 << 20
"""Bytes that all queries count of which the result of the check is kept; the results take several times as many."""

_LEAST = 2 << 10
"""Bytes that a query counts at least: the result for the smallest one takes five times as many."""

Checked = StreamQuery | MillraceError


class _Entry(NamedTuple):
    version: object
    checked: Checked
    size: int


class CheckedQueries:
    """The validated queries, or their errors, by the version of the query and of its Connections.

    All methods may be called from any thread.

    When they take too many bytes, the namespace that has most of them loses the one that was used longest ago. So large
    queries of one namespace do not displace those of others.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._entries: defaultdict[str, OrderedDict[str, _Entry]] = defaultdict(OrderedDict)
        self._sizes: defaultdict[str, int] = defaultdict(int)

    def get(self, key: QueryKey, observed: ObservedQuery) -> Checked | None:
        """Return the result for this version of a query; None if it is not kept."""
        with self._lock:
            entries = self._entries.get(key.namespace)
            entry = None if entries is None else entries.get(key.name)
            if entries is None or entry is None or entry.version != observed.version:
                return None
            entries.move_to_end(key.name)
            return entry.checked

    def put(self, key: QueryKey, observed: ObservedQuery, checked: Checked) -> None:
        """Store the result for this version of a query."""
        with self._lock:
            self._drop(key)
            added = observed.added_size.counted if isinstance(checked, StreamQuery) else 0
            entry = _Entry(observed.version, checked, max(observed.size + added, _LEAST))
            self._entries[key.namespace][key.name] = entry
            self._sizes[key.namespace] += entry.size
            while sum(self._sizes.values()) > self._most:
                largest = max(self._sizes, key=self._sizes.__getitem__)
                self._drop(QueryKey(largest, next(iter(self._entries[largest]))))

    def forget(self, key: QueryKey) -> None:
        """Drop the result of a query."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: QueryKey) -> None:
        entry = self._entries[key.namespace].pop(key.name, None)
        self._sizes[key.namespace] -= 0 if entry is None else entry.size
        if not self._entries[key.namespace]:
            del self._entries[key.namespace], self._sizes[key.namespace]
