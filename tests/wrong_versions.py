"""Deliberately wrong new versions of a query over trips, by the kind of the mistake, with what a comparison says of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SQL = """
SELECT window.start AS since, city, count(*) AS n, count(DISTINCT rider) AS riders, round(sum(fare), 2) AS total,
  from_utc_timestamp(window.start, 'Europe/Berlin') AS local
FROM trips WHERE fare > 5 AND tip >= 0 GROUP BY window(at, '1 minute'), city
"""

CONTINUED = SQL.replace("count(DISTINCT rider) AS riders", "max(tip) AS most")
"""The same of aggregates whose state a changed version can go on from."""


@dataclass(frozen=True)
class WrongVersion:
    """A mistake: texts of the SQL with what is there instead, or another delay of the watermark.

    ``said`` are parts of what a comparison says.
    """

    said: tuple[str, ...]
    changes: Mapping[str, str] = field(default_factory=dict)
    delay: str | None = None

    def of(self, sql: str) -> str:
        """Return the wrong version of a query."""
        for old, new in self.changes.items():
            assert old in sql
            sql = sql.replace(old, new)
        return sql


_ON_ANY = {
    "another rounding": WrongVersion(("total: ", "the new one is 0.0"), {", 2) AS total": ", 1) AS total"}),
    "a lost NULL group": WrongVersion(
        ("only the old version has", "all of them have NULL in city"), {"fare > 5": "fare > 5 AND city IS NOT NULL"}
    ),
    "another filter": WrongVersion(("n: ", "total: ", " less"), {"fare > 5": "fare > 8"}),
    "the sum of another column": WrongVersion(("total: ",), {"sum(fare)": "sum(tip)"}),
    "a shorter grace for late records": WrongVersion(("n: ", "total: ", " less"), delay="1s"),
    "another time zone": WrongVersion(("local: ", "the new one is 3600 s earlier"), {"Europe/Berlin": "Europe/London"}),
    "another type": WrongVersion(
        ("n: its type is INT, and was BIGINT",), {"count(*) AS n": "CAST(count(*) AS INT) AS n"}
    ),
}

WRONG = _ON_ANY | {
    "a window that is a second longer": WrongVersion(
        ("only the old version has", "only the new"), {"'1 minute'": "'61 seconds'"}
    ),
    "windows that begin a second later": WrongVersion(
        ("since is 1 s later in the new version",), {"'1 minute')": "'1 minute', '1 minute', '1 second')"}
    ),
    "count for count(DISTINCT)": WrongVersion(("riders: ", " more"), {"count(DISTINCT rider)": "count(rider)"}),
    "a column that is gone": WrongVersion(
        ("riders: the new version has no such",), {", count(DISTINCT rider) AS riders": ""}
    ),
}
"""Of ``SQL``."""

WRONG_ON_A_STATE = _ON_ANY | {
    "windows that are off by one": WrongVersion(
        ("n: ", "total: ", "only the old version has", "only the new version has"),
        {"window.start AS since": "window.end AS since"},
    ),
    "a lost column": WrongVersion(("most: the new version has no such",), {", max(tip) AS most": ""}),
    "records without a city that do not count": WrongVersion(("n: ",), {"count(*) AS n": "count(city) AS n"}),
    "small groups that are lost": WrongVersion(
        ("only the old version has",), {"'1 minute'), city": "'1 minute'), city HAVING count(*) > 140"}
    ),
}
"""Of ``CONTINUED``; a driver could go on from the state with each of them."""
