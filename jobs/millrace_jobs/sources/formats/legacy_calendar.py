"""Days and times that Spark 2, Hive 3 and their like wrote to Parquet in the calendar of their time.

Before 1582-10-15 those files count days in the Julian calendar. Everything else, and SQL, has the proleptic Gregorian
one. A day keeps its name: the Julian 1000-03-01 is read as 1000-03-01, as Spark reads it. Times before 1900 are also
off by the difference between a zone's standard time and its local mean time: they can be read only if the zone is UTC.

Spark marks such files in their metadata (``DataSourceUtils.datetimeRebaseSpec``), and so does Hive (HIVE-22589), which
does not say what its times mean. Files of other writers have no mark and are taken as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.sources.formats.column_types import TIMESTAMP

_DAY = 86_400_000_000
_FIRST_GREGORIAN = -141_427
"""1582-10-15, in days since 1970."""
_FIRST_EQUAL = -2_208_988_800_000_000
"""1900-01-01, in microseconds since 1970: from then on no zone has its local mean time."""
_UTC = {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu", "UCT", "+00:00"}

_VERSION = b"org.apache.spark.version"
_ROWS = b"org.apache.spark.sql.parquet.row.metadata"
"""Metadata that every Spark writes; files with it and without a version are of Spark 2.4 or earlier."""


@dataclass(frozen=True)
class LegacyCalendar:
    """Which values of a file are in the legacy calendar, and the time zone of its writer, if known."""

    dates: bool
    int96: bool
    zone: str = ""

    def corrected(self, column: pa.Array) -> pa.Array:
        """Return dates or timestamps in the proleptic calendar.

        Raises ValueError if a time was written in another zone than UTC, or an unknown one.
        """
        if pa.types.is_date(column.type):
            days = _values(column.cast(pa.int32()))
            return pa.array(_gregorian(days).astype(np.int32), mask=_nulls(column)).cast(pa.date32())
        column = column.cast(TIMESTAMP)
        micros = _values(column.cast(pa.int64()))
        if not len(micros) or micros.min() >= _FIRST_EQUAL:
            return column
        if self.zone not in _UTC:
            zone = f"in {self.zone}" if self.zone else "in a time zone that it did not note"
            raise ValueError(f"a time before 1900 is in the old calendar of its writer, which was {zone}")
        days = micros // _DAY
        return pa.array(micros + (_gregorian(days) - days) * _DAY, mask=_nulls(column)).cast(TIMESTAMP)


def legacy_calendar(metadata: Mapping[bytes, bytes] | None) -> LegacyCalendar:
    """Return what the metadata of a Parquet file says about its calendar; files of other writers are proleptic."""
    known = metadata or {}
    if known.get(b"writer.date.proleptic") == b"false":
        return LegacyCalendar(True, True)
    if _VERSION not in known and _ROWS not in known:
        return LegacyCalendar(False, False)
    version = _numbers(known.get(_VERSION, b"2.4"))
    return LegacyCalendar(
        version < (3, 0) or b"org.apache.spark.legacyDateTime" in known,
        version < (3, 1) or b"org.apache.spark.legacyINT96" in known,
        known.get(b"org.apache.spark.timeZone", b"").decode(),
    )


def _numbers(version: bytes) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.decode())[:2])


def _values(column: pa.Array) -> NDArray[np.int64]:
    values: NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def _nulls(column: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def _gregorian(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the days since 1970 with the same names in the proleptic calendar (Richards' algorithms)."""
    is_julian = days < _FIRST_GREGORIAN
    if not is_julian.any():
        return days
    shifted = days[is_julian] + 2_440_588 + 32_082  # since the 1st of March of the year -4800
    year = (4 * shifted + 3) // 1461
    of_year = shifted - 1461 * year // 4
    month = (5 * of_year + 2) // 153  # 0 is March
    day = of_year - (153 * month + 2) // 5
    renamed = days.copy()
    renamed[is_julian] = (
        day + (153 * month + 2) // 5 + 365 * year + year // 4 - year // 100 + year // 400 - 32_044 - 2_440_588
    )
    return renamed
