"""Records that arrive in a folder at a rate, as Parquet files with a key and a value, while a query runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

FILES_A_SECOND = 4
_FILE_RECORDS = 250_000


@dataclass
class ArrivingFiles:
    """The records of a query, as files in its folder; ``records`` are those written so far."""

    inbox: Path
    keys: int
    chance: np.random.Generator
    records: int = 0
    files: int = 0

    def __post_init__(self) -> None:
        """Create the folder."""
        self.inbox.mkdir(parents=True)

    @property
    def source(self) -> dict[str, object]:
        """The source of a query that reads the files."""
        return {"files": {"path": str(self.inbox), "format": "parquet"}, "schema": "key STRING, value BIGINT"}

    def fill(self) -> None:
        """Write a record of each key."""
        for first in range(0, self.keys, _FILE_RECORDS):
            self._write(np.arange(first, min(first + _FILE_RECORDS, self.keys)))

    @contextmanager
    def arriving(self, rate: int) -> Iterator[None]:
        """Write files with random keys at a rate in records a second, until the end of the context."""
        ended = threading.Event()
        feeding = threading.Thread(target=self._run, args=(rate, ended))
        feeding.start()
        try:
            yield
        finally:
            ended.set()
            feeding.join()

    def _write(self, numbers: NDArray[np.int64]) -> None:
        partial = self.inbox.parent / "arriving"
        pq.write_table(pa.table({"key": pa.array(numbers).cast(pa.string()), "value": pa.array(numbers)}), partial)
        partial.rename(self.inbox / f"{self.files:08d}.parquet")
        self.files += 1
        self.records += len(numbers)

    def _run(self, rate: int, ended: threading.Event) -> None:
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            self._write(self.chance.integers(0, self.keys, rate // FILES_A_SECOND))
            due += 1 / FILES_A_SECOND


def written_batches(out: Path) -> list[float]:
    """Return when the last result file of each batch was written, in seconds since 1970."""
    times: dict[str, float] = {}
    for file in out.glob("batch-*.parquet"):
        batch = file.name.split("-")[1]
        times[batch] = max(file.stat().st_mtime, times.get(batch, 0.0))
    return sorted(times.values())


def counted_records(out: Path) -> int:
    """Return the records that the newest results of all keys count as ``n``, each key once."""
    files = out / "batch-*.parquet"
    newest = f"SELECT key, arg_max(n, _batch_id) AS n FROM read_parquet('{files}') GROUP BY key"
    with duckdb.connect(config={"memory_limit": "1GB"}) as connection:
        found = connection.execute(f"SELECT sum(n) FROM ({newest})").fetchone()
    assert found is not None
    return int(found[0])
