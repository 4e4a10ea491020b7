"""The canary: a StreamQuery that the leader touches now and then, and that every operator's watch must show.

There is one in each namespace that is watched for itself, else one in the operator's own. Other watches than that of
StreamQueries are not proven by it; kopf begins each of them anew that tells nothing for a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from ..kube.canary import CANARY_LABEL, TOUCHED
from ..telemetry.logs import in_short
from ..telemetry.staleness import TOUCH_SECONDS, Staleness

LOOK_SECONDS = 2 * TOUCH_SECONDS
"""From one look of a standby to the next, at canaries of which its watch has shown no touch for so long."""

log = logging.getLogger(__name__)


class Touches(Protocol):
    """Touches one canary."""

    def touch(self, stamp: str) -> None:
        """Make it where there is none, and put the stamp on it."""
        ...

    def last_touch(self) -> str | None:
        """The stamp that it has; None where there is none."""
        ...


def is_canary(body: Mapping[str, Any]) -> bool:
    """Whether a query is a canary, which is never deployed."""
    return CANARY_LABEL in body["metadata"].get("labels", {})


class Canary:
    """The canaries of one operator, in a thread of their own from ``stand_by`` to ``stop``.

    Who leads touches them. The others ask nothing as long as their watch shows the leader's touches. Where it does not,
    they look whether there were any: no watch can show touches that nobody makes.

    Args:
        name: of the canaries.
        touches: for each namespace that has one.
    """

    def __init__(self, name: str, touches: Mapping[str, Touches]) -> None:
        self._name = name
        self._touches = touches
        self._staleness = {namespace: Staleness() for namespace in touches}
        self._found: dict[str, str] = {}
        """The last touch that a look has found, by namespace."""
        self._leads = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary", daemon=True)

    def stand_by(self) -> None:
        """Begin to look after the watch."""
        self._thread.start()

    def lead(self) -> None:
        """Touch them from now on; of several operators with the same canaries, only one does."""
        self._leads.set()

    def stop(self) -> None:
        """Touch them no more."""
        self._ending.set()
        self._leads.set()  # so that the thread does not wait for it
        if self._thread.is_alive():
            self._thread.join()

    def look(self, namespace: str) -> None:
        """Count a touch by another operator that the watch should have shown."""
        staleness = self._staleness[namespace]
        if staleness.age is not None and staleness.age < LOOK_SECONDS:
            staleness.failed()  # what was counted is of before
            return
        try:
            stamp = self._touches[namespace].last_touch()
        except Exception as error:  # refused or late: no fault of the watch
            staleness.failed()
            log.warning("whether the canary in %s is touched is not known: %s", namespace, in_short(error))
            return
        if stamp is not None and stamp != self._found.get(namespace):
            self._found[namespace] = stamp
            staleness.touching(stamp)
            staleness.touched(stamp)

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
        while not self._leads.wait(LOOK_SECONDS):
            for namespace in self._touches:
                self.look(namespace)
        while not self._ending.is_set():
            for namespace in self._touches:
                self._touch(namespace)
            self._ending.wait(TOUCH_SECONDS)

    def _touch(self, namespace: str) -> None:
        staleness, stamp = self._staleness[namespace], datetime.now(UTC).isoformat()
        staleness.touching(stamp)
        try:
            self._touches[namespace].touch(stamp)
        except Exception as error:  # refused, late, or the lease is gone: no fault of the watch
            staleness.failed()
            log.warning("the canary in %s was not touched: %s", namespace, in_short(error))
        else:
            staleness.touched(stamp)
