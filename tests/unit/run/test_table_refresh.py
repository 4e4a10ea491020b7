"""Static tables that are read in the background: which content a batch has, what stays, and what is said."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.run import table_refresh
from millrace_jobs.run.table_refresh import RefreshedTables
from millrace_jobs.sources.static_tables import TableContents, TableRead

TOWNS = {
    "files": {"path": "towns.csv", "format": "csv"},
    "schema": "who STRING, town STRING",
    "table": {"keys": ["who"], "static": True, "refreshEvery": "1s"},
}


def spec_of(**towns: object) -> Spec:
    """Return a query with a table of towns."""
    events = {"files": {"path": "in", "format": "csv"}, "schema": "who STRING"}
    spec = {
        "sources": {"events": events, "towns": TOWNS | towns},
        "query": {"sql": "SELECT who FROM events"},
        "sink": {"console": {}},
        "batchInterval": "1s",
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "q"}, "spec": spec}
    return StreamQuery.model_validate(document).spec


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Return a context manager with the tables of a query, of which those have been read."""
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def opened(spec: Spec | None = None, oldest: object = None) -> Iterator[RefreshedTables]:
        found = RefreshedTables(spec or spec_of(), tmp_path / "tables", tmp_path, lambda: oldest)
        found.begin()
        try:
            found.wait(lambda: False)
            yield found
        finally:
            found.close()

    return opened


def write(text: str) -> None:
    """Replace the file of the table."""
    Path("new").write_text(text)
    Path("new").replace("towns.csv")


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def rows(tables: RefreshedTables, name: str | None = None) -> list[dict[str, str]]:
    """Return the rows of a content, or of the newest one."""
    _, place, _ = tables.tables()["towns"]
    return TableContents(place).load(name or tables.newest()["towns"]).to_pylist()


def test_a_batch_keeps_its_content(tables):
    write("who,town\na,Rome\n")
    with tables() as found:
        first = found.for_batch({})
        write("who,town\na,Oslo\n")
        wait_for(lambda: found.newest() != first)
        assert rows(found) == [{"who": "a", "town": "Oslo"}]
        assert found.for_batch({}) == found.newest()
    with tables() as again:  # of another driver, which repeats the batch
        assert again.for_batch(first) == first
        assert rows(again, first["towns"]) == [{"who": "a", "town": "Rome"}]
        assert again.newest() == found.newest(), "what has not changed is not stored again"


def test_a_refresh_that_fails_keeps_the_content_and_is_said_once(tables):
    write("who,town\na,Rome\n")
    with tables() as found:
        before = found.newest()
        write("who,town\na,Rome\na,Oslo\n")
        wait_for(lambda: found.states()["towns"].failures >= 2)
        assert found.newest() == before
        (said,) = found.messages()
        assert said.startswith("table towns cannot be refreshed, so it stays as of ")
        assert "2 rows with the key who = 'a'" in said
        write("who,town\na,Bonn\n")
        wait_for(lambda: found.newest() != before)
        wait_for(lambda: "table towns: refreshed again" in found.messages())


def test_a_read_that_fails_leaves_no_folder(tables, tmp_path):
    write("who,town\na,Rome\n")
    with tables() as found:
        write("who,city\na,Rome\n")
        wait_for(lambda: found.states()["towns"].failures >= 2)
    (thread,) = found._tables.values()
    thread.join(30)
    assert list((tmp_path / "static" / "towns").iterdir()) == []


def test_a_start_without_the_table_goes_on_with_its_content(tables):
    write("who,town\na,Rome\n")
    with tables() as found:
        first = found.newest()
    Path("towns.csv").unlink()
    with tables() as again:
        assert again.newest() == first
        assert any("cannot be refreshed" in each for each in again.messages())
        assert again.states()["towns"].current_at > 0
    other = spec_of(schema="who STRING, town STRING, n INT")
    with pytest.raises(MillraceError, match=r"towns\.csv"), tables(other):
        pass
    once = spec_of(table={"keys": ["who"], "static": True, "refreshEvery": "1s", "maxRows": 5})
    with tables(once) as bounded:  # limits do not decide what the rows are
        assert bounded.newest() == first


