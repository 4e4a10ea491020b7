"""What Kubernetes' HorizontalPodAutoscaler does with any metric: tolerance, stabilisation, and limits on each step.

Rules and defaults: ``pkg/controller/podautoscaler`` (``horizontal.go``, ``replica_calculator.go``) and
``pkg/apis/autoscaling/v2/defaults.go`` of kubernetes/kubernetes, and the flags of kube-controller-manager.
"""

from __future__ import annotations

from collections import deque

from ...scaling.plans import Range

SYNC_PERIOD = 15.0
"""Seconds between two looks: ``--horizontal-pod-autoscaler-sync-period``."""
TOLERANCE = 0.1
"""How far usage over target may be from 1 before anything changes: ``--horizontal-pod-autoscaler-tolerance``."""
_STABILISATION = 300.0
"""Scale-in goes to the highest recommendation of so many seconds; scale-out waits for nothing."""
_PERIOD = 15.0
"""Seconds over which a scale-out is limited to the larger of these two; a scale-in is limited to 100 %."""
_PODS_PER_PERIOD = 4
_TIMES_PER_PERIOD = 2


def is_near(usage: float) -> bool:
    """Whether usage, as a multiple of its target, is near enough to leave the pods as they are."""
    return abs(1.0 - usage) <= TOLERANCE


class Behavior:
    """The ``behavior`` of an autoscaler that says nothing of it, for pods within ``bounds``."""

    def __init__(self, bounds: Range) -> None:
        self._bounds = bounds
        self._recommended: deque[tuple[float, int]] = deque()
        self._added: deque[tuple[float, int]] = deque()

    def apply(self, recommended: int, current: int, now: float) -> int:
        """Pods to have from ``now`` on, where the metric asks for ``recommended`` and ``current`` were asked for."""
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
