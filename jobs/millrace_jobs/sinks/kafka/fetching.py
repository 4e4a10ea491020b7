"""Results of a batch in the driver, in memory that does not grow with them.

Few results come in one job, as with ``DataFrame.toArrow``. Spark ends that job when it has sent MOST_AT_ONCE bytes: the
driver's JVM holds all results of a job until Python has them. Then the partitions are computed again, in parallel, and
each keeps its results on the disk of its executor, from where the driver fetches one partition after the other, each
within the user's own limit. They are the partitions of the results, or others if there is a division. A job for each
costs time, so this is for large batches only; a batch after a large one is taken for large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _local_iterator_from_socket

MOST_AT_ONCE = 64 << 20
"""Bytes of Arrow that the driver takes in one job."""

_LIMIT = "spark.driver.maxResultSize"


class ResultFetcher:
    """Fetches the results of one batch after the other.

    Args:
        division: what makes other partitions of results that are large; None to take those that there are.
    """

    def __init__(self, division: Callable[[DataFrame], DataFrame] | None = None) -> None:
        self._division = division
        self._is_large = False

    @contextmanager
    def fetched(self, results: DataFrame) -> Iterator[Iterator[pa.Table]]:
        """Compute ``results``, and yield an iterator over their tables: one of all few results, or many small ones."""
        if not self._is_large:
            with _limit(results.sparkSession.sparkContext, MOST_AT_ONCE):
                try:
                    found = results.toArrow()
                except (PySparkException, Py4JJavaError) as error:
                    if _LIMIT not in str(error):
                        raise
                    found = None
            if found is not None:
                yield iter([found])
                return
        with _by_partition(results if self._division is None else self._division(results)) as batches:
            yield self._counted(batches)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield record batches as tables, and note at their end whether they were many."""
        size = 0
        for batch in batches:
            size += batch.nbytes
            yield pa.Table.from_batches([batch])
        self._is_large = size > MOST_AT_ONCE // 4  # a division may leave out most of them


@contextmanager
def _by_partition(results: DataFrame) -> Iterator[Iterator[pa.RecordBatch]]:
    """Compute all partitions, and yield an iterator that fetches the record batches of one after the other."""
    jvm = results.sparkSession._jvm
    assert jvm is not None
    schema = to_arrow_schema(results.schema, timezone="UTC")
    computed = results._jdf.toArrowBatchRdd()
    computed.persist(jvm.org.apache.spark.storage.StorageLevel.DISK_ONLY())
    try:
        computed.count()  # all partitions at a time
        served = jvm.org.apache.spark.api.python.PythonRDD.toLocalIteratorAndServe(computed, False)
        parts = _local_iterator_from_socket(served, NoOpSerializer())
        yield (pa.ipc.read_record_batch(pa.py_buffer(part), schema) for part in parts)
    finally:
        computed.unpersist(False)


@contextmanager
def _limit(context: SparkContext, size: int) -> Iterator[None]:
    """Let each job that begins meanwhile send so many bytes to the driver, or less if the user says so.

    The driver looks at the setting for each job, and executors when they start: it may be lower here, not higher.
    """
    settings = context._jsc.sc().conf()
    before = settings.get(_LIMIT, "1g")
    users = settings.getSizeAsBytes(_LIMIT, "1g")
    settings.set(_LIMIT, str(min(size, users) if users else size))
    try:
        yield
    finally:
        settings.set(_LIMIT, before)
