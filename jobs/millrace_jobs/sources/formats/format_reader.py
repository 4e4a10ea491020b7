"""The interface of a file format, which reads any range of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from millrace_jobs.sources.formats.decoding import BadRecord

MAX_ROWS = 131_072
"""The maximum number of records in one record batch."""

RejectIn = Callable[[str, BadRecord], None]
"""Handler that leaves out a bad record of the file at a path, or raises, as the policy requires."""


class FormatReader(Protocol):
    """A reader of one file format. ``begin`` and ``end`` are in the unit of ``extent``."""

    def extent(self, path: str, size: int) -> int:
        """Return the length of a file of ``size`` bytes: in bytes for text, in rows for Parquet."""
        ...

    def divisible(self, path: str) -> bool:
        """Return whether a range of the file can be read without the data before it."""
        ...

    def check(self, path: str) -> None:
        """Check the columns that the file declares. Raises MillraceError if the schema does not fit them."""
        ...

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records that begin in ``[begin, end)``, at most MAX_ROWS per batch. Raises MillraceError."""
        ...
