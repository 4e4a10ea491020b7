"""Pods of a simulated cluster: they start with a delay or never, can be lost, and take time to drain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import count, islice

import numpy as np


@dataclass(frozen=True)
class ClusterProfile:
    """Start, drain and failure behavior of executors and of dedicated partitioner pods.

    Attributes:
        start_seconds: median time from the request for a pod until it is ready.
        start_scatter: standard deviation of the logarithm of that time.
        never: probability that a pod stays pending until it is no longer requested (no node has room for it).
        drain_seconds: time a decommissioned executor takes to hand over its blocks and exit; it runs no more tasks.
        drain_slowdown: extra task time while executors drain, as a share.
        warm_up_seconds: extra time of the first stage on new executors (class loading, Python workers).
        lost_every: mean time until a pod is lost, seconds; a replacement is requested. None: never.
        quota: most pods of each kind that the namespace may have; further ones are not created. None: no limit.
    """

    start_seconds: float = 20.0
    start_scatter: float = 0.3
    never: float = 0.0
    drain_seconds: float = 6.0
    drain_slowdown: float = 0.1
    warm_up_seconds: float = 0.5
    lost_every: float | None = None
    quota: int | None = None


class _Event(Enum):
    READY = auto()
    LOST = auto()
    GONE = auto()


class Fleet:
    """Pods of one kind on a simulated clock that starts at 0 and never goes back.

    ``lost`` is the number of pods lost so far, without notice. ``started`` is the number of pods that have become ready
    so far, not counting the initial ones.
    """

    def __init__(self, profile: ClusterProfile, size: int, rng: np.random.Generator) -> None:
        """Start with ``size`` ready pods, or with the quota if that is smaller."""
        self.profile = profile
        self._rng = rng
        self._events: list[tuple[float, int, _Event]] = []
        self._created: dict[int, float] = {}
        self._ready: list[int] = []
        self._pending: list[int] = []
        self._unschedulable: set[int] = set()
        self._draining: set[int] = set()
        self._wanted = self._allowed(size)
        self._ids = count()
        self._seconds = 0.0
        self.lost = 0
        self.started = 0
        for pod in islice(self._ids, self._wanted):
            self._created[pod] = 0.0
            self._begin(pod, 0.0)

    @property
    def ready(self) -> int:
        """Pods that run tasks."""
        return len(self._ready)

    @property
    def draining(self) -> int:
        """Pods that are shutting down."""
        return len(self._draining)

    @property
    def pending_since(self) -> float | None:
        """Request time of the longest-pending pod, seconds; None if no pod is pending."""
        return min((self._created[pod] for pod in self._pending), default=None)

    @property
    def next_event(self) -> float:
        """Time at which the next pod becomes ready, is gone or is lost; infinity without such an event."""
        return self._events[0][0] if self._events else math.inf

    def resize(self, size: int, now: float) -> None:
        """Scale to ``size`` pods: create new ones, or cancel pending ones first and then drain ready ones."""
        self.advance(now)
        self._wanted = self._allowed(size)
        self._create(now)
        while self._pending and len(self._ready) + len(self._pending) > self._wanted:
            self._leave(self._pending.pop(), now)
        while len(self._ready) > self._wanted:
            pod = self._ready.pop()
            self._draining.add(pod)
            heappush(self._events, (now + self.profile.drain_seconds, pod, _Event.GONE))

    def advance(self, now: float) -> None:
        """Process all events up to ``now``."""
        while self._events and self._events[0][0] <= now:
            time, pod, event = heappop(self._events)
            if event is _Event.READY and pod in self._pending:
                self._pending.remove(pod)
                self.started += 1
                self._begin(pod, time)
            elif event is _Event.LOST and pod in self._ready:
                self._ready.remove(pod)
                self._leave(pod, time)
                self.lost += 1
                self._create(time)
            elif event is _Event.GONE:
                self._draining.remove(pod)
                self._leave(pod, time)

    def seconds(self, now: float) -> float:
        """Return the pod seconds used until ``now``, from the request for each pod until it is gone.

        Pods that cannot be scheduled cost nothing.
        """
        running = (now - since for pod, since in self._created.items() if pod not in self._unschedulable)
        return self._seconds + sum(running)

    def _allowed(self, size: int) -> int:
        return size if self.profile.quota is None else min(size, self.profile.quota)

    def _create(self, now: float) -> None:
        while len(self._ready) + len(self._pending) < self._wanted:
            pod = next(self._ids)
            self._created[pod] = now
            self._pending.append(pod)
            delay = self.profile.start_seconds * math.exp(self.profile.start_scatter * self._rng.standard_normal())
            if self._rng.random() < self.profile.never:
                self._unschedulable.add(pod)
            else:
                heappush(self._events, (now + delay, pod, _Event.READY))

    def _begin(self, pod: int, now: float) -> None:
        self._ready.append(pod)
        if self.profile.lost_every is not None:
            lifetime = self._rng.exponential(self.profile.lost_every)
            heappush(self._events, (now + lifetime, pod, _Event.LOST))

    def _leave(self, pod: int, now: float) -> None:
        created = self._created.pop(pod)
        if pod in self._unschedulable:
            self._unschedulable.remove(pod)
        else:
            self._seconds += now - created
