"""Batch scheduler of a query's pods: whom they wait for, in which queue, and with what priority."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from millrace_api.model.base import Model
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.values import text

QueueName = Annotated[
    str,
    *text(
        "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
        63,
        "the name of a queue",
        "write letters, digits, '.', '_' and '-', such as team-a or root.team-a",
    ),
]

PriorityClassName = Annotated[
    str,
    *text(
        "[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        253,
        "the name of a PriorityClass",
        "write lower-case letters, digits, '-' and '.'",
    ),
]


class BatchScheduler(StrEnum):
    """What decides when the pods of a query may start."""

    KUEUE = "Kueue"
    VOLCANO = "Volcano"
    YUNIKORN = "YuniKorn"


class SchedulingSpec(Model):
    """Queue in which the pods of a query wait for their turn; docs/schedulers.md says what each scheduler is sent."""

    scheduler: BatchScheduler = Field(
        description="Batch scheduler of the cluster that all pods of the query are announced to."
    )
    queue: Annotated[QueueName, External(ExternalKind.QUEUES)] = Field(
        description="Queue of that scheduler: a LocalQueue of the query's namespace for Kueue, a Queue for Volcano, "
        "the full name of a queue such as root.team-a for YuniKorn.",
        examples=["team-a"],
    )
    priority_class: PriorityClassName | None = Field(
        default=None,
        description="PriorityClass of all pods, by which the scheduler orders the queue and preempts; default: that "
        "of the pod templates, or of the cluster.",
        examples=["streaming"],
    )
