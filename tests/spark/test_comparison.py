"""Ten kinds of wrong new versions of a query are found, each by what is wrong; right ones are equal to the old one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from millrace_jobs.comparison.compare import compare_results, speed_of_runs
from millrace_jobs.comparison.findings import OutputComparison
from millrace_jobs.comparison.version_run import VersionOutcome, VersionTask, run_version
from millrace_jobs.run.query_file import query_of
from wrong_versions import CONTINUED, SQL, WRONG, WRONG_ON_A_STATE

from . import compared_functions

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FILES, PER_FILE = 10, 1_500
JOIN = """
SELECT t.id AS id, t.city AS city, p.amount AS amount FROM trips t LEFT JOIN payments p
ON t.id = p.trip AND p.paid BETWEEN t.at AND t.at + INTERVAL 20 SECONDS
"""
SCHEMAS = {
    "trips": "id BIGINT, at TIMESTAMP, city STRING, fare DOUBLE, tip DOUBLE, rider BIGINT",
    "payments": "trip BIGINT, paid TIMESTAMP, amount DOUBLE",
}
TIMES = {"trips": "at", "payments": "paid"}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trips, some of them late and some without a city, and the payments of most of them."""
    folder, chance = tmp_path_factory.mktemp("compared"), np.random.default_rng(7)
    start, moment = np.datetime64("2024-03-01T00:00", "us"), pa.timestamp("us", tz="UTC")
    for name in SCHEMAS:
        (folder / name).mkdir()
    for file in range(FILES):
        ids = np.arange(file * PER_FILE, (file + 1) * PER_FILE)
        late = chance.integers(0, 150_000_000, PER_FILE) * (chance.random(PER_FILE) < 0.2)
        at = start + (ids * 40_000 - late).astype("timedelta64[us]")
        city = chance.choice(np.array(["a", "b", "c", None], object), PER_FILE)
        fare, tip = (chance.integers(100, 4_000, PER_FILE) / divisor for divisor in (100, 1_000))
        rider = chance.integers(0, 30, PER_FILE)
        columns = [ids, pa.array(at, moment), pa.array(list(city), pa.string()), fare, tip, rider]
        pq.write_table(
            pa.table(columns, ["id", "at", "city", "fare", "tip", "rider"]), folder / f"trips/{file}.parquet"
        )
        paid = chance.random(PER_FILE) < 0.8
        payments = [ids[paid], pa.array(at[paid] + np.timedelta64(5, "s"), moment), fare[paid]]
        pq.write_table(pa.table(payments, ["trip", "paid", "amount"]), folder / f"payments/{file}.parquet")
    return folder


def document(sql: str, folder: Path, delay: str = "180s", **spec: Any) -> dict[str, Any]:
    """A query over the records, whose sink calls a function that does not exist: no comparison may open it."""
    sources = {
        name: {
            "files": {"path": str(folder / name), "format": "parquet", "maxFilesPerBatch": 1},
            "schema": schema,
            "watermark": {"column": TIMES[name], "delay": delay},
        }
        for name, schema in SCHEMAS.items()
        if name in sql
    }
    query = {"sql": sql} | {field: spec.pop(field) for field in ("functions",) if field in spec}
    sink = {"python": {"write": "no_such_module:write"}}
    made = {"sources": sources, "query": query, "sink": sink, "emit": "OnWindowClose"} | spec
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "compared"}, "spec": made}


@dataclass
class Versions:
    """An old version that has run, and new ones on its batches."""

    records: Path
    folder: Path
    old: VersionTask
    outcome: VersionOutcome
    runs: int = 0

    @classmethod
    def of(cls, sql: str, records: Path, folder: Path) -> Versions:
        task = task_of(document(sql, records), folder, "old", is_first=True)
        return cls(records, folder, task, run(task))

    def compared(self, sql: str, **spec: Any) -> tuple[OutputComparison, VersionOutcome]:
        """Run a new version; return how its results compare, and its batches."""
        self.runs += 1
        task = task_of(document(sql, self.records, **spec), self.folder, f"new{self.runs}")
        remembered = self.old.checkpoint / "sources"
        shutil.copytree(remembered, task.checkpoint / "sources")
        outcome = run(task)
        assert [each.rows for each in outcome.batches if each.rows] == [
            each.rows for each in self.outcome.batches if each.rows
        ]
        (output,) = compare_results(self.old.results, task.results, ignored=(), tolerance=1e-9, examples=2)
        return output, outcome


