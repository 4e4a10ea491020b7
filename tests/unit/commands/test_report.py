"""``millrace report``: what it writes, and what it says when it cannot."""

import json
import socket
from contextlib import closing

import pytest

from millrace_operator.commands import by_name, past_query
from millrace_operator.lifecycle.query_view import QueryView
from millrace_support.run_record import DecisionLine, EndLine, encode
from unit.page.recorded import a_start, an_incident, write
from unit.page.runs import BEGAN


@pytest.fixture
def record(tmp_path):
    *_, lines = an_incident()
    return write(tmp_path / "run.jsonl", lines)


def test_a_record_becomes_a_page_named_after_its_query(millrace, record, tmp_path):
    result = millrace("report", "run.jsonl")
    assert (result.status, result.err) == (0, "report=fares-report.html\n")
    assert (tmp_path / "fares-report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_page_can_go_to_standard_output_and_be_of_a_part_of_the_time(millrace, record):
    result = millrace("report", "run.jsonl", "-o", "-", "--since", "20s", "--until", "2013-01-01T12:00:50Z")
    assert (result.status, result.err) == (0, "")
    assert "2013-01-01 12:00:30 UTC" in result.out
    assert "2013-01-01 12:00:50 UTC" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.jsonl",), "the record none.jsonl cannot be read: No such file or directory"),
        (("query.yaml",), "query.yaml is not a record of a run; make one with millrace run --record FILE"),
        (("run.jsonl", "-n", "a"), "run.jsonl is a file, to which --namespace does not apply"),
        (
            ("run.jsonl", "--since", "soon"),
            '--since: "soon" is neither a duration nor a time; write a duration such as 30m',
        ),
        (("run.jsonl", "--since", "2030-01-01"), "the period begins at 2030-01-01 00:00:00 UTC, after its end"),
        (("run.jsonl", "-o", "none/x.html"), "none/x.html cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_reported_says_why(millrace, record, tmp_path, arguments, said):
    (tmp_path / "query.yaml").write_text("kind: StreamQuery\n", encoding="utf-8")
    millrace("report", *arguments).assert_failed(said)


@pytest.fixture
def query(monkeypatch, millrace):
    """A query on a cluster, of which the API server knows no events."""
    document = json.loads(encode(a_start()))["query"]
    document["metadata"] |= {"namespace": "ns", "uid": "1"}
    monkeypatch.setattr(past_query.UserQueries, "get", lambda *_: QueryView(document))
    monkeypatch.setattr(past_query.UserQueries, "events", lambda *_: [])
    monkeypatch.setattr(by_name, "connected", lambda *_: None)


def test_a_query_on_a_cluster_needs_its_prometheus(millrace, query):
    millrace("report", "fares").assert_failed("needs the Prometheus that scrapes it; write --prometheus http://")
    millrace("report", "fares", "--prometheus", "prometheus:9090").assert_failed("--prometheus: ", "is not the URL")
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        millrace("report", "fares", "--prometheus", url).assert_failed(f"Prometheus at {url} does not answer")


def test_decisions_of_the_operator_are_between_the_batches(millrace, query, monkeypatch):
    at = {"lastTimestamp": "2013-01-01T12:00:10Z", "metadata": {}}
    event = {"reason": "ScaleOut", "message": "W was 1.2.", **at}
    other = {"reason": "Started", "message": "the driver runs", **at, "lastTimestamp": "2013-01-01T11:00:00Z"}
    drains = {"reason": "Draining", "message": "the driver ends after its running batch", **at}
    monkeypatch.setattr(past_query.UserQueries, "events", lambda *_: [event, other, drains])
    monkeypatch.setattr(past_query, "past_lines", lambda *_: [a_start(origin="P"), EndLine(BEGAN + 60, "drained")])
    counted = [
        DecisionLine(BEGAN + 1, None, "an older one", "operator"),
        DecisionLine(BEGAN + 10, None, "same", "operator"),
    ]
    monkeypatch.setattr(past_query, "counted_decisions", lambda *_: counted)
    period = ("--since", "2013-01-01T12:00:00Z", "--until", "2013-01-01T12:01:00Z")
    result = millrace("report", "fares", "--prometheus", "http://127.0.0.1:1", *period, "-o", "-")
    assert result.status == 0, result
    assert result.out.count("Decision of the operator") == 2
    assert "Draining: the driver ends after its running batch" in result.out, "not scaling, but a replacement"
    assert "ScaleOut: W was 1.2." in result.out
    assert "An older one." in result.out
    assert "Same." not in result.out
