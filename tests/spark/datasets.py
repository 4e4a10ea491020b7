"""The real streams: in pieces, as a stream receives them, and whole, as DuckDB reads them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

Find = Callable[[str], Path]
"""The fixture ``data``, which finds a file by its name."""


@dataclass(frozen=True)
class DataSet:
    """CSV files, with a header line only if ``header``. ``time`` is the column with whole ``unit`` since 1970."""

    files: tuple[str, ...]
    columns: Mapping[str, str]
    time: str
    unit: str = "seconds"
    delimiter: str = ","
    header: bool = False

    def source(self) -> dict[str, Any]:
        """Settings of the stream's source."""
        types = {name: "TIMESTAMP" if name == self.time else kind for name, kind in self.columns.items()}
        return {
            "schema": ", ".join(f"{name} {kind}" for name, kind in types.items()),
            "format": "csv",
            "header": self.header,
            "delimiter": self.delimiter,
            "timestampFormat": self.unit,
        }

    def pieces(self, find: Find, count: int) -> list[bytes]:
        """Divide the files' own lines among ``count`` files."""
        lines: list[bytes] = []
        head = b""
        for name in self.files:
            first, *rest = find(name).read_bytes().splitlines(keepends=True)
            head, more = (first, rest) if self.header else (b"", [first, *rest])
            lines += more
        cuts = [len(lines) * i // count for i in range(count + 1)]
        return [head + b"".join(lines[low:high]) for low, high in itertools.pairwise(cuts)]

    def table(self, find: Find) -> pa.Table:
        """Return all records, read by DuckDB."""
        kinds = {"STRING": "VARCHAR"}
        types = ", ".join(f"'{name}': '{kinds.get(kind, kind)}'" for name, kind in self.columns.items())
        paths = ", ".join(f"'{find(name)}'" for name in self.files)
        factor = {"seconds": 1_000_000, "microseconds": 1}[self.unit]
        with duckdb.connect() as connection:
            connection.execute("SET preserve_insertion_order = true")
            reader = f"read_csv([{paths}], header={self.header}, delim='{self.delimiter}', columns={{{types}}})"
            time = f"make_timestamp({self.time} * {factor}) AS {self.time}"
            return connection.execute(f"SELECT * REPLACE ({time}) FROM {reader}").to_arrow_table()


TAXI = DataSet(
    files=("cppstream_debs_google_tpch/debs_frequent_route_compact_ride_10000.csv",),
    columns={
        "medallion": "STRING",
        "distance": "DOUBLE",
        "pickup": "BIGINT",
        "start_x": "INT",
        "start_y": "INT",
        "end_x": "INT",
        "end_y": "INT",
        "fare": "DECIMAL(8,2)",
        "tip": "DOUBLE",
    },
    time="pickup",
)
"""Taxi rides of half an hour in order of drop-off, so that pickup times go back and forth."""

WEB_LOG = DataSet(
    files=("nasa_http_19950801/nasa_19950801.tsv",),
    columns={
        "host": "STRING",
        "logname": "STRING",
        "time": "BIGINT",
        "method": "STRING",
        "url": "STRING",
        "response": "INT",
        "bytes": "BIGINT",
        "referer": "STRING",
        "useragent": "STRING",
    },
    time="time",
    delimiter="\t",
    header=True,
)
"""One day of a web server."""

TASKS = DataSet(
    files=tuple(f"cppstream_debs_google_tpch/task_event_{part}_10000.csv" for part in (1, 2, 3)),
    columns={
        "time": "BIGINT",
        "missing": "INT",
        "job": "BIGINT",
        "task": "INT",
        "machine": "BIGINT",
        "event": "INT",
        "user": "STRING",
        "class": "INT",
        "priority": "INT",
        "cpu": "DOUBLE",
        "memory": "DOUBLE",
        "disk": "DOUBLE",
        "different": "INT",
    },
    time="time",
    unit="microseconds",
)
"""Task events in the first hours of a cluster trace that starts at time 0, which has 10,000 of them."""
