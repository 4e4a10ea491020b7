"""How a changed query takes the place of the one that runs, and what a comparison of both has found."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.values import Count, Flag, PositiveDuration, Text

_LONGEST_SECONDS = 86_400


class UpgradeMode(StrEnum):
    """What happens before a driver is replaced for a changed spec."""

    REPLACE = "Replace"
    """Nothing: the driver ends after its running batch, and another one goes on with the changed spec."""
    SHADOW = "Shadow"
    """Both specs are run on the same records beside the driver, which is replaced if their results are equal."""


class UpgradeSpec(Model):
    """How a changed query takes the place of the one that runs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "duration is longer than a day",
            "write at most 24h",
            ("duration",),
            None,
            lambda spec: spec.duration.seconds <= _LONGEST_SECONDS,
        ),
    )

    mode: UpgradeMode = Field(
        default=UpgradeMode.REPLACE,
        description="Replace: at once. Shadow: when both versions have been run on the same records, with equal "
        "results and the new one fast enough; until then, and otherwise, the old one runs.",
    )
    records: Count = Field(default=1_000_000, description="Records to compare at most, in whole batches.")
    duration: PositiveDuration = Field(
        default=PositiveDuration("10m"),
        description="Time from whose records both versions are compared, and the longest time that the old version "
        "may take for them.",
    )
    slower_than: Annotated[float, Field(ge=0, le=100)] = Field(
        default=1.5, description="How many times as long as the old version the new one may take."
    )
    tolerance: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Relative difference of two floats that does not count; default: a billionth."
    )
    ignore: tuple[Annotated[Text, Field(max_length=256)], ...] = Field(
        default=(), max_length=64, description="Columns of the results that may differ."
    )
    expect_changes: Flag = Field(
        default=False,
        description="The change means to change results: what differs is reported, and the new version follows.",
    )


class UpgradeVerdict(StrEnum):
    """What a comparison of two versions has come to."""

    EQUAL = "Equal"
    """The same results, and not surely slower than it may be."""
    DIFFERENT = "Different"
    """Other rows, values or types, or a column or an output less."""
    SLOWER = "Slower"
    """The same records take longer than they may."""
    UNSTEADY = "Unsteady"
    """Two runs of the old version differ, so its results say nothing about those of the new one."""
    NOT_COMPARED = "NotCompared"
    """The versions cannot be compared, or the comparison has failed."""


class UpgradeReport(Model):
    """What a comparison reports to the operator, as the termination message of its pod: at most 4,096 bytes of JSON."""

    verdict: UpgradeVerdict = Field(description="What it has come to.")
    message: Annotated[str, Field(max_length=2048)] = Field(description="Why, in sentences.")
