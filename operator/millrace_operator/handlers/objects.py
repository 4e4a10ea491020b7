"""What belongs to queries: found by their label. Nothing is kept of what belongs to another shard's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from millrace_api.model.labels import QUERY

from ..kube.informer import Informer
from ..kube.raw import OWNED, Raw
from ..lifecycle.observe import Observations, QueryKey
from ..lifecycle.workqueue import WorkQueue
from ..resources.names import Manifest

TOGETHER_SECONDS = 0.25
"""Within which changes of a query's objects are looked at together: they come in flocks."""


class OwnedObjects:
    """Watches the objects of queries from ``start`` to ``stop``.

    Kopf does not: it begins a task for each object, and each of them waits until all that there is was listed.

    Args:
        raw: asks the API server.
        namespaces: that are watched; none for all.
        observations: where what is seen is put.
        queue: into which queries are put whose objects have changed.
        owns: whether a query is this operator's, by namespace and name.
    """

    def __init__(
        self,
        raw: Raw,
        namespaces: Sequence[str],
        observations: Observations,
        queue: WorkQueue[QueryKey],
        owns: Callable[[str, str], bool],
    ) -> None:
        self._observations, self._queue, self._owns = observations, queue, owns
        self._informers = [Informer(raw, kind, place, self._told) for kind in OWNED for place in namespaces or (None,)]
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to list them."""
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """Watch them no more."""
        self._ended.set()
        for informer in self._informers:
            informer.stop()

    @property
    def listed(self) -> bool:
        """Whether all that there is has been seen."""
        return all(informer.listed.is_set() for informer in self._informers)

    def wait(self) -> bool:
        """Wait until all that there is has been seen; False where that was ended before."""
        while not self.listed and not self._ended.wait(0.05):
            pass
        return not self._ended.is_set()

    def _told(self, type: str, body: Manifest) -> None:
        metadata = body["metadata"]
        if self._owns(metadata["namespace"], metadata["labels"][QUERY]):
            tell = self._observations.object_gone if type == "DELETED" else self._observations.object_seen
            self._queue.add_later(tell(body), TOGETHER_SECONDS)
