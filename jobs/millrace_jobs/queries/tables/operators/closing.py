"""Until when results of joins can change: what an output that waits for them goes by (section 5.3.2).

Each result has two times, as watermarks in microseconds since 1970. At ``CLOSING`` it can no longer change.
``LONELY_UNTIL`` is for a result without a partner: until then, one can come. Both are ``BEGINNING`` for what is final
already, such as a pair of records. They follow from the records alone, so a result that is taken back has the same.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import BEGINNING, FOREVER

CLOSING: Final = "millrace_closing"
"""Column with the watermark at which a row can no longer change; NULL is never."""

LONELY_UNTIL: Final = "millrace_lonely_until"
"""Column with the watermark by which all partners of a result without one have come."""

CLOSINGS: Final = pa.schema([(CLOSING, pa.int64()), (LONELY_UNTIL, pa.int64())])

Integers = NDArray[np.int64]


def closing_times(rows: pa.Table) -> list[Integers]:
    """Return the two times of each row, which are ``BEGINNING`` for rows without these columns."""
    none = np.full(rows.num_rows, BEGINNING)
    held = rows.column_names
    return [rows.column(each).fill_null(FOREVER).to_numpy() if each in held else none for each in CLOSINGS.names]
