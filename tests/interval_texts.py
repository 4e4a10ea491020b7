"""Texts of intervals, right and wrong ones, and lengths of windows, for the parser without Spark and for Spark itself."""

from __future__ import annotations

import random

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND

WINDOWS = {
    "'1 week'": (7 * DAY, 7 * DAY, 0),
    "'1 hour 30 minutes'": (90 * MINUTE, 90 * MINUTE, 0),
    "'1 DAY'": (DAY, DAY, 0),
    "'interval 1 hour'": (HOUR, HOUR, 0),
    "'Interval\t2 Hours -30 minutes'": (90 * MINUTE, 90 * MINUTE, 0),
    "'+ 1 hour '": (HOUR, HOUR, 0),
    "'.5 second'": (SECOND // 2, SECOND // 2, 0),
    "'1.0000019 seconds'": (SECOND + 1, SECOND + 1, 0),
    "'100 microseconds'": (100, 100, 0),
    "'5 milliseconds 7 microseconds'": (5007, 5007, 0),
    "'1 month -1 month 1 hour'": (HOUR, HOUR, 0),
    "'1 hour' ' 30 minutes'": (90 * MINUTE, 90 * MINUTE, 0),
    '"1 hour"': (HOUR, HOUR, 0),
    "r'1 hour'": (HOUR, HOUR, 0),
    "('1 hour')": (HOUR, HOUR, 0),
    "3600000000": (HOUR, HOUR, 0),
    "3600000000L, 60000000": (HOUR, MINUTE, 0),
    "'1 hour', '30 minutes'": (HOUR, 30 * MINUTE, 0),
    "'1 hour', '30 minutes', '-5 minutes'": (HOUR, 30 * MINUTE, -5 * MINUTE),
    "'1 hour', '30 minutes', -5": (HOUR, 30 * MINUTE, -5),
    "'1 week', '1 day', '6 hours'": (7 * DAY, DAY, 6 * HOUR),
}
"""Lengths of ``window`` that Spark accepts, with size, slide and start in microseconds."""

REFUSED_WINDOWS = {
    "'1 dya'": '"1 dya" is not a length of time',
    "'1h'": '"1h" is not a length of time',
    "'PT1H'": '"PT1H" is not a length of time',
    "'10'": '"10" is not a length of time',
    "''": '"" is not a length of time',
    "'interval'": '"interval" is not a length of time',
    "'1 hour 30'": '"1 hour 30" is not a length of time',
    "'1 nanosecond'": '"1 nanosecond" is not a length of time',
    "'1 hour' '30 minutes'": '"1 hour30 minutes" is not a length of time',
    "'1.5 hours'": '"1.5 hours" has a fraction with the unit hour',
    "'1 month'": '"1 month" has months, which differ in length',
    "'3000000000 days'": '"3000000000 days" is too long',
    "'106751992 days'": "the length '106751992 days' is too long",
    "'0 seconds'": "the length '0 seconds' is not longer than zero",
    "'-1 hour'": "the length '-1 hour' is not longer than zero",
    "'1 hour', '0 minutes'": "the length '0 minutes' is not longer than zero",
    "'1 hour', '2 hours'": "the slide '2 hours' is longer than the window of '1 hour'",
    "'1 hour', '30 minutes', '30 minutes'": "the start '30 minutes' is not shorter than",
    "'1 hour', '30 minutes', '-1 day'": "the start '-1 day' is not shorter than",
    "INTERVAL 1 HOUR": "the length INTERVAL '1' HOUR is not a text in quotes",
    "INTERVAL '1 hour 30 minutes'": "the length INTERVAL '1 hour 30 minutes' is not a text in quotes",
    "n": "the length n is not a text in quotes",
    "60 * 1000000": "the length 60 * 1000000 is not a text in quotes",
    "1.5": "the length 1.5 is not a text in quotes",
    "'1 ' || 'hour'": "the length '1 ' || 'hour' is not a text in quotes",
    "concat('1 ', 'hour')": "the length CONCAT('1 ', 'hour') is not a text in quotes",
    "CAST(60000000 AS BIGINT)": "the length CAST(60000000 AS BIGINT) is not a text in quotes",
}
"""Lengths that Spark refuses, with what is said of them."""

INTERVALS = {
    "INTERVAL 1 HOUR": HOUR,
    "INTERVAL '1' HOUR": HOUR,
    "INTERVAL '1 hour'": HOUR,
    "INTERVAL '1 hour 30 minutes'": 90 * MINUTE,
    "INTERVAL 'interval 1 hour'": HOUR,
    "INTERVAL '1 days -1 hours'": 23 * HOUR,
    "INTERVAL '.5 seconds'": SECOND // 2,
    "INTERVAL '- 5 seconds'": -5 * SECOND,
    "INTERVAL 1 HOUR 30 MINUTES": 90 * MINUTE,
    "INTERVAL '1' DAY '2' HOUR": 26 * HOUR,
    "INTERVAL 1 DAY -30 MINUTES": DAY - 30 * MINUTE,
    "INTERVAL 1 DAY - 30 MINUTES": DAY - 30 * MINUTE,
    "INTERVAL 1 DAY + 30 MINUTES": DAY + 30 * MINUTE,
    "INTERVAL -1 DAY 2 HOURS - 3 SECONDS 4 SECONDS": 2 * HOUR - DAY + SECOND,
    "INTERVAL 1 DAY '-30' MINUTES": DAY - 30 * MINUTE,
    "INTERVAL 1 WEEK": 7 * DAY,
    "INTERVAL 1.5 SECONDS": 3 * SECOND // 2,
    "INTERVAL 100 MICROSECONDS": 100,
    "INTERVAL -5 SECONDS": -5 * SECOND,
    "INTERVAL -'5' SECONDS": -5 * SECOND,
    "INTERVAL '1:30' HOUR TO MINUTE": 90 * MINUTE,
    "INTERVAL '-1:30' HOUR TO MINUTE": -90 * MINUTE,
    "INTERVAL '1 02' DAY TO HOUR": 26 * HOUR,
    "INTERVAL '1 02:03' DAY TO MINUTE": 26 * HOUR + 3 * MINUTE,
    "INTERVAL '1 12:00:00.5' DAY TO SECOND": 36 * HOUR + SECOND // 2,
    "INTERVAL '1:00:01' HOUR TO SECOND": HOUR + SECOND,
    "INTERVAL '2:03.5' MINUTE TO SECOND": 2 * MINUTE + 7 * SECOND // 2,
    "(INTERVAL 5 HOURS - INTERVAL 1 HOUR)": 4 * HOUR,
    "(INTERVAL 5 HOURS + INTERVAL '1' DAY)": 29 * HOUR,
    "INTERVAL 5 SECONDS * 2": 10 * SECOND,
    "2 * INTERVAL 5 SECONDS": 10 * SECOND,
    "(- INTERVAL 5 SECONDS)": -5 * SECOND,
    "CAST('1 hour 1 second' AS INTERVAL)": HOUR + SECOND,
}
"""Constant intervals, with their length in microseconds."""

REFUSED_INTERVALS = (
    "INTERVAL 1 H", "INTERVAL '1' d", "INTERVAL '1 h'", "INTERVAL '1' DAYZ", "INTERVAL 1 DAY 2 MINS", "INTERVAL 1 QUARTER",
    "INTERVAL 1 MS",
)  # fmt: skip
"""Intervals with a unit that Spark does not know, and sqlglot does."""

_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "year")
_ODD_UNITS = ("nanosecond", "quarter", "min", "sec", "h", "s", "dya", "day_", "minutess", "mönth", "")
_NUMBERS = ("0", "1", "07", "30", "1.5", ".25", "1.", ".", "1.123456789", "0.1234567891", "2147483647", "2147483648",
            "106751991", "9223372036854", "9223372036854775807", "9223372036854775808", "1e3", "1_0", "٣")  # fmt: skip


def random_text(draw: random.Random) -> str:
    """Return a text that is often an interval of Spark, and often nearly one."""

    def space() -> str:
        return draw.choice((" ", " ", " ", "  ", "\t", "\n", "\x1f", "\x0b", "\xa0", "\u2003", ""))

    def part() -> str:
        number = draw.choice(_NUMBERS) if draw.random() < 0.5 else str(draw.randrange(100))
        unit = draw.choice(_UNITS if draw.random() < 0.9 else _ODD_UNITS) + draw.choice(("", "s", "S"))
        sign = draw.choice(("", "", "", "-", "+", "- ", "--"))
        return (
            sign + number + (" " if draw.random() < 0.8 else space()) + draw.choice((unit, unit.upper(), unit.title()))
        )

    text = (
        draw.choice(("", "", "", "interval ", "INTERVAL\t", "interval", " interval  ")) if draw.random() < 0.5 else ""
    )
    text += " ".join(part() for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 0))))
    if draw.random() < 0.2:
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice((space(), "x", ",", ".", "-", "\x7f", "")) + text[at + draw.randrange(2) :]
    return text
