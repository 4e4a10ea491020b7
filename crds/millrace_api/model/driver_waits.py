"""What a driver waits for, such as a broker that does not answer, or executors: an entry of the plan's ConfigMap.

It names the pod that it is about, so it means nothing to a later one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from millrace_api.model.base import Model
from millrace_api.model.values import Timestamp

WAITS_KEY = "waits.json"
"""Entry of the ConfigMap with what the driver waits for; the driver writes and removes it."""

MOST_WAITS = 3
"""Calls that are reported, the longest ones."""

MAX_WAIT_CHARACTERS = 400
"""Characters of the sentence on a call that are kept."""


class DriverWait(Model):
    """A call that has lasted for long."""

    model_config = ConfigDict(extra="ignore")

    time: Timestamp = Field(description="When the call began.")
    text: Annotated[str, Field(max_length=MAX_WAIT_CHARACTERS)] = Field(description="What the driver waits for.")


class DriverWaits(Model):
    """What the driver of a pod waits for."""

    model_config = ConfigDict(extra="ignore")

    pod: Annotated[str, Field(max_length=64)] = Field(description="The uid of the driver's pod.")
    waits: Annotated[tuple[DriverWait, ...], Field(max_length=MOST_WAITS)] = Field(
        default=(), description="The calls that last, the longest first."
    )
    executors: bool = Field(
        default=False, description="Whether tasks have had no executor under the newest plan, which has none."
    )
