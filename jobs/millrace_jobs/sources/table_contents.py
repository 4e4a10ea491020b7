"""The contents that a table has had: a Parquet file each in the checkpoint, beside what is known of it.

A batch names its content in its offsets (``Control.tables``), so that it joins the same one if it is repeated. Names
sort by age. A file is complete once its description exists, and neither is changed after that.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import uuid
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from millrace_jobs.places import Place, may_be_away, write_durably


@dataclass(frozen=True)
class TableContent:
    """What is known of a content.

    Args:
        name: its name; that of a newer one is greater.
        origin: what it was read from, as a digest.
        version: the version that the table had; None if it has no versions.
        digest: digest of its rows.
        rows: number of its rows.
        size: size of its rows in memory, in bytes.
        read_at: when it was read, in seconds since 1970.
    """

    name: str
    origin: str
    version: str | None
    digest: str
    rows: int
    size: int
    read_at: float


class TableContents:
    """The contents of one table.

    Args:
        place: where they are.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    def newest(self) -> TableContent | None:
        """Return the newest content; None if there is none.

        Raises:
            OSError, ValueError: its description cannot be read.
        """
        names = self._names(".json")
        if not names:
            return None
        with may_be_away(self._place):
            found = json.loads((self._place / f"{names[-1]}.json").read_text(encoding="utf-8"))
        return TableContent(**found)

    def store(self, rows: pa.Table, origin: str, version: str | None, newest: TableContent | None) -> TableContent:
        """Store rows as a new content, unless the newest one has the same: then return that one with its new version.

        Raises:
            OSError: it cannot be written.
        """
        file = io.BytesIO()
        pq.write_table(rows, file, compression="zstd")
        digest = hashlib.sha256(file.getbuffer()).hexdigest()
        if newest is not None and (newest.digest, newest.origin) == (digest, origin):
            return TableContent(**asdict(newest) | {"version": version})
        number = 1 + max((int(name.partition("-")[0]) for name in self._names()), default=0)
        # drivers that follow each other never write the same file
        name = f"{number:010d}-{uuid.uuid4().hex[:8]}"
        content = TableContent(name, origin, version, digest, rows.num_rows, rows.nbytes, time.time())
        with may_be_away(self._place):
            write_durably(self._place / f"{name}.parquet", file.getvalue())
            write_durably(self._place / f"{name}.json", json.dumps(asdict(content)).encode())
        return content

    def load(self, name: str) -> pa.Table:
        """Return the rows of a content.

        Raises:
            OSError: it cannot be read; FileNotFoundError if it does not exist.
        """
        with may_be_away(self._place):
            return pq.read_table(pa.BufferReader((self._place / f"{name}.parquet").read_bytes()))

    def columns(self, name: str) -> pa.Schema:
        """Return the columns of a content.

        Raises:
            OSError: it cannot be read; FileNotFoundError if it does not exist.
        """
        return self.load(name).schema

    def remove(self, name: str) -> None:
        """Remove a content.

        Raises:
            OSError: it cannot be removed.
        """
        for suffix in (".json", ".parquet"):
            (self._place / f"{name}{suffix}").unlink(missing_ok=True)

    def remove_before(self, name: str) -> None:
        """Remove the contents that are older than this one.

        Raises:
            OSError: one cannot be removed.
        """
        for old in self._names():
            if old < name:
                self.remove(old)

    def _names(self, suffix: str = "") -> list[str]:
        """Return the names of all contents in ascending order, of those that have a file with this suffix."""
        try:
            with may_be_away(self._place):
                files = [each.name for each in self._place.iterdir()]
        except FileNotFoundError:
            return []
        found = {file.partition(".")[0] for file in files if file.endswith(suffix or (".parquet", ".json"))}
        return sorted(name for name in found if name.partition("-")[0].isdigit())
