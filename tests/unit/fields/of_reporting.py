"""Probes of what a query reports beside metrics: labels of its pods, Spark's event log, and lineage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.event_log import EventLog
from millrace_jobs.lineage.transports import HttpTransport, transport_of
from millrace_jobs.run.run_lineage import RunLineage
from millrace_jobs.secrets import Secret

from .documents import KAFKA, ON_CLUSTER, query
from .of_deployment import made, spark_settings
from .of_kafka import ENV, secret_probes
from .probe import ABSENT, Probe, probes, written


def kept_runs(asked: StreamQuery) -> object:
    """Return the runs that are recorded after nine of them."""
    with TemporaryDirectory() as name:
        spec = asked.spec.event_log
        assert spec is not None
        log = EventLog(Path(name), spec, asked.name, "owner")
        for number in range(9):
            log.begin(f"local-{number}")
        return log.runs()


def transport(asked: StreamQuery) -> object:
    """Return where the events of a query go."""
    return None if asked.spec.lineage is None else transport_of(asked.spec.lineage)


def job(asked: StreamQuery) -> object:
    """Return the namespace of the job in its events, and the time between two of them."""
    assert asked.spec.lineage is not None
    lineage = RunLineage(asked, asked.spec.lineage, lambda _: None)
    lineage.sender.close(0)
    return lineage._run.namespace, lineage._interval


def references(asked: StreamQuery) -> Iterator[tuple[str, Secret]]:
    """Yield the references to the secrets of the receiver."""
    found = transport(asked)
    if isinstance(found, HttpTransport):
        yield from ((name, each) for name, each in (("key", found.api_key), ("ca", found.ca)) if each is not None)


def of_reporting() -> Iterator[Probe]:
    """Yield the probes of labels, event log and lineage."""
    values = (ABSENT, {"team": "payments"}, {"millrace.io/query": "other"})
    yield from probes(ON_CLUSTER, made("StatefulSet"), "spec", labels=values)
    base = query(KAFKA)
    logged = written(ON_CLUSTER, "spec.eventLog", {"path": "/data/events"})
    yield Probe("spec.eventLog", ON_CLUSTER, (ABSENT, {"path": "/data/events"}), spark_settings)
    paths = ("/data/events", "/data/others", "s3a://Lake")
    yield from probes(logged, spark_settings, "spec.eventLog", path=paths)
    yield from probes(logged, kept_runs, "spec.eventLog", runs=(3, 1))
    receiver = {"url": "https://marquez:5000/api/v1/lineage"}
    sent = written(base, "spec.lineage", {"http": receiver})
    yield Probe("spec.lineage", base, (ABSENT, {"http": receiver}), transport)
    yield Probe("spec.lineage.http", written(base, "spec.lineage", {}), (ABSENT, receiver), transport)
    yield Probe("spec.lineage.file", written(base, "spec.lineage", {}), (ABSENT, "one.jsonl", "two.jsonl"), transport)
    yield from probes(sent, job, "spec.lineage", namespace=(ABSENT, "streams"), interval=("5m", "1m"))
    urls = (receiver["url"], "http://marquez:5000/api/v1/lineage", "marquez")
    yield from probes(sent, transport, "spec.lineage.http", url=urls, apiKey=(ABSENT, *ENV), ca=(ABSENT, *ENV))
    secrets = [
        (f"spec.lineage.http.{name}", written(sent, f"spec.lineage.http.{name}", ENV[0])) for name in ("apiKey", "ca")
    ]
    yield from secret_probes(secrets, transport, references)
