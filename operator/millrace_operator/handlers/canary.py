"""The canary: a StreamQuery that the leader touches now and then, and that its watch must show again.

There is one in each namespace that is watched for itself, else one in the operator's own. Other watches than that of
StreamQueries are not proven by it; kopf begins each of them anew that tells nothing for a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from ..kube.canary import CANARY_LABEL, TOUCHED
from ..telemetry.logs import in_short
from ..telemetry.staleness import TOUCH_SECONDS, Staleness

log = logging.getLogger(__name__)


class Touches(Protocol):
    """Touches one canary."""

    def touch(self, stamp: str) -> None:
        """Make it where there is none, and put the stamp on it."""
        ...


def is_canary(body: Mapping[str, Any]) -> bool:
    """Whether a query is a canary, which is never deployed."""
    return CANARY_LABEL in body["metadata"].get("labels", {})


class Canary:
    """The canaries of one operator, touched in a thread of their own from ``start`` to ``stop``.

    Args:
        name: of the canaries.
        touches: for each namespace that has one.
    """

    def __init__(self, name: str, touches: Mapping[str, Touches]) -> None:
        self._name = name
        self._touches = touches
        self._staleness = {namespace: Staleness() for namespace in touches}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary", daemon=True)

    def start(self) -> None:
        """Begin to touch them; of several operators with the same canaries, only one does."""
        self._thread.start()

    def stop(self) -> None:
        """Touch them no more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def seen(self, body: Mapping[str, Any]) -> None:
        """The watch has shown a canary, maybe that of another operator."""
        metadata = body["metadata"]
        if metadata["name"] == self._name and metadata["namespace"] in self._staleness:
            self._staleness[metadata["namespace"]].seen(metadata.get("annotations", {}).get(TOUCHED, ""))

    @property
    def dead(self) -> list[str]:
        """Namespaces whose canary is not shown any more."""
        return [namespace for namespace, staleness in self._staleness.items() if staleness.stale]

    @property
    def age(self) -> float | None:
        """Seconds since the watch last showed a touch, the largest of all canaries; None before each was shown once.

        Kopf hands nothing on before it has listed all that it watches: an age says that too.
        """
        ages = [staleness.age for staleness in self._staleness.values()]
        return None if None in ages else max(age for age in ages if age is not None)

    def _run(self) -> None:
        while not self._ending.is_set():
            for namespace, touches in self._touches.items():
                _touch(namespace, touches.touch, self._staleness[namespace])
            self._ending.wait(TOUCH_SECONDS)


def _touch(namespace: str, touch: Callable[[str], None], staleness: Staleness) -> None:
    stamp = datetime.now(UTC).isoformat()
    staleness.touching(stamp)
    try:
        touch(stamp)
    except Exception as error:  # refused, late, or the lease is gone: no fault of the watch
        staleness.failed()
        log.warning("the canary in %s was not touched: %s", namespace, in_short(error))
    else:
        staleness.touched(stamp)
