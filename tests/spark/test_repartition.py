"""``millrace state repartition``: the state of a stopped query on another number of partitions, crashes included."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.run.state import replace_state

from .answers import assert_same, duckdb_rows, rows_of
from .cli import Project
from .questions import Hop, Question
from .streams import Placing, Stream
from .tables import parquet, table_of

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

START = datetime(2024, 5, 1, 12)
SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
COLUMNS = "moment TIMESTAMP, key STRING, value BIGINT"
Record = tuple[datetime, str, int]

PLACINGS: list[Placing] = [("pkg", 3, 2), ("native", 2, 2), ("shuffle", 2, 1), ("hash", 7, 2), ("pkg", 2, 1)]

AGGREGATED = Question(
    keys={"key": "key"},
    values={"records": "count(*)", "total": "sum(value)"},
    window=Hop("moment", size=60, slide=25, start=5),
)
SPREAD = Question(
    keys={"key": "key"},
    values={"spread": "max(value) - min(value)", "seen": "count(value)"},
    window=Hop("moment", size=60, slide=25),
)
PYTHON = {
    "aggregator": "spark.aggregators:Spread",
    "options": {"column": "value"},
    "groupBy": ["key"],
    "window": {"column": "moment", "size": "60s", "slide": "25s"},
}
QUERIES = [
    pytest.param({"sql": AGGREGATED.spark}, AGGREGATED, id="sql"),
    pytest.param({"python": PYTHON}, SPREAD, id="python"),
]


def a_stream(spark: Any, folder: Path, **query: Any) -> Stream:
    """Results when windows close; no record of ``batches`` is late."""
    return Stream(spark, folder, schema=COLUMNS, watermark=("moment", "30s"), emit="OnWindowClose", **query)


def batches(seed: int) -> list[list[Record]]:
    """Batches 40 s apart whose records are up to 25 s old: in each of them windows close and others stay open."""
    chance = random.Random(seed)
    return [
        [
            (
                START + timedelta(seconds=40 * number - round(chance.uniform(0, 25), 3)),
                f"key {int(chance.paretovariate(0.7)) % 60}",
                chance.randrange(-100, 100),
            )
            for _ in range(120)
        ]
        for number in range(len(PLACINGS))
    ]


def feed(stream: Stream, made: list[list[Record]], numbers: range) -> None:
    """These batches, each under a plan of its own."""
    reports = stream.feed([(PLACINGS[number], parquet(SCHEMA, made[number])) for number in numbers])
    assert sum(report.rows for report in reports) == sum(len(made[number]) for number in numbers)
    assert sum(report.late for report in reports) == 0


def assert_right(stream: Stream, made: list[list[Record]], question: Question) -> None:
    """After the end of all windows the results are DuckDB's."""
    stream.close_windows(("pkg", 2, 2))
    whole = table_of(SCHEMA, [record for batch in made for record in batch])
    assert_same(rows_of(stream.results()), duckdb_rows(whole, question.duckdb), question.key_columns)


def newest(log: Path) -> int:
    return max(int(file.name) for file in log.glob("[0-9]*"))


def partitions_in_use(stream: Stream) -> int:
    """Partitions whose store has the version that the newest batch left."""
    spark = checkpoint_root(stream.query) / "spark"
    version = newest(spark / "commits") + 1
    stores = [folder for folder in (spark / "state" / "0").iterdir() if folder.name.isdigit()]
    return sum(any(file.name.startswith(f"{version}.") for file in store.iterdir()) for store in stores)


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder but the lock's and the lease's."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in ("lock", "lease.json")
    }


@pytest.mark.parametrize(("query", "question"), QUERIES)
def test_a_query_goes_on_with_more_and_then_fewer_partitions(spark, tmp_path, query, question):
    stream, made = a_stream(spark, tmp_path, **query), batches(seed=7)
    project = Project(tmp_path)
    feed(stream, made, range(2))
    before = partitions_in_use(stream)
    for partitions, numbers in ((5, range(2, 4)), (3, range(4, 5))):
        changed = project.millrace("state", "repartition", "query.yaml", "--partitions", str(partitions))
        assert (changed.status, changed.err) == (0, ""), changed
        assert f"{before} -> {partitions}" in changed.out
        assert partitions_in_use(stream) == partitions
        shown = project.millrace("state", "show", "query.yaml")
        assert f"state partitions  {partitions}\n" in shown.out
        feed(stream, made, numbers)
        assert partitions_in_use(stream) == partitions
        before = partitions
    again = project.millrace("state", "repartition", "query.yaml", "--partitions", "3")
    assert (again.status, again.out) == (0, "the state of stream has 3 partitions already\n")
    assert_right(stream, made, question)
    assert partitions_in_use(stream) == 3


class Died(BaseException):
    """The end of the process, as far as the code around it can tell: nothing of it catches this."""


