"""Records that come late by random amounts, the windows that they are in, and what is asked about them."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pyarrow as pa

from .questions import Hop

START = datetime(2024, 5, 1, 12)
DELAY = timedelta(seconds=30)
SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
COLUMNS = "moment TIMESTAMP, key STRING, value BIGINT"
Record = tuple[datetime, str, int]

HOPS = {"tumbling": Hop("moment", size=20, slide=20), "hopping": Hop("moment", size=60, slide=25, start=5)}
VALUES = {"records": "count(*)", "total": "sum(value)", "last": "max(moment)"}


def disordered(seed: int, batches: int = 6, records: int = 80) -> list[list[Record]]:
    """Batches 40 s apart whose records are up to three minutes old, most of them less than the delay."""
    chance = random.Random(seed)
    made = []
    for batch in range(batches):
        now = START + timedelta(seconds=40 * batch)
        ages = [chance.choice([chance.uniform(0, 25), chance.uniform(0, 180)]) for _ in range(records)]
        made.append(
            [(now - timedelta(seconds=round(age, 3)), chance.choice("abcd"), chance.randrange(9)) for age in ages]
        )
    return made


def window_starts(hop: Hop, at: int) -> list[int]:
    """Start of every window that holds the time; all in microseconds."""
    size, slide, offset = (seconds * 1_000_000 for seconds in (hop.size, hop.slide, hop.start))
    last = at - (at - offset) % slide
    return list(range(last, at - size, -slide))
