"""Settings of Spark's session that follow the batches: the width of the shuffle, and whether plans are compiled."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

_WIDTH = "spark.sql.shuffle.partitions"

# the second setting is internal to Spark; without it, projections and predicates are still compiled one by one
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

_MANY_ROWS = 20_000
"""Interpreting costs up to 0.7 µs more for a record and window, so 14 ms for so many; compiling costs 60 ms a batch."""

_MULTIPLYING = ("Expand [", "Generate ")
"""Operators that make several rows of one, as they begin in the text of a plan."""


class BatchSettings:
    """Sets what the next batch is planned with.

    Spark writes Java for the plan of every batch and compiles it, again whenever the watermark has moved: it is a
    literal there. That takes longer than Spark's interpreter needs for a small batch. It is worth it for many rows,
    and never where Millrace's own operators do the work of each record, as in a routed query. How many rows a batch
    will have is not known when it is planned: it may have many at the start, and what the last one had or left later.

    Args:
        chosen: the user's own settings, which stay as they are.
    """

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self._follows_rows = not chosen.keys() & _COMPILED.keys()
        self._session: SparkSession | None = None
        self._set: dict[str, str] = {}
        self._per_record = self._multiplies = False
        self._many_rows = True

    def begin(self, results: DataFrame, *, per_record: bool) -> None:
        """Set what the first batch is planned with, in the session that Spark copies for a query when it starts.

        Args:
            results: of the query, which has not been started.
            per_record: whether Spark's own operators see every record.
        """
        self._session, self._set = None, {}
        self._per_record = per_record
        self._multiplies = per_record and _multiplies_rows(results)
        self._apply(results.sparkSession, self._compilation())

    def found(self, session: SparkSession) -> None:
        """Take the session of the query itself, which Spark shows from the first batch on."""
        self._session = session

    def follow(self, workers: int) -> None:
        """Give the shuffle to the workers as many tasks as the next batch has workers.

        The number of state partitions does not follow the setting.
        """
        if self._session is not None:
            self._apply(self._session, {_WIDTH: str(workers), **self._compilation()})

    def learn_from(self, rows: int, waiting: int) -> None:
        """Take in the size of a finished batch, and how many records its sources had left."""
        self._many_rows = rows + waiting >= _MANY_ROWS

    def _compilation(self) -> Mapping[str, str]:
        if not self._follows_rows:
            return {}
        return _COMPILED if self._per_record and (self._many_rows or self._multiplies) else _INTERPRETED

    def _apply(self, session: SparkSession, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            if self._set.get(name) != value:
                session.conf.set(name, value)
                self._set[name] = value


def _multiplies_rows(results: DataFrame) -> bool:
    """Whether the plan makes several rows of one, as for hopping windows."""
    plan = results._jdf.queryExecution().analyzed().toString()
    return any(operator in plan for operator in _MULTIPLYING)
