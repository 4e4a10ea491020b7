"""Results of a batch as Arrow record batches, each taken as soon as Spark has computed it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.serializers import read_int
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.traceback_utils import SCCallSiteSync
from pyspark.util import _load_from_socket

_FAILED = -1
"""What Spark sends in place of the number of batches if it has failed."""


@contextmanager
def arrow_batches(results: DataFrame) -> Iterator[Iterator[pa.RecordBatch]]:
    """Run the plan of ``results``, and yield an iterator over its record batches in the order in which they come.

    This is ``DataFrame.toArrow`` without its list of all batches, and so without their order.
    """
    with SCCallSiteSync(results.sparkSession.sparkContext):  # type: ignore[no-untyped-call]
        port, secret, server = results._jdf.collectAsArrowToPython()

    def received(stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from stream
        except Exception:
            with unwrap_spark_exception():
                server.getResult()  # raises what has failed in Spark
            raise

    try:
        with _load_from_socket((port, secret), _UnorderedBatches()) as stream:
            yield received(stream)
    except BaseException:
        with suppress(Exception):  # the socket is closed, so that Spark's job fails, too; it must end before this run
            server.getResult()
        raise
    with unwrap_spark_exception():
        server.getResult()


def texts(batch: pa.RecordBatch) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Return the texts of a batch of one column, without a copy, and where each of them ends.

    Arrow keeps strings one after another. NULL counts as an empty text.
    """
    column = batch.column(0)
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return memoryview(b""), np.zeros(len(column), np.int64)
    ends = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(column.type) else np.int32)
    ends = ends[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return memoryview(data)[int(ends[0]) : int(ends[-1])], ends[1:] - ends[0]


class _UnorderedBatches(ArrowStreamSerializer):
    """A reader of Spark's batches, after which come the numbers of their order."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the batches. Raises EOFError if Spark has failed; its server knows why."""
        yield from super().load_stream(stream)
        number = read_int(stream)  # type: ignore[no-untyped-call]
        if number == _FAILED:
            raise EOFError("Spark has failed to compute the batch")
        for _ in range(number):
            read_int(stream)  # type: ignore[no-untyped-call]
