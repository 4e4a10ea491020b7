"""Spark's settings for the next batch: the width of its shuffles, and whether its plan is compiled or interpreted."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

_WIDTH = "spark.sql.shuffle.partitions"

# the second setting is internal to Spark; with the first alone, each projection and predicate is still compiled
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

_MANY_ROWS = 20_000
"""Records of a batch, with those it left waiting, from which the next batch is compiled.

Compiling costs 60 ms a batch; interpreting costs up to 0.7 µs more per record and window. They break even at about
86,000 records. The limit is lower because the next batch may be much larger than the last: compiling a small one wastes
60 ms at most, but what interpreting a large one wastes grows with its records.
"""

_MULTIPLYING = ("Expand [", "Generate ")
"""Prefixes, in the text of a plan, of operators that turn one row into several."""


class BatchSettings:
    """Session settings that the next batch is planned with.

    Spark generates and compiles Java for the plan of a batch, and does so again whenever the watermark has moved,
    because the watermark is a literal in that code. For a small batch this takes longer than Spark's interpreter.
    Compiling pays off for many rows. It never does if Millrace's own operators process the records, as in a routed
    query. The size of a batch is not known when it is planned: the first one counts as large, and later ones are
    judged by the size and the backlog of the last.

    Args:
        chosen: the user's own settings, which are never overwritten.
    """

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self._follows_rows = not chosen.keys() & _COMPILED.keys()
        self._session: SparkSession | None = None
        self._set: dict[str, str] = {}
        self._per_record = self._multiplies = False
        self._many_rows = True

    def begin(self, results: DataFrame, *, per_record: bool) -> None:
        """Set up the first batch, in the session that Spark clones when the query starts.

        Args:
            results: the query's streaming results, before it is started.
            per_record: whether Spark's own operators process every record.
        """
        self._session, self._set = None, {}
        self._per_record = per_record
        self._multiplies = per_record and _multiplies_rows(results)
        self._apply(results.sparkSession, self._compilation())

    def found(self, session: SparkSession) -> None:
        """Remember the query's own session, which Spark exposes from the first batch on."""
        self._session = session

    def follow(self, workers: int) -> None:
        """Set the shuffle width to the number of workers of the next batch, and choose whether to compile.

        The number of state partitions does not follow the shuffle width.
        """
        if self._session is not None:
            self._apply(self._session, {_WIDTH: str(workers), **self._compilation()})

    def learn_from(self, rows: int, waiting: int) -> None:
        """Learn from a finished batch: its records, and those that its sources had left."""
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
    """Whether the plan turns one row into several, as hopping windows do."""
    plan = results._jdf.queryExecution().analyzed().toString()
    return any(operator in plan for operator in _MULTIPLYING)
