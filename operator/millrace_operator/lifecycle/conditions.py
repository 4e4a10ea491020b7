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


class ProgressingReason(StrEnum):
    """What is going on, or why nothing is."""

    INVALID_QUERY = "InvalidQuery"
    APPLYING = "Applying"
    DEPLOYING = "Deploying"
    DRAINING = "Draining"
    SETTLED = "Settled"


def condition(
    type: ConditionType, status: ConditionStatus, reason: StrEnum, message: str, generation: int, now: datetime
) -> Condition:
    """A condition as it is now; ``generation`` is that of the spec it was found for."""
    return Condition(
        type=type,
        status=status,
        reason=reason.value,
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


def ready_of(status: Status) -> Condition | None:
    """The condition Ready; None where it was never reported."""
    return next((each for each in status.conditions if each.type is ConditionType.READY), None)


def stamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shortened(text: str, limit: int = 1024) -> str:
    """A message that is not longer than a status should hold."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
