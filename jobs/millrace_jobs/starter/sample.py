"""The sample data of ``millrace init``: a day of trips between bicycle stations, made up, and the same each time."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

TRIPS = 20_000
"""Records of the sample."""

_STATIONS = (
    "Central", "Harbor", "University", "Market", "Old Town", "Riverside", "Museum", "Stadium", "Park East", "Park West",
    "Hospital", "Airport", "Library", "Bridge", "Hill", "Mill Lane", "Station Road", "Garden", "Lakeside", "Depot",
)  # fmt: skip
_DAY = datetime(2024, 5, 1)
_PEAKS = ((8.5, 1.2, 0.3), (17.5, 1.8, 0.4), (13.0, 4.0, 0.3))
"""Hour, spread in hours, and share of the trips of each part of the day."""


def write_trips(file: Path) -> None:
    """Write the trips as CSV in the order of their starts; a few stations have most of them."""
    draw = random.Random(7)
    starts = sorted(_start(draw) for _ in range(TRIPS))
    with file.open("x", encoding="utf-8") as out:
        out.write("started,station,rider,minutes\n")
        for start in starts:
            station = _STATIONS[int(len(_STATIONS) * draw.random() ** 2.5)]
            rider = "member" if draw.random() < 0.7 else "casual"
            minutes = 3 + int(40 * draw.random() ** 2)
            out.write(f"{start:%Y-%m-%dT%H:%M:%SZ},{station},{rider},{minutes}\n")


def _start(draw: random.Random) -> datetime:
    """Return a time of that day. Only ``random()`` gives the same numbers in each version of Python."""
    part, hours = draw.random(), 0.0
    for hour, spread, share in _PEAKS:
        if part < share:
            hours = hour + spread * (draw.random() + draw.random() + draw.random() - 1.5)
            break
        part -= share
    return _DAY + timedelta(seconds=int(3600 * min(max(hours, 0.0), 23.99)))
