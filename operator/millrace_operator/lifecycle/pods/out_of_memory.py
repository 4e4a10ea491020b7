"""Memory that ran out, and how much more the next driver and its executors get. Pure functions.

A driver's memory is raised after its first failure, up to ``spec.driver.maxMemory``. Spark replaces an executor by
itself, so that of executors is raised once several have failed. The heap of executors is a setting of the driver's
session, and so either raise replaces the driver, which goes on from its checkpoint.

What ran out is raised. Where the heap was full, it is the heap. Where the container exceeded its limit, the heap had
room, and a larger one might take all that is added: then the heap stays, and there is more for Python, state stores and
buffers.

Memory of a driver or its executors that is about to run out, by what the driver reports (``memory_forecast``), is
raised before it does.

A raise is written to the status before the driver is drained, and the pod's annotation says what it has. So the same
failure never raises it twice, and an operator that has just started goes on where the last one was.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import NamedTuple

from millrace_api.model.deployment import SparkPod
from millrace_api.model.status import FailureClass, MemoryShortage, MemorySizes, MemoryStatus, RaisedMemory
from millrace_api.model.streamquery import DRIVER, EXECUTOR, Annotation, Spec
from millrace_api.model.values import ByteSize

from ...resources.memory import AS_SPECIFIED, mebibytes, raises_text
from ..conditions import format_time, parse_time, shortened
from ..observed_query import ObservedQuery
from .driver_health import exceeded_limit, failed_runs, healthy_from
from .driver_runs import FailedRuns
from .executor_failures import SETTLED_AFTER, TOLERATED, WINDOW, FailedExecutor
from .memory_forecast import expected_shortage

FACTOR = 1.5
"""Memory after a raise, as a multiple of what it was: each one replaces the driver, so there should be few."""

LEAST = 256
"""MiB that are added at least."""

PAUSE = timedelta(hours=6)
"""Time after a raise of a driver's memory before it is raised again without having run out."""

_PARTS = {DRIVER: "driver", EXECUTOR: "executors"}
"""Parts of spec and status with the memory of a role."""


class ExhaustedMemory(NamedTuple):
    """Memory that ran out: of which role, what of it, why in a sentence, and whether it is to be raised now.

    With ``predicted`` it has not yet, and will.
    """

    role: str
    what: MemoryShortage
    message: str
    is_due: bool
    predicted: bool = False


def shortage_of(observed: ObservedQuery, failed: FailedRuns, now: datetime) -> ExhaustedMemory | None:
    """Return the memory that ran out in the driver's pod; None if none did, or the driver has been healthy since.

    A driver that reports a full heap may quote a task. If executors have ended with one, it was theirs. A driver that
    was given up has no pod, and what ran out counts as the heap.
    """
    executors = _executors(observed, now)
    are_many = sum(now >= parse_time(each.attempt.time) + SETTLED_AFTER for each in executors) > TOLERATED
    last, pod, is_shown = failed.last, observed.driver, False
    if last is not None and last.reason == FailureClass.OUT_OF_MEMORY:
        is_shown = failed.given_up if pod is None else last.run in {each.run for each in failed_runs(pod)}
        if pod is not None and exceeded_limit(pod, last.run):
            return ExhaustedMemory(DRIVER, MemoryShortage.LIMIT, last.message, is_shown)
        if not executors:
            return ExhaustedMemory(DRIVER, MemoryShortage.HEAP, last.message, is_shown)
    elif not are_many:
        return None
    found = executors[-1]
    what = MemoryShortage.LIMIT if found.over_limit else MemoryShortage.HEAP
    who = "an executor" if len(executors) == 1 else f"{len(executors)} executors"
    return ExhaustedMemory(EXECUTOR, what, f"{who} failed: {found.attempt.message}", is_shown or are_many)


