"""Write the taxi rides of ``rides.py`` as a Delta table, partitioned by day, with a commit for each hour.

python examples/rides_table.py out/data/rides-delta
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from rides import rides

CELLS = ["start_x", "start_y", "end_x", "end_y"]


def write(folder: Path) -> None:
    """Write all rides by the hour of their pickup."""
    table = rides()
    hours = pc.divide(table["pickup"], 3600)
    pickups = table["pickup"].cast(pa.int64()).cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC"))
    columns = {name: table[name].cast(pa.int32()) for name in CELLS}
    found = pa.table({"pickup": pickups} | columns | {"day": pickups.cast(pa.date32())})
    for hour in sorted(set(hours.to_pylist())):
        write_deltalake(folder, found.filter(pc.equal(hours, hour)), mode="append", partition_by=["day"])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
