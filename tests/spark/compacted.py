"""A table whose changes go to a changelog in files, a reader of it, and crashes while its files are compacted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from millrace_jobs.changes import FOREVER

SCHEMA = "who STRING, x DOUBLE, n BIGINT, millrace_from BIGINT, millrace_to BIGINT, millrace_weight BIGINT"
KEY = ("who", "x")
NAMES = ["a", "b", "c, d", 'e "f"', "g\nh", " i ", "", None]
NUMBERS = [0.0, -0.0, 1.5]

Key = tuple[str | None, float]


def columns() -> StructType:
    """Return the columns of the table, without those of its changes."""
    return StructType().add("who", StringType()).add("x", DoubleType()).add("n", LongType())


@dataclass
class ChangingTable:
    """A table with random changes, of which some keys have many and others few; a zero has either sign."""

    chance: random.Random
    rows: dict[Key, int] = field(default_factory=dict)
    changes: int = 0
    """Keys that all batches have changed."""

    def change(self, spark: SparkSession, batch: int) -> DataFrame:
        """Change the table, and return the changes."""
        found: list[tuple[Any, ...]] = []
        for place in sorted({min(int(self.chance.expovariate(0.3)), len(NAMES) - 1) for _ in range(5)}):
            who, x = NAMES[place], self.chance.choice(NUMBERS)
            key = (who, x + 0.0)
            before = self.rows.pop(key, None)
            if before is not None:
                found.append((who, -x if x == 0 else x, before, batch, FOREVER, -1))
            if before is None or self.chance.random() < 0.6:
                self.rows[key] = self.chance.randrange(10**9)
                found.append((who, x, self.rows[key], batch, FOREVER, 1))
            self.changes += 1
        return spark.createDataFrame(found, SCHEMA).repartition(2)


_READERS = {
    "parquet": "read_parquet('{}', hive_partitioning = true)",
    "json": "read_json('{}', format = 'newline_delimited', hive_partitioning = true, "
    "columns = {{who: 'VARCHAR', x: 'DOUBLE', n: 'BIGINT', _operation: 'VARCHAR', _batch_id: 'BIGINT'}})",
    "csv": "read_csv('{}', header = true, all_varchar = true, hive_partitioning = true, quote = '\"', escape = '\"', "
    "force_not_null = [], nullstr = '', allow_quoted_nulls = false)",
}


def assert_read(files: str, format: str, table: ChangingTable) -> int:
    """Check what a reader finds that takes the newest row of each key; return the number of all rows.

    No row is in more than two files, and a key has one row of each batch.
    """
    with duckdb.connect() as reader:
        read = _READERS[format].format(files)
        typed = "who::VARCHAR AS who, x::DOUBLE + 0.0 AS x, n::BIGINT AS n, _operation, _batch_id::BIGINT AS batch"
        reader.execute(f"CREATE TABLE changes AS SELECT {typed} FROM {read}")
        newest = "QUALIFY row_number() OVER (PARTITION BY who, x ORDER BY batch DESC) = 1 AND _operation = 'upsert'"
        found = reader.execute(f"SELECT who, x, n FROM changes {newest}").fetchall()
        wrong = {(who, x, n) for who, x, n in found} ^ {(who, x, n) for (who, x), n in table.rows.items()}
        assert not wrong, f"rows that only the reader or only the table has: {wrong}"
        assert len(found) == len(table.rows)
        often = "SELECT who, x, n, _operation, batch, count(*) AS times FROM changes GROUP BY ALL"
        apart = f"SELECT 1 FROM ({often}) GROUP BY who, x, batch HAVING count(*) > 1 OR max(times) > 2"
        assert reader.execute(apart).fetchall() == []
        (rows,) = reader.execute("SELECT count(*) FROM changes").fetchall()[0:1]
        return int(rows[0])


class KilledError(BaseException):
    """The end of a process, which nothing catches and after which nothing is done."""


@dataclass
class Kills:
    """Kills a process at random steps of a compaction, before and after each of which a reader looks."""

    chance: random.Random
    look: Callable[[], object]
    often: float = 0.2
    steps: int = 0
    count: int = 0
    _inside: bool = False
    _dead: bool = False

    @contextmanager
    def at(self, compacting: Any, name: str, *steps: tuple[Any, str]) -> Iterator[None]:
        """Kill in these functions while ``name`` of a class runs; afterwards, all of them do nothing."""
        with patch.object(compacting, name, self._entered(getattr(compacting, name))):
            stack = [patch.object(place, step, self._step(getattr(place, step))) for place, step in steps]
            for each in stack:
                each.start()
            try:
                yield
            finally:
                for each in stack:
                    each.stop()

    def again(self) -> None:
        """Begin with a new process."""
        self._dead = self._inside = False

    def _entered(self, compact: Callable[..., object]) -> Callable[..., object]:
        def entered(*arguments: Any, **named: Any) -> object:
            self._inside = True
            try:
                return compact(*arguments, **named)
            finally:
                self._inside = False

        return entered

    def _step(self, step: Callable[..., object]) -> Callable[..., object]:
        def stepped(*arguments: Any, **named: Any) -> object:
            if self._dead:
                return None
            if not self._inside:
                return step(*arguments, **named)
            self._look_and_die()
            result = step(*arguments, **named)
            self._look_and_die()
            return result

        return stepped

    def _look_and_die(self) -> None:
        self.steps += 1
        self.look()
        if self.chance.random() < self.often:
            self.count += 1
            self._dead = True
            raise KilledError
