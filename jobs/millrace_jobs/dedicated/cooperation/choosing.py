"""Which cooperation an algorithm has."""

from __future__ import annotations

from millrace_jobs.partitioners.dalton import Dalton
from millrace_jobs.partitioners.registry import PROBING, is_cooperative
from millrace_jobs.plan.control import Pin

from .dalton import PolicyExchange
from .loads import LoadExchange
from .protocol import Alone, Cooperation
from .warm import WarmKeyExchange


def cooperation_for(pin: Pin, replica: int, interval: float) -> Cooperation:
    """Return the part of a replica in the cooperation under ``pin``; ``interval`` is the batch interval in seconds."""
    if pin.replicas == 1:
        return Alone()
    if pin.algorithm == Dalton.NAME:
        return PolicyExchange(pin, replica, interval)
    if is_cooperative(pin.algorithm):
        return WarmKeyExchange(pin, replica, interval)
    if period := int(pin.parameters.get(PROBING, 0)):
        return LoadExchange(pin, replica, period)
    return Alone()
