"""What the operator remembers of a query beside what the API server stores of it: see ``QueryMemory``."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from millrace_api.model.status import ObservedLoad, Status
from millrace_support.backoff import Backoff

from ..scaling.decision.decision import Decision
from ..telemetry.query_metrics import QueryCounts, QueryRow
from .autoscaling.cost_traits import CostTraits
from .autoscaling.scaling_inputs import AnyScaler
from .autoscaling.scaling_status import ScalingResult
from .events import event_bucket
from .objects.kept_object import KeptObject
from .observed_query import ObjectKey
from .pods.missing_pods import PodChecks
from .refusals import LastRefusal
from .token_buckets import TokenBucket

_DESCRIPTIVE = ("conditions", "driver", "partitioner", "load", "chain")
"""Fields that only describe what the next step observes again; all others are the operator's memory, or the phase."""


class ApplyBackoff:
    """Pauses between rounds that apply the same objects of a query, so that two clients do not fight over one.

    The pauses grow from ``FIRST`` again after ``QUIET`` seconds without a round, and when other objects have to be
    applied. Times are in seconds of a monotonic clock.
    """

    FIRST, LONGEST, QUIET = 1.0, 300.0, 300.0

    def __init__(self) -> None:
        self._due = 0.0
        self._backoff: Backoff | None = None
        self._actions: object = None

    def wait(self, actions: object, now: float) -> float:
        """Return the seconds until a round of these actions may start; 0 starts the round now."""
        if self._backoff is None or actions != self._actions or now > self._due + self.QUIET:
            self._due, self._backoff = now, Backoff(self.FIRST, self.LONGEST)
        if self._due > now:
            return self._due - now
        self._due, self._actions = now + self._backoff.next(), actions
        return 0.0

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._backoff = None


class StatusPace:
    """Pauses between status writes of a query that change nothing but descriptions.

    A driver's start changes them several times a second: objects applied, pod created, pod scheduled. Each write costs
    the API server as much as an object. Times are in seconds of a monotonic clock.
    """

    SECONDS = 2.0

    def __init__(self) -> None:
        self._may_write_at = 0.0

    def wait(self, before: Status, after: Status, now: float) -> float:
        """Return the seconds until the status may be written; 0 if it may be written now, or need not be."""
        kept = {name: getattr(before, name) for name in _DESCRIPTIVE}
        if after == before or after.model_copy(update=kept) != before:
            return 0.0
        return max(self._may_write_at - now, 0.0)

    def written(self, now: float) -> None:
        """Remember that the status was written now."""
        self._may_write_at = now + self.SECONDS


@dataclass
class ScalerState:
    """What scaling has learned of a query.

    Attributes:
        fingerprint: every input whose change requires a new state.
        traits: what the costs of its batches follow from; a new query of the same traits begins with them.
        answered: time of the last usable answer; at first, the time of the first check.
        last: the last decision based on an answer.
        notified: when the reconciler was last notified.
        saved, epoch: when the learned state was last saved, and the epoch of the plan at that time.
    """

    fingerprint: object
    traits: CostTraits
    scaler: AnyScaler
    answered: float
    last: Decision | None = None
    load: ObservedLoad | None = None
    notified: float = 0.0
    saved: float = 0.0
    epoch: int = 0


@dataclass(slots=True)
class QueryMemory:
    """What the operator remembers of one query; made when the query is first seen, and dropped when it is gone.

    The reconciler has a query for one worker at a time, and so has the autoscaler, which alone sets ``scaler`` and
    ``scaling``. Whoever still has the memory of a query that is gone may write to it without effect.

    Attributes:
        uid: uid of the query.
        scaler: what scaling has learned; None before the first check, and while nothing runs.
        scaling: the last result of scaling; the autoscaler queues the query with each one.
        new_secret: Secret that was made for the next driver, until it is used.
        read_again_at: when a query, or a Connection of it, that was not kept may be read again.
        unwatched: its objects that no watch reports, as they were applied last; they may be gone.
        row: what its metrics show, and the version of the query and its objects that it was read from.
    """

    uid: str
    scaler: ScalerState | None = None
    scaling: ScalingResult | None = None
    new_secret: str | None = None
    read_again_at: datetime | None = None
    unwatched: dict[ObjectKey, KeptObject] = field(default_factory=dict)
    row: tuple[object, QueryRow] | None = None
    rounds: ApplyBackoff = field(default_factory=ApplyBackoff)
    pace: StatusPace = field(default_factory=StatusPace)
    events: TokenBucket = field(default_factory=event_bucket)
    refusal: LastRefusal = field(default_factory=LastRefusal)
    comparison: LastRefusal = field(default_factory=LastRefusal)
    pods: PodChecks = field(default_factory=PodChecks)
    counts: QueryCounts = field(default_factory=QueryCounts)
