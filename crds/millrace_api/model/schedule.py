"""Times at which a query has more executors than its load asks for: those of a calendar, by cron expressions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Self
from zoneinfo import ZoneInfo

from pydantic import Field

from millrace_api.model.base import Model, Rule, problem
from millrace_api.model.values import Count, PositiveDuration, TextValue, quoted

_FIELD = "[0-9A-Za-z*,/#-]+"

_NEVER = datetime.max.replace(tzinfo=UTC)
"""The next start of an expression that has none."""

_KEPT = 4096
"""Expressions whose checks and next starts are remembered."""


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
        if wrong := _wrong_with(text):
            raise problem(f"{quoted(text)} is not {cls.what}: {wrong}", cls.hint)
        return value


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
    """A minimum number of executors during recurring times."""

    start: CronExpression = Field(
        description="When such a time begins, as a cron expression: minute, hour, day of month, month, day of week.",
        examples=["0 8 * * MON-FRI"],
    )
    duration: PositiveDuration = Field(description="How long it lasts.", examples=["10h"])
    time_zone: TimeZone = Field(default=TimeZone("UTC"), description="Time zone of start, such as Europe/Berlin.")
    min_executors: Count = Field(description="Minimum number of executors during that time.", examples=[4])

    def holds(self, now: datetime) -> bool:
        """Return whether it holds at ``now``, which has a time zone: from a start on, for the duration."""
        began_after = now.astimezone(UTC) - self.duration.timedelta
        return _next_start(self.start, self.time_zone, self.duration).first_after(began_after) <= now


def scheduled_minimum(schedule: Sequence[ScheduledMinimum] | None, now: datetime) -> int:
    """Return the largest of the minimums that hold at ``now``; 0 if none does."""
    return max((each.min_executors for each in schedule or () if each.holds(now)), default=0)


class _NextStart:
    """The first start after a time that goes on; it is searched for again once the time has passed it.

    A search may take tens of milliseconds, as for a fifth Monday in February, and is needed every few seconds.
    """

    def __init__(self, expression: str, zone: str) -> None:
        self._expression, self._zone = expression, ZoneInfo(zone)
        self._known = (_NEVER, _NEVER)  # a time, and the first start after it

    def first_after(self, time: datetime) -> datetime:
        """Return the first start after ``time``, in UTC; ``_NEVER`` if there is none within 50 years."""
        since, found = self._known
        if not since <= time < found:
            from cronsim import CronSim  # as below

            local = time.astimezone(self._zone).replace(fold=0)  # of an hour that comes twice, the first one
            starts = (each.astimezone(UTC) for each in CronSim(self._expression, local))
            found = next((each for each in starts if each > time), _NEVER)
            self._known = time, found
        return found


@lru_cache(_KEPT)
def _next_start(expression: str, zone: str, duration: str) -> _NextStart:
    """Return what entries with this duration share: they all search from the same time on."""
    return _NextStart(expression, zone)


@lru_cache(_KEPT)
def _wrong_with(expression: str) -> str:
    """Return what is wrong with a cron expression; empty if nothing is."""
    from cronsim import CronSim, CronSimError  # a driver, whose document has no schedule, starts without it

    try:
        first = next(CronSim(expression, datetime.now(UTC)), None)
    except CronSimError as error:
        return f"{str(error)[:1].lower()}{str(error)[1:]}"
    return "no day is both that day of the month and of the week" if first is None else ""


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
