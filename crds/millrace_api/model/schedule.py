"""Times for which a query has more executors than its load asks for: those of a calendar, by cron expressions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import Field

from millrace_api.model.base import Model, Rule, problem
from millrace_api.model.values import Count, PositiveDuration, TextValue, quoted

_FIELD = "[0-9A-Za-z*,/#-]+"


class CronExpression(TextValue):
    """The times at which something begins, by five fields: minute, hour, day of month, month, day of week."""

    __slots__ = ()
    pattern = f"{_FIELD}(?: {_FIELD}){{4}}"
    max_length = 100
    what = "a cron expression"
    hint = "write minute, hour, day of month, month and day of week, such as 0 8 * * MON-FRI for 8:00 on working days"

    def __new__(cls, text: str) -> Self:
        """Check the text; raise a ``ValueError`` that quotes it and says what to write."""
        value = super().__new__(cls, text)
        try:
            CronSim(value, datetime.now(UTC))
        except CronSimError as error:
            raise problem(
                f"{quoted(text)} is not {cls.what}: {str(error)[:1].lower()}{str(error)[1:]}", cls.hint
            ) from None
        return value

    def last(self, now: datetime) -> datetime | None:
        """Return the last of its times up to ``now``, in the time zone of ``now``; None if there is none."""
        return next(CronSim(self, now + timedelta(microseconds=1), reverse=True), None)


class TimeZone(TextValue):
    """The name of a time zone in the IANA database."""

    __slots__ = ()
    pattern = "[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*"
    max_length = 64
    what = "a time zone"
    hint = "write a name of the IANA database, such as UTC, Europe/Berlin or America/New_York"

    def __new__(cls, text: str) -> Self:
        """Check the text; raise a ``ValueError`` that quotes it and says what to write."""
        value = super().__new__(cls, text)
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):  # not found, or a folder of the database
            raise problem(f"{quoted(text)} is not {cls.what}", cls.hint) from None
        return value


class ScheduledMinimum(Model):
    """A minimum of executors for some time, again and again."""

    start: CronExpression = Field(
        description="When it begins, as a cron expression: minute, hour, day of month, month, day of week.",
        examples=["0 8 * * MON-FRI"],
    )
    duration: PositiveDuration = Field(description="For how long it holds from then on.", examples=["10h"])
    time_zone: TimeZone = Field(default=TimeZone("UTC"), description="Time zone of start, such as Europe/Berlin.")
    min_executors: Count = Field(description="Minimum number of executors meanwhile.", examples=[4])

    def holds(self, now: datetime) -> bool:
        """Return whether it holds at ``now``, which has a time zone.

        A start that a change to summer time skips is at the moment of that change.
        """
        start = self.start.last(now.astimezone(ZoneInfo(self.time_zone)))
        return start is not None and now - start.astimezone(UTC) < self.duration.timedelta


def scheduled_minimum(schedule: Sequence[ScheduledMinimum] | None, now: datetime) -> int:
    """Return the largest of the minimums that hold at ``now``; 0 if none does."""
    return max((each.min_executors for each in schedule or () if each.holds(now)), default=0)


def _within_maximum(spec: Any) -> bool:
    return all(each.min_executors <= spec.executors.max for each in spec.scaling.schedule or ())


WITHIN_MAXIMUM = Rule(
    "a minimum of scaling.schedule is more than executors.max",
    "write minExecutors of executors.max at most, or raise executors.max",
    ("scaling",),
    "!has(self.scaling.schedule) || self.scaling.schedule.all(each, each.minExecutors <= self.executors.max)",
    _within_maximum,
)
"""A rule of the whole spec."""
