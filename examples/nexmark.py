"""Write a part of the NEXMark auction site as three recordings, person, auction and bid, and the table side-input.

    python examples/nexmark.py out/data

Of 300,000 events in 150 seconds, 6,000 are people, 18,000 auctions and 276,000 bids. The popular auctions change every
30 seconds. The source ``nexmark`` makes the same records with the same settings. The table has a value for each key
from 0 to 9,999.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from millrace_api.model.generators import NexmarkSourceSpec as NexmarkSpec
from millrace_api.model.generators import NexmarkStream
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.connector import schema_of
from millrace_jobs.sources.generated.nexmark import NexmarkSource, share
from millrace_jobs.sources.generated.rows import GeneratedRows

START = datetime(2024, 1, 1, tzinfo=UTC)
EVENTS, EVENTS_PER_SECOND = 300_000, 2_000
SIDE_KEYS = 10_000


def recording(stream: str, events: int = EVENTS) -> pa.Table:
    """Return the records of one stream among the first ``events`` events of the site."""
    schema = schema_of(SourceSpec(nexmark=NexmarkSpec(stream=NexmarkStream(stream))))
    source = NexmarkSource(stream, schema, stream, EVENTS_PER_SECOND, skew=1.0, drift=30, start_time=START)
    rows = GeneratedRows(0, round(events * share(stream)), source.initial()["epoch"])
    return pa.Table.from_batches(source.read(rows, stream))


def side_input() -> pa.Table:
    """Return the table of query 13."""
    return pa.table({"key": range(SIDE_KEYS), "value": [f"value {key}" for key in range(SIDE_KEYS)]})


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in NexmarkStream:
        pq.write_table(recording(name), folder / f"{name}.parquet")
    pyarrow.csv.write_csv(side_input(), folder / "side-input.csv")
