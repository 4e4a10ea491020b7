"""Results of a batch in the driver, in memory that does not grow with them, neither there nor in the tasks.

Few results come in one job, as with ``DataFrame.toArrow``. Where they may be many, tasks leave out what is above the
limits, since a task holds all that it sends, and Spark ends the job when it has sent MOST_AT_ONCE bytes, since the
driver's JVM holds all results of a job until Python has them. Then the results are computed again, in parallel. They
are divided among PARTS partitions and kept on the disks of the executors, from where the driver fetches one partition
after the other, each within the user's own limit. A job for each costs time, so this is for large batches only; a batch
after a large one is taken for large. A batch that surely has no results is neither limited nor a sign of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType
from pyspark.util import _local_iterator_from_socket

MOST_AT_ONCE = 64 << 20
"""Bytes of Arrow that the driver takes in one job."""

MOST_ROWS = 400_000
"""Results that the driver takes in one job."""

PARTS = 64
"""Partitions of large results. One has to fit into the memory of a task and of the driver."""

SURELY_FEW = 10_000
"""Results of a batch after which the next one is fetched without limits in the tasks, which take 16 ms a batch.

That is only where results come as records do. When windows close, a batch can have many after one with few; there,
batches that close no window need no limits.
"""

_LIMIT = "spark.driver.maxResultSize"
_NUMBER = "(monotonically_increasing_id() & 8589934591)"
"""The number of a row in its partition, beginning with 0."""

_AS_JSON = "to_json(value, map('ignoreNullFields', 'false'))"

_COUNT = "millrace_results"


class ResultFetcher:
    """Fetches the results of one batch after the other.

    Args:
        division: what divides large results among PARTS partitions; None to take those that there are.
        jumps: whether a batch can have many results although the last one had few.
    """

    def __init__(self, division: Callable[[DataFrame], DataFrame] | None = None, *, jumps: bool = True) -> None:
        self._division = division
        self._jumps = jumps
        self._is_large = False
        self._rows: int | None = None
        """Number of results of the last batch that had any; None if unknown."""

    @contextmanager
    def fetched(self, results: DataFrame, *, may_be_any: bool = True) -> Iterator[Iterator[pa.Table]]:
        """Compute ``results``, and yield an iterator over their tables: one of all few results, or many small ones.

        ``may_be_any`` is false if there are none for sure, but their computation has to take its course.
        """
        at_once = not (may_be_any and self._is_large)
        may_be_many = self._jumps or self._rows is None or self._rows > SURELY_FEW
        if at_once and (found := _at_once(results, limited=may_be_any and may_be_many)) is not None:
            self._rows = found.num_rows or self._rows
            yield iter([found])
            return
        counted = _counted(results)
        divided = counted if self._division is None else self._division(counted)
        with _by_partition(divided) as batches:
            # a fraction of the limits: the next batch may be somewhat larger, and keys take memory, too
            rows, size, largest = _count_of(divided)
            self._is_large = max(size, rows * largest) > MOST_AT_ONCE // 4 or rows > MOST_ROWS // 4
            self._rows = None
            yield (pa.Table.from_batches([batch]) for batch in batches)


def _at_once(results: DataFrame, *, limited: bool) -> pa.Table | None:
    """Return the results of a batch; None if they are too many.

    ``limited``: tasks leave out what is above the limits.
    """
    with _limit(results.sparkSession.sparkContext, MOST_AT_ONCE):
        try:
            found = (_limited(results) if limited else results).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            if _LIMIT not in str(error):
                raise
            return None
    if found.num_rows > MOST_ROWS:
        return None
    return _unwrapped(found) if limited else found


def _bytes_of_value(results: DataFrame) -> str:
    """Return an SQL expression of about the bytes of a value: of its text, or of a struct as JSON, with its NULLs."""
    return f"octet_length({'value' if _is_text(results) else _AS_JSON})"


def _is_text(results: DataFrame) -> bool:
    return isinstance(results.schema["value"].dataType, StringType)


def _limited(results: DataFrame) -> DataFrame:
    """Leave out what no task may send at once, so that one row too many is left, or values are missing.

    A value is an array of itself, and an empty one if it is left out: a struct cannot be NULL where its fields cannot.
    It is left out if the rows so far would take more than MOST_AT_ONCE bytes with values like it. Then the values that
    are left in a partition take 1 + ln(MOST_ROWS) times as much at most, and as a rule no more than that.
    """
    few = results.where(f"{_NUMBER} <= {MOST_ROWS}")
    size = f"({_NUMBER} + 1) * {_bytes_of_value(results)}"
    return few.withColumn("value", F.expr(f"CASE WHEN {size} > {MOST_AT_ONCE} THEN array() ELSE array(value) END"))


def _unwrapped(limited: pa.Table) -> pa.Table | None:
    """Return fetched results without the arrays of ``_limited``; None if values are missing."""
    values = pc.list_flatten(limited.column("value"))
    if len(values) < limited.num_rows:
        return None
    return limited.set_column(limited.schema.get_field_index("value"), "value", values)


def _counted(results: DataFrame) -> DataFrame:
    """Let tasks count results before they are divided, since a division may leave out most of them."""
    # Arrow takes up to eight times the bytes of JSON, for arrays of short numbers
    size = f"{_bytes_of_value(results)} * {1 if _is_text(results) else 8}L"
    sizes = (F.expr(f"coalesce({function}({size}), 0)").alias(function) for function in ("sum", "max"))
    return results.observe(_COUNT, F.count(F.lit(1)).alias("rows"), *sizes)


def _count_of(computed: DataFrame) -> tuple[int, int, int]:
    """Return how many results were counted, the bytes of their values, and those of the largest value."""
    found = computed._jdf.queryExecution().observedMetrics()
    if not found.contains(_COUNT):
        return 0, 0, 0  # Spark drops steps of its plan that turn out to have no input
    count = found.apply(_COUNT)
    return count.getLong(0), count.getLong(1), count.getLong(2)


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
