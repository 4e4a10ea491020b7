"""One Spark query of a run, and why it stops: ``loop`` starts one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from millrace_jobs.queries.execution import RoutingMode
from millrace_jobs.run.wall_clock import WallClock


class StopReason(Enum):
    """The reasons to stop Spark's query after the running batch."""

    MODE_CHANGED = auto()
    """The plan wants the other mode: a routed query, or a native one."""
    STATE_SWITCHED = auto()
    """A copy of the state, with another number of partitions, is to take its place."""
    CLOCK_SET_BACK = auto()
    """Spark would wait until the wall clock shows the old time again."""
    DRAINING = auto()
    """The run was asked to end."""
    EXHAUSTED = auto()
    """The sources have no more records, and will have none."""


INTERRUPTIONS = (StopReason.MODE_CHANGED, StopReason.STATE_SWITCHED, StopReason.CLOCK_SET_BACK)
"""The reasons after which the run goes on with another query of Spark's."""


@dataclass
class SparkRun:
    """One Spark query of a run, in one mode; ``stop_reason`` is None while batches follow one another."""

    mode: RoutingMode
    paced: bool
    closing_time: int | None
    clock: WallClock = field(default_factory=WallClock)
    stop_reason: StopReason | None = None
