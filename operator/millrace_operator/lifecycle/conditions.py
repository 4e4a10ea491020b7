"""Status conditions of a query: the reasons that each can have, and how they are updated over time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum

from millrace_api.model.status import Condition, ConditionStatus, ConditionType, Status


class ReadyReason(StrEnum):
    """Reason of the Ready condition."""

    INVALID_QUERY = "InvalidQuery"
    """The spec is invalid; a running driver keeps running as before."""
    NOT_ALLOWED = "NotAllowed"
    """The spec is valid, and asks for what the administrator's policy does not allow; what runs keeps running."""
    CONNECTION_NOT_FOUND = "ConnectionNotFound"
    """A Connection that the query refers to does not exist or is not valid; what runs keeps running."""
    NAME_TAKEN = "NameTaken"
    """An object that the query needs has the name of one that is not the query's, which is left alone."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """A quota of the namespace leaves no room for an object or the driver's pod of the query."""
    POD_REFUSED = "PodRefused"
    """The API server refuses the driver's pod, for example because of a LimitRange, a security level or a webhook."""
    SUSPENDED = "Suspended"
    """``spec.suspend`` is true, and the driver has ended."""
    DRAINING = "Draining"
    """The driver ends after its running batch."""
    DEPLOYING = "Deploying"
    """The driver is not ready yet; the message says what it waits for."""
    DRIVER_LOST = "DriverLost"
    """The driver's pod was deleted while it ran, or lost with its node; another one goes on from the checkpoint."""
    QUEUED = "Queued"
    """The driver, or an executor without which the first batch does not run, waits in a batch scheduler's queue."""
    FIRST_BATCH = "FirstBatch"
    """The driver runs its first batch on the executors that the plan wants."""
    RUNNING = "Running"
    """The driver is ready: it has finished a batch, or found no record, on the executors that the query needs."""
    FAILED = "Failed"
    """The driver failed too often in a row and is not started again."""
    BACKING_OFF = "BackingOff"
    """The driver failed, and is started again after a pause."""
    WAITING = "WaitingForUpstream"
    """What a source reads does not exist yet, and queries before this one, which may write it, do not run."""
    DELETING = "Deleting"
    """The query is deleted once its driver has ended."""


class ProgressingReason(StrEnum):
    """Reason of the Progressing condition."""

    INVALID_QUERY = "InvalidQuery"
    """Nothing is in progress: the spec is invalid and has to be corrected."""
    NOT_ALLOWED = "NotAllowed"
    """Nothing is in progress: the administrator's policy does not allow the spec."""
    CONNECTION_NOT_FOUND = "ConnectionNotFound"
    """Nothing is in progress: a Connection that the query refers to has to be created or corrected."""
    WAITING_FOR_TURN = "WaitingForTurn"
    """A Connection has changed; the drivers of other queries that name it are replaced before this one's."""
    ROLLOUT_HELD = "RolloutHeld"
    """A Connection has changed, and the driver of another query that followed it was rolled back or is not ready."""
    APPLYING = "Applying"
    """The objects that the message names are being applied."""
    DEPLOYING = "Deploying"
    """The driver is starting."""
    DRAINING = "Draining"
    """The driver ends after its running batch, because ``spec.suspend`` is true."""
    TAKING_OVER = "TakingOver"
    """The changed spec takes over in the running driver, between two batches."""
    REPLACING = "Replacing"
    """The driver ends after its running batch, and another one continues from its checkpoint."""
    COMPARING = "Comparing"
    """The changed spec is compared with the one that runs, and is followed if their results are equal."""
    ROLLING_BACK = "RollingBack"
    """A spec did not become healthy, and the last healthy one replaces it."""
    BACKING_OFF = "BackingOff"
    """The operator waits before it tries again what has failed; the message says until when."""
    DELETING = "Deleting"
    """The query waits for its driver to end."""
    FAILED = "Failed"
    """Nothing is in progress: the driver was given up. A change of the spec starts it again."""
    PAUSED = "Paused"
    """Nothing is in progress: the annotation ``millrace.io/paused`` is set."""
    SETTLED = "Settled"
    """Nothing is in progress: the query matches its spec."""


class DegradedReason(StrEnum):
    """Reason of the Degraded condition; the class of a failure is a possible reason too."""

    HEALTHY = "AsExpected"
    """Nothing is wrong."""
    ROLLED_BACK = "RolledBack"
    """A spec did not become healthy, and the last healthy one runs instead."""
    UPGRADE_REJECTED = "UpgradeRejected"
    """A changed spec is not followed, since its comparison with the last healthy one, which runs, was not passed."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """Pods are missing, and a quota of the namespace leaves no room for them."""
    POD_REFUSED = "PodRefused"
    """Pods are missing, and the API server refuses them for another reason, which the message has in its words."""
    EXECUTORS_FAILING = "ExecutorsFailing"
    """More than two executors of the driver's run failed within ten minutes; Spark replaces them forever."""
    MEMORY_FILLING = "MemoryFilling"
    """Memory of driver or executors will almost certainly run out soon, and is not raised; the message has a field."""
    EXECUTORS_PENDING = "ExecutorsPending"
    """Fewer executors run than the plan wants, one pod for more than two minutes; the message has what it waits for."""
    EXECUTORS_QUEUED = "ExecutorsQueued"
    """As ``ExecutorsPending``, and the pod waits in the queue of the batch scheduler that ``spec.scheduling`` names."""
    REPLICA_FAILED = "ReplicaFailed"
    """A partitioner replica in a pod of its own failed at least twice in a row, with an error of no other class."""
    REPLICAS_NOT_READY = "ReplicasNotReady"
    """The driver runs, and partitioner replicas in pods of their own have not been ready for five minutes."""


def condition(
    type: ConditionType, holds: bool | None, reason: str, message: str, generation: int, now: datetime
) -> Condition:
    """Build a condition as of now; ``generation`` is the generation of the spec it was observed for.

    ``holds`` is None if that is unknown.
    """
    known = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(
        type=type,
        status=ConditionStatus.UNKNOWN if holds is None else known,
        reason=str(reason),
        message=shortened(message),
        last_transition_time=format_time(now),
        observed_generation=generation,
    )


def merged(before: Iterable[Condition], current: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return ``before`` updated with ``current``, ordered by type; an unchanged status keeps its transition time.

    A wait for quota is another trouble than what follows it, so that does not count from when the wait began.
    """
    result = {each.type: each for each in before}
    for each in current:
        old = result.get(each.type)
        waited = old is not None and old.reason == DegradedReason.EXECUTORS_QUEUED != each.reason
        if old is not None and old.status is each.status and not waited:
            each = each.model_copy(update={"last_transition_time": old.last_transition_time})
        result[each.type] = each
    return tuple(result[type] for type in ConditionType if type in result)


def condition_of(status: Status, type: ConditionType) -> Condition | None:
    """Return the condition of a type, or None if it was never reported."""
    return next((each for each in status.conditions if each.type is type), None)


def format_time(time: datetime) -> str:
    """Format a time as Kubernetes does."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse a time that Kubernetes wrote."""
    return datetime.fromisoformat(text)


def shortened(text: str, limit: int = 1024) -> str:
    """Truncate a message to ``limit`` characters, a reasonable length for a status."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
