"""Rules of the Kubernetes HorizontalPodAutoscaler for any metric: tolerance, stabilisation, and limits on each step.

Rules and defaults: ``pkg/controller/podautoscaler`` (``horizontal.go``, ``replica_calculator.go``) and
``pkg/apis/autoscaling/v2/defaults.go`` of kubernetes/kubernetes, and the flags of kube-controller-manager.
"""

from __future__ import annotations

from collections import deque

from millrace_operator.scaling.shape import Range

SYNC_PERIOD = 15.0
"""Seconds between two evaluations: ``--horizontal-pod-autoscaler-sync-period``."""
TOLERANCE = 0.1
"""Distance of usage over target from 1 up to which nothing changes: ``--horizontal-pod-autoscaler-tolerance``."""
_STABILISATION = 300.0
"""Seconds of recommendations whose highest one limits a scale-in; a scale-out is not delayed."""
_PERIOD = 15.0
"""Seconds over which a scale-out is limited to the larger of the next two; a scale-in is limited to 100 %."""
_PODS_PER_PERIOD = 4
_TIMES_PER_PERIOD = 2


def is_near(usage: float) -> bool:
    """Return whether usage, as a multiple of its target, is near enough to 1 to leave the pods as they are."""
    return abs(1.0 - usage) <= TOLERANCE


class Behavior:
    """The default ``behavior`` of an autoscaler, for pods within ``bounds``."""

    def __init__(self, bounds: Range) -> None:
        self._bounds = bounds
        self._recommended: deque[tuple[float, int]] = deque()
        self._added: deque[tuple[float, int]] = deque()

    def apply(self, recommended: int, current: int, now: float) -> int:
        """Return the pods to request at ``now``, given those the metric recommends and those requested so far."""
        pods = self._limited(self._stabilised(self._bounds.nearest(recommended), current, now), current, now)
        if pods > current:
            self._added.append((now, pods - current))
        return pods

    def _stabilised(self, recommended: int, current: int, now: float) -> int:
        _forget(self._recommended, now - _STABILISATION)
        self._recommended.append((now, recommended))
        return max(pods for _, pods in self._recommended) if recommended < current else recommended

    def _limited(self, recommended: int, current: int, now: float) -> int:
        _forget(self._added, now - _PERIOD)
        start = current - sum(pods for _, pods in self._added)
        most = max(start + _PODS_PER_PERIOD, start * _TIMES_PER_PERIOD, current)
        return min(recommended, most)


def _forget(events: deque[tuple[float, int]], until: float) -> None:
    while events and events[0][0] <= until:
        events.popleft()