def task_of(made: dict[str, Any], folder: Path, name: str, *, is_first: bool = False) -> VersionTask:
    run_folder = folder / name
    run_folder.mkdir(parents=True)
    file = run_folder / "query.yaml"
    file.write_text(yaml.safe_dump(made), encoding="utf-8")
    return VersionTask(
        file=str(file),
        query="compared",
        name="compared",
        connections=(),
        folder=str(run_folder),
        ends=str(folder / "ends"),
        is_first=is_first,
        records=1 << 30,
        seconds=None,
        from_beginning=True,
    )


def run(task: VersionTask) -> VersionOutcome:
    return run_version(query_of(Path(task.file)), task)


def texts(output: OutputComparison) -> str:
    return "\n".join(each.text for each in output.findings)


@pytest.fixture(scope="module")
def groups(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    return Versions.of(SQL, records, tmp_path_factory.mktemp("groups"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_version_is_found_by_what_is_wrong(groups: Versions, wrong: str) -> None:
    version = WRONG[wrong]
    spec = {} if version.delay is None else {"delay": version.delay}
    output, outcome = groups.compared(version.of(SQL), **spec)
    assert not output.is_equal
    for text in version.said:
        assert text in texts(output)
    if spec:
        assert sum(each.late for each in outcome.batches) > sum(each.late for each in groups.outcome.batches)
    if "riders" not in wrong and len(version.said) == 2 and version.said[0] == "riders: ":
        assert {each.column for each in output.findings} == {"riders"}


@pytest.mark.timeout(600)
def test_what_a_state_lets_change_is_found_by_what_is_wrong(records: Path, tmp_path: Path) -> None:
    versions = Versions.of(CONTINUED, records, tmp_path)
    for version in (each for wrong, each in WRONG_ON_A_STATE.items() if wrong not in WRONG):
        output, _ = versions.compared(version.of(CONTINUED))
        for text in version.said:
            assert text in texts(output)


RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "columns and conditions in another order": (
        """
        SELECT city, from_utc_timestamp(window.start, 'Europe/Berlin') AS local, round(sum(fare), 2) AS total,
          count(1) AS n, count(DISTINCT rider) AS riders, window.start AS since
        FROM trips WHERE NOT (tip < 0) AND 5 < fare GROUP BY city, window(at, '60 seconds')
        """,
        {},
    ),
    "another partitioner and more workers": (SQL, {"partitioner": {"algorithm": "pkg"}, "parallelism": {"initial": 3}}),
    "a column more": (SQL.replace("count(*) AS n", "count(*) AS n, max(tip) AS most"), {}),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("right", RIGHT)
def test_a_right_version_is_equal(groups: Versions, right: str) -> None:
    sql, spec = RIGHT[right]
    output, _ = groups.compared(sql, **spec)
    assert output.is_equal, texts(output)
    assert output.old_rows == output.new_rows > FILES
    assert output.old_digest == output.new_digest or output.tolerated


@pytest.mark.timeout(600)
def test_an_inner_join_in_place_of_a_left_one_is_found(records: Path, tmp_path: Path) -> None:
    versions = Versions.of(JOIN, records, tmp_path)
    output, _ = versions.compared(JOIN.replace("LEFT JOIN", "JOIN"))
    assert "all of them have NULL in amount" in texts(output)
    assert "only the new" not in texts(output)


@pytest.mark.timeout(900)
def test_a_slow_function_is_found(groups: Versions) -> None:
    """However slow the machine was, a batch waits for longer than any of the old version took."""
    longest = max(each.seconds for each in groups.outcome.batches)
    function = {"python": f"{compared_functions.__name__}:slowly", "returns": "DOUBLE"}
    sql = SQL.replace("sum(fare)", f"sum(slowly(fare, {2 * longest:.3f}D))")
    output, outcome = groups.compared(sql, functions={"slowly": function})
    assert output.is_equal, texts(output)
    speed = speed_of_runs(groups.outcome, outcome)
    assert speed.is_known
    assert speed.exceeds(1.5)
