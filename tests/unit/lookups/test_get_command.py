"""``millrace get`` for a run on this machine: what it prints, its exit status, and what it says where it cannot."""

import json
import sys
from contextlib import closing
from types import SimpleNamespace

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import checkpoint_root
from millrace_jobs.cli import main
from millrace_jobs.run.lookups import TableLookups, table_url
from spark.cli import Result

from .tables import ROUTE, filled, served, text

ROWS = {
    text(origin=origin, number=number): text(origin=origin, number=number, delay=delay)
    for origin, number, delay in (("EWR", 5, None), ("JFK", 10, {"p50": 1.5, "all": [1, None]}))
} | {b'{"origin":"\\u001B[2J","number":1}': text(origin="\x1b[2J", number=1, delay="x\n")}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    store = filled(
        folder, ROWS | {text(origin="LGA", number=1): b'{"origin":"LGA","number":1,"delay":1.10}'}, batch=1204
    )
    with served(folder, ROUTE, "flights") as process:
        yield process.url
    store.close()


@pytest.fixture
def millrace(tmp_path, monkeypatch, capfd):
    """Runs a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return Result(end.value.code, *capfd.readouterr())

    return run


def query_file(folder, name="flights", **sink):
    spec = {
        "sources": {"flights": {"rate": {"recordsPerSecond": 1}}},
        "query": {"sql": "SELECT value, count(*) AS n FROM flights GROUP BY value"},
        "sink": sink or {"table": {"bootstrapServers": "kafka:9092", "topic": "flights"}},
        "emit": "OnUpdate",
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": name}, "spec": spec}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def test_rows_are_printed_as_a_table(millrace, url):
    result = millrace("get", url, "JFK,10", "LGA,1", "EWR,5")
    assert (result.status, result.err) == (0, "")
    assert [line.rstrip() for line in result.out.splitlines()] == [
        "origin  number  delay",
        'JFK         10  {"p50": 1.5, "all": [1, null]}',
        "LGA          1  1.10",
        "EWR          5  NULL",
        "3 rows of flights as of batch 1204",
    ]


def test_a_key_without_a_row_is_status_1(millrace, url):
    result = millrace("get", url, "JFK,10", "JFK,11")
    assert result.status == 1
    assert result.out.splitlines()[-2:] == ["1 row of flights as of batch 1204", "no row has the key JFK,11"]
    result = millrace("get", url, "JFK,11", "--format", "json")
    assert (result.status, json.loads(result.out)["rows"]) == (1, [None])


def test_json_is_the_answer_as_it_is(millrace, url):
    result = millrace("get", url, "LGA,1", "--format", "json")
    assert result.status == 0
    assert result.out == (
        '{"query": "flights", "batch": 1204, "key": ["origin", "number"], "next": null, '
        '"rows": [{"origin":"LGA","number":1,"delay":1.10}]}\n'
    )


def test_rows_are_read_in_pages_and_by_prefix(millrace, url):
    first = millrace("get", url, "--limit", "3")
    *_, last = first.out.splitlines()
    assert last.startswith("there are more rows: --after ")
    second = millrace("get", url, "--limit", "3", "--after", last.split()[-1])
    assert "1 row of flights as of batch 1204" in second.out
    assert "more" not in second.out
    assert "2 rows" in millrace("get", url, "--prefix", "*", "--limit", "2").out
    nothing = millrace("get", url, "--prefix", "SFO")
    assert (nothing.status, nothing.out) == (0, "0 rows of flights as of batch 1204\n")


def test_rows_cannot_control_the_terminal(millrace, url):
    result = millrace("get", url, '["\\u001b[2J", 1]')
    assert "\x1b" not in result.out
    assert r"\x1b[2J" in result.out
    assert r"x\n" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["JFK"], "the key 'JFK' has 1 value: write one for each of origin, number"),
        (["--prefix"], "--prefix takes one KEY, not 0"),
        (["--prefix", "a", "b"], "--prefix takes one KEY, not 2"),
        (["a,1", "--limit", "2"], "limit cannot be combined with key"),
        (["--limit", "5000"], "limit '5000' is not a number of rows: write 1 to 1000"),
        (["--window", "2024-01-01", "a"], "none of which is a window"),
    ],
)
def test_keys_and_options_that_do_not_fit_are_refused(millrace, url, arguments, said):
    millrace("get", url, *arguments).assert_failed(said)


def test_a_url_where_nothing_answers_is_one_sentence(millrace):
    millrace("get", "http://127.0.0.1:1/table").assert_failed(
        "no look-ups are answered at 127.0.0.1:1: connection refused; check that the query runs"
    )
    millrace("get", "http://nowhere").assert_failed(
        "http://nowhere is not a URL of look-ups; write it as http://127.0.0.1:"
    )


def test_a_query_without_a_result_table_is_refused(millrace, tmp_path):
    query_file(tmp_path, console={"rows": 5})
    millrace("get", "flights.yaml", "a").assert_failed(
        "flights.yaml:",
        "flights has no result table to look rows up in: its results go to the sink console",
        "sink.table",
    )


def test_a_query_that_does_not_run_is_refused(millrace, tmp_path):
    query_file(tmp_path)
    millrace("get", "flights.yaml", "a").assert_failed(
        "flights does not run on this machine: there is no ", "lookups.json; start it with millrace run flights.yaml"
    )


def test_the_run_of_a_file_is_found_by_its_checkpoint(millrace, url, tmp_path):
    query_file(tmp_path)
    place = tmp_path / ".millrace" / "flights" / "lookups.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"url": url}), encoding="utf-8")
    assert millrace("get", "flights.yaml", "JFK,10").status == 0


def test_another_query_on_the_port_of_a_dead_run_is_not_read(millrace, url, tmp_path):
    query_file(tmp_path, "delays")
    place = tmp_path / ".millrace" / "delays" / "lookups.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"url": url}), encoding="utf-8")
    millrace("get", "delays.yaml").assert_failed("delays does not run on this machine: flights answers at 127.0.0.1:")


def test_a_run_leaves_no_file_and_no_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    query = SimpleNamespace(
        name="flights",
        spec=SimpleNamespace(checkpoint=None, sink=SimpleNamespace(table=SimpleNamespace(by_partition=False))),
    )
    root = checkpoint_root(query)
    root.mkdir(parents=True)
    lookups = TableLookups(tmp_path, "flights", ROUTE, 0)
    url = lookups.listen(query)
    assert table_url(query, tmp_path / "flights.yaml") == url
    lookups.close()
    lookups.close()
    with pytest.raises(MillraceError, match="does not run on this machine"):
        table_url(query, tmp_path / "flights.yaml")
    assert list(root.iterdir()) == []


def test_rows_that_cannot_be_mapped_among_the_copies_are_in_the_folder_of_the_run(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    run, copies = tmp_path / "run", tmp_path / "copies"
    run.mkdir()
    (copies / "table" / "lock.mdb").mkdir(parents=True)  # which LMDB cannot open, as on a disk without locks
    with closing(TableLookups(run, "flights", ROUTE, 0, copies=copies)) as lookups:
        assert (run / "table" / "data.mdb").exists()
        assert not (copies / "table").exists()
        lookups.view._store.publish(3)
        assert lookups.view._store.claimed() is None  # no later run continues it
    (warning,) = (record for record in caplog.records if record.name == "millrace_jobs.run.lookups")
    assert f"cannot be in {copies / 'table'}" in warning.getMessage()
