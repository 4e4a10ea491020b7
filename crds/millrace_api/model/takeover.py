"""How a running driver learns of another version of its query, and reports which one it runs.

Both are entries of the plan's ConfigMap. They name the pod that they are about, so they mean nothing to a later one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from millrace_api.model.base import Model
from millrace_api.model.values import Timestamp

NEXT_VERSION_KEY = "next-version.json"
"""Entry of the ConfigMap with the version that a driver is to run; the operator writes and empties it."""

RUNNING_VERSION_KEY = "running-version.json"
"""Entry of the ConfigMap with the version that a driver runs; the driver writes it."""

POD_UID_VARIABLE = "POD_UID"
"""Environment variable of a driver with the uid of its pod; without it, the driver is replaced for every change."""

_Revision = Annotated[str, Field(max_length=64)]


class NextVersion(Model):
    """The version that the driver in a pod is to run, also when its container starts again."""

    model_config = ConfigDict(extra="ignore")

    pod: Annotated[str, Field(max_length=64)] = Field(description="The uid of the driver's pod.")
    revision: _Revision = Field(description="Revision of the version's spec.")
    configuration: Annotated[str, Field(max_length=253)] = Field(
        description="Name of the ConfigMap with its configuration."
    )


class RunningVersion(Model):
    """The version that the driver in a pod runs, and the one that it cannot take over."""

    model_config = ConfigDict(extra="ignore")

    pod: Annotated[str, Field(max_length=64)] = Field(description="The uid of the driver's pod.")
    revision: _Revision = Field(default="", description="Revision of the spec; empty for that of the pod's template.")
    time: Timestamp | None = Field(default=None, description="When the driver began with it; None if with the pod's.")
    computes_since: Timestamp | None = Field(default=None, description="When its first batch had finished.")
    refused: _Revision = Field(default="", description="Revision of the version that the driver cannot take over.")
    message: Annotated[str, Field(max_length=1024)] = Field(default="", description="Why it cannot.")
