"""The join of the benchmark, views of pages with clicks on the same page at nearly the same time, and its key skews.

Both streams have the columns ``at``, ``page`` and ``id``. A view and a click match if they have the same page and their
times differ by at most the case's ``band``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PAGES = 1_000
DELAY = 5
"""Seconds by which the watermarks of Millrace and Spark are behind."""

GRACE = 3600
"""Seconds for which Kafka Streams keeps records, since its tasks do not always read both topics in step.

With a shorter grace it drops some as late on a busy machine. It looks up only the band, so more state costs it little.
"""

SCHEMA = "at TIMESTAMP, page STRING, id BIGINT"
VIEWS, CLICKS = "views", "clicks"


@dataclass(frozen=True)
class JoinCase:
    """How records are spread over pages: the shares of the hot page, beside which all pages are equally frequent.

    ``band``: the largest difference of matching times, in milliseconds.
    """

    views: float = 0.0
    clicks: float = 0.0
    band: int = 100

    @property
    def sql(self) -> str:
        """The query, for Millrace and for Spark."""
        band = f"INTERVAL {self.band} MILLISECONDS"
        return (
            "SELECT v.page, v.id AS view, c.id AS click, greatest(v.at, c.at) AS latest "
            f"FROM {VIEWS} v JOIN {CLICKS} c "
            f"ON v.page = c.page AND c.at BETWEEN v.at - {band} AND v.at + {band}"
        )


CASES: Mapping[str, JoinCase] = {
    "uniform": JoinCase(),
    "hot-views": JoinCase(views=0.4),
    "hot-both": JoinCase(views=0.4, clicks=0.4, band=1),
}
"""Of ``hot-views``, one page has 40 % of the views and a thousandth of the clicks, and there are as many results.

In ``hot-both`` it has 40 % of both streams. Its results grow with the product of the two, hence the narrow band.
"""
