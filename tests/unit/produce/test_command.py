"""``millrace produce`` as far as it goes without a broker: what it refuses at once, in one sentence."""

import sys

import pytest

from millrace_jobs.cli import main

QUERY = """
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: rides}
spec:
  sources:
    rides:
      kafka: {bootstrapServers: "127.0.0.1:1", topic: rides}
      schema: taxi STRING, fare DOUBLE
    zones:
      kafka: {bootstrapServers: "127.0.0.1:1", topics: [one, two]}
      schema: zone STRING
    framed:
      kafka: {connection: framed, topic: framed}
      format: avro
      avro: {}
      schema: zone STRING
    secret:
      kafka: {connection: secret, topic: secret}
      schema: zone STRING
    plain:
      files: {path: "x.csv", format: csv}
      schema: zone STRING
  query: {sql: "SELECT taxi FROM rides"}
  sink: {console: {}}
---
apiVersion: millrace.io/v1alpha1
kind: Connection
metadata: {name: framed}
spec: {kafka: {bootstrapServers: "127.0.0.1:1", registry: {url: "http://127.0.0.1:1"}}}
---
apiVersion: millrace.io/v1alpha1
kind: Connection
metadata: {name: secret}
spec:
  kafka:
    bootstrapServers: "127.0.0.1:1"
    sasl: {mechanism: PLAIN, username: {env: NOBODY_SETS_THIS}, password: {env: NOR_THIS}}
"""


@pytest.fixture
def produce(tmp_path, monkeypatch, capfd):
    """The command in a folder with ``rides.csv`` and ``query.yaml``: exit status and what it said."""
    (tmp_path / "rides.csv").write_text("taxi,fare\na,1.5\n")
    (tmp_path / "query.yaml").write_text(QUERY)
    (tmp_path / "trace.csv").write_text("at,rate\n0,5\n9,7\n")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["millrace", "produce", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capfd.readouterr().err

    return run


SERVERS = ("--bootstrap-servers", "127.0.0.1:1")
NAMED = ("--topic", "rides", *SERVERS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--topic is missing; write both, or name the YAML file"),
        (("--topic", "rides"), "--bootstrap-servers is missing"),
        (("--topic", "", *SERVERS), "--topic is missing"),
        (("--topic", "rides", "--bootstrap-servers", ""), "--bootstrap-servers is missing"),
        (NAMED, "exactly one of --input and --generate is needed"),
        ((*NAMED, "--input", "rides.csv", "--generate", "rate"), "exactly one of --input and --generate is needed"),
        ((*NAMED, "--input", "none.csv"), "none.csv: there is no such file"),
        ((*NAMED, "--input", "s3a://lake/a.csv"), "s3a:/lake/a.csv: the scheme s3a: is not supported"),
        (
            (*NAMED, "--input", "file:///none.csv"),
            "file:/none.csv: is a URI, and a path is written without a scheme; write /none.csv",
        ),
        ((*NAMED, "--generate", "bids"), "--generate bids is unknown; write one of rate, bid, auction, person"),
        ((*NAMED, "--generate", "bid", "--format", "avro"), "--format avro is unknown; write json, csv or raw"),
        ((*NAMED, "--generate", "bid", "--format", "raw"), "format raw sends the lines of a file as they are"),
        (
            (*NAMED, "--generate", "rate", "--key", "fare"),
            "--key fare is not a column of the records; write one of timesta",
        ),
        ((*NAMED, "--generate", "rate", "--rate", "0"), "--rate is 0; write a number above 0"),
        ((*NAMED, "--generate", "rate", "--rate", "nan"), "--rate is nan; write a number above 0"),
        ((*NAMED, "--generate", "rate", "--rate", "1", "--rate-trace", "trace.csv"), "--rate and --rate-trace exclude"),
        ((*NAMED, "--generate", "rate", "--rate-trace", "none.csv"), "none.csv: cannot be read as a rate trace"),
        ((*NAMED, "--generate", "rate", "--drift", "5"), "--drift 5 is not a duration longer than zero; write whole n"),
        ((*NAMED, "--generate", "rate", "--duration", "0s"), "--duration 0s is not a duration longer than zero"),
        ((*NAMED, "--generate", "rate", "--start", "noon"), "--start noon is not a time; write it as 2026-01-31T12"),
        (("query.yaml", "--generate", "rate"), "query.yaml: the file has the Kafka sources rides.rides, rides.zones,"),
        (
            ("query.yaml", "--source", "plain"),
            "query.yaml: the file has no Kafka source plain; write another --source",
        ),
        (("query.yaml", "--query", "other"), "query.yaml: the file has no query other; write one of rides"),
        (
            ("query.yaml", "--source", "zones"),
            "query.yaml: the source may read several topics; choose one with --topic",
        ),
        (("query.yaml", "--source", "framed"), "query.yaml: the source's messages have the framing of a schema regis"),
        (
            ("query.yaml", "--source", "rides", *SERVERS),
            "query.yaml: --bootstrap-servers 127.0.0.1:1 is set by the query",
        ),
        (("query.yaml", "--source", "rides", "--format", "csv"), "query.yaml: --format csv is set by the query"),
        (
            ("query.yaml", "--source", "secret", "--input", "rides.csv", "--schema", "taxi STRING"),
            "the user name for Kafka at 127.0.0.1:1 is read from the environment variable NOBODY_SETS_THIS",
        ),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_in_one_sentence(produce, arguments, said):
    status, error = produce(*arguments)
    assert status == 1
    assert error.startswith(f"error: {said}"), error
    assert error.count("\n") == 1


def test_a_cluster_that_is_not_there_is_named(produce):
    status, error = produce("query.yaml", "--source", "rides", "--input", "rides.csv")
    assert status == 1
    assert error.startswith("error: Kafka at 127.0.0.1:1 cannot be reached")
    assert error.count("\n") == 1
