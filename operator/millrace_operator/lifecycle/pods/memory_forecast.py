"""Memory that will almost certainly run out soon, by what a driver reports of memory in use. Pure functions.

A raise replaces the driver, so a forecast has to be nearly certain. Either the last measurements are close below the
limit, or they rise steadily, and even the lower end of the forecast's interval reaches the limit within half an hour.
The forecast is ``scaling.trends.outlook``: it survives odd values, and sees that a rise has ended.

The container as a whole is full in good health: its processes use more and more until the JVM has touched all of its
heap, and then no more. What is beside the heap has no such end. It counts once the container is filled, too: a JVM
with little to keep may never need the room that is left for its heap. Only where what is beside the heap is unknown,
the container counts, by its level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millrace_api.model.memory_use import MUCH, MemoryPart, MemorySeries
from millrace_api.model.status import MemoryShortage

from ...scaling.trends import LEAST_FOR_TREND, outlook

HORIZON = 1800.0
"""Seconds within which memory has to run out; the replacement of a driver takes one to two minutes of them."""

FULL: Mapping[MemoryPart, float] = {
    MemoryPart.HEAP: 0.85,
    MemoryPart.BESIDE_HEAP: 0.95,
    MemoryPart.CONTAINER: 0.95,
}
"""Share of the limit from which on a part is as good as full.

A heap that keeps more collects garbage all the time. For the others, the limit itself is the end.
"""

_NEWEST = 3
"""Measurements in a row that must be above that share."""

_SHORTAGES = {
    MemoryPart.HEAP: MemoryShortage.HEAP,
    MemoryPart.BESIDE_HEAP: MemoryShortage.LIMIT,
    MemoryPart.CONTAINER: MemoryShortage.LIMIT,
}

_NAMES = {
    MemoryPart.HEAP: "what {} heap keeps after garbage collection",
    MemoryPart.BESIDE_HEAP: "what {} container uses beside the heap",
    MemoryPart.CONTAINER: "what {} container uses",
}


class ExpectedShortage(NamedTuple):
    """Memory that will run out: what of it, and why this is expected, in a sentence."""

    what: MemoryShortage
    message: str


def expected_shortage(series: Sequence[MemorySeries], whose: str) -> ExpectedShortage | None:
    """Return what will run out first, in the order of the parts; None if nothing will, as far as can be known.

    Args:
        series: what was measured in one pod.
        whose: the pod, in the genitive.
    """
    by_part = {each.part: each for each in series if each.samples}
    container = by_part.get(MemoryPart.CONTAINER)
    if container is not None and MemoryPart.BESIDE_HEAP in by_part:
        filled = container.samples[-1].used >= MUCH * container.limit
        by_part.pop(MemoryPart.CONTAINER if filled else MemoryPart.BESIDE_HEAP)
    for part in MemoryPart:
        found = by_part.get(part)
        if found is not None and (why := _why(found)):
            return ExpectedShortage(_SHORTAGES[part], f"{_NAMES[part].format(whose)} {why}")
    return None


def _why(series: MemorySeries) -> str:
    """Return why this part is expected to run out; empty if it is not."""
    used, full = [each.used for each in series.samples], FULL[series.part] * series.limit
    newest = used[-_NEWEST:]
    if len(newest) == _NEWEST and min(newest) >= full:
        return f"is {used[-1] / series.limit:.0%} of its limit of {series.limit >> 20} MiB"
    if series.part is MemoryPart.CONTAINER or len(used) < LEAST_FOR_TREND or used[-1] < MUCH * series.limit:
        return ""
    first = series.samples[0].time
    ahead = outlook([float(each.time - first) for each in series.samples], list(map(float, used)), HORIZON)
    if ahead.low < series.limit:
        return ""
    rising = f"is {used[-1] / series.limit:.0%} of its limit of {series.limit >> 20} MiB and rises steadily"
    return f"{rising}: the limit is reached within {HORIZON / 60:.0f} minutes"
