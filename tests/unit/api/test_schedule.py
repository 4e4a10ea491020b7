"""Minimums of executors that hold at times."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_api.model.schedule import ScheduledMinimum, scheduled_minimum
from millrace_api.validation.loading import read_query
from unit.fields.documents import ON_CLUSTER
from unit.fields.probe import written

BERLIN = ZoneInfo("Europe/Berlin")
WORKING_DAYS = {"start": "0 8 * * MON-FRI", "duration": "10h", "timeZone": "Europe/Berlin", "minExecutors": 4}


def at(text, zone=BERLIN):
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def minimum(now, **changes):
    return scheduled_minimum([ScheduledMinimum.model_validate(WORKING_DAYS | changes)], now)


@pytest.mark.parametrize(
    ("now", "executors"),
    [
        ("2026-11-30 07:59:59.999999", 0),
        ("2026-11-30 08:00", 4),  # a Monday
        ("2026-11-30 17:59:59.999999", 4),
        ("2026-11-30 18:00", 0),
        ("2026-11-28 12:00", 0),  # a Saturday
    ],
)
def test_a_minimum_holds_from_its_start_for_its_duration(now, executors):
    assert minimum(at(now)) == executors


def test_the_time_of_a_start_is_that_of_its_zone():
    assert minimum(at("2026-11-30 07:30", ZoneInfo("UTC"))) == 4
    assert minimum(at("2026-11-30 07:30", ZoneInfo("UTC")), timeZone="UTC") == 0
    assert minimum(at("2026-07-01 06:30", ZoneInfo("UTC"))) == 4  # summer time


def test_a_duration_is_one_of_time_that_passes_and_not_of_the_clock():
    """In the night to 25 October 2026 an hour comes twice, and in that to 29 March there is none from two to three."""
    night = {"start": "0 1 * * *", "duration": "2h"}
    assert minimum(at("2026-10-25 02:30").replace(fold=0), **night) == 4
    assert minimum(at("2026-10-25 02:30").replace(fold=1), **night) == 0
    assert minimum(at("2026-03-29 03:30"), **night) == 4
    assert minimum(at("2026-03-29 04:00"), **night) == 0


def test_a_start_that_the_change_to_summer_time_skips_is_at_the_change():
    skipped = {"start": "30 2 * * *", "duration": "30m"}
    assert minimum(at("2026-03-29 01:59"), **skipped) == 0
    assert minimum(at("2026-03-29 03:29"), **skipped) == 4
    assert minimum(at("2026-03-29 03:30"), **skipped) == 0


@pytest.mark.parametrize("minute", [0, 10, 29])
def test_a_minimum_goes_on_while_the_clock_is_set_back(minute):
    """It began at half past two, and at three it was two o'clock again."""
    night = {"start": "30 2 * * *", "duration": "3h"}
    assert minimum(at(f"2026-10-25 02:{minute:02}").replace(fold=0), **night) == 0
    assert minimum(at(f"2026-10-25 02:{minute:02}").replace(fold=1), **night) == 4
    assert minimum(at("2026-10-25 02:59").replace(fold=0), **night) == 4
    assert minimum(at("2026-10-25 04:29"), **night) == 4
    assert minimum(at("2026-10-25 04:30"), **night) == 0


def test_what_holds_does_not_depend_on_what_was_asked_before():
    """The next start is remembered; a clock that is set back searches again."""
    friday = at("2026-11-27 06:00")
    forwards = [minimum(friday + timedelta(minutes=15 * each)) for each in range(480)]
    backwards = [minimum(friday + timedelta(minutes=15 * each)) for each in reversed(range(480))]
    assert backwards == forwards[::-1]
    assert forwards.count(4) == 3 * 40  # three working days of ten hours


def test_a_minimum_that_begins_again_before_it_ends_holds_without_end():
    hourly = {"start": "0 * * * *", "duration": "90m"}
    assert {minimum(at("2026-11-30 00:00") + timedelta(minutes=each), **hourly) for each in range(180)} == {4}


def test_the_largest_of_several_counts():
    wide, narrow = WORKING_DAYS, WORKING_DAYS | {"start": "0 12 * * *", "duration": "1h", "minExecutors": 6}
    schedule = [ScheduledMinimum.model_validate(each) for each in (narrow, wide)]
    hours = [scheduled_minimum(schedule, at(f"2026-11-30 {hour:02}:30")) for hour in (7, 11, 12, 13, 18)]
    assert hours == [0, 4, 6, 4, 0]
    assert scheduled_minimum(None, at("2026-11-30 12:00")) == 0


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    weekdays=st.sets(st.integers(0, 6), min_size=1),
    minutes=st.integers(1, 3 * 1440),
    now=st.datetimes(
        min_value=datetime(2026, 1, 1), max_value=datetime(2027, 1, 1), timezones=st.just(ZoneInfo("UTC"))
    ),
)
def test_a_weekly_minimum_holds_where_counting_days_says_so(minute, hour, weekdays, minutes, now):
    days = ",".join(map(str, sorted((day + 1) % 7 for day in weekdays)))  # cron counts from Sunday
    starts = [
        day.replace(hour=hour, minute=minute, second=0, microsecond=0)
        for day in (now - timedelta(days=back) for back in range(11))
        if day.weekday() in weekdays
    ]
    expected = any(timedelta(0) <= now - start < timedelta(minutes=minutes) for start in starts)
    start = f"{minute} {hour} * * {days}"
    assert minimum(now, start=start, duration=f"{minutes}m", timeZone="UTC") == (4 if expected else 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": "61 8 * * 1"}, '"61 8 * * 1" is not a cron expression: bad minute; write minute, hour,'),
        ({"start": "0 8 30 2 *"}, '"0 8 30 2 *" is not a cron expression: bad day-of-month;'),
        ({"start": "@daily"}, '"@daily" is not a cron expression; write'),
        ({"start": "0 0 */31 * 1#5"}, "is not a cron expression: no day is both that day of the month and of the week"),
        ({"start": "0 8 * *"}, "is not a cron expression; write"),
        ({"duration": "0h"}, '"0h" is not a duration longer than zero'),
        ({"timeZone": "Berlin"}, '"Berlin" is not a time zone; write a name of the IANA database'),
        ({"timeZone": "America"}, '"America" is not a time zone'),
        ({"timeZone": "../etc/passwd"}, '"../etc/passwd" is not a time zone'),
        ({"minExecutors": 0}, "minExecutors"),
        ({"minExecutors": 9}, "a minimum of scaling.schedule is more than executors.max (got scaling); write minExec"),
    ],
)
def test_what_a_schedule_cannot_be_is_refused(changes, message):
    document = written(ON_CLUSTER, "spec.scaling", {"schedule": [WORKING_DAYS | changes]})
    with pytest.raises(MillraceError) as error:
        read_query(document)
    assert message in str(error.value)