@pytest.mark.parametrize(("patience", "asked"), [(0.1, 1), (0.9, 2)])
def test_a_first_read_is_repeated_as_long_as_the_caller_says(tmp_path, monkeypatch, patience, asked):
    tries = []

    class Away:
        def read(self, known: str | None) -> TableRead:
            tries.append(known)
            raise TransientError(Problem("the server is away"))

    monkeypatch.setattr(table_refresh, "open_table", lambda *_: Away())
    monkeypatch.setattr(table_refresh, "Backoff", lambda *_: SimpleNamespace(next=lambda: 0.5))
    found = RefreshedTables(spec_of(), tmp_path / "tables", tmp_path, dict, patience)
    found.begin()
    with pytest.raises(TransientError, match="the server is away"):
        found.wait(lambda: False)
    assert len(tries) == asked


def test_a_table_that_is_too_large_is_refused(tables):
    write("who,town\n" + "".join(f"{n},{'x' * 60}\n" for n in range(20)))
    field = "spec.sources.towns.table"
    for limit, value, said in ("maxRows", 19, "more than 19 rows"), ("maxSize", "1k", "more than 1k in memory"):
        limited = spec_of(table=TOWNS["table"] | {limit: value})
        with pytest.raises(MillraceError, match=said) as raised, tables(limited):
            pass
        assert raised.value.problems[0].field == f"{field}.{limit}"
    with tables(spec_of(table=TOWNS["table"] | {"maxRows": 20, "maxSize": "2k"})) as found:
        assert found.states()["towns"].rows == 20


def test_another_schema_repeats_a_batch_with_the_newest_content(tables):
    write("who,town\na,Rome\n")
    with tables() as found:
        first = found.newest()
    with tables(spec_of(schema="town STRING, who STRING")) as again:
        assert again.for_batch(first) == again.newest() != first
        assert any("repeated with the newest content" in each for each in again.messages())


def test_old_contents_of_a_table_are_removed(tables, tmp_path):
    folder = tmp_path / "tables" / "towns"
    oldest: dict[str, str] = {}
    write("who,town\na,Rome\n")
    with tables(oldest=oldest) as found:
        used = [found.for_batch({})["towns"]]
        for town in ("Oslo", "Bonn", "Bern"):
            write(f"who,town\na,{town}\n")
            before = found.newest()
            wait_for(lambda before=before: found.newest() != before)
            if town != "Oslo":
                used.append(found.for_batch({})["towns"])
        oldest["towns"] = used[1]
        write("who,town\na,Kyiv\n")
        wait_for(lambda: found.newest()["towns"] not in used)
        last = found.newest()["towns"]
        wait_for(lambda: {each.stem for each in folder.iterdir()} == {*used[1:], last})


def test_a_read_that_is_under_way_ends_with_the_run(tables, monkeypatch):
    opened: list[str] = []
    given: list[int] = []

    class Endless:
        def __init__(self, name: str, *_: object) -> None:
            opened.append(name)

        def read(self, known: str | None) -> TableRead:
            return TableRead(None, self._records(None if given else 1))

        def _records(self, most: int | None) -> Iterator[pa.RecordBatch]:
            for number in islice(count(), most):
                given.append(number)
                time.sleep(0.01)
                yield pa.RecordBatch.from_pylist([{"who": str(number), "town": "Oslo"}])

    monkeypatch.setattr(table_refresh, "open_table", Endless)
    with tables() as found:
        before = found.newest()
        wait_for(lambda: len(given) > 1)
    (thread,) = found._tables.values()
    thread.join(30)
    assert not thread.is_alive()
    assert found.newest() == before
    assert opened == ["towns"], "its second read needs no other login"
