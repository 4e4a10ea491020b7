"""The sizes of a job's records between its stages, and the bytes that an executor receives and sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..observation import Observation
from ..shape import Vector


@dataclass(frozen=True)
class RecordSizes:
    """Mean sizes in bytes, before compression (paper 002, rs_in and rs_out of chapter 3).

    Attributes:
        read: of a record as a source decodes it.
        routed: of a record in the blocks that go to workers; 0 if nothing is routed.
        partial: of a partial result.
        passing: routed records per record read.
    """

    read: float
    routed: float
    partial: float
    passing: float

    def traffic(self, rows: Vector, groups: Vector, executors: Vector, *, routes: bool) -> tuple[Vector, Vector]:
        """Return the bytes per second that each executor receives and sends, both arrays ``(shapes,)``.

        What tasks send to tasks of the same executor stays off the network: one in ``executors`` of all bytes, if tasks
        are spread evenly. Sources are elsewhere, so that whatever is read crosses it.

        Args:
            rows, groups: records read and partial results per second; arrays ``(shapes,)``.
            executors: number of executors; array ``(shapes,)``.
            routes: whether executors route the records; otherwise they receive routed ones.
        """
        blocks, partials = rows * self.passing * self.routed, groups * self.partial
        read, exchanged = (rows * self.read, blocks + partials) if routes else (blocks, partials)
        sent = exchanged * (1 - 1 / executors) / executors
        return read / executors + sent, sent


def sizes_of(seen: Sequence[Observation]) -> RecordSizes | None:
    """Return the mean sizes over the observations that report them; None if none does."""
    known = [one for one in seen if one.input_bytes is not None and one.rows > 0]
    if not known:
        return None

    def total(name: str) -> float:
        return float(sum((getattr(one, name) or 0.0) * one.batches for one in known))

    rows, routed, partials = total("rows"), total("routed"), total("partials")
    return RecordSizes(
        read=total("input_bytes") / rows,
        routed=total("route_bytes") / routed if routed else 0.0,
        partial=total("combine_bytes") / partials if partials else 0.0,
        passing=routed / rows,
    )
