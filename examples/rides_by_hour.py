"""Write the taxi rides of ``rides.py`` as other systems keep them: a compressed file in a folder for each day and hour.

    python examples/rides_by_hour.py out/data/rides-by-hour

The folders are named as Hive and Spark name them, such as ``day=2013-01-01/hour=05``; the files lack both.
"""

from __future__ import annotations

import gzip
import io
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from rides import rides


def write(folder: Path) -> None:
    """Write all rides by the hour of their pickup."""
    table = rides()
    hours = pc.divide(table["pickup"], 3600)
    for hour in sorted(set(hours.to_pylist())):
        begin = datetime.fromtimestamp(hour * 3600, UTC)
        target = folder / f"day={begin:%Y-%m-%d}" / f"hour={begin:%H}"
        target.mkdir(parents=True, exist_ok=True)
        text = io.BytesIO()
        pa.csv.write_csv(table.filter(pc.equal(hours, hour)), text)
        (target / "rides.csv.gz").write_bytes(gzip.compress(text.getvalue(), mtime=0))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
