"""What is refused before the state of a running query is copied, each with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.varying import call_of_the_run
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.run import running_state
from millrace_jobs.run.running_state import is_running, repartition_running
from spark_logs import Log, offset


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Makes a query on a checkpoint with a finished batch and state, where its offsets are those given."""

    def make(*offsets: Any, **changes: Any) -> Any:
        query = a_query("spec", "checkpoint", value={"uri": (tmp_path / "checkpoint").as_uri()})
        spec = query.spec.model_copy(update={name: value for name, value in changes.items() if name != "sql"})
        if "sql" in changes:
            spec = spec.model_copy(update={"query": spec.query.model_copy(update={"sql": changes["sql"]})})
        query = query.model_copy(update={"spec": spec})
        checkpoint = Checkpoint(tmp_path / "checkpoint")
        checkpoint.open(query, 2)
        log = Log(checkpoint)
        log.begin(0, *(offsets or [offset(0)]))
        log.commit(0)
        (checkpoint.spark / "state").mkdir()
        assert is_running(query)
        checkpoint.close()
        assert not is_running(query)
        return query

    return make


def refusal(query: Any, partitions: int) -> str:
    with pytest.raises(MillraceError) as refused:
        repartition_running(query, partitions, lambda _: None)
    return str(refused.value)


def test_a_number_beyond_parallelism_is_refused(make: Any) -> None:
    query = make()
    most = query.spec.parallelism.max
    for partitions in (0, most + 1):
        assert f"write a number from 1 to {most}" in refusal(query, partitions)
    assert repartition_running(query, 2, lambda _: None) == 2  # it has as many


@pytest.mark.parametrize(
    "call",
    [
        "rand()",
        "rand /* x */ (3)",
        "NOW( )",
        "current_timestamp",
        "uuid()",
        "current_date",
        "localtimestamp",
        "unix_timestamp()",
    ],
)
def test_values_that_differ_when_a_batch_is_repeated_are_refused(make: Any, call: str) -> None:
    query = make(sql=f"SELECT max({call}) AS x, count(*) FROM trips GROUP BY window(at, '1 minute')")
    assert "has another value when a batch is repeated" in refusal(query, 4)


def test_columns_and_texts_that_are_called_like_such_functions_are_not_refused() -> None:
    query = parsed_query("SELECT random, `now`, trips.now, uuid, 'rand()', unix_timestamp(at) FROM trips")
    assert call_of_the_run(query.tree) is None


def test_a_source_that_is_read_twice_is_refused(make: Any) -> None:
    assert "source trips is read twice" in refusal(make(offset(1), offset(2)), 4)


def test_several_watermarks_are_refused(make: Any) -> None:
    query = make()
    (source,) = query.spec.sources.values()
    both = query.model_copy(update={"spec": query.spec.model_copy(update={"sources": {"one": source, "two": source}})})
    assert source.watermark is not None
    assert "sources one and two have watermarks" in refusal(both, 4)


def test_too_little_room_is_refused_before_anything_is_copied(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query = make()
    monkeypatch.setattr(running_state, "files_below", lambda _: [("state", 1 << 60)])
    assert "a copy of the state needs about" in refusal(query, 4)


def test_a_second_copier_is_refused(make: Any, tmp_path: Path) -> None:
    query = make()
    first = running_state.Handover(tmp_path / "checkpoint")
    first.begin()
    assert "another process repartitions the state" in refusal(query, 4)
    first.end()
