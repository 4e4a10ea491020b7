"""When a windowed aggregation emits: strategies apart from the operator (section 5.3), and what each costs in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from .aggregation import Grouping, Step
from .streams import Key, Stream, StreamRecord, Time


class Strategy(StrEnum):
    """When the results of a window are emitted, of which that of a join is around each record."""

    EVERY_UPDATE = "every update"
    WINDOW_END = "first at the window's end, and then every update"
    FINAL = "final, by the watermark"


class Emitted(NamedTuple):
    """A result in the output: when it was emitted, its group and window, and its value."""

    at: Time
    key: Key
    value: Any


def emitted(
    arrivals: Iterable[tuple[Time, StreamRecord]],
    group: Grouping,
    step: Step,
    end: Callable[[Key], Time],
    strategy: Strategy,
    *,
    delay: Time,
    until: Time,
) -> list[Emitted]:
    """Return what a strategy emits, in order.

    Args:
        arrivals: records with the processing times at which they arrive, in order.
        group: the groups, with their windows, of a record.
        step: the aggregate with one more record.
        end: the end of a group's window, which is not part of it.
        strategy: when results are emitted.
        delay: a watermark is generated at every unit of processing time, and says that time less the delay.
        until: processing time at which the input ends. Stream time is taken to be processing time.
    """
    results: dict[Key, Any] = {}
    output: list[Emitted] = []
    open_windows: dict[Key, Time] = {}

    def close(now: Time) -> Iterator[Emitted]:
        for key, at in sorted(open_windows.items(), key=lambda each: (each[1], repr(each[0]))):
            if at <= now:
                del open_windows[key]
                yield Emitted(at, key, results[key])

    for now, record in arrivals:
        output += close(now)
        for key in group(record):
            is_new = key not in results
            results[key] = step(record, results.get(key))
            if strategy is Strategy.FINAL:
                if is_new:
                    open_windows[key] = end(key) + delay
            elif strategy is Strategy.EVERY_UPDATE or end(key) <= now:
                output.append(Emitted(now, key, results[key]))
            elif is_new:
                open_windows[key] = end(key)
    return [*output, *close(until)]


def shown(
    results: Stream,
    is_outer: Callable[[StreamRecord], bool],
    size: Time,
    strategy: Strategy,
    *,
    event_time: Time,
    delay: Time,
) -> Stream:
    """Return the results of a join of what has arrived that an output has by now (section 5.3.2).

    Args:
        results: all results of the records that have arrived.
        is_outer: whether a result has no partner.
        size: how long after the time of a result its last partner can be.
        strategy: WINDOW_END delays outer results alone, and FINAL whatever can change.
        event_time: event time by now, which is ahead of the watermark by ``delay``.
        delay: how late records can come.
    """
    return tuple(
        each
        for each in results
        if strategy is Strategy.EVERY_UPDATE
        or (strategy is Strategy.WINDOW_END and (not is_outer(each) or each.t + size < event_time))
        or (strategy is Strategy.FINAL and each.t + size < event_time - delay)
    )
