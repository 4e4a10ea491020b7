"""Write taxi rides in the form of the ACM DEBS 2015 Grand Challenge, on a grid of cells.

    python examples/rides.py out/data/rides.csv

Columns: taxi, miles, pickup (seconds since 1970), cell of the start (x, y) and of the end, fare, tip. As in the
challenge, rides arrive when they end, so pickup times go back and forth. A few cells have most of the starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

RIDES, TAXIS, SECONDS = 40_000, 2_000, 2 * 3600
BEGIN = 1_357_016_400
"""Earliest pickup in seconds since 1970: 2013-01-01T05:00:00Z."""


def rides(seed: int = 0) -> pa.Table:
    """Return 40,000 rides over two hours."""
    random = np.random.default_rng(seed)
    taxis = pa.array([f"{number:032X}" for number in random.integers(0, 2**62, TAXIS)])
    start, end = random.zipf(1.3, (2, RIDES)) % 400
    miles = np.round(random.lognormal(0.6, 0.7, RIDES), 1)
    pickup = BEGIN + random.integers(0, SECONDS, RIDES)
    fare = np.round((2.5 + 2.5 * miles) * 2) / 2
    table = pa.table(
        {
            "taxi": taxis.take(pa.array(random.integers(0, TAXIS, RIDES))),
            "miles": miles,
            "pickup": pickup,
            "start_x": 150 + start % 20,
            "start_y": 150 + start // 20,
            "end_x": 150 + end % 20,
            "end_y": 150 + end // 20,
            "fare": fare,
            "tip": np.round(fare * random.choice([0, 0, 0.1, 0.2], RIDES), 2),
            "dropoff": pickup + np.round(60 + 240 * miles).astype(np.int64),
        }
    )
    return table.sort_by("dropoff").drop_columns("dropoff")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    pa.csv.write_csv(rides(), target, pa.csv.WriteOptions(include_header=False))
