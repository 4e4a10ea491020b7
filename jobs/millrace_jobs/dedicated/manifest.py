"""Manifests: what one replica wrote in one interval, and where; written in the same transaction as its packs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millrace_jobs.plan.control import Pin
from millrace_jobs.sources.kafka.offsets import Offsets, of_position, to_position


class PackRange(NamedTuple):
    """Offsets ``[begin, end)`` of a worker's partition, all of them packs of one manifest."""

    begin: int
    end: int


Packs = Mapping[int, Sequence[PackRange]]
"""The ranges of packs, by worker."""


@dataclass(frozen=True)
class Manifest:
    """The packs of one replica and interval, or of a part of it, if that had more records than a replica holds.

    Attributes:
        generation: the generation of the replica; a job takes only manifests of its own generation.
        replica: index of the replica.
        batch: number among the replica's manifests, ascending: at least the time at which its interval ends, in
            intervals since 1970.
        pin: the plan that the records were placed under.
        raw: where the replica goes on in each raw partition that it has; all before was placed.
        packs: the ranges of packs, by worker.
        read: raw records, less those that no decoder takes.
        rejected: records that do not decode and were left out.
        routed: records that passed the filter, all of them in packs.
        size: bytes of the decoded records in memory.
        incomplete: raw records without the event time of their window.
        latest: the latest event time, in microseconds; None without records or event time. Records that the filter
            drops count.
        heartbeat: number of the last interval that the replica is done with, counted as above.
        seconds: time from the end of the interval's intake to the commit, in seconds.
        arrivals: when the records arrived, for the note to the driver: see ``pipeline.arrivals``.
        failure: why the replica cannot go on, and what to do, for a manifest that has nothing else.
    """

    generation: str
    replica: int
    batch: int
    pin: Pin
    raw: Offsets
    packs: Packs = field(default_factory=dict)
    read: int = 0
    rejected: int = 0
    routed: int = 0
    size: int = 0
    incomplete: int = 0
    latest: int | None = None
    heartbeat: int = 0
    seconds: float = 0.0
    arrivals: Mapping[str, Any] = field(default_factory=dict)
    failure: tuple[str, str] | None = None

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON."""
        content = vars(self) | {
            "pin": self.pin.to_json(),
            "raw": to_position(self.raw),
            "packs": {str(worker): list(map(list, ranges)) for worker, ranges in self.packs.items()},
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def of(cls, value: bytes) -> Manifest:
        """Return the manifest in a message. Raises ValueError if it is none."""
        try:
            content: dict[str, Any] = json.loads(value)
            failure = content.pop("failure", None)
            return cls(
                pin=Pin.from_json(content.pop("pin")),
                raw=of_position(content.pop("raw")),
                packs={
                    int(worker): [PackRange(*each) for each in ranges]
                    for worker, ranges in content.pop("packs").items()
                },
                failure=None if failure is None else (failure[0], failure[1]),
                **content,
            )
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"not a manifest: {error}") from None


def coalesced(offsets: Sequence[int]) -> list[PackRange]:
    """Return ascending offsets as ranges without gaps."""
    ranges: list[PackRange] = []
    for offset in offsets:
        if ranges and ranges[-1].end == offset:
            ranges[-1] = PackRange(ranges[-1].begin, offset + 1)
        else:
            ranges.append(PackRange(offset, offset + 1))
    return ranges
