"""The conditions of a query: which reasons each of them can have, and how they are kept over time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum

from millrace_api.status import Condition, ConditionStatus, ConditionType, Status


class ReadyReason(StrEnum):
    """Why a query is ready, or is not."""

    INVALID_QUERY = "InvalidQuery"
    SUSPENDED = "Suspended"
    DRAINING = "Draining"
    DEPLOYING = "Deploying"
    RUNNING = "Running"
    FAILED = "Failed"
    BACKING_OFF = "BackingOff"
    DELETING = "Deleting"


class ProgressingReason(StrEnum):
    """What is going on, or why nothing is."""

    INVALID_QUERY = "InvalidQuery"
    APPLYING = "Applying"
    DEPLOYING = "Deploying"
    DRAINING = "Draining"
    REPLACING = "Replacing"
    ROLLING_BACK = "RollingBack"
    BACKING_OFF = "BackingOff"
    DELETING = "Deleting"
    FAILED = "Failed"
    PAUSED = "Paused"
    SETTLED = "Settled"


class DegradedReason(StrEnum):
    """Whether something is wrong that has to be looked at; besides these, the class of a failure."""

    HEALTHY = "AsExpected"
    ROLLED_BACK = "RolledBack"


def condition(
    type: ConditionType, status: ConditionStatus, reason: str, message: str, generation: int, now: datetime
) -> Condition:
    """A condition as it is now; ``generation`` is that of the spec it was found for."""
    return Condition(
        type=type,
        status=status,
        reason=str(reason),
        message=shortened(message),
        last_transition_time=stamp(now),
        observed_generation=generation,
    )


def merged(before: Iterable[Condition], now: Iterable[Condition]) -> tuple[Condition, ...]:
    """The new conditions in the order of their types; one whose status stayed keeps the time of its last change."""
    held = {each.type: each for each in before}
    found = []
    for each in now:
        old = held.get(each.type)
        if old is not None and old.status is each.status:
            each = each.model_copy(update={"last_transition_time": old.last_transition_time})
        found.append(each)
    order = list(ConditionType)
    return tuple(sorted(found, key=lambda each: order.index(each.type)))


def condition_of(status: Status, type: ConditionType) -> Condition | None:
    """The condition of a type; None where it was never reported."""
    return next((each for each in status.conditions if each.type is type), None)


def stamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(stamp: str) -> datetime:
    """The time that Kubernetes wrote."""
    return datetime.fromisoformat(stamp)


def shortened(text: str, limit: int = 1024) -> str:
    """A message that is not longer than a status should hold."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