def shortages_ahead(observed: ObservedQuery, memory: MemoryStatus, now: datetime) -> list[ExhaustedMemory]:
    """Return the memory that a healthy driver or its executors will run out of soon, as far as the driver reports.

    It is not due for some hours after the last raise, whose effect the trend of a new pod does not show at once. Of the
    executors, the one that is nearest to its limit counts for all: each of them may do the work that fills it.
    """
    healthy, report = healthy_from(observed.driver), observed.driver_memory
    if healthy is None or now < healthy:
        return []
    reported = [(DRIVER, report.series, "the driver's")]
    if report.executor is not None:
        reported.append((EXECUTOR, report.executor.series, f"executor {report.executor.executor}'s"))
    found = []
    for role, series, whose in reported:
        if (shortage := expected_shortage(series, whose)) is not None:
            last = memory.by_part.get(_PARTS[role])
            is_due = last is None or now >= parse_time(last.time) + PAUSE
            found.append(ExhaustedMemory(role, shortage.what, shortage.message, is_due, predicted=True))
    return found


def memory_in_force(observed: ObservedQuery, spec: Spec) -> MemoryStatus:
    """Return the memory that was raised, as far as it holds for this spec and its bounds."""
    raised = observed.status.memory or AS_SPECIFIED
    return MemoryStatus(driver=_within(raised.driver, spec.driver), executors=_within(raised.executors, spec.executors))


def next_memory(
    observed: ObservedQuery, spec: Spec, memory: MemoryStatus, failed: FailedRuns, now: datetime
) -> MemoryStatus:
    """Return the memory of the next driver and its executors: ``memory``, or more if it ran out or is about to.

    A pod that does not have what is in force is about to be replaced, so that it shows nothing new. A driver that was
    given up gets more once the bound allows it.
    """
    pod = observed.driver
    if not has_memory(observed, memory) or (pod is not None and "deletionTimestamp" in pod["metadata"]):
        return memory
    exhausted = shortage_of(observed, failed, now)
    for found in shortages_ahead(observed, memory, now) if exhausted is None else [exhausted]:
        part = _PARTS[found.role]
        more = _raised(_of_role(spec, found.role), getattr(memory, part), found, now) if found.is_due else None
        if more is not None:
            return memory.model_copy(update={part: more})
    return memory


def has_memory(observed: ObservedQuery, memory: MemoryStatus) -> bool:
    """Return whether the driver's pod was made with this memory; True without a pod."""
    return observed.raised_memory in (None, raises_text(memory))


def remedy(shortage: ExhaustedMemory, spec: Spec, memory: MemoryStatus, *, paused: bool) -> str:
    """Return why memory that ran out, or is about to, is not raised, or not yet, and what to write.

    ``memory`` is that in force.
    """
    part = _PARTS[shortage.role]
    pod, field, raised = _of_role(spec, shortage.role), f"spec.{part}", memory.by_part.get(part)
    if pod.max_memory is None:
        return f"with {field}.maxMemory, the operator raises it up to that"
    if shortage.role == DRIVER and _limit_in_template(pod):
        return f"it is not raised, since {field}.podTemplate sets the limit: leave that out"
    had = mebibytes(pod.memory if raised is None else raised.memory)
    if raised is not None and _has_no_room(min(_larger(had), mebibytes(pod.max_memory)), raised):
        return f"it is not raised, since there was no room for {raised.no_room_for}: make room, and set {field}.memory"
    worth = LEAST if shortage.predicted else 1
    if had + worth <= mebibytes(pod.max_memory):
        again = f"it runs out, or {PAUSE // timedelta(hours=1)} hours after the last raise"
        when = again if shortage.predicted else "it runs out again"
        when = f"the annotation {Annotation.PAUSED} is gone" if paused else when
        return f"it is raised, up to {field}.maxMemory, {pod.max_memory}, once {when}"
    return f"it is not raised beyond {field}.maxMemory, {pod.max_memory}: raise that"


def why_replaced(memory: MemoryStatus) -> str:
    """Return why a driver is replaced that does not have this memory."""
    newest = max(memory.by_part.values(), key=lambda each: each.time, default=None)
    why = "memory is as in the spec again" if newest is None else newest.message
    return f"{why}: the driver ends after its running batch, and another continues from the checkpoint"


