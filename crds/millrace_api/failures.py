"""Classes of failures, by which a job reports why it failed and the operator chooses its response."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from millrace_api.model.base import Model


class FailureClass(StrEnum):
    """Why a run of a driver failed. How patient the operator is depends on the class; see its ``failures``."""

    IMAGE = "ImageUnavailable"
    """The container image cannot be pulled."""
    SCHEDULING = "Unschedulable"
    """No node has room for the driver, or fits it."""
    CONFIG = "InvalidConfiguration"
    """The spec asks for something that does not exist, such as a Secret or a column."""
    USER_CODE = "UserCodeFailed"
    """The query's own Python code raised an error."""
    SOURCE = "SourceFailed"
    """A source cannot be read."""
    SINK = "SinkFailed"
    """The sink cannot be written."""
    STATE = "StateUnusable"
    """The checkpoint cannot be read, written, or resumed from."""
    OUT_OF_MEMORY = "OutOfMemory"
    """The driver needed more memory than it has."""
    LOST_NODE = "NodeLost"
    """The driver's node is gone, or has evicted it."""
    HUNG = "Hung"
    """The driver no longer answered, and was killed."""
    OTHER = "DriverFailed"
    """Anything else."""


REPORT_VARIABLE = "MILLRACE_FAILURE_REPORT"
"""Environment variable that names the file for the failure report of a run; in a pod, the termination message."""

LONGEST = 4096
"""Maximum length of a report in bytes: as much as Kubernetes keeps of a termination message."""


class FailureReport(Model):
    """Why a run failed, in its own words."""

    failure: FailureClass = Field(description="Class of the failure.")
    message: Annotated[str, Field(max_length=4096)] = Field(description="The error, as the command line says it.")
