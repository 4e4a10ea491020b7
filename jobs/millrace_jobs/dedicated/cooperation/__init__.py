"""How the replicas of a query, in processes of their own, cooperate: what they exchange over the control topic.

It is pure: no Kafka, no clock. Records have a key, such as ``state/3`` of replica 3, and a value in the format of
``values``. All replicas read them in one order, that of the topic's one partition. A record that is lost, late, damaged
or repeated costs locality or balance for a while. It never stops a replica, and never changes a result.
"""

from __future__ import annotations

from millrace_jobs.partitioners.dalton import Dalton
from millrace_jobs.partitioners.registry import PROBING, is_cooperative
from millrace_jobs.plan.control import Pin

from .dalton import PolicyExchange
from .loads import LoadExchange
from .protocol import Cooperation
from .warm import WarmKeyExchange


def cooperation_for(pin: Pin, replica: int, interval: float) -> Cooperation:
    """Return the part of a replica in the cooperation under ``pin``; ``interval`` is the batch interval in seconds."""
    if pin.replicas == 1:
        return Cooperation()
    if pin.algorithm == Dalton.NAME:
        return PolicyExchange(pin, replica, interval)
    if is_cooperative(pin.algorithm, pin.parameters):
        return WarmKeyExchange(pin, replica, interval)
    if period := int(pin.parameters.get(PROBING, 0)):
        return LoadExchange(pin, replica, period)
    return Cooperation()