def _executors(observed: ObservedQuery, now: datetime) -> list[FailedExecutor]:
    """Return the executors of the driver's pod that ran out of memory lately; it has had the same memory all along."""
    uid = None if observed.driver is None else observed.driver["metadata"]["uid"]
    return [
        each
        for each in observed.failed_executors
        if each.driver == uid
        and each.attempt.reason == FailureClass.OUT_OF_MEMORY
        and now < parse_time(each.attempt.time) + WINDOW
    ]


def _of_role(spec: Spec, role: str) -> SparkPod:
    return spec.driver if role == DRIVER else spec.executors


def _within(raised: RaisedMemory | None, pod: SparkPod) -> RaisedMemory | None:
    """Return what was raised within the bound of the spec; None if that has other memory, or no bound any more."""
    if raised is None or pod.max_memory is None or raised.from_.bytes != pod.memory.bytes:
        return None
    memory = min(mebibytes(raised.memory), mebibytes(pod.max_memory))
    if memory <= mebibytes(pod.memory) and raised.no_room_for is None:
        return None
    heap = min(max(mebibytes(raised.heap), mebibytes(pod.memory)), memory)
    if (memory, heap) == (mebibytes(raised.memory), mebibytes(raised.heap)):
        return raised
    sizes = {"memory": _size(memory), "heap": _size(heap)}
    is_larger = raised.before is not None and memory > mebibytes(raised.before.memory)
    undo = {} if is_larger else {"before": None, "waiting_since": None}
    return raised.model_copy(update=sizes | undo | {"message": f"maxMemory is {pod.max_memory}"})


def _larger(had: int) -> int:
    """Return the MiB to which memory is raised, as far as that is allowed."""
    return max(math.ceil(had * FACTOR), had + LEAST)


def _has_no_room(more: int, before: RaisedMemory) -> bool:
    """Return whether there was no room for so many MiB."""
    return before.no_room_for is not None and more >= mebibytes(before.no_room_for)


def _raised(pod: SparkPod, before: RaisedMemory | None, found: ExhaustedMemory, now: datetime) -> RaisedMemory | None:
    """Return more memory than before; None if there may be none."""
    if pod.max_memory is None or (found.role == DRIVER and _limit_in_template(pod)):
        return None
    memory, heap = (pod.memory, pod.memory) if before is None else (before.memory, before.heap)
    had, most = mebibytes(memory), mebibytes(pod.max_memory)
    more = min(_larger(had), most)
    is_recent = before is None or now < parse_time(before.time) + PAUSE
    if before is not None and _has_no_room(more, before) and (found.predicted or is_recent):
        return None
    if more <= had or (found.predicted and more < had + LEAST):  # which a restart of a healthy driver is not worth
        return None
    full = found.what is MemoryShortage.HEAP
    part = _PARTS[found.role]
    place = "of the heap" if full else "beside the heap"
    message = f"{shortened(found.message, 256)}; memory of the {part} raised from {memory} to {_size(more)}, {place}"
    return RaisedMemory(
        from_=pod.memory,
        memory=_size(more),
        heap=_size(mebibytes(heap) + more - had) if full else heap,
        raises=1 if before is None else before.raises + 1,
        time=format_time(now),
        reason=found.what,
        predicted=found.predicted,
        before=MemorySizes(memory=memory, heap=heap) if found.predicted else None,
        no_room_for=None if before is None else before.no_room_for,
        message=message,
    )


def _limit_in_template(pod: SparkPod) -> bool:
    """Return whether the driver's pod template sets the memory limit of its container, which then counts."""
    containers = ((pod.pod_template or {}).get("spec") or {}).get("containers") or ()
    mine = (each for each in containers if isinstance(each, dict) and each.get("name") == DRIVER)
    return any("memory" in ((each.get("resources") or {}).get("limits") or {}) for each in mine)


def _size(amount: int) -> ByteSize:
    return ByteSize(f"{amount}m")