def dying(at: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The call with this number, from 0, does not come to pass."""
    calls = 0

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at + 1:
            raise Died
        return original(*arguments, **named)

    return call


def undo_commit(commits: Path) -> int:
    """Leave the log as a process does that dies just before it commits its newest batch; that batch."""
    batch = newest(commits)
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink()
    return batch


def half_a_copy(source: Path, target: Path, **_: Any) -> None:
    target.mkdir()
    (target / "metadata").write_bytes((source / "metadata").read_bytes())
    raise Died


def half_a_batch(manager: Any, location: str, partitions: int) -> None:
    """Spark's repartition, as it is left by a process that dies before it is committed."""
    manager._jmanager.repartition(location, partitions, True)
    folder = Path(location.removeprefix("file://"))
    undo_commit(folder / "commits")
    raise Died


MANAGER = "pyspark.sql.streaming.query.StreamingCheckpointManager.repartition"
DEATHS = {
    "while it is copied": (2, lambda patch: patch.setattr("shutil.copytree", half_a_copy)),
    "before Spark begins": (2, lambda patch: patch.setattr(MANAGER, dying(0, lambda *_: None))),
    "before Spark commits": (2, lambda patch: patch.setattr(MANAGER, half_a_batch)),
    "before the renames": (2, lambda patch: patch.setattr(Path, "rename", dying(0, Path.rename))),
    "between the renames": (5, lambda patch: patch.setattr(Path, "rename", dying(1, Path.rename))),
    "before the original is removed": (5, lambda patch: patch.setattr("shutil.rmtree", dying(0, shutil.rmtree))),
    "before it is noted": (
        5,
        lambda patch: patch.setattr(Checkpoint, "note_state_partitions", dying(0, lambda *_: None)),
    ),
}


@pytest.mark.slow(minutes=0.15)
@pytest.mark.parametrize("step", DEATHS)
def test_a_process_that_dies_at_any_step_leaves_a_checkpoint_that_runs(spark, tmp_path, step):
    die_and_go_on(spark, tmp_path, step, AGGREGATED, sql=AGGREGATED.spark)


@pytest.mark.slow(minutes=0.15)
@pytest.mark.parametrize("step", ["before Spark commits", "between the renames"])
def test_a_process_that_dies_leaves_the_state_of_a_python_aggregator_usable(spark, tmp_path, step):
    die_and_go_on(spark, tmp_path, step, SPREAD, python=PYTHON)


def die_and_go_on(spark: Any, folder: Path, step: str, question: Question, **query: Any) -> None:
    """Die at a step of a repartition to 5; then the next run goes on, from what is said in ``DEATHS``."""
    left_with, arm = DEATHS[step]
    stream, made = a_stream(spark, folder, **query), batches(seed=len(step))[:3]
    feed(stream, made, range(2))
    checkpoint = Checkpoint(checkpoint_root(stream.query))
    checkpoint.open(stream.query)
    with pytest.MonkeyPatch.context() as patch:
        arm(patch)
        with pytest.raises(Died):
            replace_state(spark, checkpoint, 5)
    checkpoint.close()
    feed(stream, made, range(2, 3))
    assert partitions_in_use(stream) == checkpoint.state_partitions == left_with
    assert not list(checkpoint.root.glob("spark.*"))
    assert_right(stream, made, question)


@pytest.mark.parametrize("partitions", ["0", "-3", "1001"])
def test_an_impossible_number_of_partitions_is_refused(spark, tmp_path, partitions):
    stream = a_stream(spark, tmp_path, sql=AGGREGATED.spark)
    refused = Project(tmp_path).millrace("state", "repartition", "query.yaml", "--partitions", partitions)
    refused.assert_failed(f"{partitions} state partitions are not possible", "write a number from 1 to 1000")
    assert not checkpoint_root(stream.query).exists()


def test_a_query_without_state_is_refused(spark, tmp_path):
    project = Project(tmp_path / "new")
    stream = a_stream(spark, tmp_path / "new", sql=AGGREGATED.spark)
    command = ("state", "repartition", "query.yaml", "--partitions", "5")
    project.millrace(*command).assert_failed("no batch has been finished on the checkpoint", "run the query first")
    assert not checkpoint_root(stream.query).exists()

    project = Project(tmp_path / "stateless")
    stream = Stream(spark, tmp_path / "stateless", schema=COLUMNS, sql="SELECT key, value FROM events WHERE value > 0")
    stream.feed([(("native", 1, 1), parquet(SCHEMA, batches(seed=3)[0]))])
    before = files_of(checkpoint_root(stream.query))
    project.millrace(*command).assert_failed("the query keeps no state")
    assert files_of(checkpoint_root(stream.query)) == before


def test_a_checkpoint_with_an_unfinished_batch_is_refused(spark, tmp_path):
    project = Project(tmp_path)
    stream, made = a_stream(spark, tmp_path, sql=AGGREGATED.spark), batches(seed=5)
    feed(stream, made, range(2))
    command = ("state", "repartition", "query.yaml", "--partitions", "5")
    root = checkpoint_root(stream.query)

    unfinished = undo_commit(root / "spark" / "commits")
    before = files_of(root)
    refused = project.millrace(*command)
    refused.assert_failed(f"batch {unfinished} of the checkpoint", "is not finished; run the query again")
    assert files_of(root) == before

    feed(stream, made, range(2, len(made)))
    assert project.millrace(*command).status == 0
    assert_right(stream, made, AGGREGATED)
