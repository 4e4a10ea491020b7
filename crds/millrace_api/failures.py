"""Classes of failures: what the job says of its own end, and what the operator makes of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from millrace_api.base import Model


class FailureClass(StrEnum):
    """What a run of a driver failed for; each class has its own patience, see the operator's ``failures``."""

    IMAGE = "ImageUnavailable"
    SCHEDULING = "Unschedulable"
    CONFIG = "InvalidConfiguration"
    USER_CODE = "UserCodeFailed"
    SOURCE = "SourceFailed"
    SINK = "SinkFailed"
    STATE = "StateUnusable"
    OUT_OF_MEMORY = "OutOfMemory"
    LOST_NODE = "NodeLost"
    HUNG = "Hung"
    OTHER = "DriverFailed"


REPORT_VARIABLE = "MILLRACE_FAILURE_REPORT"
"""Names the file into which a run writes why it failed; in a pod, that of the termination message."""

LONGEST = 3072
"""Characters of a report's message: Kubernetes keeps 4096 bytes of a termination message."""


class FailureReport(Model):
    """Why a run failed, in its own words."""

    failure: FailureClass = Field(description="Class of the failure.")
    message: Annotated[str, Field(max_length=4096)] = Field(description="The error, as the command line says it.")
